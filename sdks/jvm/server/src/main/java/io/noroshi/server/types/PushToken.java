// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonSubTypes;
import com.fasterxml.jackson.annotation.JsonTypeInfo;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/** The device's token of a push service. At most 4 KiB of JSON. */
@JsonTypeInfo(use = JsonTypeInfo.Id.NAME, property = "service")
@JsonSubTypes({
    @JsonSubTypes.Type(value = PushToken.Apns.class, name = "apns"),
    @JsonSubTypes.Type(value = PushToken.Fcm.class, name = "fcm"),
    @JsonSubTypes.Type(value = PushToken.Webpush.class, name = "webpush"),
    @JsonSubTypes.Type(value = PushToken.Webhook.class, name = "webhook"),
    @JsonSubTypes.Type(value = PushToken.Hms.class, name = "hms"),
    @JsonSubTypes.Type(value = PushToken.Wns.class, name = "wns")
})
public sealed interface PushToken {

    /**
     * With {@code apns}.
     *
     * @param token {@code token}
     * @param environment {@code environment}
     * @param topic The app's bundle id, if it differs from the credential's.
     */
    record Apns(String token, @Nullable ApnsEnvironment environment, @Nullable String topic) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Apns}. */
        public static final class Builder {
            private @Nullable String token;
            private @Nullable ApnsEnvironment environment;
            private @Nullable String topic;

            private Builder() {}

            /** {@code token} */
            public Builder token(String token) {
                this.token = token;
                return this;
            }

            /** {@code environment} */
            public Builder environment(@Nullable ApnsEnvironment environment) {
                this.environment = environment;
                return this;
            }

            /** The app's bundle id, if it differs from the credential's. */
            public Builder topic(@Nullable String topic) {
                this.topic = topic;
                return this;
            }

            public Apns build() {
                return new Apns(Objects.requireNonNull(token, "token"), environment, topic);
            }
        }
    }

    /**
     * With {@code fcm}.
     *
     * @param token {@code token}
     */
    record Fcm(String token) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Fcm}. */
        public static final class Builder {
            private @Nullable String token;

            private Builder() {}

            /** {@code token} */
            public Builder token(String token) {
                this.token = token;
                return this;
            }

            public Fcm build() {
                return new Fcm(Objects.requireNonNull(token, "token"));
            }
        }
    }

    /**
     * With {@code webpush}.
     *
     * @param endpoint {@code endpoint}
     * @param keys {@code keys}
     */
    record Webpush(String endpoint, WebPushKeys keys) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Webpush}. */
        public static final class Builder {
            private @Nullable String endpoint;
            private @Nullable WebPushKeys keys;

            private Builder() {}

            /** {@code endpoint} */
            public Builder endpoint(String endpoint) {
                this.endpoint = endpoint;
                return this;
            }

            /** {@code keys} */
            public Builder keys(WebPushKeys keys) {
                this.keys = keys;
                return this;
            }

            public Webpush build() {
                return new Webpush(Objects.requireNonNull(endpoint, "endpoint"), Objects.requireNonNull(keys, "keys"));
            }
        }
    }

    /**
     * With {@code webhook}.
     *
     * @param provider The name of the provider's credential.
     * @param token An address that the provider understands: a vendor's token, an e-mail address, a phone number. At
     *     most 1,024 bytes.
     */
    record Webhook(String provider, String token) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Webhook}. */
        public static final class Builder {
            private @Nullable String provider;
            private @Nullable String token;

            private Builder() {}

            /** The name of the provider's credential. */
            public Builder provider(String provider) {
                this.provider = provider;
                return this;
            }

            /**
             * An address that the provider understands: a vendor's token, an e-mail address, a phone number. At most
             * 1,024 bytes.
             */
            public Builder token(String token) {
                this.token = token;
                return this;
            }

            public Webhook build() {
                return new Webhook(
                        Objects.requireNonNull(provider, "provider"), Objects.requireNonNull(token, "token"));
            }
        }
    }

    /**
     * With {@code hms}.
     *
     * @param token {@code token}
     */
    record Hms(String token) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Hms}. */
        public static final class Builder {
            private @Nullable String token;

            private Builder() {}

            /** {@code token} */
            public Builder token(String token) {
                this.token = token;
                return this;
            }

            public Hms build() {
                return new Hms(Objects.requireNonNull(token, "token"));
            }
        }
    }

    /**
     * With {@code wns}.
     *
     * @param channel The channel URI. Its host is below notify.windows.com.
     */
    record Wns(String channel) implements PushToken {
        /** Builds one. */
        public static Builder builder() {
            return new Builder();
        }

        /** Builds a {@link Wns}. */
        public static final class Builder {
            private @Nullable String channel;

            private Builder() {}

            /** The channel URI. Its host is below notify.windows.com. */
            public Builder channel(String channel) {
                this.channel = channel;
                return this;
            }

            public Wns build() {
                return new Wns(Objects.requireNonNull(channel, "channel"));
            }
        }
    }
}
