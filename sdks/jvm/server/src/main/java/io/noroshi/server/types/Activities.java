// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param activities {@code activities}
 * @param next {@code after} of the next page.
 */
public record Activities(List<Activity> activities, @Nullable String next) {}
