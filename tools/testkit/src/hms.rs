//! Huawei Push Kit v3: `POST /v3/<project>/messages:send` with a PS256 token of the service account and a message for
//! tokens. Errors are codes in the body, most with status 200.

use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::behaviour::Scripted;
use crate::jwt::{Algorithm, Unverified};
use crate::keys::{HMS_ACCOUNT, HMS_KEY_ID, HMS_PROJECT, HMS_TOKEN_URL};
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};
use crate::tokens::{Devices, State};

const LIFE_S: u64 = 3_600;
/// Clock skew.
const SKEW_S: u64 = 60;
const BODY_BYTES_MAX: usize = 4_096;
const TTL_S_MAX: u64 = 1_296_000;
const NAMES: [&str; 10] = [
    "traceparent",
    "authorization",
    "content-type",
    "content-length",
    "push-type",
    "user-agent",
    "accept",
    "accept-encoding",
    "host",
    "connection",
];
const NOTIFICATION: [&str; 14] = [
    "category",
    "title",
    "body",
    "image",
    "clickAction",
    "badge",
    "foregroundShow",
    "notifyId",
    "sound",
    "soundDuration",
    "style",
    "inboxContent",
    "profileId",
    "appMessageId",
];

/// A violation: status and code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wrong(u16, &'static str);

/// "Incorrect message structure."
const STRUCTURE: Wrong = Wrong(400, "80100003");
const AUTHENTICATION: Wrong = Wrong(401, "80200001");

pub(crate) struct Hms {
    devices: Arc<Devices>,
    /// DER `RSAPublicKey`.
    public: Vec<u8>,
    /// The last valid token, because senders reuse a token for an hour.
    verified: Mutex<Option<Verified>>,
}

struct Verified {
    text: String,
    issued_s: u64,
    expires_s: u64,
}

impl Hms {
    pub(crate) fn new(devices: Arc<Devices>, public: Vec<u8>) -> Self {
        Self { devices, public, verified: Mutex::default() }
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<(), Wrong> {
        if request.method != Method::POST || request.path != format!("/v3/{HMS_PROJECT}/messages:send") {
            return Err(Wrong(404, ""));
        }
        let push_type = self.check_headers(request)?;
        let body: Value = serde_json::from_slice(request.body).map_err(|_| STRUCTURE)?;
        verdict.payload = std::str::from_utf8(request.body).ok().map(str::to_owned);
        let only = |value: &Value, names: &[&str]| {
            value.as_object().is_some_and(|object| object.keys().all(|name| names.contains(&name.as_str())))
        };
        if !only(&body, &["payload", "target", "pushOptions"]) || !only(&body["target"], &["token"]) {
            return Err(STRUCTURE);
        }
        let tokens = body["target"]["token"].as_array().filter(|tokens| (1..=1_000).contains(&tokens.len()));
        let tokens = tokens.ok_or(Wrong(400, "80300010"))?;
        let length: usize = tokens.iter().filter_map(Value::as_str).map(str::len).sum();
        if request.body.len() - length > BODY_BYTES_MAX {
            return Err(Wrong(400, "80300008"));
        }
        if !only(
            &body["pushOptions"],
            &["ttl", "testMessage", "biTag", "receiptId", "collapseKey", "backgroundMode"],
        ) {
            return Err(STRUCTURE);
        }
        if !body["pushOptions"]["ttl"].as_u64().is_some_and(|ttl| (1..=TTL_S_MAX).contains(&ttl)) {
            return Err(Wrong(400, "80100004"));
        }
        verdict.title = check_payload(push_type, &body["payload"], &only)?;
        let [token] = tokens.as_slice() else { return Err(STRUCTURE) };
        let token = token.as_str().ok_or(STRUCTURE)?;
        verdict.token = token.to_owned();
        match self.devices.find(token).map(|device| device.state) {
            Some(State::Registered) => Ok(()),
            None if self.devices.any => Ok(()),
            // "All tokens are invalid."
            Some(State::Unregistered { .. } | State::Foreign) | None => Err(Wrong(200, "80300007")),
        }
    }

    fn check_headers<'a>(&self, request: &IncomingRequest<'a>) -> Result<&'a str, Wrong> {
        let headers = request.headers;
        let known = headers.keys().all(|name| NAMES.contains(&name.as_str()));
        if headers.keys_len() != headers.len() || !known {
            return Err(STRUCTURE);
        }
        let text = |name| single(headers, name).ok().flatten();
        if text("content-type") != Some("application/json") {
            return Err(STRUCTURE);
        }
        let token =
            text("authorization").and_then(|text| text.strip_prefix("Bearer ")).ok_or(AUTHENTICATION)?;
        self.check_token(token, request.now_ms / 1_000)?;
        text("push-type").ok_or(STRUCTURE)
    }

    fn check_token(&self, text: &str, now_s: u64) -> Result<(), Wrong> {
        let mut verified = self.verified.lock();
        if verified.as_ref().is_none_or(|verified| verified.text != text) {
            *verified = Some(self.verify(text)?);
        }
        let Some(Verified { issued_s, expires_s, .. }) = &*verified else { return Err(AUTHENTICATION) };
        if *issued_s > now_s + SKEW_S || *expires_s > issued_s + LIFE_S {
            return Err(AUTHENTICATION);
        }
        if *expires_s <= now_s {
            return Err(Wrong(401, "80200003"));
        }
        Ok(())
    }

    /// Everything except its time.
    fn verify(&self, text: &str) -> Result<Verified, Wrong> {
        let token = Unverified::read(text).map_err(|_| AUTHENTICATION)?;
        token.verify(Algorithm::Ps256, &self.public).map_err(|_| AUTHENTICATION)?;
        if token.header.get("kid").and_then(Value::as_str) != Some(HMS_KEY_ID)
            || token.text("iss") != Some(HMS_ACCOUNT)
            || token.text("aud") != Some(HMS_TOKEN_URL)
        {
            return Err(AUTHENTICATION);
        }
        let issued_s = token.seconds("iat").ok_or(AUTHENTICATION)?;
        let expires_s = token.seconds("exp").ok_or(AUTHENTICATION)?;
        Ok(Verified { text: text.to_owned(), issued_s, expires_s })
    }
}

