// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import io.noroshi.server.Change;
import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * Absent fields stay.
 *
 * @param contentState An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services
 *     limit the whole payload to 4,096 bytes.
 * @param staleDate {@code null}: the state does not become outdated.
 * @param relevance The greatest one of an app's activities is in the Dynamic Island.
 * @param alert {@code alert}
 * @param android {@code android}
 * @param urgency {@code high} asks for priority 10, while the budget of the activity allows it.
 */
public record ActivityUpdate(
        @JsonProperty("content_state") @Nullable Change<Object> contentState,
        @JsonProperty("stale_date") @Nullable Change<Instant> staleDate,
        @Nullable Change<Double> relevance,
        @Nullable Change<ActivityAlert> alert,
        @Nullable Change<ActivityAndroid> android,
        @Nullable Change<ActivityUpdateUrgency> urgency) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityUpdate}. */
    public static final class Builder {
        private @Nullable Change<Object> contentState;
        private @Nullable Change<Instant> staleDate;
        private @Nullable Change<Double> relevance;
        private @Nullable Change<ActivityAlert> alert;
        private @Nullable Change<ActivityAndroid> android;
        private @Nullable Change<ActivityUpdateUrgency> urgency;

        private Builder() {}

        /**
         * An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services limit the
         * whole payload to 4,096 bytes.
         */
        public Builder contentState(Object contentState) {
            this.contentState = Change.to(contentState);
            return this;
        }

        /** Clears {@code content_state}. */
        public Builder clearContentState() {
            contentState = Change.clear();
            return this;
        }

        /** {@code null}: the state does not become outdated. */
        public Builder staleDate(Instant staleDate) {
            this.staleDate = Change.to(staleDate);
            return this;
        }

        /** Clears {@code stale_date}. */
        public Builder clearStaleDate() {
            staleDate = Change.clear();
            return this;
        }

        /** The greatest one of an app's activities is in the Dynamic Island. */
        public Builder relevance(double relevance) {
            this.relevance = Change.to(relevance);
            return this;
        }

        /** Clears {@code relevance}. */
        public Builder clearRelevance() {
            relevance = Change.clear();
            return this;
        }

        /** {@code alert} */
        public Builder alert(ActivityAlert alert) {
            this.alert = Change.to(alert);
            return this;
        }

        /** Clears {@code alert}. */
        public Builder clearAlert() {
            alert = Change.clear();
            return this;
        }

        /** {@code android} */
        public Builder android(ActivityAndroid android) {
            this.android = Change.to(android);
            return this;
        }

        /** Clears {@code android}. */
        public Builder clearAndroid() {
            android = Change.clear();
            return this;
        }

        /** {@code high} asks for priority 10, while the budget of the activity allows it. */
        public Builder urgency(ActivityUpdateUrgency urgency) {
            this.urgency = Change.to(urgency);
            return this;
        }

        /** Clears {@code urgency}. */
        public Builder clearUrgency() {
            urgency = Change.clear();
            return this;
        }

        public ActivityUpdate build() {
            return new ActivityUpdate(contentState, staleDate, relevance, alert, android, urgency);
        }
    }
}
