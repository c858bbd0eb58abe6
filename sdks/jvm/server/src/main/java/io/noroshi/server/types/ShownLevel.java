// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * How much it may interrupt, in Apple's terms ({@code interruption-level}). {@code passive} is silent in browsers too.
 * Android before 8: the priority; later versions use the channel's importance.
 */
public enum ShownLevel {
    @JsonProperty("passive")
    PASSIVE,
    @JsonProperty("active")
    ACTIVE,
    @JsonProperty("time-sensitive")
    TIME_SENSITIVE,
    @JsonProperty("critical")
    CRITICAL,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
