// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param to {@code to}
 * @param id Default: a UUIDv7. Devices name their token of the activity with it.
 * @param when Which devices receive each state as a message too, which replaces the message of the state before.
 * @param ttl 1 s to 12 h. Default: 12 h. The node ends the activity then.
 * @param attributesType The Swift type of the attributes.
 * @param attributes At most 4,096 bytes. Noroshi adds the id as {@code noroshiActivity}.
 * @param contentState An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services
 *     limit the whole payload to 4,096 bytes.
 * @param staleDate From then on the state counts as outdated.
 * @param relevance The greatest one of an app's activities is in the Dynamic Island.
 * @param alert {@code alert}
 * @param android {@code android}
 * @param iosVia Default: {@code apns} if the app has a credential for it, otherwise {@code fcm}.
 * @param frequentUpdates The app declares {@code NSSupportsLiveActivitiesFrequentUpdates}: a larger budget of high
 *     priorities.
 * @param join Who may join by reporting a token: devices of the target, or any device of the app.
 */
public record NewActivity(
        To to,
        @Nullable String id,
        @Nullable When when,
        @Nullable Duration ttl,
        @JsonProperty("attributes_type") String attributesType,
        @Nullable Map<String, @Nullable Object> attributes,
        @JsonProperty("content_state") Map<String, @Nullable Object> contentState,
        @JsonProperty("stale_date") @Nullable Instant staleDate,
        @Nullable Double relevance,
        ActivityAlert alert,
        @Nullable ActivityAndroid android,
        @JsonProperty("ios_via") @Nullable ActivityTransport iosVia,
        @JsonProperty("frequent_updates") @Nullable Boolean frequentUpdates,
        @Nullable ActivityJoin join) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewActivity}. */
    public static final class Builder {
        private @Nullable To to;
        private @Nullable String id;
        private @Nullable When when;
        private @Nullable Duration ttl;
        private @Nullable String attributesType;
        private @Nullable Map<String, @Nullable Object> attributes;
        private @Nullable Map<String, @Nullable Object> contentState;
        private @Nullable Instant staleDate;
        private @Nullable Double relevance;
        private @Nullable ActivityAlert alert;
        private @Nullable ActivityAndroid android;
        private @Nullable ActivityTransport iosVia;
        private @Nullable Boolean frequentUpdates;
        private @Nullable ActivityJoin join;

        private Builder() {}

        /** {@code to} */
        public Builder to(To to) {
            this.to = to;
            return this;
        }

        /** Default: a UUIDv7. Devices name their token of the activity with it. */
        public Builder id(@Nullable String id) {
            this.id = id;
            return this;
        }

        /** Which devices receive each state as a message too, which replaces the message of the state before. */
        public Builder when(@Nullable When when) {
            this.when = when;
            return this;
        }

        /** 1 s to 12 h. Default: 12 h. The node ends the activity then. */
        public Builder ttl(@Nullable Duration ttl) {
            this.ttl = ttl;
            return this;
        }

        /** The Swift type of the attributes. */
        public Builder attributesType(String attributesType) {
            this.attributesType = attributesType;
            return this;
        }

        /** At most 4,096 bytes. Noroshi adds the id as {@code noroshiActivity}. */
        public Builder attributes(@Nullable Map<String, @Nullable Object> attributes) {
            this.attributes = attributes;
            return this;
        }

        /**
         * An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services limit the
         * whole payload to 4,096 bytes.
         */
        public Builder contentState(Map<String, @Nullable Object> contentState) {
            this.contentState = contentState;
            return this;
        }

        /** From then on the state counts as outdated. */
        public Builder staleDate(@Nullable Instant staleDate) {
            this.staleDate = staleDate;
            return this;
        }

        /** The greatest one of an app's activities is in the Dynamic Island. */
        public Builder relevance(@Nullable Double relevance) {
            this.relevance = relevance;
            return this;
        }

        /** {@code alert} */
        public Builder alert(ActivityAlert alert) {
            this.alert = alert;
            return this;
        }

        /** {@code android} */
        public Builder android(@Nullable ActivityAndroid android) {
            this.android = android;
            return this;
        }

        /** Default: {@code apns} if the app has a credential for it, otherwise {@code fcm}. */
        public Builder iosVia(@Nullable ActivityTransport iosVia) {
            this.iosVia = iosVia;
            return this;
        }

        /** The app declares {@code NSSupportsLiveActivitiesFrequentUpdates}: a larger budget of high priorities. */
        public Builder frequentUpdates(@Nullable Boolean frequentUpdates) {
            this.frequentUpdates = frequentUpdates;
            return this;
        }

        /** Who may join by reporting a token: devices of the target, or any device of the app. */
        public Builder join(@Nullable ActivityJoin join) {
            this.join = join;
            return this;
        }

        public NewActivity build() {
            return new NewActivity(
                    Objects.requireNonNull(to, "to"),
                    id,
                    when,
                    ttl,
                    Objects.requireNonNull(attributesType, "attributesType"),
                    attributes,
                    Objects.requireNonNull(contentState, "contentState"),
                    staleDate,
                    relevance,
                    Objects.requireNonNull(alert, "alert"),
                    android,
                    iosVia,
                    frequentUpdates,
                    join);
        }
    }
}
