// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.time.Instant;
import java.util.List;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param startsAt When the first device is due, if the campaign starts now.
 * @param endsAt When the last device gets it, at this rate. Null: the rate is unknown.
 * @param ratePerSecond {@code rate_per_second}
 * @param rateFrom {@code limit}: the campaign's own limit. {@code measured}: the median of the app's last campaigns
 *     that neither a limit nor local times slowed down.
 * @param measuredCampaigns How many campaigns the measured rate comes from.
 * @param steps Devices by the time that they are due, after local times and quiet hours.
 */
public record CampaignEstimateForecast(
        @JsonProperty("starts_at") Instant startsAt,
        @JsonProperty("ends_at") @Nullable Instant endsAt,
        @JsonProperty("rate_per_second") @Nullable Double ratePerSecond,
        @JsonProperty("rate_from") CampaignEstimateForecastRateFrom rateFrom,
        @JsonProperty("measured_campaigns") long measuredCampaigns,
        List<CampaignEstimateForecastStep> steps) {}
