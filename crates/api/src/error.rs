//! Error responses: RFC 9457 problems with a stable `code`.
//!
//! The table of [`Code`] has name, status, title and advice of every code; the OpenAPI documents and `/docs` list the same.
//! Titles that the gateway uses as well are in `protocol`.
//! Everything in a [`Problem`] is public. Internal details go to the log only, from here.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use noroshi_auth::Refused;
use noroshi_delivery::OverQuota;
use noroshi_protocol::http::title;
use noroshi_push::ChannelError;
use noroshi_types::Invalid;
use serde::Serialize;

/// Longest `detail`. It may quote an invalid value, which must not be returned whole.
const DETAIL_BYTES_MAX: usize = 300;

/// Content codings of request bodies, for `Accept-Encoding` (RFC 7694 §3).
const ACCEPTED_ENCODINGS: &str = "gzip, zstd";

/// Seconds after which a rejected request may be retried.
const RETRY_AFTER_S: &str = "1";
/// If APNs accepts no more calls and names no time.
const BUSY_RETRY_AFTER_S: u64 = 60;
/// A backlog that takes longer is an incident: its end cannot be predicted.
const RETRY_AFTER_S_MAX: u32 = 60;

/// Declares [`Code`] from its table. The comment of a code is its advice.
macro_rules! codes {
    ($($(#[doc = $advice:literal])+ $code:ident = $name:literal, $status:literal, $title:expr;)*) => {
        /// Why a request failed, by what the client does next.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code {
            $($(#[doc = $advice])+ $code,)*
        }

        /// Name, status, title and advice.
        type Row = (&'static str, u16, &'static str, &'static str);

        const ROWS: [Row; [$($status),*].len()] =
            [$(($name, $status, $title, concat!($($advice),+).trim_ascii_start())),*];

        impl Code {
            pub const ALL: [Code; ROWS.len()] = [$(Code::$code),*];
        }
    };
}

codes! {
    /// The detail names line and column. Also for JSON nested more than 64 levels deep, and for an empty batch.
    InvalidJson = "invalid_json", 400, "The body is not valid JSON";
    /// The detail names the coding and the byte offset. Compress the body again, or send it uncompressed.
    CorruptEncoding = "corrupt_encoding", 400, "The body cannot be decompressed";
    /// `field` is the path, such as `to.users[3]`; the detail is the rule.
    InvalidField = "invalid_field", 400, "A field is missing or invalid";
    /// `field` is its name. Unknown fields are rejected, so that a typo cannot change the meaning of a request.
    UnknownField = "unknown_field", 400, "A field is unknown";
    /// `field` is its name.
    InvalidParameter = "invalid_parameter", 400, "A header, path or query parameter is invalid";
    /// At most 10,000, or 1,000 with `item`. Split the request, or use a topic.
    TooManyTargets = "too_many_targets", 400, "The request names too many users or devices";
    /// The credential is missing, unknown, expired or revoked. Get a new one; do not retry with the same.
    Unauthorized = "unauthorized", 401, title::UNAUTHORIZED;
    /// The detail names the missing scope, or the problem with the signature.
    Forbidden = "forbidden", 403, "The credential does not allow this";
    /// The header `Noroshi-Csrf` must repeat the value of `csrf` in `GET /v1/session`. Only for the console.
    Csrf = "csrf", 403, "The request may come from a page of another site";
    /// Confirm the log-in with `POST /v1/session/confirm`, and repeat the request. Only for the console.
    ConfirmLogIn = "confirm_log_in", 403, "This needs a recent log-in";
    /// Also if it belongs to another app.
    NotFound = "not_found", 404, title::NOT_FOUND;
    /// The header `Allow` lists the supported methods.
    MethodNotAllowed = "method_not_allowed", 405, title::METHOD_NOT_ALLOWED;
    /// A body has a timeout for its first byte and for its last, and a minimum rate between them. Retry.
    BodyTimeout = "body_timeout", 408, "The body did not arrive in time";
    /// Keys are kept for 24 hours. Use a new key for a new request.
    IdempotencyConflict = "idempotency_conflict", 409, "The idempotency key was used with another request";
    /// Choose another name.
    AlreadyExists = "already_exists", 409, "It already exists";
    /// The device deleted the endpoint, the device was deleted, or the endpoint expired. Stop posting to it.
    EndpointGone = "endpoint_gone", 410, "The endpoint no longer exists";
    /// Only an open connection has a presence.
    NotConnected = "not_connected", 409, "The device is not connected";
    /// Nodes have roles. The detail names the role that this node lacks. Use a node that has it.
    Misdirected = "misdirected", 421, "This node does not serve this request";
    /// A front forwards requests to cells and holds no connections. Use the cell, which the detail names if
    /// there is one.
    NotAtAFront = "not_at_a_front", 421, "Only cells serve this request";
    /// The detail names the current state. For example, a campaign that ended cannot resume, and a running one
    /// takes no more recipients.
    WrongState = "wrong_state", 409, "The state does not allow this";
    /// The detail names the present revision. Read the campaign, and repeat the change with that revision.
    RevisionConflict = "revision_conflict", 409, "Somebody changed it in the meantime";
    /// The detail and `problems` of the campaign say what is missing, and where.
    CampaignIncomplete = "campaign_incomplete", 409, "The campaign is not complete";
    /// A second person must approve its present revision. Every change and new recipients remove the approval.
    ApprovalRequired = "approval_required", 409, "The campaign needs an approval";
    /// Who created a campaign, or changed it last, cannot approve it.
    OwnApproval = "own_approval", 403, "Another person must approve it";
    /// The former credential stays in use. The detail has the answer of the push service. Correct the credential,
    /// or name a device with a valid push token.
    CredentialTestFailed = "credential_test_failed", 409, "The push service did not accept the test";
    /// Credentials are stored encrypted. The operator must set `push.key_file`.
    PushKeyMissing = "push_key_missing", 409, "The node has no key for push credentials";
    /// The detail names the limit, such as 1,000 topics per device.
    LimitExceeded = "limit_exceeded", 409, "A limit is exceeded";
    /// The default limit is 16 MiB, before and after decompression; for Web Push endpoints 4,096 bytes.
    BodyTooLarge = "body_too_large", 413, "The body is too large";
    /// `data`: 4 KiB by default. `notification` and the fields of each push service: 4 KiB.
    DataTooLarge = "data_too_large", 413, "The content of the notification is too large";
    /// The detail names the push service, the size and the limit. Nothing was accepted. Shorten `notification`
    /// or `data`.
    PushPayloadTooLarge = "push_payload_too_large", 413, "The message is too large for a push service";
    /// At most 10,000.
    TooManyLines = "too_many_lines", 413, "The batch has too many lines";
    /// Send `application/json`, for batches `application/x-ndjson`, or no content type. The default of `curl
    /// -d` counts as none.
    UnsupportedMediaType = "unsupported_media_type", 415, "The content type is not supported";
    /// Use `gzip` or `zstd`, as listed in the response header `Accept-Encoding`.
    UnsupportedEncoding = "unsupported_encoding", 415, "The content coding is not supported";
    /// Retry after `Retry-After`. The detail names the limit.
    TooManyRequests = "too_many_requests", 429, title::TOO_MANY_REQUESTS;
    /// Retry after `Retry-After`, or ask the operator for a higher quota. The detail names the app's quota.
    /// Nothing was changed.
    QuotaExceeded = "quota_exceeded", 429, title::QUOTA_EXCEEDED;
    /// The server's log contains the reason with the response's `X-Request-Id`.
    Internal = "internal", 500, "The service failed";
    /// The detail names the feature that this build lacks.
    NotBuilt = "not_built", 501, "This build lacks the feature";
    /// The detail has the push service's reason. An operator must change the credential, or what the app may do there; do
    /// not retry before.
    PushServiceRejected = "push_service_rejected", 502, "The push service rejects the request";
    /// The detail has the reason, and says whether the push service may have done it. Retry.
    PushServiceFailed = "push_service_failed", 502, "The push service does not respond as it should";
    /// Retry after `Retry-After`. Nothing was accepted.
    Overloaded = "overloaded", 503, title::OVERLOADED;
    /// Retry after `Retry-After`.
    Unavailable = "unavailable", 503, title::UNAVAILABLE;
    /// The detail names the cells. Only their users and devices are affected. Retry later.
    CellUnavailable = "cell_unavailable", 503, "A cell does not respond";
    /// Nothing was accepted. Reads still work.
    DiskFull = "disk_full", 507, "The disk is full";
}

impl Code {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        ROWS[self as usize].0
    }

    pub fn status(self) -> u16 {
        ROWS[self as usize].1
    }

    pub fn title(self) -> &'static str {
        ROWS[self as usize].2
    }

    /// Advice for developers of clients. Back-quotes mark code.
    pub fn advice(self) -> &'static str {
        ROWS[self as usize].3
    }
}

/// Response extension: [`crate::observe`] delays the response by
/// [`TOO_MANY_FAILURES_DELAY`](noroshi_types::limits::TOO_MANY_FAILURES_DELAY).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delayed;

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    /// Path of the invalid field, such as `to.users[3]`.
    field: Option<Box<str>>,
    /// For 401: the request has no credential, so the challenge names no error (RFC 6750 §3.1).
    credential_missing: bool,
    /// For 401: the request is one of the console, which has no credential in `Authorization`.
    is_person: bool,
    /// When to retry, if known.
    retry_after_s: Option<u32>,
    /// The response is [`Delayed`].
    is_delayed: bool,
}

