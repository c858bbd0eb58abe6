// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Duration;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Delivery through push services. A message that is too large for one of them is rejected with
 * {@code push_payload_too_large}.
 *
 * @param mode {@code fallback}: only if the device does not acknowledge it within {@code after}.
 * @param after With {@code fallback} only. At most the ttl. Default: 10 s.
 * @param token Send the push to this token of each device, by kind and name, such as {@code voip} or
 *     {@code controls/lamp}. A device without it gets no push. Default: the main token. The mode is then {@code always}
 *     unless given. Refused with {@code unavailable} while a node of the cell runs a version that does not know it.
 * @param apns Passed to APNs, at most 4 KiB. Overrides derived fields.
 * @param fcm Passed to FCM, at most 4 KiB. Overrides derived fields.
 * @param webpush Passed to Web Push, at most 4 KiB. Overrides derived fields.
 * @param broadcast For a message to a topic: also send this to the channels of APNs that are bound to the topic, one in
 *     each environment. Without it nothing is broadcast. Independent of the mode; the ttl is the notification's.
 *     Refused with {@code wrong_state} if no channel is bound to the topic. Not in campaigns.
 * @param webhook Passed to providers behind webhooks as {@code options}, at most 4 KiB.
 * @param hms Passed to Huawei Push Kit, at most 4 KiB: {@code push_type}, {@code payload}, {@code pushOptions}.
 *     Overrides derived fields.
 * @param wns Passed to WNS, at most 4 KiB: {@code type}, {@code payload}, {@code headers}. Overrides derived fields.
 */
public record Push(
        @Nullable PushMode mode,
        @Nullable Duration after,
        @Nullable String token,
        @Nullable Map<String, @Nullable Object> apns,
        @Nullable Map<String, @Nullable Object> fcm,
        @Nullable Map<String, @Nullable Object> webpush,
        @Nullable Broadcast broadcast,
        @Nullable Map<String, @Nullable Object> webhook,
        @Nullable Map<String, @Nullable Object> hms,
        @Nullable Map<String, @Nullable Object> wns) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Push}. */
    public static final class Builder {
        private @Nullable PushMode mode;
        private @Nullable Duration after;
        private @Nullable String token;
        private @Nullable Map<String, @Nullable Object> apns;
        private @Nullable Map<String, @Nullable Object> fcm;
        private @Nullable Map<String, @Nullable Object> webpush;
        private @Nullable Broadcast broadcast;
        private @Nullable Map<String, @Nullable Object> webhook;
        private @Nullable Map<String, @Nullable Object> hms;
        private @Nullable Map<String, @Nullable Object> wns;

        private Builder() {}

        /** {@code fallback}: only if the device does not acknowledge it within {@code after}. */
        public Builder mode(@Nullable PushMode mode) {
            this.mode = mode;
            return this;
        }

        /** With {@code fallback} only. At most the ttl. Default: 10 s. */
        public Builder after(@Nullable Duration after) {
            this.after = after;
            return this;
        }

        /**
         * Send the push to this token of each device, by kind and name, such as {@code voip} or {@code controls/lamp}.
         * A device without it gets no push. Default: the main token. The mode is then {@code always} unless given.
         * Refused with {@code unavailable} while a node of the cell runs a version that does not know it.
         */
        public Builder token(@Nullable String token) {
            this.token = token;
            return this;
        }

        /** Passed to APNs, at most 4 KiB. Overrides derived fields. */
        public Builder apns(@Nullable Map<String, @Nullable Object> apns) {
            this.apns = apns;
            return this;
        }

        /** Passed to FCM, at most 4 KiB. Overrides derived fields. */
        public Builder fcm(@Nullable Map<String, @Nullable Object> fcm) {
            this.fcm = fcm;
            return this;
        }

        /** Passed to Web Push, at most 4 KiB. Overrides derived fields. */
        public Builder webpush(@Nullable Map<String, @Nullable Object> webpush) {
            this.webpush = webpush;
            return this;
        }

        /**
         * For a message to a topic: also send this to the channels of APNs that are bound to the topic, one in each
         * environment. Without it nothing is broadcast. Independent of the mode; the ttl is the notification's. Refused
         * with {@code wrong_state} if no channel is bound to the topic. Not in campaigns.
         */
        public Builder broadcast(@Nullable Broadcast broadcast) {
            this.broadcast = broadcast;
            return this;
        }

        /** Passed to providers behind webhooks as {@code options}, at most 4 KiB. */
        public Builder webhook(@Nullable Map<String, @Nullable Object> webhook) {
            this.webhook = webhook;
            return this;
        }

        /**
         * Passed to Huawei Push Kit, at most 4 KiB: {@code push_type}, {@code payload}, {@code pushOptions}. Overrides
         * derived fields.
         */
        public Builder hms(@Nullable Map<String, @Nullable Object> hms) {
            this.hms = hms;
            return this;
        }

        /** Passed to WNS, at most 4 KiB: {@code type}, {@code payload}, {@code headers}. Overrides derived fields. */
        public Builder wns(@Nullable Map<String, @Nullable Object> wns) {
            this.wns = wns;
            return this;
        }

        public Push build() {
            return new Push(mode, after, token, apns, fcm, webpush, broadcast, webhook, hms, wns);
        }
    }
}
