// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param channels {@code channels}
 */
public record AppleChannels(List<AppleChannelsChannel> channels) {}
