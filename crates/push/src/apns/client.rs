//! The client of one APNs credential: turns tokens and messages into requests.
//!
//! **Provider tokens** are shared by all credentials with the same key in this process, and outlive a credential that
//! is stored again: Apple counts how often a *key's* token changes and accepts a new one at most every 20 minutes. A
//! token is used for 40 minutes, the middle of the 20 to 60 that Apple allows.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::{Lane, PushToken, Timestamp};
use parking_lot::Mutex;
use rustls::sign::CertifiedKey;
use serde::Deserialize;
use serde_json::json;

use super::channel::is_channel_id;
use super::config::{Authentication, Config};
use super::error;
use super::payload::{Payload, PushType};
use crate::content::ToChannel;
use crate::exchange::{self, Authorization, ChannelSite, Header, Request, Response, Verdict};
use crate::fields::is_header_value;
use crate::key::EcKey;
use crate::push::{Answer, Push, Reason};

/// "Refresh your token no more than once every 20 minutes and no less than once every 60 minutes."
const RENEW_AFTER: Duration = Duration::from_secs(40 * 60);
const RENEW_NO_SOONER: Duration = Duration::from_secs(20 * 60);
/// A token that was signed this far in the future comes from a clock that was set back. Apple rejects it as invalid
/// until that time.
const AHEAD_MAX: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Client {
    origin: Arc<str>,
    broadcast_origin: Arc<str>,
    channels: ChannelSite,
    /// With the suffix of each push type, by its index in `PushType::ALL`.
    topics: [Bytes; PushType::ALL.len()],
    authentication: Signing,
}

#[derive(Debug)]
enum Signing {
    Token(Arc<ProviderToken>),
    Certificate(Arc<CertifiedKey>),
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let Config { authentication, topic, origin, broadcast_origin, channels_origin } = config;
        Self {
            origin,
            broadcast_origin,
            channels: ChannelSite { origin: channels_origin, bundle: topic.clone() },
            topics: PushType::ALL
                .map(|push_type| Bytes::from(format!("{topic}{}", push_type.topic_suffix()))),
            authentication: match authentication {
                Authentication::Token { key, key_id, team_id } => {
                    Signing::Token(ProviderToken::shared(key, key_id, team_id))
                }
                Authentication::Certificate(certified) => Signing::Certificate(certified),
            },
        }
    }

    /// The provider's own topic, or the device's, or the credential's.
    fn topic(&self, payload: &Payload, device: Option<&str>) -> Result<Bytes, Answer> {
        match (&payload.topic, device) {
            (Some(own), _) => Ok(own.clone()),
            (None, Some(topic)) if is_header_value(topic) => {
                Ok(Bytes::from(format!("{topic}{}", payload.push_type.topic_suffix())))
            }
            (None, Some(_)) => Err(Answer::Suspect { reason: "bad_token" }),
            (None, None) => Ok(self.topics[payload.push_type as usize].clone()),
        }
    }
}

/// The device's token as the API accepted it; only what a request needs.
#[derive(Deserialize)]
struct DeviceToken<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
    #[serde(borrow)]
    topic: Option<Cow<'a, str>>,
}

impl exchange::Client for Client {
    fn origin(&self, _: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(self.origin.clone())
    }

    fn broadcast_origin(&self) -> Option<Arc<str>> {
        Some(self.broadcast_origin.clone())
    }

    fn channels(&self) -> Option<&ChannelSite> {
        Some(&self.channels)
    }

    fn one_until_authorised(&self) -> bool {
        matches!(self.authentication, Signing::Token(_))
    }

    fn identity(&self) -> Option<Arc<CertifiedKey>> {
        match &self.authentication {
            Signing::Certificate(certified) => Some(certified.clone()),
            Signing::Token(_) => None,
        }
    }

    fn authorization(&self, _: &str, now: Timestamp) -> Authorization {
        match &self.authentication {
            Signing::Certificate(_) => Authorization::NotNeeded,
            Signing::Token(token) => Authorization::Ready(token.value(now)),
        }
    }

