// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * Adds an item to the notification centre of each named user, or of the user of each named device.
 *
 * @param category For counts and filters: a-z, 0-9, '-', '_' and '.'.
 * @param retention How long the item is listed: 1 minute to 365 days, whatever the ttl. Default: 30 days.
 */
public record NewItem(@Nullable String category, @Nullable Duration retention) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewItem}. */
    public static final class Builder {
        private @Nullable String category;
        private @Nullable Duration retention;

        private Builder() {}

        /** For counts and filters: a-z, 0-9, '-', '_' and '.'. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /** How long the item is listed: 1 minute to 365 days, whatever the ttl. Default: 30 days. */
        public Builder retention(@Nullable Duration retention) {
            this.retention = retention;
            return this;
        }

        public NewItem build() {
            return new NewItem(category, retention);
        }
    }
}
