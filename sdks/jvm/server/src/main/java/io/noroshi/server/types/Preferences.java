// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * With preferences, a user selects which notifications arrive, and how. One device may differ. If a field is absent,
 * the next level decides: the user's preferences, then the default.
 *
 * @param channels The allowed channels. A category may override them. {@code live}: over the connection. {@code push}:
 *     through push services. {@code inbox}: items of the user's notification centre. Default: all.
 * @param mutedTopics Noroshi does not deliver messages to these topics.
 * @param categories Preferences by category.
 * @param quietHours Pushes wait for their end.
 */
public record Preferences(
        @Nullable List<DeliveryChannel> channels,
        @JsonProperty("muted_topics") @Nullable List<String> mutedTopics,
        @Nullable Map<String, CategoryPreference> categories,
        @JsonProperty("quiet_hours") @Nullable QuietHours quietHours) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Preferences}. */
    public static final class Builder {
        private @Nullable List<DeliveryChannel> channels;
        private @Nullable List<String> mutedTopics;
        private @Nullable Map<String, CategoryPreference> categories;
        private @Nullable QuietHours quietHours;

        private Builder() {}

        /**
         * The allowed channels. A category may override them. {@code live}: over the connection. {@code push}: through
         * push services. {@code inbox}: items of the user's notification centre. Default: all.
         */
        public Builder channels(@Nullable List<DeliveryChannel> channels) {
            this.channels = channels;
            return this;
        }

        /** Noroshi does not deliver messages to these topics. */
        public Builder mutedTopics(@Nullable List<String> mutedTopics) {
            this.mutedTopics = mutedTopics;
            return this;
        }

        /** Preferences by category. */
        public Builder categories(@Nullable Map<String, CategoryPreference> categories) {
            this.categories = categories;
            return this;
        }

        /** Pushes wait for their end. */
        public Builder quietHours(@Nullable QuietHours quietHours) {
            this.quietHours = quietHours;
            return this;
        }

        public Preferences build() {
            return new Preferences(channels, mutedTopics, categories, quietHours);
        }
    }
}
