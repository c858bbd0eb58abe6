// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param items {@code items}
 * @param next The value of {@code after} for the next page; null on the last one.
 */
public record Items(List<Item> items, @Nullable String next) {}
