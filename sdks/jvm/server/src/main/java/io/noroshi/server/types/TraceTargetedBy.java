// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * What made it a notification for the device: its own name, its user, a durable subscription, a subscription of a
 * session, a condition, everyone, the audience or the uploaded users of a campaign. {@code none}: it was not for the
 * device. {@code unknown}: not recorded.
 */
public enum TraceTargetedBy {
    @JsonProperty("device")
    DEVICE,
    @JsonProperty("user")
    USER,
    @JsonProperty("subscription")
    SUBSCRIPTION,
    @JsonProperty("session")
    SESSION,
    @JsonProperty("condition")
    CONDITION,
    @JsonProperty("everyone")
    EVERYONE,
    @JsonProperty("campaign")
    CAMPAIGN,
    @JsonProperty("upload")
    UPLOAD,
    @JsonProperty("none")
    NONE,
    @JsonProperty("unknown")
    UNKNOWN,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
