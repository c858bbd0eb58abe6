// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param presence {@code presence}
 * @param devices Connected devices.
 */
public record PresenceAnswerUser(Presence presence, List<PresenceAnswerUserDevice> devices) {}
