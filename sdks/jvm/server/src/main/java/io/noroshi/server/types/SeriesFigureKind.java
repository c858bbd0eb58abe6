// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Values of the API. */
public enum SeriesFigureKind {
    @JsonProperty("gauge")
    GAUGE,
    @JsonProperty("count")
    COUNT,
    @JsonProperty("time")
    TIME,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
