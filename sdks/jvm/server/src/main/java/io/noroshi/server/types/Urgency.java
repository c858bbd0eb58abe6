// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** RFC 8030 §5.3. */
public enum Urgency {
    @JsonProperty("very-low")
    VERY_LOW,
    @JsonProperty("low")
    LOW,
    @JsonProperty("normal")
    NORMAL,
    @JsonProperty("high")
    HIGH,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
