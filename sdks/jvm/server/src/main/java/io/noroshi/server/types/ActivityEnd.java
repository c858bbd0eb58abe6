// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param contentState An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services
 *     limit the whole payload to 4,096 bytes.
 * @param dismissalDate When iOS removes the activity: at most 4 hours from now. A past time removes it at once.
 *     Default: iOS decides, after 4 hours at the latest.
 * @param relevance The greatest one of an app's activities is in the Dynamic Island.
 * @param alert {@code alert}
 * @param android {@code android}
 */
public record ActivityEnd(
        @JsonProperty("content_state") @Nullable Map<String, @Nullable Object> contentState,
        @JsonProperty("dismissal_date") @Nullable Instant dismissalDate,
        @Nullable Double relevance,
        @Nullable ActivityAlert alert,
        @Nullable ActivityAndroid android) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityEnd}. */
    public static final class Builder {
        private @Nullable Map<String, @Nullable Object> contentState;
        private @Nullable Instant dismissalDate;
        private @Nullable Double relevance;
        private @Nullable ActivityAlert alert;
        private @Nullable ActivityAndroid android;

        private Builder() {}

        /**
         * An object with the fields of the app's {@code ContentState}, at most 4,096 bytes. Push services limit the
         * whole payload to 4,096 bytes.
         */
        public Builder contentState(@Nullable Map<String, @Nullable Object> contentState) {
            this.contentState = contentState;
            return this;
        }

        /**
         * When iOS removes the activity: at most 4 hours from now. A past time removes it at once. Default: iOS
         * decides, after 4 hours at the latest.
         */
        public Builder dismissalDate(@Nullable Instant dismissalDate) {
            this.dismissalDate = dismissalDate;
            return this;
        }

        /** The greatest one of an app's activities is in the Dynamic Island. */
        public Builder relevance(@Nullable Double relevance) {
            this.relevance = relevance;
            return this;
        }

        /** {@code alert} */
        public Builder alert(@Nullable ActivityAlert alert) {
            this.alert = alert;
            return this;
        }

        /** {@code android} */
        public Builder android(@Nullable ActivityAndroid android) {
            this.android = android;
            return this;
        }

        public ActivityEnd build() {
            return new ActivityEnd(contentState, dismissalDate, relevance, alert, android);
        }
    }
}
