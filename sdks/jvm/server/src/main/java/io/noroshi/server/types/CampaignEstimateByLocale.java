// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param locale Null: devices without a language.
 * @param devices {@code devices}
 */
public record CampaignEstimateByLocale(@Nullable String locale, EstimatedSize devices) {}
