package io.noroshi.client;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A page of items, newest first.
 *
 * @param items at most {@code limit} of the query
 * @param next {@code after} of the next page; {@code null} on the last one
 */
public record ItemPage(List<Item> items, @Nullable String next) {}
