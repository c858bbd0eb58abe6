// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code accepted}: the push service accepted it. */
public enum PushTestedAnswer {
    @JsonProperty("accepted")
    ACCEPTED,
    @JsonProperty("gone")
    GONE,
    @JsonProperty("suspect")
    SUSPECT,
    @JsonProperty("refused")
    REFUSED,
    @JsonProperty("later")
    LATER,
    @JsonProperty("not_configured")
    NOT_CONFIGURED,
    @JsonProperty("expired")
    EXPIRED,
    @JsonProperty("no_answer")
    NO_ANSWER,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