/// The wire form (RFC 9457 §3). `type` resolves to the code on the node's documentation page.
#[derive(Debug, Serialize)]
struct ProblemBody<'a> {
    r#type: String,
    title: &'a str,
    status: u16,
    code: &'a str,
    detail: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<&'a str>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<Cow<'static, str>>) -> Self {
        let mut detail = detail.into();
        if detail.len() > DETAIL_BYTES_MAX {
            let end = detail.floor_char_boundary(DETAIL_BYTES_MAX);
            detail = format!("{}…", &detail[..end]).into();
        }
        Self {
            code,
            detail,
            field: None,
            credential_missing: false,
            is_person: false,
            retry_after_s: None,
            is_delayed: false,
        }
    }

    /// A value violates a rule. `field` is its path in the body.
    pub fn field(field: impl Into<String>, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidField, rule).at(field)
    }

    pub fn parameter(name: &str, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidParameter, rule).at(name)
    }

    pub fn not_found(what: &'static str) -> Self {
        Self::new(Code::NotFound, format!("no such {what}"))
    }

    /// Names what an operation of the store did not find.
    pub(crate) fn missing<E: Into<noroshi_delivery::Error>>(what: &'static str) -> impl Fn(E) -> Self {
        move |error| match error.into() {
            noroshi_delivery::Error::Store(noroshi_store::Error::NotFound) => Self::not_found(what),
            error => error.into(),
        }
    }

    /// A device's credential was rejected. After too many failures the response is delayed, so that one connection cannot try
    /// thousands of tokens a second. Device tokens are exempt: a front forwards them unverified, so a delay would let a
    /// stranger occupy the front's connections to this cell.
    pub fn failed_log_in(token: &str, refused: Refused) -> Self {
        let has_failed_often = matches!(refused, Refused::TooManyFailures { .. });
        let is_delayed = has_failed_often && noroshi_auth::unverified_device(token).is_none();
        Self { is_delayed, ..refused.into() }
    }

    /// The credential names a device that was deleted, or was revoked itself.
    pub(crate) fn revoked() -> Self {
        Self::new(Code::Unauthorized, "the device was deleted or its tokens were revoked")
    }

    /// As [`Problem::missing`], for the device of the credential: it was deleted after the credential was checked.
    pub(crate) fn gone(error: impl Into<noroshi_delivery::Error>) -> Self {
        match error.into() {
            noroshi_delivery::Error::Store(noroshi_store::Error::NotFound) => Self::revoked(),
            error => error.into(),
        }
    }

    /// An internal failure. `error` goes to the log only.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(Code::Internal, "internal error; the server's log contains the reason")
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        let field: String = field.into();
        self.field = (!field.is_empty()).then(|| field.into());
        self
    }

    /// Sets `Retry-After`.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }

    pub fn code(&self) -> Code {
        self.code
    }

    pub fn detail(&self) -> &str {
        &self.detail
    }

    pub fn field_path(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// The JSON object of a response, or of a line of a batch response.
    pub fn body(&self) -> impl Serialize + '_ {
        ProblemBody {
            r#type: format!("/docs#{}", self.code.as_str()),
            title: self.code.title(),
            status: self.code.status(),
            code: self.code.as_str(),
            detail: &self.detail,
            field: self.field.as_deref(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.body()).unwrap_or_default();
        let mut response =
            (status, [(header::CONTENT_TYPE, "application/problem+json")], body).into_response();
        let headers = response.headers_mut();
        match self.code {
            // RFC 6750 §3: names an error only if the request has a credential.
            Code::Unauthorized if !self.is_person => {
                let challenge = match self.credential_missing {
                    true => "Bearer realm=\"noroshi\"",
                    false => "Bearer realm=\"noroshi\", error=\"invalid_token\"",
                };
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            // RFC 7694 §3. Absent in the other 415, so that clients can distinguish them.
            Code::UnsupportedEncoding => {
                headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static(ACCEPTED_ENCODINGS));
            }
            Code::Overloaded | Code::Unavailable | Code::CellUnavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static(RETRY_AFTER_S));
            }
            _ => {}
        }
        if let Some(seconds) = self.retry_after_s {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if self.is_delayed {
            response.extensions_mut().insert(Delayed);
        }
        response
    }
}

