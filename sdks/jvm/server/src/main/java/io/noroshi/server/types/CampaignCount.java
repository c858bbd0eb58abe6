// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;
import org.jspecify.annotations.Nullable;

/**
 * The current audience of a campaign.
 *
 * @param devices Devices in the audience.
 * @param users Users of these devices. Null if there are too many to count.
 * @param noPushToken Devices without a push token.
 * @param suspect Devices with a suspended push token.
 * @param filtered Devices that the filter {@code devices} excludes.
 * @param byService Devices that push services can reach.
 * @param warnings What push services of the app do not show of the typed fields. Absent if there is nothing to warn of.
 */
public record CampaignCount(
        long devices,
        @Nullable Long users,
        @JsonProperty("no_push_token") long noPushToken,
        long suspect,
        long filtered,
        @JsonProperty("by_service") Map<String, Long> byService,
        @Nullable List<Warning> warnings) {}
