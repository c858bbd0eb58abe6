// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * An entry of a user's notification centre.
 *
 * @param id The notification.
 * @param state {@code state}
 * @param category {@code category}
 * @param createdAt When the notification was accepted. RFC 3339, UTC.
 * @param changedAt When the state changed last. RFC 3339, UTC.
 * @param expiresAt It is not listed from then on. RFC 3339, UTC.
 * @param notification {@code notification}
 * @param data Any JSON, as in the request.
 */
public record Item(
        String id,
        ItemState state,
        @Nullable String category,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("changed_at") Instant changedAt,
        @JsonProperty("expires_at") Instant expiresAt,
        @Nullable Shown notification,
        @Nullable Object data) {}
