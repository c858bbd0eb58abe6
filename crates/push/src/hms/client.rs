//! The client of one service account: signs tokens, and turns messages into requests.
//!
//! One token serves for 45 minutes of the hour that it is valid. A rejected one is renewed at most once a minute.

use std::borrow::Cow;
use std::fmt;
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
use crate::exchange::{self, Authorization, Header, Request, Response, Verdict};
use crate::fields::is_header_value;
use crate::push::{Answer, Push, Reason};

/// Huawei recommends an hour.
const VALID_FOR: Duration = Duration::from_secs(3_600);
const RENEW_AFTER: Duration = Duration::from_secs(45 * 60);
const RENEW_NO_SOONER: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Client {
    config: Config,
    path: String,
    /// The lock guards the token, and is held for one signature.
    signed: Mutex<Option<Signed>>,
}

struct Signed {
    at: Timestamp,
    value: Bytes,
}

impl fmt::Debug for Signed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The value authorizes its bearer as the project for an hour.
        f.debug_struct("Signed").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Signed {
    fn is_younger(&self, than: Duration, now: Timestamp) -> bool {
        now >= self.at && now.saturating_since(self.at) < than
    }
}

impl Client {
    pub(crate) fn new(config: Config) -> Self {
        let path = format!("/v3/{}/messages:send", config.project_id);
        Self { config, path, signed: Mutex::new(None) }
    }

    fn sign(&self, now: Timestamp) -> Bytes {
        let issued_at = now.0 / 1_000;
        let header = json!({"alg": "PS256", "typ": "JWT", "kid": self.config.key_id});
        let claims = json!({
            "iss": self.config.sub_account,
            "aud": self.config.audience,
            "iat": issued_at,
            "exp": issued_at + VALID_FOR.as_secs(),
        });
        Bytes::from(format!("Bearer {}", self.config.key.jwt_ps256(&header, &claims)))
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
        let mut signed = self.signed.lock();
        if let Some(signed) = signed.as_ref().filter(|signed| signed.is_younger(RENEW_AFTER, now)) {
            return Authorization::Ready(signed.value.clone());
        }
        let value = self.sign(now);
        *signed = Some(Signed { at: now, value: value.clone() });
        Authorization::Ready(value)
    }

    fn renew(&self, _: &str, used: &Bytes, now: Timestamp) -> bool {
        let mut signed = self.signed.lock();
        match &*signed {
            Some(last) if last.value == used && last.is_younger(RENEW_NO_SOONER, now) => false,
            Some(last) if last.value == used => {
                *signed = None;
                true
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
        let mut headers = Vec::with_capacity(3);
        let mut add = |name, value| headers.push(Header { name, value, shared: true });
        add("content-type", Bytes::from_static(b"application/json"));
        add("push-type", payload.push_type.clone());
        if let Some(authorization) = authorization {
            add("authorization", authorization.clone());
        }
        let body = payload.body(&device.token, &self.config.category, now);
        Ok(Request { path: self.path.clone(), headers, body, readable: None })
    }

    fn read(&self, response: &Response<'_>) -> Verdict {
        error::read(response)
    }
}

#[cfg(test)]
mod tests {
    use noroshi_types::PushService;
    use serde_json::Value;

    use super::*;
    use crate::credential::tests::{hms_json, parsed};
    use crate::fields::Fields;
    use crate::fields::tests::{fields, json_text};
    use crate::push::tests::push;

    fn value(authorization: Authorization) -> Bytes {
        let Authorization::Ready(value) = authorization else { panic!("{authorization:?}") };
        value
    }

    #[test]
    fn a_token_is_signed_for_45_minutes_and_renewed_once_a_minute() {
        let client = parsed(&hms_json()).client;
        let at = |second: u64| Timestamp(1_800_000_000_000 + second * 1_000);
        let first = value(client.authorization("o", at(0)));
        assert_eq!(value(client.authorization("o", at(2_699))), first);
        let second = value(client.authorization("o", at(2_700)));
        assert_ne!(first, second);
        assert!(client.renew("o", &first, at(2_700)), "another one exists");
        assert!(!client.renew("o", &second, at(2_759)));
        assert!(client.renew("o", &second, at(2_760)));
        assert_ne!(value(client.authorization("o", at(2_760))), second);
        let text = std::str::from_utf8(&first).unwrap();
        let part = |index: usize| -> Value {
            use base64::Engine as _;
            let part = text.strip_prefix("Bearer ").unwrap().split('.').nth(index).unwrap();
            let json = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap();
            serde_json::from_slice(&json).unwrap()
        };
        assert_eq!(part(0), json!({"alg": "PS256", "typ": "JWT", "kid": "hms-key-1"}));
        assert_eq!(
            part(1),
            json!({"iss": "101", "aud": "https://oauth-login.cloud.huawei.com/oauth2/v3/token",
                "iat": 1_800_000_000, "exp": 1_800_003_600})
        );
    }

    #[test]
    fn a_request_has_the_headers_and_the_token() {
        let client = parsed(&hms_json()).client;
        let fields = Fields { notification: json_text(&json!({"title": "T", "body": "B"})), ..fields() };
        let push = push(PushService::Hms, &json!({"service": "hms", "token": "IQ-x_1"}), fields);
        let request = client.request(&push, Some(&Bytes::from_static(b"Bearer x")), Timestamp(0)).unwrap();
        assert_eq!(request.path, "/v3/388421841221199999/messages:send");
        let header =
            |name| request.headers.iter().find(|header| header.name == name).map(|header| &*header.value);
        assert_eq!(header("push-type"), Some(&b"0"[..]));
        assert_eq!(header("authorization"), Some(&b"Bearer x"[..]));
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["target"], json!({"token": ["IQ-x_1"]}));
        for bad in ["", "a b", "a\"b", "é"] {
            let push = crate::push::tests::push(
                PushService::Hms,
                &json!({"service": "hms", "token": bad}),
                push.content.fields().clone(),
            );
            assert_eq!(
                client.request(&push, None, Timestamp(0)).unwrap_err(),
                Answer::Suspect { reason: "bad_token" }
            );
        }
    }
}
