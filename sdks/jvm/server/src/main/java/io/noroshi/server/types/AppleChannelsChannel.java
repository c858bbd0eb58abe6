// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param apnsId {@code apns_id}
 * @param name {@code null}: no channel of the app has this id.
 */
public record AppleChannelsChannel(@JsonProperty("apns_id") String apnsId, @Nullable String name) {}
