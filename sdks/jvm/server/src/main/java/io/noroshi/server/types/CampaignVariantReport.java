// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;
import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param name {@code name}
 * @param heldOut Sends nothing to its devices.
 * @param notification The notification id of its pushes and outcomes.
 * @param targeted Devices that were assigned it and have a final outcome.
 * @param pushed Accepted by a push service.
 * @param written Written to connections. Counts a device again if it reconnects before it acknowledges the message.
 * @param acked Acknowledged {@code stored} messages.
 * @param delivered {@code pushed} if only push services deliver it, {@code acked} with {@code when} "stored", otherwise
 *     {@code written}.
 * @param opened {@code POST /v1/me/opened}, once per device.
 * @param againstControl Null for the control itself, and if nothing is sent.
 */
public record CampaignVariantReport(
        String name,
        @JsonProperty("held_out") boolean heldOut,
        String notification,
        long targeted,
        long pushed,
        long written,
        long acked,
        CampaignVariantReportDelivered delivered,
        CampaignVariantReportOpened opened,
        @JsonProperty("against_control") @Nullable CampaignVariantReportAgainstControl againstControl) {}
