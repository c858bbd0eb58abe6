// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param name The name in the app's code.
 * @param weight Its share of the sum of weights. 0: assigned to no device.
 * @param data Any JSON for the app's code, at most 4 KiB.
 */
public record ExperimentVariant(String name, int weight, @Nullable Object data) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ExperimentVariant}. */
    public static final class Builder {
        private @Nullable String name;
        private @Nullable Integer weight;
        private @Nullable Object data;

        private Builder() {}

        /** The name in the app's code. */
        public Builder name(String name) {
            this.name = name;
            return this;
        }

        /** Its share of the sum of weights. 0: assigned to no device. */
        public Builder weight(int weight) {
            this.weight = weight;
            return this;
        }

        /** Any JSON for the app's code, at most 4 KiB. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        public ExperimentVariant build() {
            return new ExperimentVariant(
                    Objects.requireNonNull(name, "name"), Objects.requireNonNull(weight, "weight"), data);
        }
    }
}
