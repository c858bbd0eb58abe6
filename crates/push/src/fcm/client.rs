//! The client of one FCM credential: signs the assertion, keeps the access token, and turns messages into requests.
//!
//! The pool fetches the access token, one fetch at a time. The client stores it, reports it as due minutes before it
//! expires, so that no push waits for the next one, and accepts at most one renewal a minute.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::{PushToken, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::config::Config;
use super::error;
use super::payload::Payload;
use crate::exchange::{
    self, Authorization, DeviceLimit, Header, Quota, Request, Response, TokenRequest, Verdict,
};
use crate::fields::is_header_value;
use crate::push::{Answer, Push, Reason};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// "exp: at most one hour after iat."
const ASSERTION_SECONDS: u64 = 3_600;
/// The token is due this long before its expiry, or in the last quarter of a shorter lifetime.
const DUE_BEFORE: Duration = Duration::from_secs(5 * 60);
/// The peer reads a request within this time.
const USED_UNTIL_BEFORE: Duration = Duration::from_secs(30);
const RENEW_NO_SOONER: Duration = Duration::from_secs(60);
/// Google's lifetime if the response names none.
const LIFETIME_DEFAULT_SECONDS: u64 = 3_600;
const LIFETIME_MAX_SECONDS: u64 = 86_400;

/// 600,000 per minute and project, in windows that are not aligned with the clock; "ramp up over at least 60 seconds".
/// 240 per minute and 5,000 per hour to one Android device.
pub(super) const QUOTA: Quota = Quota {
    per_second: Some(10_000.0),
    burst: 10_000.0,
    ramp_up: Duration::from_secs(60),
    per_device: &[
        DeviceLimit { pushes: 240, window: Duration::from_secs(60) },
        DeviceLimit { pushes: 5_000, window: Duration::from_secs(3_600) },
    ],
};

#[derive(Debug)]
pub(crate) struct Client {
    config: Config,
    path: String,
    /// The lock guards only the access token. No signature and no `.await` happens under it.
    access: Mutex<Option<Access>>,
}

struct Access {
    value: Bytes,
    fetched_at: Timestamp,
    due_at: Timestamp,
    used_until: Timestamp,
}

impl std::fmt::Debug for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Access").field("used_until", &self.used_until).finish_non_exhaustive()
    }
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let path = format!("/v1/projects/{}/messages:send", config.project_id);
        Self { config, path, access: Mutex::new(None) }
    }
}

/// The device's token as the API accepted it.
#[derive(Deserialize)]
struct DeviceToken<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
}

/// RFC 6749 §5.1
#[derive(Deserialize)]
struct TokenResponse<'a> {
    #[serde(borrow)]
    access_token: Cow<'a, str>,
    expires_in: Option<u64>,
}

impl exchange::Client for Client {
    fn origin(&self, _: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(self.config.origin.clone())
    }

    fn authorization(&self, _: &str, now: Timestamp) -> Authorization {
        match &*self.access.lock() {
            Some(access) if now >= access.used_until => Authorization::Missing,
            Some(access) if now >= access.due_at => Authorization::Due(access.value.clone()),
            Some(access) => Authorization::Ready(access.value.clone()),
            None => Authorization::Missing,
        }
    }

    fn token_request(&self, now: Timestamp) -> Option<TokenRequest> {
        let mut header = json!({"alg": "RS256", "typ": "JWT"});
        if let Some(key_id) = &self.config.key_id {
            header["kid"] = json!(key_id);
        }
        let issued_at = now.0 / 1_000;
        let claims = json!({
            "iss": self.config.client_email,
            "scope": SCOPE,
            "aud": self.config.audience,
            "iat": issued_at,
            "exp": issued_at + ASSERTION_SECONDS,
        });
        // RFC 7523 §2.1. A JWT needs no escapes in a form.
        let assertion = self.config.key.jwt(&header, &claims);
        let grant = "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=";
        Some(TokenRequest {
            url: self.config.token_endpoint.clone(),
            content_type: "application/x-www-form-urlencoded",
            body: [grant, &assertion].concat().into(),
        })
    }

    fn authorized(&self, response: &Response<'_>) -> Result<(), Verdict> {
        let refused = || error::read_token(response);
        if response.status != 200 {
            return Err(refused());
        }
        let token: TokenResponse<'_> = serde_json::from_slice(response.body).map_err(|_| refused())?;
        if !is_header_value(&token.access_token) {
            return Err(refused());
        }
        let lifetime = token.expires_in.unwrap_or(LIFETIME_DEFAULT_SECONDS).min(LIFETIME_MAX_SECONDS);
        let lifetime = Duration::from_secs(lifetime);
        let before =
            |margin: Duration| response.now.saturating_add(lifetime.saturating_sub(margin.min(lifetime / 4)));
        *self.access.lock() = Some(Access {
            value: Bytes::from(format!("Bearer {}", token.access_token)),
            fetched_at: response.now,
            due_at: before(DUE_BEFORE),
            used_until: before(USED_UNTIL_BEFORE),
        });
        Ok(())
    }

    fn renew(&self, _: &str, used: &Bytes, now: Timestamp) -> bool {
        let mut access = self.access.lock();
        match &*access {
            Some(last) if last.value == used => {
                let old = now < last.fetched_at || now.saturating_since(last.fetched_at) >= RENEW_NO_SOONER;
                if old {
                    *access = None;
                }
                old
            }
            _ => true,
        }
    }

    fn request(&self, push: &Push, authorization: Option<&Bytes>, now: Timestamp) -> Result<Request, Answer> {
        let payload = push.content.payload::<Payload>()?;
        let device: DeviceToken<'_> = serde_json::from_str(push.token.json.as_str())
            .map_err(|_| Answer::Suspect { reason: "bad_token" })?;
        // The token is inserted into JSON without escapes.
        if !is_header_value(&device.token) || device.token.contains(['"', '\\']) {
            return Err(Answer::Suspect { reason: "bad_token" });
        }
        let content_type = Bytes::from_static(b"application/json");
        let mut headers = vec![Header { name: "content-type", value: content_type, shared: true }];
        if let Some(authorization) = authorization {
            headers.push(Header { name: "authorization", value: authorization.clone(), shared: true });
        }
        Ok(Request { path: self.path.clone(), headers, body: payload.body(&device.token, now) })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }
}

#[cfg(test)]
mod tests;
