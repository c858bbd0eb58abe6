// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * Preferences for one category.
 *
 * @param muted Noroshi does not deliver its notifications. {@code false} at a device overrides {@code true} at its
 *     user.
 * @param channels Its channels, instead of {@code channels} of the preferences.
 * @param dailyMax How many of its notifications may interrupt a device on one day of its calendar, live and by push.
 *     Default: any number.
 */
public record CategoryPreference(
        @Nullable Boolean muted,
        @Nullable List<DeliveryChannel> channels,
        @JsonProperty("daily_max") @Nullable Integer dailyMax) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CategoryPreference}. */
    public static final class Builder {
        private @Nullable Boolean muted;
        private @Nullable List<DeliveryChannel> channels;
        private @Nullable Integer dailyMax;

        private Builder() {}

        /** Noroshi does not deliver its notifications. {@code false} at a device overrides {@code true} at its user. */
        public Builder muted(@Nullable Boolean muted) {
            this.muted = muted;
            return this;
        }

        /** Its channels, instead of {@code channels} of the preferences. */
        public Builder channels(@Nullable List<DeliveryChannel> channels) {
            this.channels = channels;
            return this;
        }

        /**
         * How many of its notifications may interrupt a device on one day of its calendar, live and by push. Default:
         * any number.
         */
        public Builder dailyMax(@Nullable Integer dailyMax) {
            this.dailyMax = dailyMax;
            return this;
        }

        public CategoryPreference build() {
            return new CategoryPreference(muted, channels, dailyMax);
        }
    }
}
