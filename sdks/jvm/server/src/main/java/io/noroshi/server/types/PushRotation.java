// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * Exactly one of {@code device} and {@code push_token}.
 *
 * @param credential The fields to change, as in {@code NewPushCredential}; {@code null} removes one. {@code service},
 *     {@code environment} and the name of a provider cannot change. {@code previous_secret} is not kept: give it again
 *     if it still counts.
 * @param device A registered device, by its main token; with a credential of {@code webhook}, by its token of that
 *     provider.
 * @param pushToken {@code push_token}
 */
public record PushRotation(
        Map<String, @Nullable Object> credential,
        @Nullable String device,
        @JsonProperty("push_token") @Nullable PushToken pushToken) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link PushRotation}. */
    public static final class Builder {
        private @Nullable Map<String, @Nullable Object> credential;
        private @Nullable String device;
        private @Nullable PushToken pushToken;

        private Builder() {}

        /**
         * The fields to change, as in {@code NewPushCredential}; {@code null} removes one. {@code service},
         * {@code environment} and the name of a provider cannot change. {@code previous_secret} is not kept: give it
         * again if it still counts.
         */
        public Builder credential(Map<String, @Nullable Object> credential) {
            this.credential = credential;
            return this;
        }

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

        public PushRotation build() {
            return new PushRotation(Objects.requireNonNull(credential, "credential"), device, pushToken);
        }
    }
}
