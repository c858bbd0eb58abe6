// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * What is missing or invalid in a draft.
 *
 * @param field Path of the field, such as {@code message.notification.title}. Null: the campaign as a whole.
 * @param code {@code code}
 * @param detail {@code detail}
 */
public record CampaignProblem(@Nullable String field, String code, String detail) {}
