// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param invalidations {@code invalidations}
 * @param next {@code next}
 */
public record Invalidations(List<Invalidation> invalidations, @Nullable String next) {}
