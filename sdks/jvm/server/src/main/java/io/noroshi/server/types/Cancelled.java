// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param id UUIDv7: ids sort by the time they were accepted.
 * @param removed Number of inbox rows removed.
 */
public record Cancelled(String id, long removed) {}
