// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * What made it an activity for the device: its own name, its user, a durable subscription, a condition, everyone, or a
 * token of the activity that the device reported. {@code none}: it is not for the device.
 */
public enum ActivityDeviceTargetedBy {
    @JsonProperty("device")
    DEVICE,
    @JsonProperty("user")
    USER,
    @JsonProperty("subscription")
    SUBSCRIPTION,
    @JsonProperty("condition")
    CONDITION,
    @JsonProperty("everyone")
    EVERYONE,
    @JsonProperty("joined")
    JOINED,
    @JsonProperty("none")
    NONE,
    @JsonProperty("unknown")
    UNKNOWN,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
