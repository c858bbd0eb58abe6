// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A request to a push service, and its response.
 *
 * @param sentAt RFC 3339, UTC.
 * @param tookMs Milliseconds until the response, or until the node gave up.
 * @param url It contains the push token, or names the subscription, for APNs and Web Push.
 * @param headers Without {@code authorization}.
 * @param body The payload: JSON as it was sent, other text as a string, anything else as <code>&#123;"base64": …&#125;
 *     </code>. For Web Push it is the content before encryption.
 * @param response Absent if there was no response.
 * @param reason Why the push service did not accept the push, such as {@code BadDeviceToken}, or why there was no
 *     response, such as {@code timeout}. Absent if it was accepted.
 */
public record PushAttempt(
        @JsonProperty("sent_at") Instant sentAt,
        @JsonProperty("took_ms") double tookMs,
        String url,
        Map<String, String> headers,
        @Nullable Object body,
        @Nullable PushAttemptResponse response,
        @Nullable String reason) {}
