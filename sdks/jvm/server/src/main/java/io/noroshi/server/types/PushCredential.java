// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A credential without its secrets.
 *
 * @param id {@code id}
 * @param service {@code service}
 * @param environment {@code environment}
 * @param name {@code name}
 * @param settings Public parts: ids, and a fingerprint.
 * @param createdAt RFC 3339, UTC.
 */
public record PushCredential(
        String id,
        PushService service,
        ApnsEnvironment environment,
        String name,
        Map<String, @Nullable Object> settings,
        @JsonProperty("created_at") Instant createdAt) {}
