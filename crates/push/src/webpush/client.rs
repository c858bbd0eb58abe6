//! The client of one VAPID key: turns subscriptions and messages into encrypted requests.
//!
//! Browsers name the push service, so nothing about an endpoint is trusted: it must use https, and its answers concern
//! only its own origin. One signature serves an origin for ten hours (RFC 8292 §2 allows 24); every push is encrypted
//! with new keys.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use bytes::Bytes;
use noroshi_types::{Lane, PushToken, Timestamp};
use parking_lot::RwLock;
use ring::rand::SystemRandom;
use serde::Deserialize;
use serde_json::json;
use url::{Position, Url};

use super::config::Config;
use super::encryption::{self, Keys};
use super::error;
use super::payload::Payload;
use crate::exchange::{self, Authorization, Header, Request, Response, Verdict};
use crate::push::{Answer, Push, Reason};

/// "exp MUST NOT be more than 24 hours" from the request. Half of that tolerates clocks that differ.
const VALID_FOR: Duration = Duration::from_secs(12 * 3_600);
const RENEW_AFTER: Duration = Duration::from_secs(10 * 3_600);
/// Browsers use a handful of push services; more origins than this are made up.
const ORIGINS_MAX: usize = 1_024;

/// Browsers omit the padding, some libraries do not.
const BASE64URL: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

#[derive(Debug)]
pub(crate) struct Client {
    config: Config,
    random: SystemRandom,
    /// The lock guards the header values by origin. It is held for one signature at most, and never across an `.await`.
    signed: RwLock<HashMap<Box<str>, Signed>>,
}

struct Signed {
    at: Timestamp,
    value: Bytes,
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value lets its bearer push to the origin's restricted subscriptions for half a day.
        f.debug_struct("Signed").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Signed {
    fn is_fresh(&self, now: Timestamp) -> bool {
        now >= self.at && now.saturating_since(self.at) < RENEW_AFTER
    }
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        Self { config, random: SystemRandom::new(), signed: RwLock::default() }
    }

    /// RFC 8292 §2 and §3.
    fn sign(&self, origin: &str, now: Timestamp) -> Bytes {
        let claims = json!({
            "aud": origin,
            "exp": now.saturating_add(VALID_FOR).0 / 1_000,
            "sub": self.config.subject,
        });
        let token = self.config.key.jwt(&json!({"typ": "JWT", "alg": "ES256"}), &claims);
        Bytes::from(format!("vapid t={token}, k={}", self.config.public_key()))
    }
}

/// The subscription as the API accepted it.
#[derive(Deserialize)]
struct Subscription<'a> {
    #[serde(borrow)]
    endpoint: Cow<'a, str>,
    #[serde(borrow)]
    keys: SubscriptionKeys<'a>,
}

#[derive(Deserialize)]
struct SubscriptionKeys<'a> {
    #[serde(borrow)]
    p256dh: Cow<'a, str>,
    #[serde(borrow)]
    auth: Cow<'a, str>,
}

impl Subscription<'_> {
    fn parse(token: &PushToken) -> Result<Subscription<'_>, Reason> {
        serde_json::from_str(token.json.as_str()).map_err(|_| "bad_token")
    }

    fn url(&self) -> Result<Url, Reason> {
        let url = Url::parse(&self.endpoint).map_err(|_| "bad_token")?;
        match url.scheme() == "https" && url.username().is_empty() && url.password().is_none() {
            true => Ok(url),
            false => Err("bad_token"),
        }
    }

    fn keys(&self) -> Option<Keys> {
        let p256dh = BASE64URL.decode(&*self.keys.p256dh).ok()?.try_into().ok()?;
        let auth = BASE64URL.decode(&*self.keys.auth).ok()?.try_into().ok()?;
        Some(Keys { p256dh, auth })
    }
}

impl exchange::Client for Client {
    fn origin(&self, token: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(Subscription::parse(token)?.url()?.origin().ascii_serialization().into())
    }

    fn authorization(&self, origin: &str, now: Timestamp) -> Authorization {
        if let Some(signed) = self.signed.read().get(origin)
            && signed.is_fresh(now)
        {
            return Authorization::Ready(signed.value.clone());
        }
        let mut signed = self.signed.write();
        if let Some(signed) = signed.get(origin)
            && signed.is_fresh(now)
        {
            return Authorization::Ready(signed.value.clone());
        }
        if signed.len() >= ORIGINS_MAX {
            signed.clear();
        }
        let value = self.sign(origin, now);
        signed.insert(origin.into(), Signed { at: now, value: value.clone() });
        Authorization::Ready(value)
    }

    /// No answer requests it: see `error`.
    fn renew(&self, _: &str, _: &Bytes, _: Timestamp) -> bool {
        false
    }

    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer> {
        let payload = push.content.payload::<Payload>()?;
        let suspect = |reason| Answer::Suspect { reason };
        let subscription = Subscription::parse(&push.token).map_err(suspect)?;
        let url = subscription.url().map_err(suspect)?;
        let keys = subscription.keys().ok_or_else(|| suspect("bad_keys"))?;
        let body =
            encryption::encrypt(&self.random, &keys, &payload.plaintext).map_err(|_| suspect("bad_keys"))?;
        let same_for_many = push.lane != Lane::Direct;
        let mut headers = Vec::with_capacity(6);
        let mut add = |name, value, shared| headers.push(Header { name, value, shared });
        if let Some(authorization) = authorization {
            add("authorization", authorization.clone(), true);
        }
        add("content-encoding", Bytes::from_static(b"aes128gcm"), true);
        add("content-type", Bytes::from_static(b"application/octet-stream"), true);
        add("urgency", payload.urgency.clone(), true);
        add("ttl", payload.ttl(now), same_for_many);
        if let Some(topic) = &payload.topic {
            add("topic", topic.clone(), same_for_many);
        }
        Ok(Request {
            path: url[Position::BeforePath..Position::AfterQuery].to_owned(),
            headers,
            body: body.into(),
            readable: Some(payload.plaintext.clone()),
        })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }
}

#[cfg(test)]
mod tests;