/// Returns the title.
fn check_payload(
    push_type: &str,
    payload: &Value,
    only: &dyn Fn(&Value, &[&str]) -> bool,
) -> Result<Option<String>, Wrong> {
    let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    match push_type {
        "0" => {
            let notification = &payload["notification"];
            if !only(payload, &["notification"]) || !only(notification, &NOTIFICATION) {
                return Err(STRUCTURE);
            }
            let required = [&notification["category"], &notification["title"], &notification["body"]];
            if required.into_iter().any(|value| text(value).is_none()) {
                return Err(STRUCTURE);
            }
            let click = &notification["clickAction"];
            let has_action = click["actionType"].as_u64().is_some_and(|action| action <= 1);
            if !has_action || !only(click, &["actionType", "action", "uri", "data"]) {
                return Err(STRUCTURE);
            }
            let badge = &notification["badge"];
            let is_badge = only(badge, &["addNum", "setNum"])
                && badge["setNum"].as_u64().is_none_or(|number| number < 100);
            if !badge.is_null() && !is_badge {
                return Err(STRUCTURE);
            }
            let id = &notification["notifyId"];
            if !id.is_null() && id.as_u64().is_none_or(|id| id >= 1 << 31) {
                return Err(STRUCTURE);
            }
            Ok(text(&notification["title"]))
        }
        "6" if only(payload, &["extraData"]) && payload["extraData"].is_string() => Ok(None),
        "1" | "2" | "7" | "10" => Ok(None),
        _ => Err(STRUCTURE),
    }
}

impl Rules for Hms {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.reply = match self.check(request, &mut verdict) {
            Ok(()) => reply(200, "80000000"),
            Err(Wrong(status, "")) => Reply::new(status, ""),
            Err(Wrong(status, code)) => reply(status, code),
        };
        verdict
    }

    fn scripted(&self, script: &Scripted, verdict: &Verdict, _: u64) -> Reply {
        match script.reason.as_str() {
            "" if script.status == 200 => verdict.reply.clone(),
            "" => Reply::new(script.status, ""),
            code => reply(script.status, code),
        }
    }
}

fn reply(status: u16, code: &str) -> Reply {
    let reason = if code == "80000000" { "" } else { code };
    let body = json!({"code": code, "msg": if reason.is_empty() { "Success" } else { "Error" }, "requestId": uuid::Uuid::now_v7().simple().to_string()});
    Reply::new(status, reason).with("content-type", "application/json").body(body.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Service;

    #[test]
    fn a_remembered_token_expires() {
        let devices = Devices::new(Service::Hms, true, String::new(), String::new());
        let hms = Hms::new(Arc::new(devices), Vec::new());
        *hms.verified.lock() = Some(Verified { text: "a.b.c".to_owned(), issued_s: 1_000, expires_s: 4_600 });
        for (text, now_s, expected) in [
            ("a.b.c", 1_000, Ok(())),
            ("a.b.c", 4_599, Ok(())),
            ("a.b.c", 4_600, Err(Wrong(401, "80200003"))),
            ("a.b.c", 900, Err(AUTHENTICATION)),
            ("another", 1_000, Err(AUTHENTICATION)),
            ("a.b.c", 1_000, Ok(())),
        ] {
            assert_eq!(hms.check_token(text, now_s), expected, "{text} at {now_s}");
        }
    }
}
