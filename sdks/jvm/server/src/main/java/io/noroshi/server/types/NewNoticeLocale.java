// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param notification At most 2 KiB.
 * @param data Any JSON for the app's code, at most 2 KiB.
 */
public record NewNoticeLocale(@Nullable Shown notification, @Nullable Object data) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewNoticeLocale}. */
    public static final class Builder {
        private @Nullable Shown notification;
        private @Nullable Object data;

        private Builder() {}

        /** At most 2 KiB. */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /** Any JSON for the app's code, at most 2 KiB. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        public NewNoticeLocale build() {
            return new NewNoticeLocale(notification, data);
        }
    }
}
