// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Fixed variants, regardless of audience and weights. A device's entry takes precedence over its user's. At most 1,000
 * in total.
 *
 * @param users {@code users}
 * @param devices {@code devices}
 */
public record NewExperimentOverrides(@Nullable Map<String, String> users, @Nullable Map<String, String> devices) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewExperimentOverrides}. */
    public static final class Builder {
        private @Nullable Map<String, String> users;
        private @Nullable Map<String, String> devices;

        private Builder() {}

        /** {@code users} */
        public Builder users(@Nullable Map<String, String> users) {
            this.users = users;
            return this;
        }

        /** {@code devices} */
        public Builder devices(@Nullable Map<String, String> devices) {
            this.devices = devices;
            return this;
        }

        public NewExperimentOverrides build() {
            return new NewExperimentOverrides(users, devices);
        }
    }
}
