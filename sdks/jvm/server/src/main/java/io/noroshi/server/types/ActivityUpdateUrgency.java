// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code high} asks for priority 10, while the budget of the activity allows it. */
public enum ActivityUpdateUrgency {
    @JsonProperty("normal")
    NORMAL,
    @JsonProperty("high")
    HIGH,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
