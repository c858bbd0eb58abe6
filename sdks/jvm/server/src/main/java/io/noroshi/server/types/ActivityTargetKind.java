// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Values of the API. */
public enum ActivityTargetKind {
    @JsonProperty("users")
    USERS,
    @JsonProperty("devices")
    DEVICES,
    @JsonProperty("topic")
    TOPIC,
    @JsonProperty("condition")
    CONDITION,
    @JsonProperty("everyone")
    EVERYONE,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
