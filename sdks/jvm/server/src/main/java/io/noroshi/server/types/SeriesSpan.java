// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;

/**
 * A part of an answer.
 *
 * @param from {@code from}
 * @param until {@code until}
 */
public record SeriesSpan(Instant from, Instant until) {}
