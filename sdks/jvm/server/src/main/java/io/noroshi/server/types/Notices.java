// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param notices {@code notices}
 * @param next {@code after} of the next page. Absent on the last page.
 */
public record Notices(List<Notice> notices, @Nullable String next) {}
