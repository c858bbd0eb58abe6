// Generated from crates/api/openapi.json by sdks/jvm/generate. Do not edit.
package io.noroshi.server.types;

/** Codes of problem documents. {@code /docs} on a node explains each. Later versions of the service may add some. */
public final class ProblemCode {
    public static final String INVALID_JSON = "invalid_json";
    public static final String CORRUPT_ENCODING = "corrupt_encoding";
    public static final String INVALID_FIELD = "invalid_field";
    public static final String UNKNOWN_FIELD = "unknown_field";
    public static final String INVALID_PARAMETER = "invalid_parameter";
    public static final String TOO_MANY_TARGETS = "too_many_targets";
    public static final String UNAUTHORIZED = "unauthorized";
    public static final String FORBIDDEN = "forbidden";
    public static final String CSRF = "csrf";
    public static final String CONFIRM_LOG_IN = "confirm_log_in";
    public static final String NOT_FOUND = "not_found";
    public static final String METHOD_NOT_ALLOWED = "method_not_allowed";
    public static final String BODY_TIMEOUT = "body_timeout";
    public static final String IDEMPOTENCY_CONFLICT = "idempotency_conflict";
    public static final String ALREADY_EXISTS = "already_exists";
    public static final String ENDPOINT_GONE = "endpoint_gone";
    public static final String NOT_CONNECTED = "not_connected";
    public static final String MISDIRECTED = "misdirected";
    public static final String NOT_AT_A_FRONT = "not_at_a_front";
    public static final String WRONG_STATE = "wrong_state";
    public static final String REVISION_CONFLICT = "revision_conflict";
    public static final String CAMPAIGN_INCOMPLETE = "campaign_incomplete";
    public static final String APPROVAL_REQUIRED = "approval_required";
    public static final String OWN_APPROVAL = "own_approval";
    public static final String CREDENTIAL_TEST_FAILED = "credential_test_failed";
    public static final String PUSH_KEY_MISSING = "push_key_missing";
    public static final String LIMIT_EXCEEDED = "limit_exceeded";
    public static final String BODY_TOO_LARGE = "body_too_large";
    public static final String DATA_TOO_LARGE = "data_too_large";
    public static final String PUSH_PAYLOAD_TOO_LARGE = "push_payload_too_large";
    public static final String TOO_MANY_LINES = "too_many_lines";
    public static final String UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type";
    public static final String UNSUPPORTED_ENCODING = "unsupported_encoding";
    public static final String TOO_MANY_REQUESTS = "too_many_requests";
    public static final String QUOTA_EXCEEDED = "quota_exceeded";
    public static final String INTERNAL = "internal";
    public static final String NOT_BUILT = "not_built";
    public static final String PUSH_SERVICE_REJECTED = "push_service_rejected";
    public static final String PUSH_SERVICE_FAILED = "push_service_failed";
    public static final String OVERLOADED = "overloaded";
    public static final String UNAVAILABLE = "unavailable";
    public static final String CELL_UNAVAILABLE = "cell_unavailable";
    public static final String DISK_FULL = "disk_full";
    public static final String BAD_HANDSHAKE = "bad_handshake";
    public static final String BAD_LAST_EVENT_ID = "bad_last_event_id";
    public static final String BAD_TOPIC = "bad_topic";
    public static final String MALFORMED_REQUEST = "malformed_request";
    public static final String TOO_MANY_TOPICS = "too_many_topics";
    public static final String EXPIRED = "expired";
    public static final String REVOKED = "revoked";
    public static final String REQUEST_TIMEOUT = "request_timeout";
    public static final String REPLACED = "replaced";
    public static final String UPGRADE_REQUIRED = "upgrade_required";
    public static final String WEBSOCKET_VERSION = "websocket_version";
    public static final String HEAD_TOO_LARGE = "head_too_large";

    private ProblemCode() {}
}
