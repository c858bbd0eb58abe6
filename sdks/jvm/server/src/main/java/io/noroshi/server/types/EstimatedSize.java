// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A number with its 95 % interval. All three are equal if it was counted.
 *
 * @param value {@code value}
 * @param low {@code low}
 * @param high {@code high}
 */
public record EstimatedSize(long value, long low, long high) {}
