// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Values of the API. */
public enum QuotaQuota {
    @JsonProperty("connections")
    CONNECTIONS,
    @JsonProperty("connects_per_second")
    CONNECTS_PER_SECOND,
    @JsonProperty("devices")
    DEVICES,
    @JsonProperty("subscriptions_per_device")
    SUBSCRIPTIONS_PER_DEVICE,
    @JsonProperty("topics")
    TOPICS,
    @JsonProperty("publishes_per_second")
    PUBLISHES_PER_SECOND,
    @JsonProperty("deliveries_per_second")
    DELIVERIES_PER_SECOND,
    @JsonProperty("inbox_rows")
    INBOX_ROWS,
    @JsonProperty("inbox_bytes")
    INBOX_BYTES,
    @JsonProperty("retained_bytes")
    RETAINED_BYTES,
    @JsonProperty("campaigns")
    CAMPAIGNS,
    @JsonProperty("pushes_per_second")
    PUSHES_PER_SECOND,
    @JsonProperty("endpoints")
    ENDPOINTS,
    @JsonProperty("experiments")
    EXPERIMENTS,
    @JsonProperty("keys")
    KEYS,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
