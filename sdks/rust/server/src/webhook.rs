//! Requests of the service to your backend, signed according to [Standard Webhooks](https://www.standardwebhooks.com): the event
//! log, topic rules, and providers behind webhooks.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use ring::hmac;
use serde::{Deserialize, Serialize};

use crate::types::TopicAction;
use crate::wire::duration;

/// How far the timestamp of a webhook may be from the clock.
pub const TOLERANCE: Duration = Duration::from_secs(300);

const SECRET_PREFIX: &str = "whsec_";
const SIGNATURE_PREFIX: &str = "v1,";

/// Why a request is not a webhook of the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum VerifyError {
    /// A header is missing, or is not what Standard Webhooks define.
    Header,
    /// The request was signed too long ago, or in the future. It may be a replay.
    Timestamp,
    /// No signature is by one of the secrets.
    Signature,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Header => "the headers are not those of a webhook",
            Self::Timestamp => "the timestamp of the webhook is out of tolerance",
            Self::Signature => "the signature of the webhook is wrong",
        })
    }
}

impl std::error::Error for VerifyError {}

/// A secret that is not `whsec_` and 24 to 64 bytes in base64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretError;

impl fmt::Display for SecretError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the secret of a webhook is whsec_ and 24 to 64 bytes in base64")
    }
}

impl std::error::Error for SecretError {}

/// Verifies webhooks.
#[derive(Clone)]
pub struct Webhook {
    keys: Vec<hmac::Key>,
}

impl Webhook {
    /// With the secret, `whsec_…`.
    pub fn new(secret: &str) -> Result<Self, SecretError> {
        Ok(Self { keys: vec![key(secret)?] })
    }

    /// Also accepts another secret, while the old one is being replaced.
    pub fn or(mut self, secret: &str) -> Result<Self, SecretError> {
        self.keys.push(key(secret)?);
        Ok(self)
    }

    /// Succeeds if the request was signed with one of the secrets at about this time. Depends on nothing but its arguments. The
    /// header `webhook-id` is the same when the service repeats a request.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now: SystemTime) -> Result<(), VerifyError> {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.verify_parts(text("webhook-id"), text("webhook-timestamp"), text("webhook-signature"), body, now)
    }

    /// [`verify`](Self::verify) with the values of the headers, for frameworks with other types.
    pub fn verify_parts(
        &self,
        id: &str,
        timestamp: &str,
        signatures: &str,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), VerifyError> {
        if id.is_empty() || signatures.is_empty() {
            return Err(VerifyError::Header);
        }
        let signed: u64 = timestamp.parse().map_err(|_| VerifyError::Header)?;
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        if signed.abs_diff(now) > TOLERANCE.as_secs() {
            return Err(VerifyError::Timestamp);
        }
        let mut content = format!("{id}.{timestamp}.").into_bytes();
        content.extend_from_slice(body);
        let is_valid = |signature: &str| {
            let bytes = signature.strip_prefix(SIGNATURE_PREFIX).and_then(|text| STANDARD.decode(text).ok());
            // In constant time.
            bytes.is_some_and(|bytes| self.keys.iter().any(|key| hmac::verify(key, &content, &bytes).is_ok()))
        };
        match signatures.split_whitespace().any(is_valid) {
            true => Ok(()),
            false => Err(VerifyError::Signature),
        }
    }
}

/// Without the secrets.
impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("secrets", &self.keys.len()).finish()
    }
}

fn key(secret: &str) -> Result<hmac::Key, SecretError> {
    let bytes =
        secret.strip_prefix(SECRET_PREFIX).and_then(|text| STANDARD.decode(text).ok()).ok_or(SecretError)?;
    match bytes.len() {
        24..=64 => Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes)),
        _ => Err(SecretError),
    }
}

/// What the service asks the webhook of topic rules.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct TopicQuestion {
    /// The app.
    pub app: String,
    /// The device that wants to subscribe or publish.
    pub device: String,
    /// Its user.
    pub user: Option<String>,
    /// What it wants to do.
    pub action: TopicAction,
    /// Where.
    pub topic: String,
    /// The protocol of its connection.
    pub protocol: Option<String>,
}

/// The answer to a [`TopicQuestion`]: status 200 and this as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TopicAnswer {
    /// Whether the device may.
    pub allow: bool,
    /// How long the service may remember the answer, at most a day. Default: that of the rules.
    #[serde(serialize_with = "duration::option::serialize", skip_serializing_if = "Option::is_none")]
    pub expires_in: Option<Duration>,
}

