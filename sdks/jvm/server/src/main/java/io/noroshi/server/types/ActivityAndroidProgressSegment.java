// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param length {@code length}
 * @param color {@code color}
 */
public record ActivityAndroidProgressSegment(long length, @Nullable String color) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityAndroidProgressSegment}. */
    public static final class Builder {
        private @Nullable Long length;
        private @Nullable String color;

        private Builder() {}

        /** {@code length} */
        public Builder length(long length) {
            this.length = length;
            return this;
        }

        /** {@code color} */
        public Builder color(@Nullable String color) {
            this.color = color;
            return this;
        }

        public ActivityAndroidProgressSegment build() {
            return new ActivityAndroidProgressSegment(Objects.requireNonNull(length, "length"), color);
        }
    }
}
