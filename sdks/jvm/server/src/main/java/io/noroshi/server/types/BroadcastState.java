// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id Also {@code apns-request-id} of every attempt.
 * @param channel {@code channel}
 * @param notification The notification that it was published with.
 * @param state {@code sent}: Apple accepted it. Apple does not report what devices received.
 * @param reason Of Apple or of Noroshi, for the last attempt.
 * @param attempts {@code attempts}
 * @param priority {@code priority}
 * @param replaceable {@code replaceable}
 * @param acceptedAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC.
 * @param endedAt RFC 3339, UTC.
 * @param requests The attempts that the node recorded ({@code push.record_retention}), oldest first: the newest 100.
 *     Only in the answer to a request for this broadcast. Absent if there is none.
 */
public record BroadcastState(
        String id,
        String channel,
        @Nullable String notification,
        BroadcastStateState state,
        @Nullable String reason,
        long attempts,
        int priority,
        boolean replaceable,
        @JsonProperty("accepted_at") Instant acceptedAt,
        @JsonProperty("expires_at") Instant expiresAt,
        @JsonProperty("ended_at") @Nullable Instant endedAt,
        @Nullable List<PushAttempt> requests) {}