    fn renew(&self, _: &str, used: &Bytes, now: Timestamp) -> bool {
        match &self.authentication {
            Signing::Certificate(_) => false,
            Signing::Token(token) => token.renew(used, now),
        }
    }

    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer> {
        if let Some(to) = push.content.to_channel() {
            return broadcast(to, push.id, authorization, now);
        }
        let payload = push.content.payload::<Payload>()?;
        let device: DeviceToken<'_> = serde_json::from_str(push.token.json.as_str())
            .map_err(|_| Answer::Suspect { reason: "bad_token" })?;
        // The token becomes part of the path, so it must consist of hexadecimal digits.
        if device.token.is_empty() || !device.token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(Answer::Suspect { reason: "bad_token" });
        }
        let topic = self.topic(payload, device.topic.as_deref())?;
        // Headers of one message to one device would evict more useful entries from the peer's HPACK table.
        let same_for_many = push.lane != Lane::Direct;
        let mut headers = Vec::with_capacity(7);
        let mut add = |name, value, shared| headers.push(Header { name, value, shared });
        if let Some(authorization) = authorization {
            add("authorization", authorization.clone(), true);
        }
        add("apns-topic", topic, true);
        add("apns-push-type", Bytes::from_static(payload.push_type.as_str().as_bytes()), true);
        add("apns-priority", Bytes::from_static(payload.priority.as_bytes()), true);
        add("apns-expiration", payload.expiration.value(now), same_for_many);
        if let Some(id) = &payload.collapse_id {
            add("apns-collapse-id", id.clone(), same_for_many);
        }
        let mut id = [0; uuid::fmt::Hyphenated::LENGTH];
        add("apns-id", Bytes::copy_from_slice(push.id.hyphenated().encode_lower(&mut id).as_bytes()), false);
        let path = ["/3/device/", &device.token].concat();
        Ok(Request { path, headers, body: payload.body.clone(), readable: None })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }

    fn goaway(&self, debug: &[u8]) -> Reason {
        error::goaway(debug)
    }
}

/// "Sending broadcast push notification requests to APNs"
fn broadcast(
    to: &ToChannel,
    id: uuid::Uuid,
    authorization: Option<&Bytes>,
    now: Timestamp,
) -> Result<Request, Answer> {
    // Both become part of the request's head.
    if !is_channel_id(&to.channel) || !is_header_value(&to.bundle) {
        return Err(Answer::Refused { reason: "BadChannelId" });
    }
    let mut headers = Vec::with_capacity(6);
    let mut add = |name, value, shared| headers.push(Header { name, value, shared });
    if let Some(authorization) = authorization {
        add("authorization", authorization.clone(), true);
    }
    add("apns-channel-id", Bytes::copy_from_slice(to.channel.as_bytes()), false);
    add("apns-push-type", Bytes::from_static(PushType::LiveActivity.as_str().as_bytes()), true);
    add("apns-priority", Bytes::from(to.priority.to_string()), true);
    // A channel that stores nothing takes no other value.
    let stored = to.is_stored && to.expires_at > now;
    let expiration = if stored { (to.expires_at.0 / 1_000).to_string() } else { "0".to_owned() };
    add("apns-expiration", Bytes::from(expiration), false);
    add("apns-request-id", Bytes::from(id.to_string()), false);
    let path = format!("/4/broadcasts/apps/{}", to.bundle);
    Ok(Request { path, headers, body: to.payload.clone(), readable: None })
}

/// A key, and its current token.
#[derive(Debug)]
struct ProviderToken {
    key: Box<EcKey>,
    key_id: String,
    team_id: String,
    /// The lock guards the token and the time of its signature. It is held for one signature at most, and never across
    /// an `.await`.
    signed: Mutex<Option<Signed>>,
}

struct Signed {
    at: Timestamp,
    value: Bytes,
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value authorizes its bearer as the app for an hour.
        f.debug_struct("Signed").field("at", &self.at).finish_non_exhaustive()
    }
}

/// Team id, key id and public key.
type KeyName = (String, String, Vec<u8>);

impl ProviderToken {
    fn shared(key: Box<EcKey>, key_id: String, team_id: String) -> Arc<Self> {
        static TOKENS: OnceLock<Mutex<HashMap<KeyName, Weak<ProviderToken>>>> = OnceLock::new();
        let name = (team_id.clone(), key_id.clone(), key.public().to_vec());
        let mut tokens = TOKENS.get_or_init(Mutex::default).lock();
        if let Some(token) = tokens.get(&name).and_then(Weak::upgrade) {
            return token;
        }
        tokens.retain(|_, token| token.strong_count() > 0);
        let token = Arc::new(Self { key, key_id, team_id, signed: Mutex::new(None) });
        tokens.insert(name, Arc::downgrade(&token));
        token
    }

    fn value(&self, now: Timestamp) -> Bytes {
        let mut signed = self.signed.lock();
        if let Some(signed) = &*signed
            && now.saturating_add(AHEAD_MAX) >= signed.at
            && now.saturating_since(signed.at) < RENEW_AFTER
        {
            return signed.value.clone();
        }
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let claims = json!({"iss": self.team_id, "iat": now.0 / 1_000});
        let value = Bytes::from(format!("bearer {}", self.key.jwt(&header, &claims)));
        *signed = Some(Signed { at: now, value: value.clone() });
        value
    }

    fn renew(&self, used: &Bytes, now: Timestamp) -> bool {
        let mut signed = self.signed.lock();
        let Some(last) = &*signed else { return true };
        if last.value != used {
            return true;
        }
        // Signed in the future: the clock was set back, and Apple rejects the token rightly.
        let old = now < last.at || now.saturating_since(last.at) >= RENEW_NO_SOONER;
        if old {
            *signed = None;
        }
        old
    }
}

#[cfg(test)]
mod tests;
