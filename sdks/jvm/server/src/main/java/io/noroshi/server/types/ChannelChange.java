// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}. A topic that begins with
 *     {@code $} is {@code $maintenance}, or one that topic rules allow to MQTT clients.
 */
public record ChannelChange(@Nullable String topic) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ChannelChange}. */
    public static final class Builder {
        private @Nullable String topic;

        private Builder() {}

        /**
         * 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}. A topic that begins with
         * {@code $} is {@code $maintenance}, or one that topic rules allow to MQTT clients.
         */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        public ChannelChange build() {
            return new ChannelChange(topic);
        }
    }
}
