//! The client of one FCM credential: signs the assertion for an access token, and turns messages into requests.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use noroshi_types::{PushToken, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::config::Config;
use super::error;
use super::payload::Payload;
use crate::access::AccessToken;
use crate::exchange::{
    self, Authorization, DeviceLimit, Header, Quota, Request, Response, TokenRequest, Verdict,
};
use crate::fields::is_header_value;
use crate::push::{Answer, Push, Reason};

const SCOPE: &str = "https://www.googleapis.com/auth/firebase.messaging";
/// "exp: at most one hour after iat."
const ASSERTION_SECONDS: u64 = 3_600;
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
    access: AccessToken,
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let path = format!("/v1/projects/{}/messages:send", config.project_id);
        Self { config, path, access: AccessToken::default() }
    }
}

/// The device's token as the API accepted it.
#[derive(Deserialize)]
struct DeviceToken<'a> {
    #[serde(borrow)]
    token: Cow<'a, str>,
}

impl exchange::Client for Client {
    fn origin(&self, _: &PushToken) -> Result<Arc<str>, Reason> {
        Ok(self.config.origin.clone())
    }

    fn authorization(&self, _: &str, now: Timestamp) -> Authorization {
        self.access.authorization(now)
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
        match self.access.store(response) {
            true => Ok(()),
            false => Err(error::read_token(response)),
        }
    }

    fn renew(&self, _: &str, used: &Bytes, now: Timestamp) -> bool {
        self.access.renew(used, now)
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
        let body = payload.body(&device.token, now);
        Ok(Request { path: self.path.clone(), headers, body, readable: None })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }
}

#[cfg(test)]
mod tests;
