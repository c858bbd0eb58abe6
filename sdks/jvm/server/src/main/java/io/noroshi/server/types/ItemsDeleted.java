// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param deleted {@code deleted}
 */
public record ItemsDeleted(long deleted) {}
