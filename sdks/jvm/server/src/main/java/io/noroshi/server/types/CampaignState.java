// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code scheduled}: waits for {@code start_at}. */
public enum CampaignState {
    @JsonProperty("draft")
    DRAFT,
    @JsonProperty("scheduled")
    SCHEDULED,
    @JsonProperty("running")
    RUNNING,
    @JsonProperty("paused")
    PAUSED,
    @JsonProperty("done")
    DONE,
    @JsonProperty("aborted")
    ABORTED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
