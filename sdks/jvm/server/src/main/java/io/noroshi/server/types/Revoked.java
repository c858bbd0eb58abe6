// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * A part of an answer.
 *
 * @param device One installed app: 1 to 128 bytes without control characters.
 * @param tokenVersion {@code token_version}
 */
public record Revoked(String device, @JsonProperty("token_version") long tokenVersion) {}
