// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import org.jspecify.annotations.Nullable;

/**
 * {@code notification}, {@code data} or both, unless uploaded lines have their own.
 *
 * @param notification Texts may contain placeholders: <code>&#123;&#123;name&#125;&#125;</code>.
 * @param data Any JSON. Default limit: 4 KiB. Strings may contain placeholders.
 * @param urgency RFC 8030 §5.3.
 * @param ttl 0 to 28 days from the time when a device is due. Default: 7 days.
 * @param collapseKey A newer notification with the same key replaces an undelivered older one.
 * @param category Preferences apply to this category.
 * @param when As in a notification. Absent: only through push services.
 * @param push {@code push}
 */
public record CampaignMessage(
        @Nullable Shown notification,
        @Nullable Object data,
        @Nullable Urgency urgency,
        @Nullable Duration ttl,
        @JsonProperty("collapse_key") @Nullable String collapseKey,
        @Nullable String category,
        @Nullable When when,
        @Nullable Push push) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link CampaignMessage}. */
    public static final class Builder {
        private @Nullable Shown notification;
        private @Nullable Object data;
        private @Nullable Urgency urgency;
        private @Nullable Duration ttl;
        private @Nullable String collapseKey;
        private @Nullable String category;
        private @Nullable When when;
        private @Nullable Push push;

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

        /** RFC 8030 §5.3. */
        public Builder urgency(@Nullable Urgency urgency) {
            this.urgency = urgency;
            return this;
        }

        /** 0 to 28 days from the time when a device is due. Default: 7 days. */
        public Builder ttl(@Nullable Duration ttl) {
            this.ttl = ttl;
            return this;
        }

        /** A newer notification with the same key replaces an undelivered older one. */
        public Builder collapseKey(@Nullable String collapseKey) {
            this.collapseKey = collapseKey;
            return this;
        }

        /** Preferences apply to this category. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /** As in a notification. Absent: only through push services. */
        public Builder when(@Nullable When when) {
            this.when = when;
            return this;
        }

        /** {@code push} */
        public Builder push(@Nullable Push push) {
            this.push = push;
            return this;
        }

        public CampaignMessage build() {
            return new CampaignMessage(notification, data, urgency, ttl, collapseKey, category, when, push);
        }
    }
}
