package io.noroshi.client;

import java.util.List;

/**
 * Items of the user's notification centre changed.
 *
 * @param event {@code added}, {@code read}, {@code unread}, {@code archived}, {@code unarchived} or {@code deleted};
 *     later versions of the service may add others
 * @param ids at most 100
 * @param hasMore other items changed too: list them again
 * @param counts the counts afterwards
 */
public record ItemsEvent(String event, List<String> ids, boolean hasMore, ItemCounts counts) {}
