// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Who may join by reporting a token: devices of the target, or any device of the app. */
public enum ActivityJoin {
    @JsonProperty("invited")
    INVITED,
    @JsonProperty("anyone")
    ANYONE,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
