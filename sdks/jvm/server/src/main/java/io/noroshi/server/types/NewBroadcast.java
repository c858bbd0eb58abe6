// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A broadcast to one channel.
 *
 * @param event Nothing starts an activity through a channel.
 * @param contentState The fields of the app's {@code ContentState}. Required for {@code update}; an {@code end} without
 *     it leaves the last state.
 * @param timestamp When the state was true. Devices drop a state that is older than the one they show. Default: the
 *     time of acceptance.
 * @param staleAt From then on the activity counts as outdated.
 * @param dismissAt With {@code end} only: when the activity leaves the Lock Screen. Default: after four hours.
 * @param relevance The greatest one of an app's activities is in the Dynamic Island.
 * @param alert Lights up the screen. Has a title or a body.
 * @param priority {@code apns-priority}. 10 is at once.
 * @param replaceable A newer broadcast of the channel replaces it while it waits: for states of which only the newest
 *     matters.
 * @param ttl How long it is tried, and, in a channel with {@code storage} {@code latest}, how long Apple keeps it.
 *     Default: 1 h.
 */
public record NewBroadcast(
        BroadcastEvent event,
        @JsonProperty("content_state") @Nullable Map<String, @Nullable Object> contentState,
        @Nullable Instant timestamp,
        @JsonProperty("stale_at") @Nullable Instant staleAt,
        @JsonProperty("dismiss_at") @Nullable Instant dismissAt,
        @Nullable Double relevance,
        @Nullable NewBroadcastAlert alert,
        @Nullable Integer priority,
        @Nullable Boolean replaceable,
        @Nullable Duration ttl) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewBroadcast}. */
    public static final class Builder {
        private @Nullable BroadcastEvent event;
        private @Nullable Map<String, @Nullable Object> contentState;
        private @Nullable Instant timestamp;
        private @Nullable Instant staleAt;
        private @Nullable Instant dismissAt;
        private @Nullable Double relevance;
        private @Nullable NewBroadcastAlert alert;
        private @Nullable Integer priority;
        private @Nullable Boolean replaceable;
        private @Nullable Duration ttl;

        private Builder() {}

        /** Nothing starts an activity through a channel. */
        public Builder event(BroadcastEvent event) {
            this.event = event;
            return this;
        }

        /**
         * The fields of the app's {@code ContentState}. Required for {@code update}; an {@code end} without it leaves
         * the last state.
         */
        public Builder contentState(@Nullable Map<String, @Nullable Object> contentState) {
            this.contentState = contentState;
            return this;
        }

        /**
         * When the state was true. Devices drop a state that is older than the one they show. Default: the time of
         * acceptance.
         */
        public Builder timestamp(@Nullable Instant timestamp) {
            this.timestamp = timestamp;
            return this;
        }

        /** From then on the activity counts as outdated. */
        public Builder staleAt(@Nullable Instant staleAt) {
            this.staleAt = staleAt;
            return this;
        }

        /** With {@code end} only: when the activity leaves the Lock Screen. Default: after four hours. */
        public Builder dismissAt(@Nullable Instant dismissAt) {
            this.dismissAt = dismissAt;
            return this;
        }

        /** The greatest one of an app's activities is in the Dynamic Island. */
        public Builder relevance(@Nullable Double relevance) {
            this.relevance = relevance;
            return this;
        }

        /** Lights up the screen. Has a title or a body. */
        public Builder alert(@Nullable NewBroadcastAlert alert) {
            this.alert = alert;
            return this;
        }

        /** {@code apns-priority}. 10 is at once. */
        public Builder priority(@Nullable Integer priority) {
            this.priority = priority;
            return this;
        }

        /** A newer broadcast of the channel replaces it while it waits: for states of which only the newest matters. */
        public Builder replaceable(@Nullable Boolean replaceable) {
            this.replaceable = replaceable;
            return this;
        }

        /**
         * How long it is tried, and, in a channel with {@code storage} {@code latest}, how long Apple keeps it.
         * Default: 1 h.
         */
        public Builder ttl(@Nullable Duration ttl) {
            this.ttl = ttl;
            return this;
        }

        public NewBroadcast build() {
            return new NewBroadcast(
                    Objects.requireNonNull(event, "event"),
                    contentState,
                    timestamp,
                    staleAt,
                    dismissAt,
                    relevance,
                    alert,
                    priority,
                    replaceable,
                    ttl);
        }
    }
}
