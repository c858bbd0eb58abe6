//! What a client is told when a request is refused or fails: RFC 9457 problems with a stable `code`.
//!
//! [`Code`] is the one table: status, title and advice of every code; the document and `/docs` list the
//! same. Everything in a problem is public. What happened inside goes to the log, once, here.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use noroshi_auth::Refused;
use noroshi_delivery::OverQuota;
use noroshi_types::Invalid;
use serde::Serialize;

/// Why a request was not carried out, by what the client does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    InvalidJson,
    CorruptEncoding,
    InvalidField,
    UnknownField,
    InvalidParameter,
    TooManyTargets,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    BodyTimeout,
    IdempotencyConflict,
    AlreadyExists,
    EndpointGone,
    NotConnected,
    Misdirected,
    NotAtAFront,
    WrongState,
    PushKeyMissing,
    LimitExceeded,
    BodyTooLarge,
    DataTooLarge,
    PushPayloadTooLarge,
    TooManyLines,
    UnsupportedMediaType,
    UnsupportedEncoding,
    TooManyRequests,
    QuotaExceeded,
    Internal,
    NotBuilt,
    Overloaded,
    Unavailable,
    CellUnavailable,
    DiskFull,
}

/// Longest `detail`: a wrong value is quoted in it, and must not come back whole.
const DETAIL_BYTES_MAX: usize = 300;

/// Content codings of request bodies, for `Accept-Encoding` (RFC 7694 §3).
const ACCEPTED_ENCODINGS: &str = "gzip, zstd";

/// Seconds after which a rejected request may be retried.
const RETRY_AFTER_S: &str = "1";

impl Code {
    pub const ALL: [Code; 34] = [
        Code::InvalidJson,
        Code::CorruptEncoding,
        Code::InvalidField,
        Code::UnknownField,
        Code::InvalidParameter,
        Code::TooManyTargets,
        Code::Unauthorized,
        Code::Forbidden,
        Code::NotFound,
        Code::MethodNotAllowed,
        Code::BodyTimeout,
        Code::IdempotencyConflict,
        Code::AlreadyExists,
        Code::EndpointGone,
        Code::NotConnected,
        Code::Misdirected,
        Code::NotAtAFront,
        Code::WrongState,
        Code::PushKeyMissing,
        Code::LimitExceeded,
        Code::BodyTooLarge,
        Code::DataTooLarge,
        Code::PushPayloadTooLarge,
        Code::TooManyLines,
        Code::UnsupportedMediaType,
        Code::UnsupportedEncoding,
        Code::TooManyRequests,
        Code::QuotaExceeded,
        Code::Internal,
        Code::NotBuilt,
        Code::Overloaded,
        Code::Unavailable,
        Code::CellUnavailable,
        Code::DiskFull,
    ];

