// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Lights up the screen. Has a title or a body.
 *
 * @param title {@code title}
 * @param body {@code body}
 * @param sound {@code default}, or a sound of the app.
 */
public record NewBroadcastAlert(@Nullable String title, @Nullable String body, @Nullable String sound) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link NewBroadcastAlert}. */
    public static final class Builder {
        private @Nullable String title;
        private @Nullable String body;
        private @Nullable String sound;

        private Builder() {}

        /** {@code title} */
        public Builder title(@Nullable String title) {
            this.title = title;
            return this;
        }

        /** {@code body} */
        public Builder body(@Nullable String body) {
            this.body = body;
            return this;
        }

        /** {@code default}, or a sound of the app. */
        public Builder sound(@Nullable String sound) {
            this.sound = sound;
            return this;
        }

        public NewBroadcastAlert build() {
            return new NewBroadcastAlert(title, body, sound);
        }
    }
}
