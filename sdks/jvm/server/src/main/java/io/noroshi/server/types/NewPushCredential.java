// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One for each push service and environment; of {@code webhook}, one for each name. Stored encrypted and never shown
 * again.
 *
 * @param service {@code service}
 * @param environment APNs only.
 * @param name A name for you to recognize it. Webhook: required, the name of the provider in tokens, 1 to 64 letters,
 *     digits and {@code .}, {@code _}, {@code -}.
 * @param key APNs: the signing key (.p8), PEM.
 * @param keyId APNs: the signing key's id.
 * @param teamId APNs: the team's id.
 * @param certificate APNs, instead of {@code key}: the certificate chain, PEM.
 * @param privateKey APNs: the certificate's key, PEM. Web Push: the VAPID key, PEM or its 32 bytes as base64url.
 * @param topic APNs: the app's bundle id.
 * @param serviceAccount FCM: Google's JSON file, unchanged. HMS: Huawei's.
 * @param subject Web Push: a contact for push services, {@code mailto:} or {@code https:}.
 * @param url Webhook: the https URL that receives batches; http for a loopback address only.
 * @param secret Webhook: the secret that signs requests by Standard Webhooks, {@code whsec_} and 24 to 64 bytes in
 *     base64.
 * @param previousSecret Webhook: while a secret is being replaced, the old one. Requests then have a signature by each.
 * @param batchSize Webhook: recipients of one request.
 * @param concurrency Webhook: requests at a time.
 * @param timeoutSeconds Webhook: how long a request waits for its answer.
 * @param deviceTokens Webhook: devices may register tokens themselves. Otherwise only an API key may, because an e-mail
 *     address or a phone number may belong to another person.
 * @param category HMS: the category of notifications that name none.
 * @param clientId WNS: the id of the application in Microsoft Entra ID, or the package SID ({@code ms-app://…}) of a
 *     Store app.
 * @param clientSecret WNS: the client secret.
 * @param tenantId WNS: the id of the tenant in Microsoft Entra ID; not for a package SID.
 * @param endpoint APNs, FCM, HMS and WNS: a different server, for tests.
 * @param broadcastEndpoint APNs: the server for broadcasts to channels. Default: {@code endpoint}.
 * @param channelsEndpoint APNs: the server on which channels are managed, for tests.
 * @param tokenEndpoint FCM and WNS: a different server for access tokens, for tests.
 * @param quota <code>&#123;"per_second": 100&#125;</code>: maximum pushes per second, instead of the push service's own
 *     limit.
 */
public record NewPushCredential(
        PushService service,
        @Nullable ApnsEnvironment environment,
        @Nullable String name,
        @Nullable String key,
        @JsonProperty("key_id") @Nullable String keyId,
        @JsonProperty("team_id") @Nullable String teamId,
        @Nullable String certificate,
        @JsonProperty("private_key") @Nullable String privateKey,
        @Nullable String topic,
        @JsonProperty("service_account") @Nullable Map<String, @Nullable Object> serviceAccount,
        @Nullable String subject,
        @Nullable String url,
        @Nullable String secret,
        @JsonProperty("previous_secret") @Nullable String previousSecret,
        @JsonProperty("batch_size") @Nullable Integer batchSize,
        @Nullable Integer concurrency,
        @JsonProperty("timeout_seconds") @Nullable Integer timeoutSeconds,
        @JsonProperty("device_tokens") @Nullable Boolean deviceTokens,
        @Nullable String category,
        @JsonProperty("client_id") @Nullable String clientId,
        @JsonProperty("client_secret") @Nullable String clientSecret,
        @JsonProperty("tenant_id") @Nullable String tenantId,
        @Nullable String endpoint,
        @JsonProperty("broadcast_endpoint") @Nullable String broadcastEndpoint,
        @JsonProperty("channels_endpoint") @Nullable String channelsEndpoint,
        @JsonProperty("token_endpoint") @Nullable String tokenEndpoint,
        @Nullable Map<String, @Nullable Object> quota) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewPushCredential}. */
    public static final class Builder {
        private @Nullable PushService service;
        private @Nullable ApnsEnvironment environment;
        private @Nullable String name;
        private @Nullable String key;
        private @Nullable String keyId;
        private @Nullable String teamId;
        private @Nullable String certificate;
        private @Nullable String privateKey;
        private @Nullable String topic;
        private @Nullable Map<String, @Nullable Object> serviceAccount;
        private @Nullable String subject;
        private @Nullable String url;
        private @Nullable String secret;
        private @Nullable String previousSecret;
        private @Nullable Integer batchSize;
        private @Nullable Integer concurrency;
        private @Nullable Integer timeoutSeconds;
        private @Nullable Boolean deviceTokens;
        private @Nullable String category;
        private @Nullable String clientId;
        private @Nullable String clientSecret;
        private @Nullable String tenantId;
        private @Nullable String endpoint;
        private @Nullable String broadcastEndpoint;
        private @Nullable String channelsEndpoint;
        private @Nullable String tokenEndpoint;
        private @Nullable Map<String, @Nullable Object> quota;

        private Builder() {}

        /** {@code service} */
        public Builder service(PushService service) {
            this.service = service;
            return this;
        }

        /** APNs only. */
        public Builder environment(@Nullable ApnsEnvironment environment) {
            this.environment = environment;
            return this;
        }

        /**
         * A name for you to recognize it. Webhook: required, the name of the provider in tokens, 1 to 64 letters,
         * digits and {@code .}, {@code _}, {@code -}.
         */
        public Builder name(@Nullable String name) {
            this.name = name;
            return this;
        }

        /** APNs: the signing key (.p8), PEM. */
        public Builder key(@Nullable String key) {
            this.key = key;
            return this;
        }

        /** APNs: the signing key's id. */
        public Builder keyId(@Nullable String keyId) {
            this.keyId = keyId;
            return this;
        }

        /** APNs: the team's id. */
        public Builder teamId(@Nullable String teamId) {
            this.teamId = teamId;
            return this;
        }

        /** APNs, instead of {@code key}: the certificate chain, PEM. */
        public Builder certificate(@Nullable String certificate) {
            this.certificate = certificate;
            return this;
        }

        /** APNs: the certificate's key, PEM. Web Push: the VAPID key, PEM or its 32 bytes as base64url. */
        public Builder privateKey(@Nullable String privateKey) {
            this.privateKey = privateKey;
            return this;
        }

        /** APNs: the app's bundle id. */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        /** FCM: Google's JSON file, unchanged. HMS: Huawei's. */
        public Builder serviceAccount(@Nullable Map<String, @Nullable Object> serviceAccount) {
            this.serviceAccount = serviceAccount;
            return this;
        }

        /** Web Push: a contact for push services, {@code mailto:} or {@code https:}. */
        public Builder subject(@Nullable String subject) {
            this.subject = subject;
            return this;
        }

        /** Webhook: the https URL that receives batches; http for a loopback address only. */
        public Builder url(@Nullable String url) {
            this.url = url;
            return this;
        }

        /**
         * Webhook: the secret that signs requests by Standard Webhooks, {@code whsec_} and 24 to 64 bytes in base64.
         */
        public Builder secret(@Nullable String secret) {
            this.secret = secret;
            return this;
        }

        /** Webhook: while a secret is being replaced, the old one. Requests then have a signature by each. */
        public Builder previousSecret(@Nullable String previousSecret) {
            this.previousSecret = previousSecret;
            return this;
        }

        /** Webhook: recipients of one request. */
        public Builder batchSize(@Nullable Integer batchSize) {
            this.batchSize = batchSize;
            return this;
        }

        /** Webhook: requests at a time. */
        public Builder concurrency(@Nullable Integer concurrency) {
            this.concurrency = concurrency;
            return this;
        }

        /** Webhook: how long a request waits for its answer. */
        public Builder timeoutSeconds(@Nullable Integer timeoutSeconds) {
            this.timeoutSeconds = timeoutSeconds;
            return this;
        }

        /**
         * Webhook: devices may register tokens themselves. Otherwise only an API key may, because an e-mail address or
         * a phone number may belong to another person.
         */
        public Builder deviceTokens(@Nullable Boolean deviceTokens) {
            this.deviceTokens = deviceTokens;
            return this;
        }

        /** HMS: the category of notifications that name none. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /**
         * WNS: the id of the application in Microsoft Entra ID, or the package SID ({@code ms-app://…}) of a Store app.
         */
        public Builder clientId(@Nullable String clientId) {
            this.clientId = clientId;
            return this;
        }

        /** WNS: the client secret. */
        public Builder clientSecret(@Nullable String clientSecret) {
            this.clientSecret = clientSecret;
            return this;
        }

        /** WNS: the id of the tenant in Microsoft Entra ID; not for a package SID. */
        public Builder tenantId(@Nullable String tenantId) {
            this.tenantId = tenantId;
            return this;
        }

        /** APNs, FCM, HMS and WNS: a different server, for tests. */
        public Builder endpoint(@Nullable String endpoint) {
            this.endpoint = endpoint;
            return this;
        }

        /** APNs: the server for broadcasts to channels. Default: {@code endpoint}. */
        public Builder broadcastEndpoint(@Nullable String broadcastEndpoint) {
            this.broadcastEndpoint = broadcastEndpoint;
            return this;
        }

        /** APNs: the server on which channels are managed, for tests. */
        public Builder channelsEndpoint(@Nullable String channelsEndpoint) {
            this.channelsEndpoint = channelsEndpoint;
            return this;
        }

        /** FCM and WNS: a different server for access tokens, for tests. */
        public Builder tokenEndpoint(@Nullable String tokenEndpoint) {
            this.tokenEndpoint = tokenEndpoint;
            return this;
        }

        /**
         * <code>&#123;"per_second": 100&#125;</code>: maximum pushes per second, instead of the push service's own
         * limit.
         */
        public Builder quota(@Nullable Map<String, @Nullable Object> quota) {
            this.quota = quota;
            return this;
        }

        public NewPushCredential build() {
            return new NewPushCredential(
                    Objects.requireNonNull(service, "service"),
                    environment,
                    name,
                    key,
                    keyId,
                    teamId,
                    certificate,
                    privateKey,
                    topic,
                    serviceAccount,
                    subject,
                    url,
                    secret,
                    previousSecret,
                    batchSize,
                    concurrency,
                    timeoutSeconds,
                    deviceTokens,
                    category,
                    clientId,
                    clientSecret,
                    tenantId,
                    endpoint,
                    broadcastEndpoint,
                    channelsEndpoint,
                    tokenEndpoint,
                    quota);
        }
    }
}
