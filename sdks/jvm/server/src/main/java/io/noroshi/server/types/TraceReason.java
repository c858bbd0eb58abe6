// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * Why it did not arrive, or not yet. If several reasons apply, it is the one that ended the notification, otherwise
 * that of the push service, otherwise that of connection and inbox. Absent if it arrived, or if nothing that prevented
 * it is known.
 */
public enum TraceReason {
    @JsonProperty("not_targeted")
    NOT_TARGETED,
    @JsonProperty("registered_later")
    REGISTERED_LATER,
    @JsonProperty("user_changed_later")
    USER_CHANGED_LATER,
    @JsonProperty("subscribed_later")
    SUBSCRIBED_LATER,
    @JsonProperty("not_reached")
    NOT_REACHED,
    @JsonProperty("not_recorded")
    NOT_RECORDED,
    @JsonProperty("offline")
    OFFLINE,
    @JsonProperty("inactive")
    INACTIVE,
    @JsonProperty("slow")
    SLOW,
    @JsonProperty("pending")
    PENDING,
    @JsonProperty("unacknowledged")
    UNACKNOWLEDGED,
    @JsonProperty("expired")
    EXPIRED,
    @JsonProperty("collapsed")
    COLLAPSED,
    @JsonProperty("evicted")
    EVICTED,
    @JsonProperty("cancelled")
    CANCELLED,
    @JsonProperty("held_out")
    HELD_OUT,
    @JsonProperty("push_pending")
    PUSH_PENDING,
    @JsonProperty("quota")
    QUOTA,
    @JsonProperty("no_token")
    NO_TOKEN,
    @JsonProperty("invalid_token")
    INVALID_TOKEN,
    @JsonProperty("suspended_token")
    SUSPENDED_TOKEN,
    @JsonProperty("push_not_configured")
    PUSH_NOT_CONFIGURED,
    @JsonProperty("push_refused")
    PUSH_REFUSED,
    @JsonProperty("push_expired")
    PUSH_EXPIRED,
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
