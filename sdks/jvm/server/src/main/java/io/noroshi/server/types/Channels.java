// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param channels {@code channels}
 * @param next Value of {@code after} for the next page; {@code null} at the end.
 */
public record Channels(List<Channel> channels, @Nullable String next) {}
