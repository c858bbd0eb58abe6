// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * All fields are optional. An update changes the given fields and adds tags and topics.
 *
 * @param device An id chosen by the app. An existing device is updated. Default: random.
 * @param user A user id, chosen by the app: 1 to 255 bytes without control characters.
 * @param platform {@code platform}
 * @param locale BCP 47.
 * @param timezone An existing IANA time zone.
 * @param appVersion {@code app_version}
 * @param tags {@code tags}
 * @param topics Durable subscriptions, from each topic's current position.
 * @param pushToken {@code push_token}
 * @param pushTokens Added to the device's tokens, or replace those of the same kind and name. A device has at most 32.
 *     Of several message tokens, the last one becomes the main token; {@code push_token} comes after all of them.
 *     Tokens that have expired are left out.
 */
public record DeviceRegistration(
        @Nullable String device,
        @Nullable String user,
        @Nullable Platform platform,
        @Nullable String locale,
        @Nullable String timezone,
        @JsonProperty("app_version") @Nullable String appVersion,
        @Nullable Map<String, String> tags,
        @Nullable List<String> topics,
        @JsonProperty("push_token") @Nullable PushToken pushToken,
        @JsonProperty("push_tokens") @Nullable List<NamedPushToken> pushTokens) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link DeviceRegistration}. */
    public static final class Builder {
        private @Nullable String device;
        private @Nullable String user;
        private @Nullable Platform platform;
        private @Nullable String locale;
        private @Nullable String timezone;
        private @Nullable String appVersion;
        private @Nullable Map<String, String> tags;
        private @Nullable List<String> topics;
        private @Nullable PushToken pushToken;
        private @Nullable List<NamedPushToken> pushTokens;

        private Builder() {}

        /** An id chosen by the app. An existing device is updated. Default: random. */
        public Builder device(@Nullable String device) {
            this.device = device;
            return this;
        }

        /** A user id, chosen by the app: 1 to 255 bytes without control characters. */
        public Builder user(@Nullable String user) {
            this.user = user;
            return this;
        }

        /** {@code platform} */
        public Builder platform(@Nullable Platform platform) {
            this.platform = platform;
            return this;
        }

        /** BCP 47. */
        public Builder locale(@Nullable String locale) {
            this.locale = locale;
            return this;
        }

        /** An existing IANA time zone. */
        public Builder timezone(@Nullable String timezone) {
            this.timezone = timezone;
            return this;
        }

        /** {@code app_version} */
        public Builder appVersion(@Nullable String appVersion) {
            this.appVersion = appVersion;
            return this;
        }

        /** {@code tags} */
        public Builder tags(@Nullable Map<String, String> tags) {
            this.tags = tags;
            return this;
        }

        /** Durable subscriptions, from each topic's current position. */
        public Builder topics(@Nullable List<String> topics) {
            this.topics = topics;
            return this;
        }

        /** {@code push_token} */
        public Builder pushToken(@Nullable PushToken pushToken) {
            this.pushToken = pushToken;
            return this;
        }

        /**
         * Added to the device's tokens, or replace those of the same kind and name. A device has at most 32. Of several
         * message tokens, the last one becomes the main token; {@code push_token} comes after all of them. Tokens that
         * have expired are left out.
         */
        public Builder pushTokens(@Nullable List<NamedPushToken> pushTokens) {
            this.pushTokens = pushTokens;
            return this;
        }

        public DeviceRegistration build() {
            return new DeviceRegistration(
                    device, user, platform, locale, timezone, appVersion, tags, topics, pushToken, pushTokens);
        }
    }
}
