//! WNS: `POST /?token=<channel>` with an access token from the fake's own token endpoint ([`login`]), an `X-WNS-Type` and
//! a body of that type.

pub(crate) mod login;
mod xml;

use std::sync::Arc;

use http::Method;

use crate::behaviour::Scripted;
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};
use crate::tokens::{Devices, State};
use login::AccessTokens;

const BODY_BYTES_MAX: usize = 5_000;
const NAMES: [&str; 17] = [
    "traceparent",
    "authorization",
    "content-type",
    "content-length",
    "x-wns-type",
    "x-wns-cache-policy",
    "x-wns-requestforstatus",
    "x-wns-tag",
    "x-wns-group",
    "x-wns-ttl",
    "x-wns-suppresspopup",
    "x-wns-priority",
    "user-agent",
    "accept",
    "accept-encoding",
    "host",
    "connection",
];

/// A violation: status and `X-WNS-Error-Description`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wrong(u16, &'static str);

pub(crate) struct Wns {
    devices: Arc<Devices>,
    access: Arc<AccessTokens>,
}

impl Wns {
    pub(crate) fn new(devices: Arc<Devices>, access: Arc<AccessTokens>) -> Self {
        Self { devices, access }
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<(), Wrong> {
        if request.method != Method::POST {
            return Err(Wrong(405, "invalid method"));
        }
        let channel = request.path.strip_prefix("/?token=").ok_or(Wrong(404, "channel not found"))?;
        verdict.token = channel.to_owned();
        let kind = self.check_headers(request)?;
        if request.body.len() > BODY_BYTES_MAX {
            return Err(Wrong(413, "payload too large"));
        }
        let text = std::str::from_utf8(request.body).map_err(|_| Wrong(400, "payload is not UTF-8"))?;
        verdict.payload = Some(text.to_owned());
        let root = match kind {
            "wns/toast" => Some("toast"),
            "wns/tile" => Some("tile"),
            "wns/badge" => Some("badge"),
            _ => None,
        };
        if let Some(root) = root {
            let read = xml::read(text).map_err(|why| Wrong(400, why))?;
            if read.root != root {
                return Err(Wrong(400, "the root element is not of the type"));
            }
            verdict.title = read.texts.into_iter().next();
        }
        match self.devices.find(channel).map(|device| device.state) {
            Some(State::Registered) => Ok(()),
            Some(State::Unregistered { .. }) => Err(Wrong(410, "channel expired")),
            Some(State::Foreign) => Err(Wrong(403, "channel of another app")),
            None if self.devices.any => Ok(()),
            None => Err(Wrong(404, "channel not found")),
        }
    }

    fn check_headers<'a>(&self, request: &IncomingRequest<'a>) -> Result<&'a str, Wrong> {
        let headers = request.headers;
        let known = headers.keys().all(|name| NAMES.contains(&name.as_str()));
        if headers.keys_len() != headers.len() || !known {
            return Err(Wrong(400, "repeated or unknown header"));
        }
        let text = |name| single(headers, name).ok().flatten();
        let token = text("authorization").and_then(|text| text.strip_prefix("Bearer "));
        if !token.is_some_and(|token| self.access.is_valid(token, request.now_ms)) {
            return Err(Wrong(401, "invalid access token"));
        }
        let kind = text("x-wns-type").ok_or(Wrong(400, "x-wns-type is missing"))?;
        let content_type = match kind {
            "wns/toast" | "wns/tile" | "wns/badge" => "text/xml",
            "wns/raw" => "application/octet-stream",
            _ => return Err(Wrong(400, "x-wns-type is invalid")),
        };
        if text("content-type") != Some(content_type) {
            return Err(Wrong(400, "content type does not fit"));
        }
        let tag = text("x-wns-tag").unwrap_or("a");
        if tag.is_empty() || tag.len() > 16 || !tag.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(Wrong(400, "x-wns-tag is invalid"));
        }
        if text("x-wns-ttl").is_some_and(|ttl| ttl.parse::<u32>().is_err()) {
            return Err(Wrong(400, "x-wns-ttl is invalid"));
        }
        if text("x-wns-priority").is_some_and(|priority| !["1", "2", "3", "4"].contains(&priority)) {
            return Err(Wrong(400, "x-wns-priority is invalid"));
        }
        for name in ["x-wns-requestforstatus", "x-wns-suppresspopup"] {
            if text(name).is_some_and(|value| !["true", "false"].contains(&value)) {
                return Err(Wrong(400, "a flag is invalid"));
            }
        }
        Ok(kind)
    }
}

impl Rules for Wns {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        verdict.reply = match self.check(request, &mut verdict) {
            Ok(()) => reply(200, "", "received"),
            Err(Wrong(status, reason)) => reply(status, reason, "dropped"),
        };
        verdict
    }

    /// The reason is the value of `X-WNS-Status`.
    fn scripted(&self, script: &Scripted, verdict: &Verdict, _: u64) -> Reply {
        match (script.status, script.reason.as_str()) {
            (200, "") => verdict.reply.clone(),
            (406, "") => reply(406, "throttled", "channelthrottled"),
            (status, reason) => reply(status, reason, reason),
        }
    }
}

fn reply(status: u16, reason: &str, state: &str) -> Reply {
    Reply::new(status, reason)
        .with("x-wns-status", state)
        .with("x-wns-deviceconnectionstatus", "connected")
        .with("x-wns-msg-id", uuid::Uuid::now_v7().simple().to_string())
}
