// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param restored Tokens.
 */
public record RestoredTokens(long restored) {}
