// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * Time from the queue to the push service's answer.
 *
 * @param p50Ms {@code p50_ms}
 * @param p99Ms {@code p99_ms}
 */
public record CampaignLatency(
        @JsonProperty("p50_ms") @Nullable Long p50Ms, @JsonProperty("p99_ms") @Nullable Long p99Ms) {}
