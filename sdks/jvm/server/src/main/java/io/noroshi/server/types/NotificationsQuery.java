// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;
import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which entries to list. Everything is optional.
 *
 * @param since Accepted at this time or later.
 * @param until Accepted at this time or earlier.
 * @param target Only notifications with this kind of target.
 * @param user Only notifications for this user. Not together with {@code device}.
 * @param device Only notifications for this device.
 * @param topic Only notifications to this topic; {@code $everyone} for those to everyone.
 * @param campaign Only notifications of this campaign.
 * @param category Only notifications of this category.
 * @param urgency Only notifications of this urgency.
 * @param after {@code next} of the previous page.
 * @param limit Entries per page.
 */
public record NotificationsQuery(
        @Nullable Instant since,
        @Nullable Instant until,
        @Nullable TargetKind target,
        @Nullable String user,
        @Nullable String device,
        @Nullable String topic,
        @Nullable String campaign,
        @Nullable String category,
        @Nullable Urgency urgency,
        @Nullable String after,
        @Nullable Integer limit) {
    /** Everything. */
    public static final NotificationsQuery ALL = builder().build();

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** The parameters of the request, except {@code after}. */
    public Map<String, @Nullable Object> parameters() {
        Map<String, @Nullable Object> parameters = new LinkedHashMap<>();
        parameters.put("since", since);
        parameters.put("until", until);
        parameters.put("target", target);
        parameters.put("user", user);
        parameters.put("device", device);
        parameters.put("topic", topic);
        parameters.put("campaign", campaign);
        parameters.put("category", category);
        parameters.put("urgency", urgency);
        parameters.put("limit", limit);
        return parameters;
    }

    /** Builds a {@link NotificationsQuery}. */
    public static final class Builder {
        private @Nullable Instant since;
        private @Nullable Instant until;
        private @Nullable TargetKind target;
        private @Nullable String user;
        private @Nullable String device;
        private @Nullable String topic;
        private @Nullable String campaign;
        private @Nullable String category;
        private @Nullable Urgency urgency;
        private @Nullable String after;
        private @Nullable Integer limit;

        private Builder() {}

        /** Accepted at this time or later. */
        public Builder since(@Nullable Instant since) {
            this.since = since;
            return this;
        }

        /** Accepted at this time or earlier. */
        public Builder until(@Nullable Instant until) {
            this.until = until;
            return this;
        }

        /** Only notifications with this kind of target. */
        public Builder target(@Nullable TargetKind target) {
            this.target = target;
            return this;
        }

        /** Only notifications for this user. Not together with {@code device}. */
        public Builder user(@Nullable String user) {
            this.user = user;
            return this;
        }

        /** Only notifications for this device. */
        public Builder device(@Nullable String device) {
            this.device = device;
            return this;
        }

        /** Only notifications to this topic; {@code $everyone} for those to everyone. */
        public Builder topic(@Nullable String topic) {
            this.topic = topic;
            return this;
        }

        /** Only notifications of this campaign. */
        public Builder campaign(@Nullable String campaign) {
            this.campaign = campaign;
            return this;
        }

        /** Only notifications of this category. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /** Only notifications of this urgency. */
        public Builder urgency(@Nullable Urgency urgency) {
            this.urgency = urgency;
            return this;
        }

        /** {@code next} of the previous page. */
        public Builder after(@Nullable String after) {
            this.after = after;
            return this;
        }

        /** Entries per page. */
        public Builder limit(@Nullable Integer limit) {
            this.limit = limit;
            return this;
        }

        public NotificationsQuery build() {
            return new NotificationsQuery(
                    since, until, target, user, device, topic, campaign, category, urgency, after, limit);
        }
    }
}
