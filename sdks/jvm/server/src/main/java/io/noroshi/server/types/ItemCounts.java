// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;

/**
 * A part of an answer.
 *
 * @param unread All unread items.
 * @param categories Unread items by category, at most 100 categories. Items of no category are only in {@code unread}.
 */
public record ItemCounts(long unread, Map<String, Long> categories) {}
