// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;

/**
 * A part of an answer.
 *
 * @param pushTokens The main token first.
 */
public record DevicePushTokens(@JsonProperty("push_tokens") List<DevicePushToken> pushTokens) {}
