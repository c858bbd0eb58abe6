// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code fallback}: only if the device does not acknowledge it within {@code after}. */
public enum PushMode {
    @JsonProperty("never")
    NEVER,
    @JsonProperty("fallback")
    FALLBACK,
    @JsonProperty("always")
    ALWAYS,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
