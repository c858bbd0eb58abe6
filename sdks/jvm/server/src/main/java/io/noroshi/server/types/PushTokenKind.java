// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** What the token is for. Default: the message kind of {@code service}. */
public enum PushTokenKind {
    @JsonProperty("alert")
    ALERT,
    @JsonProperty("webpush")
    WEBPUSH,
    @JsonProperty("fcm")
    FCM,
    @JsonProperty("voip")
    VOIP,
    @JsonProperty("complication")
    COMPLICATION,
    @JsonProperty("fileprovider")
    FILEPROVIDER,
    @JsonProperty("widgets")
    WIDGETS,
    @JsonProperty("controls")
    CONTROLS,
    @JsonProperty("live-activity-start")
    LIVE_ACTIVITY_START,
    @JsonProperty("live-activity")
    LIVE_ACTIVITY,
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
