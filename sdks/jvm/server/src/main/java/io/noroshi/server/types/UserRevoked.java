// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param user {@code user}
 * @param devices Number of devices whose tokens were revoked.
 */
public record UserRevoked(String user, long devices) {}
