package io.noroshi.client;

import java.util.Map;

/**
 * Unread items of the user.
 *
 * @param unread all
 * @param categories by category
 */
public record ItemCounts(long unread, Map<String, Long> categories) {
    static ItemCounts of(Fields fields) {
        return new ItemCounts(fields.number("unread", 0), fields.numbers("categories"));
    }
}
