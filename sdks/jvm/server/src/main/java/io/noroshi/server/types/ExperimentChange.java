// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param killed {@code killed}
 */
public record ExperimentChange(boolean killed) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ExperimentChange}. */
    public static final class Builder {
        private @Nullable Boolean killed;

        private Builder() {}

        /** {@code killed} */
        public Builder killed(boolean killed) {
            this.killed = killed;
            return this;
        }

        public ExperimentChange build() {
            return new ExperimentChange(Objects.requireNonNull(killed, "killed"));
        }
    }
}
