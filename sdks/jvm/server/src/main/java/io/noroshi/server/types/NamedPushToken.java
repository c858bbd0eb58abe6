// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A push token with its kind and name.
 *
 * @param kind What the token is for. Default: the message kind of {@code service}.
 * @param name Distinguishes tokens of a kind, for example the control; for {@code live-activity} the id of the
 *     activity, which is required. Message kinds have no name, except {@code webhook}: a named one gets only pushes
 *     that name it. Default: empty.
 * @param service The service of the kind; may be left out.
 * @param token APNs, FCM, webhook and HMS: as in {@code PushToken}.
 * @param environment APNs only.
 * @param topic APNs only: the app's bundle id without a suffix, if it differs from the credential's.
 * @param endpoint Web Push only.
 * @param keys Web Push only.
 * @param provider Webhook only: the name of the provider's credential. Default: the name of the token.
 * @param channel WNS only: as in {@code PushToken}.
 * @param expiresAt Nothing is sent to the token from then on. Not for message kinds without a name. For
 *     {@code live-activity}, 12 hours from now by default; otherwise tokens do not expire.
 * @param onlyIfMissing Keep an existing token of this kind and name.
 */
public record NamedPushToken(
        @Nullable PushTokenKind kind,
        @Nullable String name,
        @Nullable PushService service,
        @Nullable String token,
        @Nullable ApnsEnvironment environment,
        @Nullable String topic,
        @Nullable String endpoint,
        @Nullable WebPushKeys keys,
        @Nullable String provider,
        @Nullable String channel,
        @JsonProperty("expires_at") @Nullable Instant expiresAt,
        @JsonProperty("only_if_missing") @Nullable Boolean onlyIfMissing) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NamedPushToken}. */
    public static final class Builder {
        private @Nullable PushTokenKind kind;
        private @Nullable String name;
        private @Nullable PushService service;
        private @Nullable String token;
        private @Nullable ApnsEnvironment environment;
        private @Nullable String topic;
        private @Nullable String endpoint;
        private @Nullable WebPushKeys keys;
        private @Nullable String provider;
        private @Nullable String channel;
        private @Nullable Instant expiresAt;
        private @Nullable Boolean onlyIfMissing;

        private Builder() {}

        /** What the token is for. Default: the message kind of {@code service}. */
        public Builder kind(@Nullable PushTokenKind kind) {
            this.kind = kind;
            return this;
        }

        /**
         * Distinguishes tokens of a kind, for example the control; for {@code live-activity} the id of the activity,
         * which is required. Message kinds have no name, except {@code webhook}: a named one gets only pushes that name
         * it. Default: empty.
         */
        public Builder name(@Nullable String name) {
            this.name = name;
            return this;
        }

        /** The service of the kind; may be left out. */
        public Builder service(@Nullable PushService service) {
            this.service = service;
            return this;
        }

        /** APNs, FCM, webhook and HMS: as in {@code PushToken}. */
        public Builder token(@Nullable String token) {
            this.token = token;
            return this;
        }

        /** APNs only. */
        public Builder environment(@Nullable ApnsEnvironment environment) {
            this.environment = environment;
            return this;
        }

        /** APNs only: the app's bundle id without a suffix, if it differs from the credential's. */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        /** Web Push only. */
        public Builder endpoint(@Nullable String endpoint) {
            this.endpoint = endpoint;
            return this;
        }

        /** Web Push only. */
        public Builder keys(@Nullable WebPushKeys keys) {
            this.keys = keys;
            return this;
        }

        /** Webhook only: the name of the provider's credential. Default: the name of the token. */
        public Builder provider(@Nullable String provider) {
            this.provider = provider;
            return this;
        }

        /** WNS only: as in {@code PushToken}. */
        public Builder channel(@Nullable String channel) {
            this.channel = channel;
            return this;
        }

        /**
         * Nothing is sent to the token from then on. Not for message kinds without a name. For {@code live-activity},
         * 12 hours from now by default; otherwise tokens do not expire.
         */
        public Builder expiresAt(@Nullable Instant expiresAt) {
            this.expiresAt = expiresAt;
            return this;
        }

        /** Keep an existing token of this kind and name. */
        public Builder onlyIfMissing(@Nullable Boolean onlyIfMissing) {
            this.onlyIfMissing = onlyIfMissing;
            return this;
        }

        public NamedPushToken build() {
            return new NamedPushToken(
                    kind,
                    name,
                    service,
                    token,
                    environment,
                    topic,
                    endpoint,
                    keys,
                    provider,
                    channel,
                    expiresAt,
                    onlyIfMissing);
        }
    }
}
