//! A Web Push service: `POST /push/<subscription>` with TTL, a VAPID token for this origin, and a payload
//! encrypted for the subscription (RFC 8030, 8291, 8292). Errors are JSON as sent by Mozilla's service.
//! Messages are not stored: their resources answer 404.

mod encryption;
mod vapid;

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::json;

use crate::behaviour::Scripted;
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};
use crate::tokens::{Devices, State};
use vapid::Vapid;

/// RFC 8030 §7.2: at least this size must be accepted; here it is also the maximum.
const BODY_BYTES_MAX: usize = 4_096;
/// Maximum time to live; the answer contains the value if more was requested.
const TTL_S_MAX: u64 = 2_419_200;
const TOPIC_CHARS_MAX: usize = 32;
const NAMES: [&str; 15] = [
    "traceparent",
    "ttl",
    "urgency",
    "topic",
    "authorization",
    "content-encoding",
    "content-type",
    "content-length",
    "prefer",
    "user-agent",
    "accept",
    "accept-encoding",
    "accept-language",
    "host",
    "connection",
];

/// A violation: status, Mozilla's error number, and message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) u16, pub(crate) u16, pub(crate) &'static str);

pub(crate) struct WebPush {
    devices: Arc<Devices>,
    vapid: Vapid,
    /// Only one of this many payloads is decrypted, because decryption costs more than everything else.
    open_each: u64,
    opened: std::sync::atomic::AtomicU64,
}

impl WebPush {
    pub(crate) fn new(devices: Arc<Devices>, open_each: u64) -> Self {
        Self { devices, vapid: Vapid::default(), open_each, opened: 0.into() }
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<Reply, Wrong> {
        let missing = Wrong(404, 102, "unknown subscription");
        let name = request.path.strip_prefix("/push/").ok_or(missing)?;
        verdict.token = format!("{}{}", self.devices.origin, request.path);
        if request.method != Method::POST {
            return Err(Wrong(405, 0, "only POST is allowed"));
        }
        let device = self.devices.find(name).ok_or(missing)?;
        let subscription = device.subscription.ok_or(missing)?;
        let ttl = check_headers(request)?;
        self.vapid.check(request, &self.devices.origin, subscription.server_key.as_deref())?;
        if request.body.len() > BODY_BYTES_MAX {
            return Err(Wrong(413, 104, "the payload is too large"));
        }
        if matches!(device.state, State::Unregistered { .. } | State::Foreign) {
            return Err(Wrong(410, 106, "the subscription has been removed"));
        }
        if !request.body.is_empty() {
            encryption::check_shape(request.body)?;
            if self.opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(self.open_each) {
                let plain = encryption::open(request.body, &subscription)?;
                verdict.payload = String::from_utf8(plain).ok();
                verdict.title = verdict.payload.as_deref().and_then(title);
            }
        }
        let receipts = matches!(single(request.headers, "prefer"), Ok(Some("respond-async")));
        let message = uuid::Uuid::now_v7().simple().to_string();
        // RFC 8030 §5.1 and §5.2: the message's resource and the actual TTL.
        Ok(Reply::new(if receipts { 202 } else { 201 }, "")
            .with("location", format!("{}/message/{message}", self.devices.origin))
            .with("ttl", ttl.min(TTL_S_MAX).to_string()))
    }
}

/// Returns the TTL.
fn check_headers(request: &IncomingRequest<'_>) -> Result<u64, Wrong> {
    let headers = request.headers;
    if headers.keys_len() != headers.len() {
        return Err(Wrong(400, 110, "a header is repeated"));
    }
    if !headers.keys().all(|name| NAMES.contains(&name.as_str())) {
        return Err(Wrong(400, 110, "a header is not part of Web Push"));
    }
    // RFC 8030 §5.2: "a push service MUST return a 400 status code" without it.
    let ttl = text(headers, "ttl")?.ok_or(Wrong(400, 111, "TTL is missing"))?;
    let digits = !ttl.is_empty() && ttl.bytes().all(|byte| byte.is_ascii_digit());
    let ttl = ttl.parse().ok().filter(|_| digits).ok_or(Wrong(400, 112, "TTL is not a number of seconds"))?;
    if let Some(urgency) = text(headers, "urgency")?
        && !["very-low", "low", "normal", "high"].contains(&urgency)
    {
        return Err(Wrong(400, 110, "Urgency is invalid"));
    }
    if let Some(topic) = text(headers, "topic")? {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if topic.is_empty() || topic.len() > TOPIC_CHARS_MAX || !topic.bytes().all(allowed) {
            return Err(Wrong(400, 113, "Topic is not at most 32 characters of base64url"));
        }
    }
    let encoding = text(headers, "content-encoding")?;
    match (request.body.is_empty(), encoding) {
        (true, None) | (false, Some("aes128gcm")) => {}
        (true, Some(_)) => return Err(Wrong(400, 110, "Content-Encoding without a body")),
        (false, _) => return Err(Wrong(400, 110, "Content-Encoding is not aes128gcm")),
    }
    match text(headers, "content-type")? {
        None | Some("application/octet-stream") => Ok(ttl),
        Some(_) => Err(Wrong(400, 110, "Content-Type is not application/octet-stream")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Wrong> {
    single(headers, name).map_err(|()| Wrong(400, 110, "a header is not text"))
}

fn title(payload: &str) -> Option<String> {
    let value: serde_json::Value = serde_json::from_str(payload).ok()?;
    let notification = value.get("notification")?;
    let text = |key: &str| notification.get(key)?.as_str().map(str::to_owned);
    text("title").or_else(|| text("body"))
}

impl Wrong {
    fn reply(self) -> Reply {
        let Wrong(status, errno, message) = self;
        error(status, errno, message)
    }
}

fn error(status: u16, errno: u16, message: &str) -> Reply {
    let body = json!({"code": status, "errno": errno, "error": "", "message": message});
    Reply::new(status, message).with("content-type", "application/json").body(body.to_string())
}

impl Rules for WebPush {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.reply = match self.check(request, &mut verdict) {
            Ok(reply) => reply,
            Err(wrong) => wrong.reply(),
        };
        verdict
    }

    fn scripted(&self, script: &Scripted, _judged: &Verdict, _now_ms: u64) -> Reply {
        let (errno, message) = match (script.status, script.reason.as_str()) {
            (404, "") => (102, "unknown subscription"),
            (410, "") => (106, "the subscription has been removed"),
            (429, "") => (120, "too many requests"),
            (500, "") => (999, "internal error"),
            (503, "") => (201, "service unavailable"),
            (_, reason) => (999, reason),
        };
        error(script.status, errno, message)
    }
}