impl From<noroshi_store::Error> for Problem {
    fn from(error: noroshi_store::Error) -> Self {
        use noroshi_store::Error;
        match error {
            Error::Overloaded => Self::new(Code::Overloaded, "the store is overloaded; retry"),
            Error::Full => Self::new(Code::DiskFull, "the disk is full; nothing was changed"),
            Error::Revoked => Self::revoked(),
            Error::Exists => Self::new(Code::AlreadyExists, "it already exists"),
            Error::NotFound => Self::new(Code::NotFound, "not found"),
            Error::Conflict => Self::new(Code::WrongState, "the state does not allow this"),
            Error::IdempotencyConflict => {
                let detail = "the Idempotency-Key was used with a different body within the last 24 hours";
                Self::new(Code::IdempotencyConflict, detail)
            }
            Error::Limit(limit) => Self::new(Code::LimitExceeded, limit),
            Error::Closed => Self::new(Code::Unavailable, "the service is stopping; retry"),
            // Callers that set a condition handle `Refused` themselves.
            error @ (Error::Refused | Error::Engine(_)) => Self::internal(error),
        }
    }
}

impl From<noroshi_delivery::Error> for Problem {
    fn from(error: noroshi_delivery::Error) -> Self {
        match error {
            noroshi_delivery::Error::Overloaded => {
                Self::new(Code::Overloaded, "the node is overloaded; retry")
            }
            noroshi_delivery::Error::NoRoom { after } => {
                let detail = "the node has a backlog, and the request found no room in time; retry";
                let seconds = after.as_millis().div_ceil(1_000).clamp(1, RETRY_AFTER_S_MAX.into());
                Self::new(Code::Overloaded, detail).retry_after(seconds as u32)
            }
            noroshi_delivery::Error::NoVault => {
                let detail = "the node has no key for push credentials; set push.key_file";
                Self::new(Code::PushKeyMissing, detail)
            }
            // Names the field and the rule, never the value.
            noroshi_delivery::Error::Credential(invalid) => Self::field(invalid.field, invalid.rule),
            noroshi_delivery::Error::OldNode { field, reason } => {
                let problem = Self::new(Code::Unavailable, reason);
                match field {
                    Some(field) => problem.at(field),
                    None => problem,
                }
            }
            error @ (noroshi_delivery::Error::ChannelBusy | noroshi_delivery::Error::ChannelKnown(_)) => {
                Self::new(Code::WrongState, error.to_string())
            }
            noroshi_delivery::Error::ChannelDiffers(field) => {
                let detail = format!("a channel has the name, with another `{field}`");
                Self::new(Code::AlreadyExists, detail).at(field)
            }
            noroshi_delivery::Error::NoChannel => {
                Self::new(Code::WrongState, "no channel is bound to the topic").at("push.broadcast")
            }
            noroshi_delivery::Error::Channel(error) => error.into(),
            noroshi_delivery::Error::OverQuota(over) => over.into(),
            noroshi_delivery::Error::Store(error) => error.into(),
        }
    }
}

