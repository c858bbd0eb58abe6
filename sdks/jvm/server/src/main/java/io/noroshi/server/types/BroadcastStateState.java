// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code sent}: Apple accepted it. Apple does not report what devices received. */
public enum BroadcastStateState {
    @JsonProperty("waiting")
    WAITING,
    @JsonProperty("sent")
    SENT,
    @JsonProperty("refused")
    REFUSED,
    @JsonProperty("expired")
    EXPIRED,
    @JsonProperty("replaced")
    REPLACED,
    @JsonProperty("cancelled")
    CANCELLED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
