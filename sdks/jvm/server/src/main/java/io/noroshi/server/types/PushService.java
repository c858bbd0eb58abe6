// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** The service of the kind; may be left out. */
public enum PushService {
    @JsonProperty("apns")
    APNS,
    @JsonProperty("fcm")
    FCM,
    @JsonProperty("webpush")
    WEBPUSH,
    @JsonProperty("webhook")
    WEBHOOK,
    @JsonProperty("hms")
    HMS,
    @JsonProperty("wns")
    WNS,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
