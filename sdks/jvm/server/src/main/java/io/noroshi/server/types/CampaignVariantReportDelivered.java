// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * {@code pushed} if only push services deliver it, {@code acked} with {@code when} "stored", otherwise {@code written}.
 *
 * @param count {@code count}
 * @param rate Share of the targeted devices. Null if there are none or nothing is sent.
 * @param low Lower bound of Wilson's 95 % interval.
 * @param high Its upper bound.
 */
public record CampaignVariantReportDelivered(
        long count, @Nullable Double rate, @Nullable Double low, @Nullable Double high) {}
