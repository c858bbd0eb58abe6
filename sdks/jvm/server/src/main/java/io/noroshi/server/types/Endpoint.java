// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id The value of {@code data.web_push.endpoint} in its messages.
 * @param url The address for application servers: anyone who knows it may post. Only in the response that creates it.
 * @param label A name given by the device.
 * @param vapidKey VAPID public key: an uncompressed P-256 point in base64url. Only its owner may post (RFC 8292).
 * @param idleUrgency An idle device receives messages of at least this urgency; others wait until it is in use (RFC
 *     8030 §5.3). Default: {@code normal}.
 * @param createdAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC.
 */
public record Endpoint(
        String id,
        @Nullable String url,
        @Nullable String label,
        @JsonProperty("vapid_key") @Nullable String vapidKey,
        @JsonProperty("idle_urgency") Urgency idleUrgency,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("expires_at") @Nullable Instant expiresAt) {}
