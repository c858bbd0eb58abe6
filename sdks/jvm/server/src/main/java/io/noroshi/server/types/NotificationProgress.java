// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** {@code null} if it has too many outcomes for a list: read it alone. */
public enum NotificationProgress {
    @JsonProperty("pending")
    PENDING,
    @JsonProperty("done")
    DONE,
    @JsonProperty("cancelled")
    CANCELLED,
    @JsonProperty("expired")
    EXPIRED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
