//! APNs: `POST /3/device/<token>`, and broadcasts to channels (`channels`), with Apple's headers, an ES256 provider token or a client certificate, and
//! a payload of at most 4 KiB. The error reasons are Apple's; violations for which Apple has no reason get
//! one that starts with `Strict`, which no production server ever returns.

pub(crate) mod channels;
mod headers;
mod payload;
mod provider;

use std::collections::HashSet;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use crate::Service;
use crate::behaviour::{Renewal, Scripted};
use crate::keys::Keys;
use crate::rules::{IncomingRequest, Reply, Rules, Verdict};
use crate::tokens::{Device, Devices, State};
use channels::Channels;
use headers::Headers;
use provider::Providers;

const PATH: &str = "/3/device/";

/// A violation: the status and reason of Apple's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) u16, pub(crate) &'static str);

pub(crate) struct Apns {
    service: Service,
    devices: Arc<Devices>,
    providers: Mutex<Providers>,
    certificates: Mutex<HashSet<[u8; 32]>>,
    channels: Channels,
}

impl Apns {
    pub(crate) fn new(service: Service, devices: Arc<Devices>, keys: &Keys) -> Self {
        Self {
            service,
            devices,
            providers: Mutex::new(Providers::new(keys.apns_public.clone())),
            certificates: Mutex::default(),
            channels: Channels::default(),
        }
    }

    pub(crate) fn service(&self) -> Service {
        self.service
    }

    pub(crate) fn set_renewal(&self, renewal: Renewal) {
        self.providers.lock().renewal = renewal;
    }

    pub(crate) fn trust_certificate(&self, fingerprint: [u8; 32]) {
        self.certificates.lock().insert(fingerprint);
    }

    fn check(&self, request: &IncomingRequest<'_>, verdict: &mut Verdict) -> Result<(), Wrong> {
        if channels::is_broadcast(request.path) {
            return self.check_broadcast(request, verdict);
        }
        if request.method != Method::POST {
            return Err(Wrong(405, "MethodNotAllowed"));
        }
        let token = request.path.strip_prefix(PATH).ok_or(Wrong(404, "BadPath"))?;
        verdict.token.push_str(token);
        headers::check_names(request.headers)?;
        // The id is echoed even if something else is wrong.
        verdict.id = headers::id(request.headers)?;
        let by_certificate = self.check_sender(request)?;
        if token.is_empty() {
            return Err(Wrong(400, "MissingDeviceToken"));
        }
        let headers = Headers::read(request.headers, by_certificate)?;
        let title = payload::check(request.body, &headers)?;
        verdict.title = title;
        self.check_device(token, &headers)
    }

    /// Returns whether the sender is known by its certificate instead of a provider token.
    fn check_sender(&self, request: &IncomingRequest<'_>) -> Result<bool, Wrong> {
        let by_certificate = request.connection.certificate.is_some_and(|certificate| {
            request.headers.get("authorization").is_none() && self.certificates.lock().contains(&certificate)
        });
        if !by_certificate {
            self.check_provider(request)?;
        }
        Ok(by_certificate)
    }

    fn check_provider(&self, request: &IncomingRequest<'_>) -> Result<(), Wrong> {
        let team = self.providers.lock().check(request.headers, request.now_ms / 1_000)?;
        let mut owner = request.connection.team.lock();
        match owner.as_deref() {
            Some(owner) if owner != team => Err(Wrong(403, "UnrelatedKeyIdInToken")),
            Some(_) => Ok(()),
            None => {
                *owner = Some(team.to_owned());
                Ok(())
            }
        }
    }

    fn check_device(&self, token: &str, headers: &Headers<'_>) -> Result<(), Wrong> {
        // The length is not fixed; tokens currently have 64 digits, and Apple has announced longer ones.
        let hex = token.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex || !token.len().is_multiple_of(2) || !(64..=200).contains(&token.len()) {
            return Err(Wrong(400, "BadDeviceToken"));
        }
        let Some(Device { state, topic, .. }) = self.devices.find(token) else {
            // Apple also answers this for a token of the other environment.
            return if self.devices.any { Ok(()) } else { Err(Wrong(400, "BadDeviceToken")) };
        };
        match state {
            State::Unregistered { .. } => Err(Wrong(410, "Unregistered")),
            State::Foreign => Err(Wrong(410, "ExpiredToken")),
            State::Registered if headers.bundle() != &*topic => Err(Wrong(400, "DeviceTokenNotForTopic")),
            State::Registered => Ok(()),
        }
    }

    /// The answer to a request about a channel, which has an id of its own.
    fn with_request_id(&self, reply: Reply, id: uuid::Uuid) -> Reply {
        let reply = reply.with("apns-request-id", id.to_string());
        match self.service {
            Service::ApnsSandbox => reply.with("apns-unique-id", uuid::Uuid::now_v7().to_string()),
            _ => reply,
        }
    }

    fn reply_to_request(&self, status: u16, reason: &str, id: uuid::Uuid) -> Reply {
        let reply = self.with_request_id(Reply::new(status, reason), id);
        if status == 200 { reply } else { reply.body(json!({"reason": reason}).to_string()) }
    }

    fn reply(&self, status: u16, reason: &str, id: uuid::Uuid, timestamp_ms: Option<u64>) -> Reply {
        let reply = Reply::new(status, reason).with("apns-id", id.to_string());
        if status == 200 {
            return match self.service {
                // Sandbox only: the id in Apple's delivery log.
                Service::ApnsSandbox => reply.with("apns-unique-id", uuid::Uuid::now_v7().to_string()),
                _ => reply,
            };
        }
        let body = match timestamp_ms {
            Some(timestamp) => json!({"reason": reason, "timestamp": timestamp}),
            None => json!({"reason": reason}),
        };
        reply.body(body.to_string())
    }
}

impl Rules for Apns {
    fn evaluate(&self, request: &IncomingRequest<'_>) -> Verdict {
        let mut verdict = Verdict::default();
        let checked = self.check(request, &mut verdict);
        let id = verdict.id.unwrap_or_else(uuid::Uuid::now_v7);
        verdict.payload = std::str::from_utf8(request.body).ok().map(str::to_owned);
        verdict.reply = match checked {
            checked if channels::is_broadcast(request.path) => {
                let (status, reason) =
                    checked.err().map_or((200, ""), |Wrong(status, reason)| (status, reason));
                self.reply_to_request(status, reason, id)
            }
            Ok(()) => self.reply(200, "", id, None),
            Err(Wrong(status, reason)) => {
                let gone = self.devices.find(&verdict.token).map(|device| device.state);
                let timestamp = match (status, gone) {
                    (410, Some(State::Unregistered { at_ms })) => Some(at_ms),
                    (410, _) => Some(request.now_ms),
                    _ => None,
                };
                self.reply(status, reason, id, timestamp)
            }
        };
        verdict
    }

    fn scripted(&self, script: &Scripted, verdict: &Verdict, now_ms: u64) -> Reply {
        let id = verdict.id.unwrap_or_else(uuid::Uuid::now_v7);
        let timestamp = (script.status == 410).then(|| script.timestamp.unwrap_or(now_ms));
        let reason = match (script.status, script.reason.as_str()) {
            (410, "") => "Unregistered",
            (429, "") => "TooManyRequests",
            (500, "") => "InternalServerError",
            (503, "") => "ServiceUnavailable",
            (_, reason) => reason,
        };
        self.reply(script.status, reason, id, timestamp)
    }
}
