// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * Null while either has no devices.
 *
 * @param difference The rate minus the control's.
 * @param low Lower bound of Newcombe's 95 % interval.
 * @param high Its upper bound.
 * @param pValue p-value of the two-sided test of no difference.
 * @param distinguishable The interval excludes 0.
 */
public record CampaignVariantReportAgainstControlOpened(
        double difference, double low, double high, @JsonProperty("p_value") double pValue, boolean distinguishable) {}
