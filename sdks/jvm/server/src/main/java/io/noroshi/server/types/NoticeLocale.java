// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param notification {@code notification}
 * @param data As defined.
 */
public record NoticeLocale(@Nullable Map<String, @Nullable Object> notification, @Nullable Object data) {}
