//! APNs: `POST /3/device/<token>` with Apple's headers, an ES256 provider token or a client's certificate, and a
//! payload of at most 4 KiB. Reasons are Apple's; where Apple has no word for what is wrong, the fake's own begin
//! with `Strict`, and no production server ever answers them.

mod headers;
mod payload;
mod provider;

use std::collections::HashSet;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use serde_json::json;

use crate::Service;
use crate::ask::{Ask, Judge, Judged, Reply};
use crate::behaviour::{Renewal, Scripted};
use crate::keys::Keys;
use crate::tokens::{Device, Devices, State};
use headers::Headers;
use provider::Providers;

const PATH: &str = "/3/device/";

/// What is wrong, with the status Apple answers it with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wrong(pub(crate) u16, pub(crate) &'static str);

pub(crate) struct Apns {
    service: Service,
    devices: Arc<Devices>,
    providers: Mutex<Providers>,
    certificates: Mutex<HashSet<[u8; 32]>>,
}

impl Apns {
    pub(crate) fn new(service: Service, devices: Arc<Devices>, keys: &Keys) -> Self {
        Self {
            service,
            devices,
            providers: Mutex::new(Providers::new(keys.apns_public.clone())),
            certificates: Mutex::default(),
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

    fn check(&self, ask: &Ask<'_>, judged: &mut Judged) -> Result<(), Wrong> {
        if ask.method != Method::POST {
            return Err(Wrong(405, "MethodNotAllowed"));
        }
        let token = ask.path.strip_prefix(PATH).ok_or(Wrong(404, "BadPath"))?;
        judged.token.push_str(token);
        headers::check_names(ask.headers)?;
        // The id is echoed whatever else is wrong.
        judged.id = headers::id(ask.headers)?;
        let by_certificate = ask.connection.certificate.is_some_and(|certificate| {
            ask.headers.get("authorization").is_none() && self.certificates.lock().contains(&certificate)
        });
        if !by_certificate {
            self.check_provider(ask)?;
        }
        if token.is_empty() {
            return Err(Wrong(400, "MissingDeviceToken"));
        }
        let headers = Headers::read(ask.headers, by_certificate)?;
        let title = payload::check(ask.body, &headers)?;
        judged.title = title;
        self.check_device(token, &headers)
    }

    fn check_provider(&self, ask: &Ask<'_>) -> Result<(), Wrong> {
        let team = self.providers.lock().check(ask.headers, ask.now_ms / 1_000)?;
        let mut owner = ask.connection.team.lock();
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
        // Lengths are not fixed; today's are 64 digits, longer ones have been announced.
        let hex = token.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !hex || !token.len().is_multiple_of(2) || !(64..=200).contains(&token.len()) {
            return Err(Wrong(400, "BadDeviceToken"));
        }
        let Some(Device { state, topic, .. }) = self.devices.find(token) else {
            // Also what Apple says of a token of the other environment.
            return if self.devices.any { Ok(()) } else { Err(Wrong(400, "BadDeviceToken")) };
        };
        match state {
            State::Unregistered { .. } => Err(Wrong(410, "Unregistered")),
            State::Foreign => Err(Wrong(410, "ExpiredToken")),
            State::Registered if headers.bundle() != &*topic => Err(Wrong(400, "DeviceTokenNotForTopic")),
            State::Registered => Ok(()),
        }
    }

    fn reply(&self, status: u16, reason: &str, id: uuid::Uuid, timestamp_ms: Option<u64>) -> Reply {
        let reply = Reply::new(status, reason).with("apns-id", id.to_string());
        if status == 200 {
            return match self.service {
                // A development aid: the id in Apple's delivery log.
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

impl Judge for Apns {
    fn judge(&self, ask: &Ask<'_>) -> Judged {
        let mut judged = Judged::default();
        let checked = self.check(ask, &mut judged);
        let id = judged.id.unwrap_or_else(uuid::Uuid::now_v7);
        judged.payload = std::str::from_utf8(ask.body).ok().map(str::to_owned);
        judged.reply = match checked {
            Ok(()) => self.reply(200, "", id, None),
            Err(Wrong(status, reason)) => {
                let gone = self.devices.find(&judged.token).map(|device| device.state);
                let timestamp = match (status, gone) {
                    (410, Some(State::Unregistered { at_ms })) => Some(at_ms),
                    (410, _) => Some(ask.now_ms),
                    _ => None,
                };
                self.reply(status, reason, id, timestamp)
            }
        };
        judged
    }

    fn scripted(&self, script: &Scripted, judged: &Judged, now_ms: u64) -> Reply {
        let id = judged.id.unwrap_or_else(uuid::Uuid::now_v7);
        let timestamp = (script.status == 410).then(|| script.timestamp.unwrap_or(now_ms));
        let reason = match (script.status, script.reason.as_str()) {
            (410, "") => "Unregistered",
            (429, "") => "TooManyRequests",
            (500, "") => "InternalServerError",
            (503, "") => "ServiceUnavailable",
            (_, reason) => reason,
        };
        let reply = self.reply(script.status, reason, id, timestamp);
        match script.retry_after_s {
            Some(seconds) => reply.with("retry-after", seconds.to_string()),
            None => reply,
        }
    }
}
