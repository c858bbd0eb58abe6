// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Inclusive. Compared number by number, so 1.10 is above 1.9.
 *
 * @param min {@code min}
 * @param max {@code max}
 */
public record DeviceFilterAppVersion(@Nullable String min, @Nullable String max) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link DeviceFilterAppVersion}. */
    public static final class Builder {
        private @Nullable String min;
        private @Nullable String max;

        private Builder() {}

        /** {@code min} */
        public Builder min(@Nullable String min) {
            this.min = min;
            return this;
        }

        /** {@code max} */
        public Builder max(@Nullable String max) {
            this.max = max;
            return this;
        }

        public DeviceFilterAppVersion build() {
            return new DeviceFilterAppVersion(min, max);
        }
    }
}
