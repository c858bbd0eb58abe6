//! A push service's address of a device, in each service's own form. It is checked here and carried as
//! it came: what the service's folder in `push` reads later is what was looked at.
//!
//! `POST /v1/devices`, `PATCH /v1/me`, `PUT /v1/me/push-token` and the test of a credential all take it.

use noroshi_types::{DeviceId, Invalid, JsonText, PushEnvironment, PushService, PushToken, limits};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::Problem;
use crate::json::{self, FromText, Text};

/// A bundle id with Apple's longest suffix has room in it; it is one value of a header.
const APNS_TOPIC_BYTES_MAX: usize = 255;

/// Whom a credential is tried with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TestTarget {
    /// A device that is registered, by the token it has now.
    Device(DeviceId),
    Token(PushToken),
}

#[derive(Deserialize)]
#[serde(tag = "service", rename_all = "lowercase", deny_unknown_fields)]
enum Form {
    Apns {
        token: String,
        environment: Option<Text<PushEnvironment>>,
        /// Only looked at here: the text is kept as it came.
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

/// The bundle id of this device's app, where it is not the credential's.
struct ApnsTopic;

/// `PUT /v1/me/push-token`: the token is the body.
pub fn push_token(bytes: &[u8]) -> Result<PushToken, Problem> {
    checked(json::parse(bytes)?, "")
}

/// `{"device": …}` or `{"push_token": {…}}`: what a credential is tried with.
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
        _ => Err(Problem::field("device", "a test names exactly one of `device`, `push_token`")),
    }
}

/// `field` is where the token stands in the body.
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
            // Apple does not promise a length ("don't hard-code the size"): hex of whole bytes is all that is known.
            let hex = !token.is_empty()
                && token.len().is_multiple_of(2)
                && token.bytes().all(|b| b.is_ascii_hexdigit());
            hex.then_some(()).ok_or_else(|| Problem::field(at("token"), "an APNs token is hex digits"))?;
            (PushService::Apns, environment.map_or(PushEnvironment::Production, |text| text.0))
        }
        Form::Fcm { token } => {
            let printable = !token.is_empty() && token.bytes().all(|b| b.is_ascii_graphic());
            printable
                .then_some(())
                .ok_or_else(|| Problem::field(at("token"), "an FCM token is visible ASCII"))?;
            (PushService::Fcm, PushEnvironment::Production)
        }
        Form::Webpush { endpoint, keys } => {
            let https = endpoint.strip_prefix("https://").is_some_and(|rest| {
                !rest.is_empty() && !rest.starts_with('/') && rest.bytes().all(|b| b.is_ascii_graphic())
            });
            https
                .then_some(())
                .ok_or_else(|| Problem::field(at("endpoint"), "an endpoint is an https URL"))?;
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

/// Browsers give base64url without padding (RFC 4648 §5); some libraries pad.
fn base64_len(text: &str, bytes: usize) -> Option<()> {
    use base64::Engine;
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()?;
    (decoded.len() == bytes).then_some(())
}

impl FromText for PushEnvironment {
    const WHAT: &'static str = "an environment (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        Self::parse(text).ok_or_else(|| Invalid::new("an environment is one of \"production\", \"sandbox\""))
    }
}

impl FromText for ApnsTopic {
    const WHAT: &'static str = "an APNs topic (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=APNS_TOPIC_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        match fits {
            true => Ok(Self),
            false => Err(Invalid::new("an APNs topic is a bundle id such as com.example.app")),
        }
    }
}

#[cfg(test)]
mod tests;
