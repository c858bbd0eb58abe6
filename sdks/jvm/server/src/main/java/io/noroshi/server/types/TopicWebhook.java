// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param url An https URL. The operator may also set an http URL.
 * @param secret {@code whsec_} and 24 to 64 bytes in base64. Signs the requests (Standard Webhooks). Never shown.
 *     Absent: unchanged.
 * @param secretSet In responses.
 * @param timeout At most 10 seconds. Default: 3 seconds.
 * @param expiresIn How long to cache an answer without its own duration. At most one day.
 */
public record TopicWebhook(
        String url,
        @Nullable String secret,
        @JsonProperty("secret_set") @Nullable Boolean secretSet,
        @Nullable String timeout,
        @JsonProperty("expires_in") @Nullable String expiresIn) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link TopicWebhook}. */
    public static final class Builder {
        private @Nullable String url;
        private @Nullable String secret;
        private @Nullable Boolean secretSet;
        private @Nullable String timeout;
        private @Nullable String expiresIn;

        private Builder() {}

        /** An https URL. The operator may also set an http URL. */
        public Builder url(String url) {
            this.url = url;
            return this;
        }

        /**
         * {@code whsec_} and 24 to 64 bytes in base64. Signs the requests (Standard Webhooks). Never shown. Absent:
         * unchanged.
         */
        public Builder secret(@Nullable String secret) {
            this.secret = secret;
            return this;
        }

        /** In responses. */
        public Builder secretSet(@Nullable Boolean secretSet) {
            this.secretSet = secretSet;
            return this;
        }

        /** At most 10 seconds. Default: 3 seconds. */
        public Builder timeout(@Nullable String timeout) {
            this.timeout = timeout;
            return this;
        }

        /** How long to cache an answer without its own duration. At most one day. */
        public Builder expiresIn(@Nullable String expiresIn) {
            this.expiresIn = expiresIn;
            return this;
        }

        public TopicWebhook build() {
            return new TopicWebhook(Objects.requireNonNull(url, "url"), secret, secretSet, timeout, expiresIn);
        }
    }
}
