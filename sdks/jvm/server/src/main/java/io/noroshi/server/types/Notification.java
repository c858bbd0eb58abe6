// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * One notification, to one user or to millions.
 *
 * @param to {@code to}
 * @param when Which devices receive it: those in use now, connected ones, or all. {@code stored} messages are kept
 *     until {@code ttl}.
 * @param ttl 0 to 28 days. Default: 7 days.
 * @param urgency RFC 8030 §5.3.
 * @param collapseKey A newer notification with the same key replaces an undelivered older one.
 * @param retain For topics and everyone only: store as the retained message, delivered at each log-in.
 * @param notification {@code notification}
 * @param data Any JSON, passed through unchanged. Default limit: 4 KiB. {@code notification}, {@code data} or both are
 *     required.
 * @param push {@code push}
 * @param item Only with {@code to.users} or {@code to.devices}, at most 1,000 of them.
 * @param category Preferences apply to this category. The item has the same category; {@code item.category} may name it
 *     instead.
 */
public record Notification(
        To to,
        @Nullable When when,
        @Nullable Duration ttl,
        @Nullable Urgency urgency,
        @JsonProperty("collapse_key") @Nullable String collapseKey,
        @Nullable Boolean retain,
        @Nullable Shown notification,
        @Nullable Object data,
        @Nullable Push push,
        @Nullable NewItem item,
        @Nullable String category) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Notification}. */
    public static final class Builder {
        private @Nullable To to;
        private @Nullable When when;
        private @Nullable Duration ttl;
        private @Nullable Urgency urgency;
        private @Nullable String collapseKey;
        private @Nullable Boolean retain;
        private @Nullable Shown notification;
        private @Nullable Object data;
        private @Nullable Push push;
        private @Nullable NewItem item;
        private @Nullable String category;

        private Builder() {}

        /** {@code to} */
        public Builder to(To to) {
            this.to = to;
            return this;
        }

        /**
         * Which devices receive it: those in use now, connected ones, or all. {@code stored} messages are kept until
         * {@code ttl}.
         */
        public Builder when(@Nullable When when) {
            this.when = when;
            return this;
        }

        /** 0 to 28 days. Default: 7 days. */
        public Builder ttl(@Nullable Duration ttl) {
            this.ttl = ttl;
            return this;
        }

        /** RFC 8030 §5.3. */
        public Builder urgency(@Nullable Urgency urgency) {
            this.urgency = urgency;
            return this;
        }

        /** A newer notification with the same key replaces an undelivered older one. */
        public Builder collapseKey(@Nullable String collapseKey) {
            this.collapseKey = collapseKey;
            return this;
        }

        /** For topics and everyone only: store as the retained message, delivered at each log-in. */
        public Builder retain(@Nullable Boolean retain) {
            this.retain = retain;
            return this;
        }

        /** {@code notification} */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /**
         * Any JSON, passed through unchanged. Default limit: 4 KiB. {@code notification}, {@code data} or both are
         * required.
         */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        /** {@code push} */
        public Builder push(@Nullable Push push) {
            this.push = push;
            return this;
        }

        /** Only with {@code to.users} or {@code to.devices}, at most 1,000 of them. */
        public Builder item(@Nullable NewItem item) {
            this.item = item;
            return this;
        }

        /**
         * Preferences apply to this category. The item has the same category; {@code item.category} may name it
         * instead.
         */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        public Notification build() {
            return new Notification(
                    Objects.requireNonNull(to, "to"),
                    when,
                    ttl,
                    urgency,
                    collapseKey,
                    retain,
                    notification,
                    data,
                    push,
                    item,
                    category);
        }
    }
}
