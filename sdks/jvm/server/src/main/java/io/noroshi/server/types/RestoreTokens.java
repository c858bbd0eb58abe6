// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param since Only tokens that were suspended at this time or later, RFC 3339. Absent: all.
 * @param reason Only tokens that were suspended for this reason of the push service, such as {@code BadDeviceToken}.
 *     Absent: for any.
 */
public record RestoreTokens(@Nullable Instant since, @Nullable String reason) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link RestoreTokens}. */
    public static final class Builder {
        private @Nullable Instant since;
        private @Nullable String reason;

        private Builder() {}

        /** Only tokens that were suspended at this time or later, RFC 3339. Absent: all. */
        public Builder since(@Nullable Instant since) {
            this.since = since;
            return this;
        }

        /**
         * Only tokens that were suspended for this reason of the push service, such as {@code BadDeviceToken}. Absent:
         * for any.
         */
        public Builder reason(@Nullable String reason) {
            this.reason = reason;
            return this;
        }

        public RestoreTokens build() {
            return new RestoreTokens(since, reason);
        }
    }
}
