// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * Which devices receive it: those in use now, connected ones, or all. {@code stored} messages are kept until
 * {@code ttl}.
 */
public enum When {
    @JsonProperty("active")
    ACTIVE,
    @JsonProperty("connected")
    CONNECTED,
    @JsonProperty("stored")
    STORED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
