// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.List;

/**
 * A part of an answer.
 *
 * @param credentials {@code credentials}
 */
public record PushCredentials(List<PushCredential> credentials) {}
