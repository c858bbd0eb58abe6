// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param name Your name for it.
 * @param environment {@code environment}
 * @param storage What Apple keeps for devices that are offline: nothing, or the last broadcast until it expires. Cannot
 *     be changed.
 * @param topic Bind it to this topic. A topic has at most one channel in each environment.
 * @param apnsId Adopt the channel with this id of Apple, instead of creating one.
 */
public record NewChannel(
        String name,
        @Nullable ApnsEnvironment environment,
        @Nullable ChannelStorage storage,
        @Nullable String topic,
        @JsonProperty("apns_id") @Nullable String apnsId) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewChannel}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable ApnsEnvironment environment;
        private @Nullable ChannelStorage storage;
        private @Nullable String topic;
        private @Nullable String apnsId;

        private Builder() {}

        /** Your name for it. */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** {@code environment} */
        public Builder environment(@Nullable ApnsEnvironment environment) {
            this.environment = environment;
            return this;
        }

        /**
         * What Apple keeps for devices that are offline: nothing, or the last broadcast until it expires. Cannot be
         * changed.
         */
        public Builder storage(@Nullable ChannelStorage storage) {
            this.storage = storage;
            return this;
        }

        /** Bind it to this topic. A topic has at most one channel in each environment. */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        /** Adopt the channel with this id of Apple, instead of creating one. */
        public Builder apnsId(@Nullable String apnsId) {
            this.apnsId = apnsId;
            return this;
        }

        public NewChannel build() {
            return new NewChannel(Objects.requireNonNull(name, "name"), environment, storage, topic, apnsId);
        }
    }
}
