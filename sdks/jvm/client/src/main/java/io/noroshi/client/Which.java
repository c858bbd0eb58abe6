package io.noroshi.client;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/** Items to change. */
public final class Which {
    /** A request has at most as many ids. */
    private static final int IDS_MAX = 100;

    /** The bodies of the requests, without the action. */
    private final List<Map<String, Object>> parts;

    private Which(List<Map<String, Object>> parts) {
        this.parts = parts;
    }

    /** Items by their ids. */
    public static Which ids(String... ids) {
        return ids(List.of(ids));
    }

    /** Items by their ids. */
    public static Which ids(List<String> ids) {
        if (ids.isEmpty()) throw new IllegalArgumentException("ids must not be empty");
        List<Map<String, Object>> parts = new ArrayList<>();
        for (int from = 0; from < ids.size(); from += IDS_MAX)
            parts.add(Map.of("ids", List.copyOf(ids.subList(from, Math.min(from + IDS_MAX, ids.size())))));
        return new Which(parts);
    }

    /** An item and all older ones. */
    public static Which upTo(String id) {
        return upTo(id, null);
    }

    /** Items of a category: one and all older ones. */
    public static Which upTo(String id, @Nullable String category) {
        return new Which(List.of(category == null ? Map.of("up_to", id) : Map.of("up_to", id, "category", category)));
    }

    List<Map<String, Object>> bodies(String action) {
        List<Map<String, Object>> bodies = new ArrayList<>();
        for (Map<String, Object> part : parts) {
            Map<String, Object> body = new LinkedHashMap<>();
            body.put("action", action);
            body.putAll(part);
            bodies.add(body);
        }
        return bodies;
    }
}
