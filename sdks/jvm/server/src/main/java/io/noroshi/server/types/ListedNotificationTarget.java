// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param kind {@code kind}
 * @param topic 1 to 255 bytes of UTF-8 without control characters, {@code +} and {@code #}. A topic that begins with
 *     {@code $} is {@code $maintenance}, or one that topic rules allow to MQTT clients.
 * @param condition {@code condition}
 */
public record ListedNotificationTarget(TargetKind kind, @Nullable String topic, @Nullable String condition) {}
