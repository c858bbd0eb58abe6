// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param experiment {@code experiment}
 * @param device {@code device}
 * @param user {@code user}
 * @param running Whether it runs now.
 * @param variant Null: the device is not in its audience.
 */
public record ExperimentAssigned(
        String experiment, String device, @Nullable String user, boolean running, @Nullable String variant) {}
