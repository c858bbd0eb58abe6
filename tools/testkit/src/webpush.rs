//! A Web Push service: `POST /push/<subscription>` with TTL, a VAPID token for this origin, and a payload that only
//! the subscription's keys open (RFC 8030, 8291, 8292). Errors have the JSON that Mozilla's service answers.
//! A message is not kept: its resource answers 404 once asked for.

mod encryption;
mod vapid;

use std::sync::Arc;

use http::{HeaderMap, Method};
use serde_json::json;

use crate::ask::{Ask, Judge, Judged, Reply, single};
use crate::behaviour::Scripted;
use crate::tokens::{Devices, State};
use vapid::Vapid;

/// RFC 8030 §7.2: no less than this is taken, and here no more.
const BODY_BYTES_MAX: usize = 4_096;
/// A message is kept for so long; the answer says so where more was asked for.
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

/// What is wrong: status, Mozilla's number for it, and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) u16, pub(crate) u16, pub(crate) &'static str);

pub(crate) struct WebPush {
    devices: Arc<Devices>,
    vapid: Vapid,
    /// Only every so many payloads are decrypted: opening one costs more than all the rest.
    open_each: u64,
    opened: std::sync::atomic::AtomicU64,
}

impl WebPush {
    pub(crate) fn new(devices: Arc<Devices>, open_each: u64) -> Self {
        Self { devices, vapid: Vapid::default(), open_each, opened: 0.into() }
    }

    fn check(&self, ask: &Ask<'_>, judged: &mut Judged) -> Result<Reply, Wrong> {
        let missing = Wrong(404, 102, "there is no such subscription");
        let name = ask.path.strip_prefix("/push/").ok_or(missing)?;
        judged.token = format!("{}{}", self.devices.origin, ask.path);
        if ask.method != Method::POST {
            return Err(Wrong(405, 0, "a push is a POST"));
        }
        let device = self.devices.find(name).ok_or(missing)?;
        let subscription = device.subscription.ok_or(missing)?;
        let ttl = check_headers(ask)?;
        self.vapid.check(ask, &self.devices.origin, subscription.server_key.as_deref())?;
        if ask.body.len() > BODY_BYTES_MAX {
            return Err(Wrong(413, 104, "the payload is too large"));
        }
        if matches!(device.state, State::Unregistered { .. } | State::Foreign) {
            return Err(Wrong(410, 106, "the subscription is gone"));
        }
        if !ask.body.is_empty() {
            encryption::check_shape(ask.body)?;
            if self.opened.fetch_add(1, std::sync::atomic::Ordering::Relaxed).is_multiple_of(self.open_each) {
                let plain = encryption::open(ask.body, &subscription)?;
                judged.payload = String::from_utf8(plain).ok();
                judged.title = judged.payload.as_deref().and_then(title);
            }
        }
        let receipts = matches!(single(ask.headers, "prefer"), Ok(Some("respond-async")));
        let message = uuid::Uuid::now_v7().simple().to_string();
        // RFC 8030 §5.1 and §5.2: where the message is, and what its time became.
        Ok(Reply::new(if receipts { 202 } else { 201 }, "")
            .with("location", format!("{}/message/{message}", self.devices.origin))
            .with("ttl", ttl.min(TTL_S_MAX).to_string()))
    }
}

/// The time to live.
fn check_headers(ask: &Ask<'_>) -> Result<u64, Wrong> {
    let headers = ask.headers;
    if headers.keys_len() != headers.len() {
        return Err(Wrong(400, 110, "a header is there more than once"));
    }
    if !headers.keys().all(|name| NAMES.contains(&name.as_str())) {
        return Err(Wrong(400, 110, "a header is none of Web Push"));
    }
    // RFC 8030 §5.2: "a push service MUST return a 400 status code" without it.
    let ttl = text(headers, "ttl")?.ok_or(Wrong(400, 111, "TTL is missing"))?;
    let digits = !ttl.is_empty() && ttl.bytes().all(|byte| byte.is_ascii_digit());
    let ttl = ttl.parse().ok().filter(|_| digits).ok_or(Wrong(400, 112, "TTL is no number of seconds"))?;
    if let Some(urgency) = text(headers, "urgency")?
        && !["very-low", "low", "normal", "high"].contains(&urgency)
    {
        return Err(Wrong(400, 110, "Urgency is none of the four"));
    }
    if let Some(topic) = text(headers, "topic")? {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if topic.is_empty() || topic.len() > TOPIC_CHARS_MAX || !topic.bytes().all(allowed) {
            return Err(Wrong(400, 113, "Topic is at most 32 characters of base64url"));
        }
    }
    let encoding = text(headers, "content-encoding")?;
    match (ask.body.is_empty(), encoding) {
        (true, None) | (false, Some("aes128gcm")) => {}
        (true, Some(_)) => return Err(Wrong(400, 110, "there is an encoding of nothing")),
        (false, _) => return Err(Wrong(400, 110, "Content-Encoding is not aes128gcm")),
    }
    match text(headers, "content-type")? {
        None | Some("application/octet-stream") => Ok(ttl),
        Some(_) => Err(Wrong(400, 110, "Content-Type is not application/octet-stream")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Wrong> {
    single(headers, name).map_err(|()| Wrong(400, 110, "a header is no text"))
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

impl Judge for WebPush {
    fn judge(&self, ask: &Ask<'_>) -> Judged {
        let mut judged = Judged::default();
        judged.reply = match self.check(ask, &mut judged) {
            Ok(reply) => reply,
            Err(wrong) => wrong.reply(),
        };
        judged
    }

    fn scripted(&self, script: &Scripted, _judged: &Judged, _now_ms: u64) -> Reply {
        let (errno, message) = match (script.status, script.reason.as_str()) {
            (404, "") => (102, "there is no such subscription"),
            (410, "") => (106, "the subscription is gone"),
            (429, "") => (120, "too many requests"),
            (500, "") => (999, "internal error"),
            (503, "") => (201, "service unavailable"),
            (_, reason) => (999, reason),
        };
        let reply = error(script.status, errno, message);
        match script.retry_after_s {
            Some(seconds) => reply.with("retry-after", seconds.to_string()),
            None => reply,
        }
    }
}
