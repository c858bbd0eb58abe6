// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param state {@code state}
 * @param announcedAt RFC 3339, UTC.
 * @param startsAt RFC 3339, UTC.
 * @param endsAt RFC 3339, UTC.
 * @param notification {@code notification}
 * @param data As defined.
 * @param locales {@code locales}
 * @param createdAt RFC 3339, UTC.
 * @param updatedAt RFC 3339, UTC.
 */
public record Notice(
        String name,
        NoticeState state,
        @JsonProperty("announced_at") @Nullable Instant announcedAt,
        @JsonProperty("starts_at") Instant startsAt,
        @JsonProperty("ends_at") Instant endsAt,
        @Nullable Map<String, @Nullable Object> notification,
        @Nullable Object data,
        Map<String, NoticeLocale> locales,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("updated_at") Instant updatedAt) {}
