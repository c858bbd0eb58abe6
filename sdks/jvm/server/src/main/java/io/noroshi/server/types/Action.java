// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A button.
 *
 * @param id What the app learns when the user presses it.
 * @param title {@code title}
 * @param url Absolute URL that it opens. The schemes {@code javascript}, {@code data} and {@code vbscript} are
 *     rejected.
 */
public record Action(String id, String title, @Nullable String url) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Action}. */
    public static final class Builder {
        private @Nullable String id;
        private @Nullable String title;
        private @Nullable String url;

        private Builder() {}

        /** What the app learns when the user presses it. */
        public Builder id(String id) {
            this.id = id;
            return this;
        }

        /** {@code title} */
        public Builder title(String title) {
            this.title = title;
            return this;
        }

        /**
         * Absolute URL that it opens. The schemes {@code javascript}, {@code data} and {@code vbscript} are rejected.
         */
        public Builder url(@Nullable String url) {
            this.url = url;
            return this;
        }

        public Action build() {
            return new Action(Objects.requireNonNull(id, "id"), Objects.requireNonNull(title, "title"), url);
        }
    }
}
