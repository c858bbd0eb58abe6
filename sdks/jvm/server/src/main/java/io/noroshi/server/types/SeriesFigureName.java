// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

import com.fasterxml.jackson.annotation.JsonEnumDefaultValue;
import com.fasterxml.jackson.annotation.JsonProperty;

/** Values of the API. */
public enum SeriesFigureName {
    @JsonProperty("connections")
    CONNECTIONS,
    @JsonProperty("log_ins")
    LOG_INS,
    @JsonProperty("log_ins_refused")
    LOG_INS_REFUSED,
    @JsonProperty("publishes")
    PUBLISHES,
    @JsonProperty("deliveries")
    DELIVERIES,
    @JsonProperty("acks")
    ACKS,
    @JsonProperty("delivery_p50")
    DELIVERY_P50,
    @JsonProperty("delivery_p99")
    DELIVERY_P99,
    @JsonProperty("ack_p50")
    ACK_P50,
    @JsonProperty("ack_p99")
    ACK_P99,
    @JsonProperty("pushes_accepted")
    PUSHES_ACCEPTED,
    @JsonProperty("pushes_refused")
    PUSHES_REFUSED,
    @JsonProperty("push_retries")
    PUSH_RETRIES,
    @JsonProperty("push_p50")
    PUSH_P50,
    @JsonProperty("push_p99")
    PUSH_P99,
    @JsonProperty("push_backlog")
    PUSH_BACKLOG,
    @JsonProperty("delivery_backlog")
    DELIVERY_BACKLOG,
    @JsonProperty("store_backlog")
    STORE_BACKLOG,
    @JsonProperty("requests")
    REQUESTS,
    @JsonProperty("request_errors")
    REQUEST_ERRORS,
    @JsonProperty("request_p50")
    REQUEST_P50,
    @JsonProperty("request_p99")
    REQUEST_P99,
    @JsonProperty("drops")
    DROPS,
    @JsonProperty("overloads")
    OVERLOADS,
    @JsonProperty("quota_refusals")
    QUOTA_REFUSALS,
    @JsonProperty("cpu")
    CPU,
    @JsonProperty("memory")
    MEMORY,
    @JsonProperty("bytes_written")
    BYTES_WRITTEN,
    /** A value that this version of the library does not know. */
    @JsonEnumDefaultValue
    UNRECOGNIZED
}
