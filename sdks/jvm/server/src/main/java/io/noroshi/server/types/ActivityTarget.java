// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Only for a single activity.
 *
 * @param kind {@code kind}
 * @param topic {@code topic}
 * @param condition {@code condition}
 * @param named {@code named}
 */
public record ActivityTarget(
        ActivityTargetKind kind, @Nullable String topic, @Nullable String condition, @Nullable Long named) {}
