package io.noroshi.client;

import java.util.LinkedHashMap;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * Which items to list.
 *
 * @param state {@code unread}, {@code read}, {@code archived} or {@code all}; {@code null}: all that are not archived
 * @param category only items of this category
 * @param limit items of a page, 1 to 1,000; {@code null}: 100
 * @param after {@code next} of the previous page
 */
public record ItemQuery(
        @Nullable String state, @Nullable String category, @Nullable Integer limit, @Nullable String after) {
    /** All that are not archived, 100 on a page. */
    public static final ItemQuery ALL = new ItemQuery(null, null, null, null);

    public ItemQuery withState(@Nullable String state) {
        return new ItemQuery(state, category, limit, after);
    }

    public ItemQuery withCategory(@Nullable String category) {
        return new ItemQuery(state, category, limit, after);
    }

    public ItemQuery withLimit(@Nullable Integer limit) {
        return new ItemQuery(state, category, limit, after);
    }

    public ItemQuery withAfter(@Nullable String after) {
        return new ItemQuery(state, category, limit, after);
    }

    Map<String, String> query() {
        Map<String, String> query = new LinkedHashMap<>();
        if (state != null) query.put("state", state);
        if (category != null) query.put("category", category);
        if (after != null) query.put("after", after);
        if (limit != null) query.put("limit", limit.toString());
        return query;
    }
}
