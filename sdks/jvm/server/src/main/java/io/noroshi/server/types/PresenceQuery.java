// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import java.util.Objects;
import org.jspecify.annotations.Nullable;

/**
 * A part of a request.
 *
 * @param users {@code users}
 */
public record PresenceQuery(List<String> users) {
    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** Builds a {@link PresenceQuery}. */
    public static final class Builder {
        private @Nullable List<String> users;

        private Builder() {}

        /** {@code users} */
        public Builder users(List<String> users) {
            this.users = users;
            return this;
        }

        public PresenceQuery build() {
            return new PresenceQuery(Objects.requireNonNull(users, "users"));
        }
    }
}