    /// The name that clients may rely on.
    pub fn as_str(self) -> &'static str {
        self.row().0
    }

    pub fn status(self) -> u16 {
        self.row().1
    }

    pub fn title(self) -> &'static str {
        self.row().2
    }

    /// What a client's developer should know or do; back-quotes mark code.
    pub fn advice(self) -> &'static str {
        match self {
            Code::InvalidJson => {
                "The detail names line and column. Also: nested more than 64 deep, or an empty batch."
            }
            Code::CorruptEncoding => {
                "The detail names the coding and the byte. Compress the body again, or send it as it is."
            }
            Code::InvalidField => "`field` is the path, such as `to.users[3]`; the detail is the rule.",
            Code::UnknownField => {
                "`field` names it. Nothing is ignored, so that a typing error cannot change what a request means."
            }
            Code::InvalidParameter => "`field` names it.",
            Code::TooManyTargets => "10,000 at most: split it, or use a topic.",
            Code::Unauthorized => {
                "Missing, unknown, expired or revoked. Get a new one; the same will not work again."
            }
            Code::Forbidden => "The detail names the missing scope, or what is wrong with the signature.",
            Code::NotFound => "Also for what belongs to another app.",
            Code::MethodNotAllowed => "The header `Allow` lists those it takes.",
            Code::BodyTimeout => {
                "The node waits a limited time for the first byte of a body and for its last, and expects a minimum rate between them. Try again."
            }
            Code::IdempotencyConflict => "Within 24 hours. Use a new key for a new request.",
            Code::AlreadyExists => "Choose another name.",
            Code::EndpointGone => {
                "The device deleted it, was deleted itself, or gave the endpoint an end that has come. Post to it no more."
            }
            Code::TooManyRequests => "Try again after `Retry-After`. The detail says whose limit it is.",
            Code::QuotaExceeded => {
                "Try again after `Retry-After`, or ask the operator for more. The detail names the quota of the app. Nothing was changed."
            }
            Code::Misdirected => {
                "Nodes can have roles: the detail names the one that is missing here. Ask a node that has it."
            }
            Code::NotAtAFront => {
                "A front hands requests on to cells and keeps no connections. Ask the cell: the detail names it where there is one."
            }
            Code::NotConnected => "Presence belongs to an open connection.",
            Code::LimitExceeded => "The detail names it, such as 1,000 topics for a device.",
            Code::BodyTooLarge => {
                "16 MiB unless the operator chose otherwise, as it arrives and as it is decompressed; 4,096 bytes posted to a Web Push endpoint."
            }
            Code::DataTooLarge => {
                "`data`: 4 KiB unless the operator chose otherwise; `notification` and each push service's fields: 4 KiB."
            }
            Code::WrongState => {
                "The detail names the state it is in. A campaign that ended cannot go on; one that runs cannot be added to."
            }
            Code::PushKeyMissing => "Credentials are kept encrypted: the operator sets `push.key_file`.",
            Code::PushPayloadTooLarge => {
                "The detail names the push service, the size and its limit. Nothing was accepted: shorten what is shown, or carry less in `data`."
            }
            Code::TooManyLines => "10,000 at most.",
            Code::UnsupportedMediaType => {
                "Send `application/json`, for batches `application/x-ndjson`, or none; the form type that `curl -d` sends by itself counts as none."
            }
            Code::UnsupportedEncoding => {
                "`gzip` and `zstd` are, one of them; `Accept-Encoding` of the answer lists them."
            }
            Code::Internal => "Its log says why, under the request's `X-Request-Id`.",
            Code::Overloaded => "Try again after `Retry-After`. Nothing was accepted.",
            Code::NotBuilt => "The detail names the feature that another build has.",
            Code::Unavailable => "Try again after `Retry-After`.",
            Code::CellUnavailable => {
                "The detail names the cells. Only what lives there is affected; try again later."
            }
            Code::DiskFull => "Nothing was accepted. Reads go on.",
        }
    }

    fn row(self) -> (&'static str, u16, &'static str) {
        match self {
            Code::InvalidJson => ("invalid_json", 400, "The body is not valid JSON"),
            Code::CorruptEncoding => ("corrupt_encoding", 400, "The body cannot be decompressed"),
            Code::InvalidField => {
                ("invalid_field", 400, "A field is missing or has a value that is not allowed")
            }
            Code::UnknownField => ("unknown_field", 400, "A field is not known"),
            Code::InvalidParameter => (
                "invalid_parameter",
                400,
                "A header, path or query parameter has a value that is not allowed",
            ),
            Code::TooManyTargets => ("too_many_targets", 400, "The request names too many users or devices"),
            Code::Unauthorized => ("unauthorized", 401, "The credential is missing or not valid"),
            Code::Forbidden => ("forbidden", 403, "The credential does not allow this"),
            Code::NotFound => ("not_found", 404, "There is no such thing"),
            Code::MethodNotAllowed => ("method_not_allowed", 405, "The path does not take this method"),
            Code::BodyTimeout => ("body_timeout", 408, "The body did not arrive in time"),
            Code::IdempotencyConflict => {
                ("idempotency_conflict", 409, "The idempotency key was used with another request")
            }
            Code::AlreadyExists => ("already_exists", 409, "It exists already"),
            Code::EndpointGone => ("endpoint_gone", 410, "The endpoint is not there any more"),
            Code::TooManyRequests => ("too_many_requests", 429, "More requests than are allowed"),
            Code::QuotaExceeded => ("quota_exceeded", 429, "The app has used up its quota"),
            Code::NotConnected => ("not_connected", 409, "The device is not connected"),
            Code::Misdirected => ("misdirected", 421, "This node does not serve that"),
            Code::NotAtAFront => ("not_at_a_front", 421, "Only the cells themselves serve that"),
            Code::WrongState => ("wrong_state", 409, "Its state does not allow this"),
            Code::PushKeyMissing => {
                ("push_key_missing", 409, "The node has no key to keep push credentials with")
            }
            Code::LimitExceeded => ("limit_exceeded", 409, "A limit would be passed"),
            Code::BodyTooLarge => ("body_too_large", 413, "The body is too large"),
            Code::DataTooLarge => ("data_too_large", 413, "The content of the notification is too large"),
            Code::PushPayloadTooLarge => {
                ("push_payload_too_large", 413, "A push service would not take a message of this size")
            }
            Code::TooManyLines => ("too_many_lines", 413, "The batch has too many lines"),
            Code::UnsupportedMediaType => {
                ("unsupported_media_type", 415, "The content type is not supported")
            }
            Code::UnsupportedEncoding => ("unsupported_encoding", 415, "The content coding is not supported"),
            Code::Internal => ("internal", 500, "The service failed"),
            Code::Overloaded => ("overloaded", 503, "The service has more work than it can take now"),
            Code::NotBuilt => ("not_built", 501, "This program was built without that"),
            Code::Unavailable => ("unavailable", 503, "The service is starting, stopping or drained"),
            Code::CellUnavailable => ("cell_unavailable", 503, "A cell does not answer"),
            Code::DiskFull => ("disk_full", 507, "The service has no space left to keep it"),
        }
    }
}

