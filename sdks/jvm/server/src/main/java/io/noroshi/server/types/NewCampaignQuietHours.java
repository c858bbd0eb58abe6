// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * In each device's local time. Devices that are due wait for the end. No effect with urgency {@code high}.
 *
 * @param from {@code from}
 * @param to {@code to}
 */
public record NewCampaignQuietHours(String from, String to) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewCampaignQuietHours}. */
    public static final class Builder {
        private @Nullable String from;
        private @Nullable String to;

        private Builder() {}

        /** {@code from} */
        public Builder from(String from) {
            this.from = from;
            return this;
        }

        /** {@code to} */
        public Builder to(String to) {
            this.to = to;
            return this;
        }

        public NewCampaignQuietHours build() {
            return new NewCampaignQuietHours(Objects.requireNonNull(from, "from"), Objects.requireNonNull(to, "to"));
        }
    }
}
