// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * Exactly one of the two.
 *
 * @param device A registered device, by its main token; with a credential of {@code webhook}, by its token of that
 *     provider.
 * @param pushToken {@code push_token}
 */
public record PushTest(@Nullable String device, @JsonProperty("push_token") @Nullable PushToken pushToken) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link PushTest}. */
    public static final class Builder {
        private @Nullable String device;
        private @Nullable PushToken pushToken;

        private Builder() {}

        /**
         * A registered device, by its main token; with a credential of {@code webhook}, by its token of that provider.
         */
        public Builder device(@Nullable String device) {
            this.device = device;
            return this;
        }

        /** {@code push_token} */
        public Builder pushToken(@Nullable PushToken pushToken) {
            this.pushToken = pushToken;
            return this;
        }

        public PushTest build() {
            return new PushTest(device, pushToken);
        }
    }
}
