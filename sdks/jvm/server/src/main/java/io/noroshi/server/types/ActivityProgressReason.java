// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param outcome {@code outcome}
 * @param reason {@code reason}
 * @param count {@code count}
 */
public record ActivityProgressReason(Outcome outcome, @Nullable String reason, long count) {}