/// What APNs answered about channels.
impl From<ChannelError> for Problem {
    fn from(error: ChannelError) -> Self {
        let detail = error.to_string();
        match error {
            ChannelError::Unconfigured => Self::new(Code::WrongState, detail),
            ChannelError::Unknown(_) => Self::new(Code::NotFound, detail),
            ChannelError::TooMany(_) => Self::new(Code::LimitExceeded, detail),
            ChannelError::Rejected(_) => Self::new(Code::PushServiceRejected, detail),
            ChannelError::Busy { after, .. } => {
                let seconds = after.map_or(BUSY_RETRY_AFTER_S, |after| after.as_secs().max(1));
                let seconds = u32::try_from(seconds).unwrap_or(u32::MAX);
                Self::new(Code::TooManyRequests, detail).retry_after(seconds)
            }
            ChannelError::Failed { may_be_done: false, .. } => Self::new(Code::PushServiceFailed, detail),
            ChannelError::Failed { may_be_done: true, .. } => {
                let detail = format!("{detail}; it may have done what it was asked");
                Self::new(Code::PushServiceFailed, detail)
            }
        }
    }
}

/// Why a person of the console is refused.
impl From<noroshi_console::Refused> for Problem {
    fn from(refused: noroshi_console::Refused) -> Self {
        use noroshi_console::Refused;
        let detail = refused.to_string();
        match refused {
            Refused::LogIn | Refused::Code | Refused::Link | Refused::Ticket | Refused::Session => {
                Self { is_person: true, ..Self::new(Code::Unauthorized, detail) }
            }
            Refused::TooMany { retry_after } => {
                let seconds = u32::try_from(retry_after.as_secs() + 1).unwrap_or(u32::MAX);
                Self::new(Code::TooManyRequests, detail).retry_after(seconds)
            }
            Refused::Busy => Self::new(Code::Overloaded, detail),
            Refused::NotConfirmed(_) => Self::new(Code::ConfirmLogIn, detail),
            Refused::Lacks(_) => Self::new(Code::Forbidden, detail),
            Refused::Invalid { field, rule } => Self::field(field, rule.to_string()),
            Refused::State(_) => Self::new(Code::WrongState, detail),
            Refused::Store(error) => error.into(),
        }
    }
}

