// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * The answer of the push service.
 *
 * @param answer {@code accepted}: the push service accepted it.
 * @param reason The push service's reason, or ours.
 * @param explain {@code explain}
 */
public record PushTested(PushTestedAnswer answer, @Nullable String reason, String explain) {}
