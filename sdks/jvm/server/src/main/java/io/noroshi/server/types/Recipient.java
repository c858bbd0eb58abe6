// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A line of an upload. A later line replaces an earlier one of the same user.
 *
 * @param user {@code user}
 * @param variables Values of the message's placeholders.
 * @param notification Replaces the message's, without placeholders.
 * @param data Replaces the message's, without placeholders.
 */
public record Recipient(
        String user, @Nullable Map<String, String> variables, @Nullable Shown notification, @Nullable Object data) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link Recipient}. */
    public static final class Builder {
        private @Nullable String user;
        private @Nullable Map<String, String> variables;
        private @Nullable Shown notification;
        private @Nullable Object data;

        private Builder() {}

        /** {@code user} */
        public Builder user(String user) {
            this.user = user;
            return this;
        }

        /** Values of the message's placeholders. */
        public Builder variables(@Nullable Map<String, String> variables) {
            this.variables = variables;
            return this;
        }

        /** Replaces the message's, without placeholders. */
        public Builder notification(@Nullable Shown notification) {
            this.notification = notification;
            return this;
        }

        /** Replaces the message's, without placeholders. */
        public Builder data(@Nullable Object data) {
            this.data = data;
            return this;
        }

        public Recipient build() {
            return new Recipient(Objects.requireNonNull(user, "user"), variables, notification, data);
        }
    }
}
