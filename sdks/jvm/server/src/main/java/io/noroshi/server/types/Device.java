// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param user A user id, chosen by the app: 1 to 255 bytes without control characters.
 * @param platform {@code platform}
 * @param locale {@code locale}
 * @param timezone {@code timezone}
 * @param appVersion {@code app_version}
 * @param tags {@code tags}
 * @param topics {@code topics}
 * @param pushToken As registered. Removed once the push service reports it invalid.
 * @param pushSuspect The push token is suspended since then, because the push service reported that it belongs to
 *     another environment, topic or sender. Registering it again resumes it.
 * @param pushTokens All push tokens without the tokens themselves, the main one first.
 * @param presence {@code presence}
 * @param createdAt RFC 3339, UTC.
 * @param lastSeen The day (UTC) when the device was last seen; see the filters of the list of devices. Null: not since
 *     the database was upgraded to a version that records it. Absent in answers of older versions.
 * @param endpoints Number of Web Push endpoints. Only for a single device, not in lists.
 */
public record Device(
        String device,
        @Nullable String user,
        @Nullable Platform platform,
        @Nullable String locale,
        @Nullable String timezone,
        @JsonProperty("app_version") @Nullable String appVersion,
        Map<String, String> tags,
        List<String> topics,
        @JsonProperty("push_token") @Nullable PushToken pushToken,
        @JsonProperty("push_suspect") @Nullable DevicePushSuspect pushSuspect,
        @JsonProperty("push_tokens") List<DevicePushToken> pushTokens,
        Presence presence,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("last_seen") @Nullable String lastSeen,
        @Nullable Long endpoints) {}
