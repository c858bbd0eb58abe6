// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Absent if there was no response.
 *
 * @param status {@code status}
 * @param body As {@code body} above, at most 1,024 bytes. Absent if it is empty.
 */
public record PushAttemptResponse(int status, @Nullable Object body) {}
