package io.noroshi.client;

/**
 * The answer to a change of items.
 *
 * @param changed how many items were in another state before
 * @param counts the counts afterwards
 */
public record ItemsChanged(long changed, ItemCounts counts) {}
