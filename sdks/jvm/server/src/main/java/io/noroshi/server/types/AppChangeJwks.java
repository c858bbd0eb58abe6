// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * RS256 and ES256 keys, inline (RFC 7517).
 *
 * @param keys {@code keys}
 */
public record AppChangeJwks(List<Map<String, @Nullable Object>> keys) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link AppChangeJwks}. */
    public static final class Builder {
        private @Nullable List<Map<String, @Nullable Object>> keys;

        private Builder() {}

        /** {@code keys} */
        public Builder keys(List<Map<String, @Nullable Object>> keys) {
            this.keys = keys;
            return this;
        }

        public AppChangeJwks build() {
            return new AppChangeJwks(Objects.requireNonNull(keys, "keys"));
        }
    }
}
