package io.noroshi.server;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A page of a list.
 *
 * @param items its entries; there may be none although more pages follow
 * @param next {@code after} of the next page; {@code null} on the last one
 * @param <T> the type of the entries
 */
public record Page<T>(List<T> items, @Nullable String next) {}
