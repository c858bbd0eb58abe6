// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code extra} goes before other campaigns from the next batch on. */
public enum CampaignLane {
    @JsonProperty("campaign")
    CAMPAIGN,
    @JsonProperty("extra")
    EXTRA,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
