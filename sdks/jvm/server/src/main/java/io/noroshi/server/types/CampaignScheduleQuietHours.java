// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/**
 * A part of an answer.
 *
 * @param from {@code from}
 * @param to {@code to}
 */
public record CampaignScheduleQuietHours(String from, String to) {}
