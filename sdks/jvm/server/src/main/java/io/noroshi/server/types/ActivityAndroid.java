// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * What Android devices show: the fields of {@code Notification.ProgressStyle} (Android 16). At most 4,096 bytes.
 *
 * @param title {@code title}
 * @param text {@code text}
 * @param shortText For the status bar chip; Android shows about seven characters.
 * @param progress {@code progress}
 */
public record ActivityAndroid(
        @Nullable String title,
        @Nullable String text,
        @JsonProperty("short_text") @Nullable String shortText,
        @Nullable ActivityAndroidProgress progress) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link ActivityAndroid}. */
    public static final class Builder {
        private @Nullable String title;
        private @Nullable String text;
        private @Nullable String shortText;
        private @Nullable ActivityAndroidProgress progress;

        private Builder() {}

        /** {@code title} */
        public Builder title(@Nullable String title) {
            this.title = title;
            return this;
        }

        /** {@code text} */
        public Builder text(@Nullable String text) {
            this.text = text;
            return this;
        }

        /** For the status bar chip; Android shows about seven characters. */
        public Builder shortText(@Nullable String shortText) {
            this.shortText = shortText;
            return this;
        }

        /** {@code progress} */
        public Builder progress(@Nullable ActivityAndroidProgress progress) {
            this.progress = progress;
            return this;
        }

        public ActivityAndroid build() {
            return new ActivityAndroid(title, text, shortText, progress);
        }
    }
}
