// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param presence {@code presence}
 */
public record PresenceAnswerUserDevice(String device, Presence presence) {}
