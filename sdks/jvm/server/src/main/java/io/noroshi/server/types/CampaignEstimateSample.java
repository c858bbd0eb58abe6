// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import org.jspecify.annotations.Nullable;

/**
 * A part of an answer.
 *
 * @param device {@code device}
 * @param user {@code user}
 * @param platform {@code platform}
 * @param locale {@code locale}
 * @param timezone {@code timezone}
 * @param service The push service that reaches it.
 */
public record CampaignEstimateSample(
        String device,
        @Nullable String user,
        @Nullable String platform,
        @Nullable String locale,
        @Nullable String timezone,
        @Nullable PushService service) {}
