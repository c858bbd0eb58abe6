// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * {@code limit}: the campaign's own limit. {@code measured}: the median of the app's last campaigns that neither a
 * limit nor local times slowed down.
 */
public enum CampaignEstimateForecastRateFrom {
    @JsonProperty("limit")
    LIMIT,
    @JsonProperty("measured")
    MEASURED,
    @JsonProperty("unknown")
    UNKNOWN,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
