// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Direction of the texts, for browsers. */
public enum ShownDir {
    @JsonProperty("auto")
    AUTO,
    @JsonProperty("ltr")
    LTR,
    @JsonProperty("rtl")
    RTL,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
