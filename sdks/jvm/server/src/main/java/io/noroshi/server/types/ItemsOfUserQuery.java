// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which entries to list. Everything is optional.
 *
 * @param state Without it: all that are not archived.
 * @param category Only items of this category.
 * @param after {@code next} of the previous page.
 * @param limit Entries per page.
 */
public record ItemsOfUserQuery(
        @Nullable ItemsOfUserQueryState state,
        @Nullable String category,
        @Nullable String after,
        @Nullable Integer limit) {
    /** Everything. */
    public static final ItemsOfUserQuery ALL = builder().build();

    /** Builds one. */
    public static Builder builder() {
        return new Builder();
    }

    /** The parameters of the request, except {@code after}. */
    public Map<String, @Nullable Object> parameters() {
        Map<String, @Nullable Object> parameters = new LinkedHashMap<>();
        parameters.put("state", state);
        parameters.put("category", category);
        parameters.put("limit", limit);
        return parameters;
    }

    /** Builds a {@link ItemsOfUserQuery}. */
    public static final class Builder {
        private @Nullable ItemsOfUserQueryState state;
        private @Nullable String category;
        private @Nullable String after;
        private @Nullable Integer limit;

        private Builder() {}

        /** Without it: all that are not archived. */
        public Builder state(@Nullable ItemsOfUserQueryState state) {
            this.state = state;
            return this;
        }

        /** Only items of this category. */
        public Builder category(@Nullable String category) {
            this.category = category;
            return this;
        }

        /** {@code next} of the previous page. */
        public Builder after(@Nullable String after) {
            this.after = after;
            return this;
        }

        /** Entries per page. */
        public Builder limit(@Nullable Integer limit) {
            this.limit = limit;
            return this;
        }

        public ItemsOfUserQuery build() {
            return new ItemsOfUserQuery(state, category, after, limit);
        }
    }
}