impl From<OverQuota> for Problem {
    fn from(over: OverQuota) -> Self {
        let retry_after_s = Some(u32::try_from(over.after_s()).unwrap_or(u32::MAX));
        Self { retry_after_s, ..Self::new(Code::QuotaExceeded, over.to_string()) }
    }
}

impl From<Refused> for Problem {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Missing => {
                let detail = "the header \"Authorization: Bearer …\" is missing";
                Self { credential_missing: true, ..Self::new(Code::Unauthorized, detail) }
            }
            Refused::TooManyFailures { retry_after_s } => {
                Self::new(Code::TooManyRequests, refused.to_string()).retry_after(retry_after_s)
            }
            Refused::Busy => Self::new(Code::Overloaded, refused.to_string()),
            refused => Self::new(Code::Unauthorized, refused.to_string()),
        }
    }
}

/// An invalid path or query value. The caller adds its name with [`Problem::at`].
impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        Self::new(Code::InvalidParameter, invalid.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_table_is_complete_and_codes_are_unique() {
        let names: HashSet<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(names.len(), Code::ALL.len());
        for (i, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code as usize, i, "ALL lists every variant in order");
            assert!(
                StatusCode::from_u16(code.status()).is_ok_and(|s| s.is_client_error() || s.is_server_error())
            );
        }
    }

    #[test]
    fn messages_of_the_database_are_not_public() {
        use noroshi_store::Error;
        let check = |error: Error, code: Code| {
            let problem = Problem::from(error);
            assert_eq!(problem.code(), code);
            assert!(!problem.detail().contains("SECRET"));
        };
        check(Error::Overloaded, Code::Overloaded);
        check(Error::Full, Code::DiskFull);
        check(Error::Exists, Code::AlreadyExists);
        check(Error::NotFound, Code::NotFound);
        check(Error::Conflict, Code::WrongState);
        check(Error::IdempotencyConflict, Code::IdempotencyConflict);
        check(Error::Limit("at most 3".into()), Code::LimitExceeded);
        check(Error::Engine("SECRET table".into()), Code::Internal);
        check(Error::Closed, Code::Unavailable);
    }

    #[test]
    fn a_long_detail_is_truncated_at_a_character() {
        let problem = Problem::new(Code::InvalidField, "あ".repeat(10_000));
        assert!(problem.detail().len() <= DETAIL_BYTES_MAX + '…'.len_utf8());
    }
}
