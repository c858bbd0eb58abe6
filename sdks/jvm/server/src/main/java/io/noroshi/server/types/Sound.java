// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A sound with its options.
 *
 * @param name {@code name}
 * @param critical Plays on iOS while the device is muted. The app needs Apple's entitlement for critical alerts.
 * @param volume With {@code critical} only.
 */
public record Sound(@Nullable String name, @Nullable Boolean critical, @Nullable Double volume) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Sound}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable Boolean critical;
        private @Nullable Double volume;

        private Builder() {}

        /** {@code name} */
        public Builder name(@Nullable String name) {
            this.name = name;
            return this;
        }

        /** Plays on iOS while the device is muted. The app needs Apple's entitlement for critical alerts. */
        public Builder critical(@Nullable Boolean critical) {
            this.critical = critical;
            return this;
        }

        /** With {@code critical} only. */
        public Builder volume(@Nullable Double volume) {
            this.volume = volume;
            return this;
        }

        public Sound build() {
            return new Sound(name, critical, volume);
        }
    }
}
