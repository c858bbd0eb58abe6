// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Absent fields are those of the message.
 *
 * @param notification Texts may contain placeholders: <code>&#123;&#123;name&#125;&#125;</code>.
 * @param data Any JSON. Default limit: 4 KiB. Strings may contain placeholders.
 */
public record CampaignVariant(@Nullable Shown notification, @Nullable Object data) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CampaignVariant}. */
    public static final class Builder {
        private @Nullable Shown notification;
        private @Nullable Object data;

        private Builder() {}

        /** Texts may contain placeholders: <code>&#123;&#123;name&#125;&#125;</code>. */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /** Any JSON. Default limit: 4 KiB. Strings may contain placeholders. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        public CampaignVariant build() {
            return new CampaignVariant(notification, data);
        }
    }
}
