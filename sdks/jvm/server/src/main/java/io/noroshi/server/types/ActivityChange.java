// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Only in the answer to a change.
 *
 * @param priority 5 if the update did not ask for a high urgency, or the budget is used up.
 * @param notification The message for connected devices. {@code null}: the node had no room for it; the next state
 *     replaces it.
 */
public record ActivityChange(int priority, @Nullable String notification) {}
