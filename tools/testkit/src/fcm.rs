//! FCM HTTP v1: `POST /v1/projects/<project>/messages:send` with an access token from the fake's own token
//! endpoint ([`oauth`]) and a message for one device, parsed as strictly as by Google ([`message`]). Errors
//! are `google.rpc.Status` with an `FcmError` detail.

mod message;
pub(crate) mod oauth;

use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};

use crate::behaviour::Scripted;
use crate::keys::PROJECT;
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};
use crate::tokens::{Devices, State};
use oauth::AccessTokens;

const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
const NAMES: [&str; 13] = [
    "traceparent",
    "authorization",
    "content-type",
    "content-length",
    "user-agent",
    "accept",
    "accept-encoding",
    "host",
    "connection",
    "x-firebase-client",
    "x-goog-api-client",
    "x-goog-api-format-version",
    "x-goog-user-project",
];

/// Errors, as in Google's table of error codes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    NotFound,
    Unauthenticated(&'static str),
    /// A field of the request and the problem with it.
    Invalid {
        field: String,
        description: String,
    },
    Unregistered,
    SenderIdMismatch,
}

pub(crate) struct Fcm {
    devices: Arc<Devices>,
    access: Arc<AccessTokens>,
}

impl Fcm {
    pub(crate) fn new(devices: Arc<Devices>, access: Arc<AccessTokens>) -> Self {
        Self { devices, access }
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<(), Wrong> {
        if request.method != Method::POST || request.path != format!("/v1/projects/{PROJECT}/messages:send") {
            return Err(Wrong::NotFound);
        }
        self.check_headers(request)?;
        let document: Value = serde_json::from_slice(request.body).map_err(|error| Wrong::Invalid {
            field: String::new(),
            description: format!("Invalid JSON payload received. {error}"),
        })?;
        let message = message::check(&document)?;
        verdict.token = message.token.to_owned();
        verdict.title = message.title.map(str::to_owned);
        verdict.payload = std::str::from_utf8(request.body).ok().map(str::to_owned);
        self.check_device(message.token)
    }

    fn check_headers(&self, request: &IncomingRequest<'_>) -> Result<(), Wrong> {
        let invalid =
            |description: &str| Wrong::Invalid { field: String::new(), description: description.to_owned() };
        if request.headers.keys_len() != request.headers.len() {
            return Err(invalid("A header is repeated."));
        }
        if let Some(name) = request.headers.keys().find(|name| !NAMES.contains(&name.as_str())) {
            return Err(invalid(&format!("Header {name} is not part of this API.")));
        }
        let authorization = single(request.headers, "authorization").ok().flatten();
        let token = authorization.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.ok_or(Wrong::Unauthenticated("CREDENTIALS_MISSING"))?;
        self.access.check(token, request.now_ms).map_err(Wrong::Unauthenticated)?;
        let content_type = single(request.headers, "content-type").ok().flatten().unwrap_or_default();
        let mut parts = content_type.split(';').map(str::trim);
        let is_json = parts.next() == Some("application/json")
            && parts.all(|part| part.eq_ignore_ascii_case("charset=utf-8"));
        if is_json { Ok(()) } else { Err(invalid("The content type is not application/json.")) }
    }

    fn check_device(&self, token: &str) -> Result<(), Wrong> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":_-".contains(&byte);
        if token.len() < 32 || token.len() > 4_096 || !token.bytes().all(allowed) {
            return Err(bad_token());
        }
        match self.devices.find(token).map(|device| device.state) {
            Some(State::Registered) => Ok(()),
            Some(State::Unregistered { .. }) => Err(Wrong::Unregistered),
            Some(State::Foreign) => Err(Wrong::SenderIdMismatch),
            None if self.devices.any => Ok(()),
            None => Err(bad_token()),
        }
    }
}

fn bad_token() -> Wrong {
    let description = "The registration token is not a valid FCM registration token".to_owned();
    Wrong::Invalid { field: "message.token".to_owned(), description }
}

impl Rules for Fcm {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.reply = match self.check(request, &mut verdict) {
            Ok(()) => {
                let name = format!("projects/{PROJECT}/messages/{}", uuid::Uuid::now_v7().simple());
                json_reply(200, "", &json!({ "name": name }))
            }
            Err(wrong) => wrong.reply(),
        };
        verdict
    }

    fn scripted(&self, script: &Scripted, verdict: &Verdict, _now_ms: u64) -> Reply {
        let reason = match (script.status, script.reason.as_str()) {
            (200, _) => return verdict.reply.clone(),
            (400, "") => "INVALID_ARGUMENT",
            (401, "") => "THIRD_PARTY_AUTH_ERROR",
            (403, "") => "SENDER_ID_MISMATCH",
            (404, "") => "UNREGISTERED",
            (429, "") => "QUOTA_EXCEEDED",
            (500, "") => "INTERNAL",
            (503, "") => "UNAVAILABLE",
            (_, reason) => reason,
        };
        error(script.status, reason, "Scripted error.", None)
    }
}

impl Wrong {
    fn reply(self) -> Reply {
        match self {
            Wrong::NotFound => json_reply(
                404,
                "NOT_FOUND",
                &json!({"error": {"code": 404, "message": "Method not found.", "status": "NOT_FOUND"}}),
            ),
            Wrong::Unauthenticated(why) => {
                let details = json!([{
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": why,
                    "domain": "googleapis.com",
                    "metadata": {"service": "fcm.googleapis.com"},
                }]);
                let message =
                    "Request had invalid authentication credentials. Expected OAuth 2 access token.";
                let body = json!({"error": {
                    "code": 401, "message": message, "status": "UNAUTHENTICATED", "details": details,
                }});
                json_reply(401, why, &body)
                    .with("www-authenticate", "Bearer realm=\"https://accounts.google.com/\"")
            }
            Wrong::Invalid { field, description } => {
                let violation = json!({
                    "@type": BAD_REQUEST,
                    "fieldViolations": [{"field": field, "description": description}],
                });
                error(400, "INVALID_ARGUMENT", &description, Some(violation))
            }
            Wrong::Unregistered => error(404, "UNREGISTERED", "Requested entity was not found.", None),
            Wrong::SenderIdMismatch => error(403, "SENDER_ID_MISMATCH", "SenderId mismatch", None),
        }
    }
}

/// With the FcmError that senders look for.
fn error(status: u16, code: &str, message: &str, more: Option<Value>) -> Reply {
    let rpc = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    let mut details = vec![json!({"@type": FCM_ERROR, "errorCode": code})];
    details.extend(more);
    let body = json!({"error": {"code": status, "message": message, "status": rpc, "details": details}});
    json_reply(status, code, &body)
}

pub(crate) fn json_reply(status: u16, reason: &str, body: &Value) -> Reply {
    Reply::new(status, reason).with("content-type", "application/json; charset=UTF-8").body(body.to_string())
}
