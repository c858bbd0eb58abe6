// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Default: {@code apns} if the app has a credential for it, otherwise {@code fcm}. */
public enum ActivityTransport {
    @JsonProperty("apns")
    APNS,
    @JsonProperty("fcm")
    FCM,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
