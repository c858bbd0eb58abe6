// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/**
 * Why no push brought the newest state to the device, or not yet. Absent if one did, or if nothing that prevented it is
 * known.
 */
public enum ActivityDeviceCause {
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
    @JsonProperty("push_pending")
    PUSH_PENDING,
    @JsonProperty("quota")
    QUOTA,
    @JsonProperty("push_service_paused")
    PUSH_SERVICE_PAUSED,
    @JsonProperty("no_token")
    NO_TOKEN,
    @JsonProperty("awaiting_token")
    AWAITING_TOKEN,
    @JsonProperty("next_state")
    NEXT_STATE,
    @JsonProperty("invalid_token")
    INVALID_TOKEN,
    @JsonProperty("expired_token")
    EXPIRED_TOKEN,
    @JsonProperty("suspended_token")
    SUSPENDED_TOKEN,
    @JsonProperty("push_not_configured")
    PUSH_NOT_CONFIGURED,
    @JsonProperty("push_refused")
    PUSH_REFUSED,
    @JsonProperty("push_expired")
    PUSH_EXPIRED,
    @JsonProperty("ended")
    ENDED,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
