// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param at RFC 3339, UTC.
 * @param outcome {@code outcome}
 * @param explain {@code explain}
 * @param reason The push service's reason, such as {@code BadDeviceToken}, or ours, such as {@code timeout}. Absent if
 *     there is none.
 */
public record TraceStep(Instant at, Outcome outcome, String explain, @Nullable String reason) {}
