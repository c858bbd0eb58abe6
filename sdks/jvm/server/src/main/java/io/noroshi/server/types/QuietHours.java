// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * From {@code from} until before {@code to}, each day. It spans midnight if {@code to} is earlier.
 *
 * @param from Hours and minutes of a local clock.
 * @param to Another time than {@code from}.
 * @param timezone IANA name. Default: the time zone of the device, or UTC if it has none.
 */
public record QuietHours(String from, String to, @Nullable String timezone) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link QuietHours}. */
    public static final class Builder {
        private @Nullable String from;
        private @Nullable String to;
        private @Nullable String timezone;

        private Builder() {}

        /** Hours and minutes of a local clock. */
        public Builder from(String from) {
            this.from = from;
            return this;
        }

        /** Another time than {@code from}. */
        public Builder to(String to) {
            this.to = to;
            return this;
        }

        /** IANA name. Default: the time zone of the device, or UTC if it has none. */
        public Builder timezone(@Nullable String timezone) {
            this.timezone = timezone;
            return this;
        }

        public QuietHours build() {
            return new QuietHours(Objects.requireNonNull(from, "from"), Objects.requireNonNull(to, "to"), timezone);
        }
    }
}
