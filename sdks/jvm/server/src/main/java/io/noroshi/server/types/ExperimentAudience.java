// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Both must match. Empty: every device.
 *
 * @param condition A condition on the device's durable subscriptions, in FCM syntax, at most 5 topics: {@code 'a' in
 *     topics && !('b' in topics)}.
 * @param devices Attributes of the device.
 */
public record ExperimentAudience(@Nullable String condition, @Nullable DeviceFilter devices) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ExperimentAudience}. */
    public static final class Builder {
        private @Nullable String condition;
        private @Nullable DeviceFilter devices;

        private Builder() {}

        /**
         * A condition on the device's durable subscriptions, in FCM syntax, at most 5 topics: {@code 'a' in topics &&
         * !('b' in topics)}.
         */
        public Builder condition(@Nullable String condition) {
            this.condition = condition;
            return this;
        }

        /** Attributes of the device. */
        public Builder devices(@Nullable DeviceFilter devices) {
            this.devices = devices;
            return this;
        }

        public ExperimentAudience build() {
            return new ExperimentAudience(condition, devices);
        }
    }
}