/// Response extension: [`crate::observe`] delays the response by
/// [`TOO_MANY_FAILURES_DELAY`](noroshi_types::limits::TOO_MANY_FAILURES_DELAY).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Delayed;

/// One refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    code: Code,
    detail: Cow<'static, str>,
    /// Path of the field meant, such as `to.users[3]`.
    field: Option<Box<str>>,
    /// For 401: no credential was given at all (RFC 6750 §3.1 then names no error).
    credential_missing: bool,
    /// When to come back, where that is known.
    retry_after_s: Option<u32>,
    /// The response is [`Delayed`].
    is_delayed: bool,
}

/// The wire form (RFC 9457 §3). The type resolves to the code's place on this node's own page.
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
        Self { code, detail, field: None, credential_missing: false, retry_after_s: None, is_delayed: false }
    }

    /// A value broke a rule; `field` is its path in the body.
    pub fn field(field: impl Into<String>, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidField, rule).at(field)
    }

    pub fn parameter(name: &str, rule: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::InvalidParameter, rule).at(name)
    }

    pub fn not_found(what: &'static str) -> Self {
        Self::new(Code::NotFound, format!("there is no such {what}"))
    }

    /// The refusal of a device's credential. A client that failed too often gets it late, so that one connection cannot
    /// have thousands of tokens a second refused. Device tokens are exempt: a front forwards them unverified, and a
    /// stranger could occupy the front's connections to this cell.
    pub fn failed_log_in(token: &str, refused: Refused) -> Self {
        let has_failed_often = matches!(refused, Refused::TooManyFailures { .. });
        let is_delayed = has_failed_often && noroshi_auth::device_named(token).is_none();
        Self { is_delayed, ..refused.into() }
    }

    /// The credential names a device that was deleted, or was revoked itself.
    pub(crate) fn revoked() -> Self {
        Self::new(Code::Unauthorized, "the device was deleted or its tokens were revoked")
    }

    /// Something that must not happen did; `error` is for the log only.
    pub fn internal(error: impl std::fmt::Display) -> Self {
        tracing::error!(%error, "a request failed");
        Self::new(Code::Internal, "the service failed; its log says why")
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<String>) -> Self {
        let field: String = field.into();
        self.field = (!field.is_empty()).then(|| field.into());
        self
    }

    /// Tells in `Retry-After` when to come back.
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

    /// The object, as it also stands in a line of a batch's answer.
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
            // RFC 6750 §3: the scheme, and an error only where a credential was given.
            Code::Unauthorized if self.credential_missing => {
                headers
                    .insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"noroshi\""));
            }
            Code::Unauthorized => {
                let challenge = "Bearer realm=\"noroshi\", error=\"invalid_token\"";
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            }
            // RFC 7694 §3, and in no other 415: so a client can tell the two apart.
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
            Error::Overloaded => {
                Self::new(Code::Overloaded, "the store has more work than it can take now; try again")
            }
            Error::Full => Self::new(Code::DiskFull, "the disk is full: nothing was changed"),
            Error::Revoked => Self::revoked(),
            Error::Exists => Self::new(Code::AlreadyExists, "such a thing exists already"),
            Error::NotFound => Self::new(Code::NotFound, "there is no such thing"),
            Error::Conflict => Self::new(Code::WrongState, "its state does not allow this"),
            Error::IdempotencyConflict => {
                let detail = "the same Idempotency-Key came with another body within 24 hours";
                Self::new(Code::IdempotencyConflict, detail)
            }
            Error::Limit(limit) => Self::new(Code::LimitExceeded, limit),
            Error::Closed => Self::new(Code::Unavailable, "the service is stopping; try again"),
            // Whoever has a gate says itself what it refused.
            error @ (Error::Refused | Error::Engine(_)) => Self::internal(error),
        }
    }
}

impl From<noroshi_delivery::Error> for Problem {
    fn from(error: noroshi_delivery::Error) -> Self {
        match error {
            noroshi_delivery::Error::Overloaded => {
                Self::new(Code::Overloaded, "the node has more work than it can take now; try again")
            }
            noroshi_delivery::Error::NoVault => {
                let detail =
                    "the node's configuration has no key to keep push credentials with: push.key_file";
                Self::new(Code::PushKeyMissing, detail)
            }
            // Names the field and the rule, never the value.
            noroshi_delivery::Error::Credential(invalid) => Self::field(invalid.field, invalid.rule),
            noroshi_delivery::Error::OverQuota(over) => over.into(),
            noroshi_delivery::Error::Store(error) => error.into(),
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

/// A path or query value that is not what it should be is named by the caller with `Problem::at`.
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
    fn the_table_is_complete_and_unambiguous() {
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
    fn store_errors_keep_the_engines_words_inside() {
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
    fn a_long_detail_is_cut_at_a_character() {
        let problem = Problem::new(Code::InvalidField, "あ".repeat(10_000));
        assert!(problem.detail().len() <= DETAIL_BYTES_MAX + '…'.len_utf8());
    }
}
