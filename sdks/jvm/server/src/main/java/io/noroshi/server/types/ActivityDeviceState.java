// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code summary} explains it. */
public enum ActivityDeviceState {
    @JsonProperty("not_invited")
    NOT_INVITED,
    @JsonProperty("invited")
    INVITED,
    @JsonProperty("started")
    STARTED,
    @JsonProperty("joined")
    JOINED,
    @JsonProperty("android")
    ANDROID,
    @JsonProperty("live_only")
    LIVE_ONLY,
    @JsonProperty("other_user")
    OTHER_USER,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
