// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * Null for the control itself, and if nothing is sent.
 *
 * @param delivered Null while either has no devices.
 * @param opened Null while either has no devices.
 */
public record CampaignVariantReportAgainstControl(
        @Nullable CampaignVariantReportAgainstControlDelivered delivered,
        @Nullable CampaignVariantReportAgainstControlOpened opened) {}