impl TopicAnswer {
    /// An answer.
    pub fn new(allow: bool) -> Self {
        Self { allow, expires_in: None }
    }

    /// How long the service may remember it.
    #[must_use]
    pub fn expires_in(mut self, duration: Duration) -> Self {
        self.expires_in = Some(duration);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of Standard Webhooks.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SIGNED: u64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn verify(secret: &str, signatures: &str, body: &[u8], now: u64) -> Result<(), VerifyError> {
        let webhook = Webhook::new(secret).expect("a secret");
        webhook.verify_parts(ID, &SIGNED.to_string(), signatures, body, at(now))
    }

    #[test]
    fn the_example_of_the_standard_verifies() {
        assert_eq!(verify(SECRET, SIGNATURE, BODY, SIGNED), Ok(()));
        assert_eq!(verify(SECRET, &format!("v1,AAAA v2,x {SIGNATURE}"), BODY, SIGNED), Ok(()));
    }

    #[test]
    fn everything_is_signed() {
        let wrong = Err(VerifyError::Signature);
        let other = format!("whsec_{}", STANDARD.encode([7; 32]));
        assert_eq!(verify(&other, SIGNATURE, BODY, SIGNED), wrong);
        assert_eq!(verify(SECRET, SIGNATURE, b"{}", SIGNED), wrong);
        assert_eq!(verify(SECRET, "v1,", BODY, SIGNED), wrong);
        assert_eq!(verify(SECRET, &SIGNATURE.replace("v1,", "v2,"), BODY, SIGNED), wrong);
        let both = Webhook::new(&other).and_then(|webhook| webhook.or(SECRET)).expect("secrets");
        let mut headers = HeaderMap::new();
        for (name, value) in
            [("webhook-id", ID), ("webhook-timestamp", "1614265330"), ("webhook-signature", SIGNATURE)]
        {
            headers.insert(name, value.parse().expect("a value"));
        }
        assert_eq!(both.verify(&headers, BODY, at(SIGNED)), Ok(()));
        headers.insert("webhook-id", "another".parse().expect("a value"));
        assert_eq!(both.verify(&headers, BODY, at(SIGNED)), wrong);
        headers.insert("webhook-timestamp", "1614265331".parse().expect("a value"));
        assert_eq!(both.verify(&headers, BODY, at(SIGNED)), wrong);
        assert_eq!(both.verify(&HeaderMap::new(), BODY, at(SIGNED)), Err(VerifyError::Header));
    }

    #[test]
    fn timestamps_have_a_tolerance() {
        assert_eq!(verify(SECRET, SIGNATURE, BODY, SIGNED + 300), Ok(()));
        assert_eq!(verify(SECRET, SIGNATURE, BODY, SIGNED - 300), Ok(()));
        assert_eq!(verify(SECRET, SIGNATURE, BODY, SIGNED + 301), Err(VerifyError::Timestamp));
        assert_eq!(verify(SECRET, SIGNATURE, BODY, SIGNED - 301), Err(VerifyError::Timestamp));
        let webhook = Webhook::new(SECRET).expect("a secret");
        for timestamp in ["", "soon", "-1", "1e9"] {
            let result = webhook.verify_parts(ID, timestamp, SIGNATURE, BODY, at(SIGNED));
            assert_eq!(result, Err(VerifyError::Header), "{timestamp}");
        }
        let largest = webhook.verify_parts(ID, &u64::MAX.to_string(), SIGNATURE, BODY, at(SIGNED));
        assert_eq!(largest, Err(VerifyError::Timestamp));
    }

    #[test]
    fn secrets_are_checked() {
        for wrong in ["", "whsec_", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_AAAA", "whsec_*"] {
            assert!(Webhook::new(wrong).is_err(), "{wrong}");
        }
        let debug = format!("{:?}", Webhook::new(SECRET));
        assert!(!debug.contains("MfKQ"), "{debug}");
    }

    #[test]
    fn topic_questions_and_answers() {
        let question: TopicQuestion = serde_json::from_str(
            r#"{"app": "shop", "device": "d1", "user": "u1", "action": "subscribe", "topic": "room/1", "protocol": "mqtt", "new": 1}"#,
        )
        .expect("a question");
        assert_eq!(question.action, TopicAction::Subscribe);
        let answer = TopicAnswer::new(true).expires_in(Duration::from_secs(300));
        assert_eq!(serde_json::to_string(&answer).expect("JSON"), r#"{"allow":true,"expires_in":"300s"}"#);
        assert_eq!(serde_json::to_string(&TopicAnswer::new(false)).expect("JSON"), r#"{"allow":false}"#);
    }
}
