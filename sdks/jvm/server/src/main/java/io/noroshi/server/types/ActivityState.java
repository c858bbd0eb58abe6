// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code expired}: its time was over. */
public enum ActivityState {
    @JsonProperty("active")
    ACTIVE,
    @JsonProperty("ended")
    ENDED,
    @JsonProperty("expired")
    EXPIRED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
