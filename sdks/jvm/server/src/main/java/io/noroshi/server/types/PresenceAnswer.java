// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;

/**
 * A part of an answer.
 *
 * @param users {@code users}
 */
public record PresenceAnswer(Map<String, PresenceAnswerUser> users) {}
