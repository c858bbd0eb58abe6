// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param position {@code position}
 * @param color {@code color}
 */
public record ActivityAndroidProgressPoint(long position, @Nullable String color) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityAndroidProgressPoint}. */
    public static final class Builder {
        private @Nullable Long position;
        private @Nullable String color;

        private Builder() {}

        /** {@code position} */
        public Builder position(long position) {
            this.position = position;
            return this;
        }

        /** {@code color} */
        public Builder color(@Nullable String color) {
            this.color = color;
            return this;
        }

        public ActivityAndroidProgressPoint build() {
            return new ActivityAndroidProgressPoint(Objects.requireNonNull(position, "position"), color);
        }
    }
}
