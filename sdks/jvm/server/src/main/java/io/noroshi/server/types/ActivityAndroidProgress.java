// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param value {@code value}
 * @param max Default: the sum of the segments, or 100.
 * @param indeterminate {@code indeterminate}
 * @param segments {@code segments}
 * @param points {@code points}
 * @param trackerIcon A resource of the app.
 * @param startIcon {@code start_icon}
 * @param endIcon {@code end_icon}
 */
public record ActivityAndroidProgress(
        @Nullable Long value,
        @Nullable Long max,
        @Nullable Boolean indeterminate,
        @Nullable List<ActivityAndroidProgressSegment> segments,
        @Nullable List<ActivityAndroidProgressPoint> points,
        @JsonProperty("tracker_icon") @Nullable String trackerIcon,
        @JsonProperty("start_icon") @Nullable String startIcon,
        @JsonProperty("end_icon") @Nullable String endIcon) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityAndroidProgress}. */
    public static final class Builder {
        private @Nullable Long value;
        private @Nullable Long max;
        private @Nullable Boolean indeterminate;
        private @Nullable List<ActivityAndroidProgressSegment> segments;
        private @Nullable List<ActivityAndroidProgressPoint> points;
        private @Nullable String trackerIcon;
        private @Nullable String startIcon;
        private @Nullable String endIcon;

        private Builder() {}

        /** {@code value} */
        public Builder value(@Nullable Long value) {
            this.value = value;
            return this;
        }

        /** Default: the sum of the segments, or 100. */
        public Builder max(@Nullable Long max) {
            this.max = max;
            return this;
        }

        /** {@code indeterminate} */
        public Builder indeterminate(@Nullable Boolean indeterminate) {
            this.indeterminate = indeterminate;
            return this;
        }

        /** {@code segments} */
        public Builder segments(@Nullable List<ActivityAndroidProgressSegment> segments) {
            this.segments = segments;
            return this;
        }

        /** {@code points} */
        public Builder points(@Nullable List<ActivityAndroidProgressPoint> points) {
            this.points = points;
            return this;
        }

        /** A resource of the app. */
        public Builder trackerIcon(@Nullable String trackerIcon) {
            this.trackerIcon = trackerIcon;
            return this;
        }

        /** {@code start_icon} */
        public Builder startIcon(@Nullable String startIcon) {
            this.startIcon = startIcon;
            return this;
        }

        /** {@code end_icon} */
        public Builder endIcon(@Nullable String endIcon) {
            this.endIcon = endIcon;
            return this;
        }

        public ActivityAndroidProgress build() {
            return new ActivityAndroidProgress(
                    value, max, indeterminate, segments, points, trackerIcon, startIcon, endIcon);
        }
    }
}
