//! A provider behind a webhook: `POST /push` with a batch of pushes, signed by Standard Webhooks. Recipients that it did
//! not accept are in the answer; a batch without such recipients is answered with 204.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};

use crate::behaviour::Scripted;
use crate::keys::{PROVIDER, WEBHOOK_SECRET};
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};
use crate::tokens::{Devices, State};

/// As the libraries of Standard Webhooks tolerate.
const SKEW_S: u64 = 300;
/// Ids of requests that are remembered.
const IDS_MAX: usize = 10_000;
const NAMES: [&str; 10] = [
    "traceparent",
    "content-type",
    "content-length",
    "accept",
    "user-agent",
    "host",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
    "connection",
];
const MESSAGE: [&str; 8] = [
    "notification_id",
    "notification",
    "data",
    "urgency",
    "collapse_key",
    "expires_at",
    "options",
    "recipients",
];
const RECIPIENT: [&str; 4] = ["id", "token", "device", "user"];

/// A violation: status and reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wrong(u16, &'static str);

pub(crate) struct Webhook {
    devices: Arc<Devices>,
    /// The recipients of each request id: a repeated request has the same.
    seen: Mutex<HashMap<String, BTreeSet<String>>>,
}

impl Webhook {
    pub(crate) fn new(devices: Arc<Devices>) -> Self {
        Self { devices, seen: Mutex::default() }
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<Reply, Wrong> {
        if request.path != "/push" {
            return Err(Wrong(404, "not_found"));
        }
        if request.method != Method::POST {
            return Err(Wrong(405, "method_not_allowed"));
        }
        let id = check_headers(request)?;
        let body: Value = serde_json::from_slice(request.body).map_err(|_| Wrong(400, "invalid_json"))?;
        verdict.payload = std::str::from_utf8(request.body).ok().map(str::to_owned);
        let recipients = recipients(&body)?;
        let ids: BTreeSet<String> = recipients.iter().map(|(id, _)| (*id).to_owned()).collect();
        if ids.len() != recipients.len() {
            return Err(Wrong(400, "repeated_recipient"));
        }
        let mut seen = self.seen.lock();
        if seen.len() >= IDS_MAX {
            seen.clear();
        }
        if seen.entry(id.to_owned()).or_insert_with(|| ids.clone()) != &ids {
            return Err(Wrong(400, "reused_id"));
        }
        drop(seen);
        verdict.token = recipients.first().map(|(_, token)| (*token).to_owned()).unwrap_or_default();
        let title = &body["messages"][0]["notification"]["title"];
        verdict.title = title.as_str().map(str::to_owned);
        let results: Vec<Value> =
            recipients.iter().filter_map(|(id, token)| self.result(id, token)).collect();
        Ok(match results.is_empty() {
            true => Reply::new(204, ""),
            false => Reply::new(200, "")
                .with("content-type", "application/json")
                .body(json!({"results": results}).to_string()),
        })
    }

    fn result(&self, id: &str, token: &str) -> Option<Value> {
        match self.devices.find(token).map(|device| device.state) {
            Some(State::Registered) => None,
            Some(State::Unregistered { .. }) => Some(json!({"id": id, "result": "invalid_token"})),
            Some(State::Foreign) => Some(json!({"id": id, "result": "suspect_token"})),
            None if self.devices.any => None,
            None => Some(json!({"id": id, "result": "rejected", "reason": "not_found"})),
        }
    }
}

/// The id of the request, after its signature is verified.
fn check_headers<'a>(request: &IncomingRequest<'a>) -> Result<&'a str, Wrong> {
    let headers = request.headers;
    if headers.keys_len() != headers.len() {
        return Err(Wrong(400, "repeated_header"));
    }
    if !headers.keys().all(|name| NAMES.contains(&name.as_str())) {
        return Err(Wrong(400, "unknown_header"));
    }
    let text = |name| single(headers, name).ok().flatten().ok_or(Wrong(400, "missing_header"));
    if (text("content-type")?, text("accept")?) != ("application/json", "application/json") {
        return Err(Wrong(400, "content_type"));
    }
    if !text("user-agent")?.starts_with("noroshi/") {
        return Err(Wrong(400, "user_agent"));
    }
    let id = text("webhook-id")?;
    let digits = id.strip_prefix("push_").ok_or(Wrong(400, "webhook_id"))?;
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Wrong(400, "webhook_id"));
    }
    let timestamp = text("webhook-timestamp")?;
    let seconds: u64 = timestamp.parse().map_err(|_| Wrong(400, "webhook_timestamp"))?;
    if seconds.abs_diff(request.now_ms / 1_000) > SKEW_S {
        return Err(Wrong(401, "webhook_timestamp"));
    }
    let secret = STANDARD.decode(WEBHOOK_SECRET.trim_start_matches("whsec_"));
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret.unwrap_or_default());
    let signed = [format!("{id}.{timestamp}.").as_bytes(), request.body].concat();
    let is_good = |signature: &str| {
        let tag = signature.strip_prefix("v1,").and_then(|text| STANDARD.decode(text).ok());
        tag.is_some_and(|tag| ring::hmac::verify(&key, &signed, &tag).is_ok())
    };
    match text("webhook-signature")?.split(' ').any(is_good) {
        true => Ok(id),
        false => Err(Wrong(401, "webhook_signature")),
    }
}

/// The id and the token of each recipient.
fn recipients(body: &Value) -> Result<Vec<(&str, &str)>, Wrong> {
    let object = |value: &'_ Value, names: &[&str]| {
        value.as_object().is_some_and(|object: &Map<String, Value>| {
            object.keys().all(|name| names.contains(&name.as_str()))
        })
    };
    if !object(body, &["type", "provider", "messages"]) || body["type"] != "push.batch" {
        return Err(Wrong(400, "body"));
    }
    if body["provider"] != PROVIDER {
        return Err(Wrong(400, "provider"));
    }
    let mut all = Vec::new();
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    for message in messages.ok_or(Wrong(400, "messages"))? {
        let urgency = message["urgency"].as_str().unwrap_or_default();
        if !object(message, &MESSAGE) || !["very-low", "low", "normal", "high"].contains(&urgency) {
            return Err(Wrong(400, "message"));
        }
        if !message["expires_at"].as_str().is_some_and(|time| time.ends_with('Z')) {
            return Err(Wrong(400, "expires_at"));
        }
        let recipients = message["recipients"].as_array().filter(|recipients| !recipients.is_empty());
        for recipient in recipients.ok_or(Wrong(400, "recipients"))? {
            let (id, token) = (recipient["id"].as_str(), recipient["token"].as_str());
            let (Some(id), Some(token)) = (id, token) else { return Err(Wrong(400, "recipient")) };
            if !object(recipient, &RECIPIENT) || uuid::Uuid::parse_str(id).is_err() || token.is_empty() {
                return Err(Wrong(400, "recipient"));
            }
            all.push((id, token));
        }
    }
    Ok(all)
}

impl Rules for Webhook {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.reply = match self.check(request, &mut verdict) {
            Ok(reply) => reply,
            Err(Wrong(status, reason)) => {
                Reply::new(status, reason).body(json!({"error": reason}).to_string())
            }
        };
        verdict
    }

    /// The reason is the body.
    fn scripted(&self, script: &Scripted, _: &Verdict, _: u64) -> Reply {
        Reply::new(script.status, script.reason.as_str()).body(script.reason.as_str())
    }
}
