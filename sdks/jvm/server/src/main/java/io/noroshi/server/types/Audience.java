// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Exactly one of {@code everyone}, {@code topic}, {@code condition}, {@code upload}, {@code devices}; {@code devices}
 * may also be combined with one of the first three.
 *
 * @param everyone {@code everyone}
 * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}, not starting with
 *     {@code $}.
 * @param condition FCM condition syntax, at most 5 topics: {@code 'a' in topics && !('b' in topics)}.
 * @param upload The users uploaded to <code>/v1/campaigns/&#123;id&#125;/recipients</code>.
 * @param devices Filters all devices, or those of {@code everyone}, {@code topic} or {@code condition}.
 */
public record Audience(
        @Nullable Boolean everyone,
        @Nullable String topic,
        @Nullable String condition,
        @Nullable Boolean upload,
        @Nullable DeviceFilter devices) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Audience}. */
    public static final class Builder {
        private @Nullable Boolean everyone;
        private @Nullable String topic;
        private @Nullable String condition;
        private @Nullable Boolean upload;
        private @Nullable DeviceFilter devices;

        private Builder() {}

        /** {@code everyone} */
        public Builder everyone(@Nullable Boolean everyone) {
            this.everyone = everyone;
            return this;
        }

        /** 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}, not starting with {@code $}. */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        /** FCM condition syntax, at most 5 topics: {@code 'a' in topics && !('b' in topics)}. */
        public Builder condition(@Nullable String condition) {
            this.condition = condition;
            return this;
        }

        /** The users uploaded to <code>/v1/campaigns/&#123;id&#125;/recipients</code>. */
        public Builder upload(@Nullable Boolean upload) {
            this.upload = upload;
            return this;
        }

        /** Filters all devices, or those of {@code everyone}, {@code topic} or {@code condition}. */
        public Builder devices(@Nullable DeviceFilter devices) {
            this.devices = devices;
            return this;
        }

        public Audience build() {
            return new Audience(everyone, topic, condition, upload, devices);
        }
    }
}
