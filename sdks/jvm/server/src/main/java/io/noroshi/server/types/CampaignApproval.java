// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import java.time.Instant;

/**
 * A part of an answer.
 *
 * @param by E-mail address of the second person.
 * @param at RFC 3339, UTC.
 */
public record CampaignApproval(String by, Instant at) {}
