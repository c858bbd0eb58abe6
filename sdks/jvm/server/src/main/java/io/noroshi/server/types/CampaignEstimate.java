// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * How many devices a campaign would reach, and until when.
 *
 * @param exact True: everything was counted. False: the sizes are estimates from a stratified sample.
 * @param examined Devices that were read.
 * @param revision The revision of the campaign that was estimated.
 * @param devices {@code devices}
 * @param users {@code users}
 * @param noPushToken {@code no_push_token}
 * @param suspect {@code suspect}
 * @param byService Devices that push services can reach.
 * @param byLocale Devices by language, largest first.
 * @param otherLocales {@code other_locales}
 * @param sample Devices of the audience, chosen at random.
 * @param forecast {@code forecast}
 * @param approvalAbove A campaign with more recipients needs the approval of a second person, if this caller starts it.
 *     Null: none does.
 * @param needsApproval Whether it may be that large.
 */
public record CampaignEstimate(
        boolean exact,
        long examined,
        long revision,
        EstimatedSize devices,
        EstimatedSize users,
        @JsonProperty("no_push_token") EstimatedSize noPushToken,
        EstimatedSize suspect,
        @JsonProperty("by_service") Map<String, EstimatedSize> byService,
        @JsonProperty("by_locale") List<CampaignEstimateByLocale> byLocale,
        @JsonProperty("other_locales") EstimatedSize otherLocales,
        List<CampaignEstimateSample> sample,
        CampaignEstimateForecast forecast,
        @JsonProperty("approval_above") @Nullable Long approvalAbove,
        @JsonProperty("needs_approval") boolean needsApproval) {}
