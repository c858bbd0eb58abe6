// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param name {@code name}
 * @param scopes {@code scopes}
 * @param expiresAt From then on requests with the key get {@code 401}. In the future, at most 10 years ahead. Default:
 *     never.
 */
public record NewKey(String name, List<Scope> scopes, @JsonProperty("expires_at") @Nullable Instant expiresAt) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewKey}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable List<Scope> scopes;
        private @Nullable Instant expiresAt;

        private Builder() {}

        /** {@code name} */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** {@code scopes} */
        public Builder scopes(List<Scope> scopes) {
            this.scopes = scopes;
            return this;
        }

        /**
         * From then on requests with the key get {@code 401}. In the future, at most 10 years ahead. Default: never.
         */
        public Builder expiresAt(@Nullable Instant expiresAt) {
            this.expiresAt = expiresAt;
            return this;
        }

        public NewKey build() {
            return new NewKey(
                    Objects.requireNonNull(name, "name"), Objects.requireNonNull(scopes, "scopes"), expiresAt);
        }
    }
}
