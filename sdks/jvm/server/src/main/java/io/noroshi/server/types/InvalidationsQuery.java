// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which entries to list. Everything is optional.
 *
 * @param after {@code next} of the previous page, or the last {@code seq}.
 * @param limit Entries per page.
 */
public record InvalidationsQuery(@Nullable String after, @Nullable Integer limit) {
    /** Everything. */
    public static final InvalidationsQuery ALL = builder().build();

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** The parameters of the request, except {@code after}. */
    public Map<String, @Nullable Object> parameters() {
        Map<String, @Nullable Object> parameters = new LinkedHashMap<>();
        parameters.put("limit", limit);
        return parameters;
    }

    /** Builds a {@link InvalidationsQuery}. */
    public static final class Builder {
        private @Nullable String after;
        private @Nullable Integer limit;

        private Builder() {}

        /** {@code next} of the previous page, or the last {@code seq}. */
        public Builder after(@Nullable String after) {
            this.after = after;
            return this;
        }

        /** Entries per page. */
        public Builder limit(@Nullable Integer limit) {
            this.limit = limit;
            return this;
        }

        public InvalidationsQuery build() {
            return new InvalidationsQuery(after, limit);
        }
    }
}
