// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** The newest step on the device. {@code null}: none is recorded, or there are too many to look for it. */
public enum Outcome {
    @JsonProperty("kept")
    KEPT,
    @JsonProperty("written")
    WRITTEN,
    @JsonProperty("acked")
    ACKED,
    @JsonProperty("offline")
    OFFLINE,
    @JsonProperty("inactive")
    INACTIVE,
    @JsonProperty("slow")
    SLOW,
    @JsonProperty("expired")
    EXPIRED,
    @JsonProperty("collapsed")
    COLLAPSED,
    @JsonProperty("cancelled")
    CANCELLED,
    @JsonProperty("evicted")
    EVICTED,
    @JsonProperty("unknown")
    UNKNOWN,
    @JsonProperty("push_not_configured")
    PUSH_NOT_CONFIGURED,
    @JsonProperty("pushed")
    PUSHED,
    @JsonProperty("push_refused")
    PUSH_REFUSED,
    @JsonProperty("push_token_gone")
    PUSH_TOKEN_GONE,
    @JsonProperty("push_token_suspect")
    PUSH_TOKEN_SUSPECT,
    @JsonProperty("no_push_token")
    NO_PUSH_TOKEN,
    @JsonProperty("push_not_needed")
    PUSH_NOT_NEEDED,
    @JsonProperty("push_expired")
    PUSH_EXPIRED,
    @JsonProperty("opened")
    OPENED,
    @JsonProperty("held_out")
    HELD_OUT,
    @JsonProperty("muted")
    MUTED,
    @JsonProperty("channel_off")
    CHANNEL_OFF,
    @JsonProperty("quiet")
    QUIET,
    @JsonProperty("capped")
    CAPPED,
    @JsonProperty("push_muted")
    PUSH_MUTED,
    @JsonProperty("push_channel_off")
    PUSH_CHANNEL_OFF,
    @JsonProperty("push_capped")
    PUSH_CAPPED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
