//! Broadcast channels: the management host (`/1/apps/<bundle>/channels`, `/1/apps/<bundle>/all-channels`) and broadcasts
//! (`/4/broadcasts/apps/<bundle>`), as Apple's "Sending channel management requests to APNs" and "Sending broadcast push
//! notification requests to APNs" say. An environment has its own channels.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Map, Value, json};

use super::headers::{NAMES, is_own, uuid_of};
use super::payload::check_activity;
use super::{Apns, Wrong};
use crate::behaviour::Scripted;
use crate::rules::{IncomingRequest, Reply, Rules, Verdict, single};

const APPS: &str = "/1/apps/";
const BROADCASTS: &str = "/4/broadcasts/apps/";
/// "You can maintain up to 10,000 channels for your app in the development and production environment, respectively."
const CHANNELS_MAX: usize = 10_000;
const BROADCAST_BYTES_MAX: usize = 5_120;
/// Longer ids are rejected as badly formed.
const ID_BYTES_MAX: usize = 64;
/// A bundle id of the team without the capability "Broadcast".
const BUNDLE_WITHOUT_BROADCASTS: &str = "com.example.nobroadcast";

/// The storage policy of each channel, by bundle id and channel id.
#[derive(Default)]
pub(crate) struct Channels(Mutex<HashMap<String, BTreeMap<String, u8>>>);

impl Channels {
    fn policy(&self, bundle: &str, id: &str) -> Result<u8, Wrong> {
        let channels = self.0.lock();
        let found = channels.get(bundle).and_then(|channels| channels.get(id)).copied();
        found.ok_or(Wrong(400, "ChannelNotRegistered"))
    }

    fn create(&self, bundle: &str, policy: u8) -> Result<String, Wrong> {
        let mut all = self.0.lock();
        let channels = all.entry(bundle.to_owned()).or_default();
        if channels.len() >= CHANNELS_MAX {
            return Err(Wrong(400, "CannotCreateChannelConfig"));
        }
        let mut id = [0; 16];
        SystemRandom::new().fill(&mut id).map_err(|_| Wrong(500, "InternalServerError"))?;
        let id = STANDARD.encode(id);
        channels.insert(id.clone(), policy);
        Ok(id)
    }

    fn delete(&self, bundle: &str, id: &str) -> Result<(), Wrong> {
        let removed = self.0.lock().get_mut(bundle).and_then(|channels| channels.remove(id));
        removed.map(drop).ok_or(Wrong(400, "ChannelNotRegistered"))
    }

    fn list(&self, bundle: &str) -> Vec<String> {
        let channels = self.0.lock();
        channels.get(bundle).map(|channels| channels.keys().cloned().collect()).unwrap_or_default()
    }
}

