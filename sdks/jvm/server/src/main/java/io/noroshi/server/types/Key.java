// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param id {@code id}
 * @param name {@code name}
 * @param scopes {@code scopes}
 * @param createdAt RFC 3339, UTC.
 * @param expiresAt RFC 3339, UTC. From then on requests with the key get {@code 401}. {@code null}: never.
 * @param key Only in the response that creates it.
 */
public record Key(
        String id,
        String name,
        List<Scope> scopes,
        @JsonProperty("created_at") Instant createdAt,
        @JsonProperty("expires_at") @Nullable Instant expiresAt,
        @Nullable String key) {}
