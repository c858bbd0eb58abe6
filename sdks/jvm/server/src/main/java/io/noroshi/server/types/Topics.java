// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param topics {@code topics}
 * @param next {@code after} of the next page. Null on the last page.
 */
public record Topics(List<Topic> topics, @Nullable String next) {}