/// Only headers that Apple knows for the request, each at most once.
fn check_names(headers: &HeaderMap, own: &[&str]) -> Result<(), Wrong> {
    if headers.keys_len() != headers.len() {
        return Err(Wrong(400, "DuplicateHeaders"));
    }
    let known = |name: &str| NAMES.contains(&name) || own.contains(&name);
    match headers.keys().all(|name| known(name.as_str())) {
        true => Ok(()),
        false => Err(Wrong(400, "StrictHeaderName")),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Wrong> {
    single(headers, name).map_err(|()| Wrong(400, "DuplicateHeaders"))
}

/// The header `apns-channel-id`.
fn channel(headers: &HeaderMap) -> Result<&str, Wrong> {
    let id = text(headers, "apns-channel-id")?.ok_or(Wrong(400, "MissingChannelId"))?;
    let fits = id.len() <= ID_BYTES_MAX && !id.is_empty() && STANDARD.decode(id).is_ok();
    if fits { Ok(id) } else { Err(Wrong(400, "BadChannelId")) }
}

/// The bundle id of a path, which has to be the team's and to have the capability.
fn check_bundle(bundle: &str) -> Result<(), Wrong> {
    match bundle {
        BUNDLE_WITHOUT_BROADCASTS => Err(Wrong(403, "FeatureNotEnabled")),
        _ if is_own(bundle) => Ok(()),
        _ => Err(Wrong(400, "TopicMismatch")),
    }
}

/// Whether a request to the host of pushes is a broadcast.
pub(super) fn is_broadcast(path: &str) -> bool {
    path.starts_with(BROADCASTS)
}

impl Apns {
    pub(super) fn check_broadcast(
        &self,
        request: &IncomingRequest<'_>,
        verdict: &mut Verdict,
    ) -> Result<(), Wrong> {
        let IncomingRequest { method, path, headers, body, .. } = *request;
        if method != Method::POST {
            return Err(Wrong(405, "MethodNotAllowed"));
        }
        let bundle = path.strip_prefix(BROADCASTS).ok_or(Wrong(404, "BadPath"))?;
        let own =
            ["apns-channel-id", "apns-push-type", "apns-priority", "apns-expiration", "apns-request-id"];
        check_names(headers, &own)?;
        verdict.id = uuid_of(headers, "apns-request-id")?;
        self.check_sender(request)?;
        check_bundle(bundle)?;
        let id = channel(headers)?;
        verdict.token = id.to_owned();
        let policy = self.channels.policy(bundle, id)?;
        match text(headers, "apns-push-type")? {
            None => return Err(Wrong(400, "MissingPushType")),
            Some("liveactivity") => {}
            Some(_) => return Err(Wrong(400, "InvalidPushType")),
        }
        if !matches!(text(headers, "apns-priority")?, None | Some("1" | "5" | "10")) {
            return Err(Wrong(400, "BadPriority"));
        }
        // "If the channel doesn't store messages, the value must be 0."
        let bad = Wrong(400, "BadExpirationDate");
        let expiration: u64 = text(headers, "apns-expiration")?.ok_or(bad)?.parse().map_err(|_| bad)?;
        if policy == 0 && expiration != 0 {
            return Err(bad);
        }
        if body.is_empty() {
            return Err(Wrong(400, "PayloadEmpty"));
        }
        if body.len() > BROADCAST_BYTES_MAX {
            return Err(Wrong(413, "PayloadTooLarge"));
        }
        verdict.title = check_activity(body, &["update", "end"])?;
        Ok(())
    }
}

/// The management host of an environment.
pub(crate) struct Management(pub(crate) Arc<Apns>);

impl Management {
    fn answer(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<Reply, Wrong> {
        let IncomingRequest { method, path, headers, body, .. } = *request;
        let rest = path.strip_prefix(APPS).ok_or(Wrong(404, "BadPath"))?;
        let (bundle, list) = rest.split_once('/').ok_or(Wrong(404, "BadPath"))?;
        // node-apn sends a priority too.
        let own: &[&str] = match (method, list) {
            (&Method::POST, "channels") | (&Method::GET, "all-channels") => {
                &["apns-request-id", "apns-priority"]
            }
            (&Method::GET | &Method::DELETE, "channels") => {
                &["apns-request-id", "apns-priority", "apns-channel-id"]
            }
            (_, "channels" | "all-channels") => return Err(Wrong(405, "MethodNotAllowed")),
            _ => return Err(Wrong(404, "BadPath")),
        };
        check_names(headers, own)?;
        verdict.id = uuid_of(headers, "apns-request-id")?;
        self.0.check_sender(request)?;
        check_bundle(bundle)?;
        let channels = &self.0.channels;
        if method != Method::POST && !body.is_empty() {
            return Err(Wrong(400, "StrictBody"));
        }
        Ok(match (method, list) {
            (&Method::GET, "all-channels") => {
                Reply::new(200, "").body(json!({"channels": channels.list(bundle)}).to_string())
            }
            (&Method::POST, _) => {
                let id = channels.create(bundle, policy_of(body)?)?;
                verdict.token = id.clone();
                Reply::new(201, "").with("apns-channel-id", id)
            }
            (&Method::DELETE, _) => {
                let id = channel(headers)?;
                verdict.token = id.to_owned();
                channels.delete(bundle, id)?;
                Reply::new(204, "")
            }
            _ => {
                let id = channel(headers)?;
                verdict.token = id.to_owned();
                let policy = channels.policy(bundle, id)?;
                let body = json!({"message-storage-policy": policy, "push-type": "LiveActivity"});
                Reply::new(200, "").body(body.to_string())
            }
        })
    }
}

/// The storage policy of a channel to create.
fn policy_of(body: &[u8]) -> Result<u8, Wrong> {
    let strict = Wrong(400, "StrictBody");
    if body.is_empty() {
        return Err(Wrong(400, "PayloadEmpty"));
    }
    let fields: Map<String, Value> = serde_json::from_slice(body).map_err(|_| strict)?;
    match fields.get("push-type") {
        None => return Err(Wrong(400, "MissingPushType")),
        // Apple writes "LiveActivity", node-apn "liveactivity".
        Some(Value::String(kind)) if kind.eq_ignore_ascii_case("LiveActivity") => {}
        Some(_) => return Err(Wrong(400, "InvalidPushType")),
    }
    match (fields.len(), fields.get("message-storage-policy").and_then(Value::as_u64)) {
        (2, Some(policy @ (0 | 1))) => Ok(policy as u8),
        _ => Err(strict),
    }
}

impl Rules for Management {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        let answer = self.answer(request, &mut verdict);
        let id = verdict.id.unwrap_or_else(uuid::Uuid::now_v7);
        verdict.payload = std::str::from_utf8(request.body).ok().map(str::to_owned);
        verdict.reply = match answer {
            Ok(reply) => self.0.with_request_id(reply, id),
            Err(Wrong(status, reason)) => self.0.reply_to_request(status, reason, id),
        };
        verdict
    }

    fn scripted(&self, script: &Scripted, verdict: &Verdict, _: u64) -> Reply {
        let id = verdict.id.unwrap_or_else(uuid::Uuid::now_v7);
        let reason = match (script.status, script.reason.as_str()) {
            (429, "") => "TooManyRequests",
            (500, "") => "InternalServerError",
            (503, "") => "ServiceUnavailable",
            (_, reason) => reason,
        };
        self.0.reply_to_request(script.status, reason, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_id_has_10_000_channels() {
        let channels = Channels::default();
        let mut last = String::new();
        for _ in 0..10_000 {
            last = channels.create("com.example.app", 0).unwrap();
        }
        let over = channels.create("com.example.app", 0).unwrap_err();
        assert_eq!((over.0, over.1), (400, "CannotCreateChannelConfig"));
        channels.create("com.example.other", 0).unwrap();
        channels.delete("com.example.app", &last).unwrap();
        channels.create("com.example.app", 0).unwrap();
    }
}
