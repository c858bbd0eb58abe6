// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * When devices are due, and how fast it sends, as the request states it.
 *
 * @param localTime Time on each device's clock, such as {@code 09:00}. Null: at once.
 * @param quietHours {@code quiet_hours}
 * @param ratePerSecond Wanted maximum of recipients per second. Null: none. The measured rate is
 *     {@code rate_per_second} of the campaign.
 * @param batchSize Recipients in one batch.
 */
public record CampaignSchedule(
        @JsonProperty("local_time") @Nullable String localTime,
        @JsonProperty("quiet_hours") @Nullable CampaignScheduleQuietHours quietHours,
        @JsonProperty("rate_per_second") @Nullable Long ratePerSecond,
        @JsonProperty("batch_size") long batchSize) {}
