// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;

/**
 * A part of an answer.
 *
 * @param dueAt RFC 3339, UTC.
 * @param batches {@code batches}
 */
public record CampaignStep(@JsonProperty("due_at") Instant dueAt, long batches) {}
