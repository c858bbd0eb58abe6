// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;

/**
 * A part of an answer.
 *
 * @param at RFC 3339, UTC.
 * @param reason The push service's reason.
 */
public record DevicePushTokenSuspect(Instant at, String reason) {}
