//! Push tokens, in each push service's own form. Validated here and stored unchanged; the service's module in `push` parses
//! them again.
//!
//! Used by `POST /v1/devices`, `PATCH /v1/me`, `PUT /v1/me/push-token` and the test of a credential.

use noroshi_types::{DeviceId, Invalid, JsonText, PushEnvironment, PushService, PushToken, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Problem;
use crate::json::{self, FromText, Text};

/// Room for a bundle id with Apple's longest suffix. It is one header value.
const APNS_TOPIC_BYTES_MAX: usize = 255;

/// The target of a credential's test.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestTarget {
    /// A registered device, by its current token.
    Device(DeviceId),
    Token(PushToken),
}

#[derive(Deserialize)]
#[serde(tag = "service", rename_all = "lowercase", deny_unknown_fields)]
enum Form {
    Apns {
        token: String,
        environment: Option<Text<PushEnvironment>>,
        /// Validated only; the text is kept unchanged.
        #[serde(rename = "topic")]
        _topic: Option<Text<ApnsTopic>>,
    },
    Fcm {
        token: String,
    },
    Webpush {
        endpoint: String,
        keys: WebPushKeys,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebPushKeys {
    p256dh: String,
    auth: String,
}

/// The bundle id of this device's app, if it differs from the credential's.
struct ApnsTopic;

/// `PUT /v1/me/push-token`: the body is the token.
pub fn push_token(bytes: &[u8]) -> Result<PushToken, Problem> {
    checked(json::parse(bytes)?, "")
}

/// `{"device": …}` or `{"push_token": {…}}`: the target of a credential's test.
pub fn push_test(bytes: &[u8]) -> Result<TestTarget, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body<'a> {
        device: Option<Text<DeviceId>>,
        #[serde(borrow)]
        push_token: Option<&'a RawValue>,
    }
    let body: Body<'_> = json::parse(bytes)?;
    match (body.device, body.push_token) {
        (Some(Text(device)), None) => Ok(TestTarget::Device(device)),
        (None, Some(raw)) => checked(raw, "push_token").map(TestTarget::Token),
        _ => Err(Problem::field("device", "exactly one of `device` and `push_token` is required")),
    }
}

/// `field`: path of the token in the body.
pub(super) fn checked(raw: &RawValue, field: &str) -> Result<PushToken, Problem> {
    let text = raw.get();
    if text.len() > limits::PUSH_TOKEN_BYTES_MAX {
        let rule = format!(
            "a push token is at most {} bytes of JSON, got {}",
            limits::PUSH_TOKEN_BYTES_MAX,
            text.len()
        );
        return Err(Problem::field(field, rule));
    }
    let at = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    let (service, environment) = match json::parse_part(text, field)? {
        Form::Apns { token, environment, _topic: _ } => {
            // Apple guarantees no length ("don't hard-code the size"), only hex digits of whole bytes.
            let hex = !token.is_empty()
                && token.len().is_multiple_of(2)
                && token.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then_some(())
                .ok_or_else(|| Problem::field(at("token"), "an APNs token must be hex digits"))?;
            (PushService::Apns, environment.map_or(PushEnvironment::Production, |text| text.0))
        }
        Form::Fcm { token } => {
            let printable = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
            printable
                .then_some(())
                .ok_or_else(|| Problem::field(at("token"), "an FCM token must be visible ASCII"))?;
            (PushService::Fcm, PushEnvironment::Production)
        }
        Form::Webpush { endpoint, keys } => {
            let https = endpoint.strip_prefix("https://").is_some_and(|rest| {
                !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(|b| b.is_ascii_graphic())
            });
            https
                .then_some(())
                .ok_or_else(|| Problem::field(at("endpoint"), "an endpoint must be an https URL"))?;
            // RFC 8291 §3.1, §3.2: an uncompressed P-256 point and 16 bytes of secret.
            base64_len(&keys.p256dh, 65)
                .ok_or_else(|| Problem::field(at("keys.p256dh"), "65 bytes as base64url"))?;
            base64_len(&keys.auth, 16)
                .ok_or_else(|| Problem::field(at("keys.auth"), "16 bytes as base64url"))?;
            (PushService::WebPush, PushEnvironment::Production)
        }
    };
    Ok(PushToken { service, environment, json: JsonText::from_valid(text) })
}

/// Browsers use base64url without padding (RFC 4648 §5); some libraries pad.
fn base64_len(text: &str, bytes: usize) -> Option<()> {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    (decoded.len() == bytes).then_some(())
}

impl FromText for PushEnvironment {
    const WHAT: &'static str = "an environment (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::named(text).ok_or_else(|| Invalid::new("must be \"production\" or \"sandbox\""))
    }
}

impl FromText for ApnsTopic {
    const WHAT: &'static str = "an APNs topic (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=APNS_TOPIC_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        match fits {
            true => Ok(Self),
            false => Err(Invalid::new("must be a bundle id such as com.example.app")),
        }
    }
}

#[cfg(test)]
mod tests;
