//! Push tokens, in each push service's own form. Validated here and stored unchanged; the service's module in `push` parses
//! them again.
//!
//! Used by `POST /v1/devices`, `PATCH /v1/me`, `PUT /v1/me/push-token`, `PUT …/push-tokens/{kind}` and the test of a
//! credential. One of several tokens of a device has a kind, a name and an expiry besides.

use noroshi_store::NewToken;
use noroshi_types::{
    DeviceId, Invalid, JsonText, PushEnvironment, PushService, PushToken, Timestamp, TokenKey, TokenKind,
    limits,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use url::Url;

use crate::error::{Code, Problem};
use crate::json::{self, FromText, Text};

/// Room for a bundle id with Apple's longest suffix. It is one header value.
const APNS_TOPIC_BYTES_MAX: usize = 255;

/// An e-mail address has at most 254 bytes (RFC 5321 §4.5.3.1.3), tokens of vendors are longer.
const WEBHOOK_TOKEN_BYTES_MAX: usize = 1_024;

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
    /// An address of a provider. The name of the token is the default for the provider.
    Webhook {
        provider: Option<String>,
        token: String,
    },
    Hms {
        token: String,
    },
    Wns {
        channel: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WebPushKeys {
    p256dh: String,
    auth: String,
}

/// The bundle id of this device's app, if it differs from the credential's.
struct ApnsTopic(String);

/// `PUT /v1/me/push-token`: the body is the token.
pub fn push_token(bytes: &[u8]) -> Result<PushToken, Problem> {
    checked(json::parse(bytes)?, "", None)
}

/// One of a device's tokens: a token with what distinguishes it from the others.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedBody<'a> {
    kind: Option<Text<TokenKind>>,
    name: Option<String>,
    expires_at: Option<Text<Moment>>,
    only_if_missing: Option<bool>,
    // The fields of `Form`.
    #[serde(borrow)]
    service: Option<&'a RawValue>,
    #[serde(borrow)]
    token: Option<&'a RawValue>,
    environment: Option<Text<PushEnvironment>>,
    topic: Option<Text<ApnsTopic>>,
    #[serde(borrow)]
    endpoint: Option<&'a RawValue>,
    #[serde(borrow)]
    keys: Option<&'a RawValue>,
    #[serde(borrow)]
    provider: Option<&'a RawValue>,
    #[serde(borrow)]
    channel: Option<&'a RawValue>,
}

/// A time with its offset.
#[derive(Debug)]
pub(super) struct Moment(pub(super) Timestamp);

/// The kind and the name in a path.
pub fn token_key(kind: &str, name: &str) -> Result<TokenKey, Problem> {
    let kind = TokenKind::parse(kind).map_err(|invalid| Problem::from(invalid).at("kind"))?;
    TokenKey::new(kind, name).map_err(|invalid| Problem::from(invalid).at("name"))
}

/// `PUT …/push-tokens/{kind}/{name}`: the path has the kind and the name.
pub fn token_of_path(bytes: &[u8], key: TokenKey, now: Timestamp) -> Result<NewToken, Problem> {
    let body: NamedBody<'_> = json::parse(bytes)?;
    let in_path = |field: &str| Err(Problem::new(Code::UnknownField, "the path has it").at(field));
    let new = match (&body.kind, &body.name) {
        (Some(_), _) => return in_path("kind"),
        (None, Some(_)) => return in_path("name"),
        (None, None) => named(body, Some(key), "")?,
    };
    match new.expires_at.is_some_and(|expires_at| expires_at <= now) {
        true => Err(Problem::field("expires_at", "must be in the future")),
        false => Ok(new),
    }
}

/// An element of `push_tokens`, whose path is `field`. The store leaves out one that has expired.
pub(super) fn one_of_many(raw: &RawValue, field: &str) -> Result<NewToken, Problem> {
    named(json::parse_part(raw.get(), field)?, None, field)
}

/// `key`: the kind and the name, unless the body has them.
fn named(body: NamedBody<'_>, key: Option<TokenKey>, field: &str) -> Result<NewToken, Problem> {
    let at = |name: &str| if field.is_empty() { name.to_owned() } else { format!("{field}.{name}") };
    let kind = key.as_ref().map(TokenKey::kind).or(body.kind.as_ref().map(|kind| kind.0));
    let quoted = |text: &str| format!("\"{text}\"");
    let service = kind.map(|kind| quoted(kind.service().as_str()));
    let environment = body.environment.map(|environment| quoted(environment.0.as_str()));
    // Its characters need no escapes.
    let topic = body.topic.map(|topic| quoted(&topic.0.0));
    let own = [
        ("service", body.service.map(RawValue::get).or(service.as_deref())),
        ("token", body.token.map(RawValue::get)),
        ("environment", environment.as_deref()),
        ("topic", topic.as_deref()),
        ("endpoint", body.endpoint.map(RawValue::get)),
        ("keys", body.keys.map(RawValue::get)),
        ("provider", body.provider.map(RawValue::get)),
        ("channel", body.channel.map(RawValue::get)),
    ];
    let own: Vec<String> =
        own.iter().filter_map(|(name, text)| text.map(|text| format!("\"{name}\":{text}"))).collect();
    let own = RawValue::from_string(format!("{{{}}}", own.join(","))).map_err(Problem::internal)?;
    let name = key.as_ref().map(TokenKey::name).or(body.name.as_deref()).filter(|name| !name.is_empty());
    let token = checked(&own, field, name).map_err(|problem| match problem.code() {
        // Another service has the field.
        Code::UnknownField => {
            let misplaced = problem.field_path().unwrap_or_default().to_owned();
            Problem::field(misplaced, "does not belong to a token of this service")
        }
        _ => problem,
    })?;
    if let Some(kind) = kind.filter(|kind| kind.service() != token.service) {
        let rule = format!("must be \"{}\" for this kind", kind.service().as_str());
        return Err(Problem::field(at("service"), rule));
    }
    let key = match key {
        Some(key) => key,
        None => {
            let kind = kind.unwrap_or(TokenKind::of_messages(token.service));
            let name = body.name.as_deref().unwrap_or_default();
            TokenKey::new(kind, name).map_err(|invalid| Problem::field(at("name"), invalid.0))?
        }
    };
    let expires_at = match body.expires_at.map(|moment| moment.0.0) {
        Some(_) if key.is_message() => {
            return Err(Problem::field(at("expires_at"), "a token of this kind does not expire"));
        }
        given => given,
    };
    let only_if_missing = body.only_if_missing.unwrap_or(false);
    Ok(NewToken { key, token, expires_at, only_if_missing })
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
    target(body.device, body.push_token)
}

/// A change of a credential, and where to push to before it is used.
pub struct Rotation {
    /// The changed fields; `null` removes one.
    pub credential: Map<String, Value>,
    pub target: TestTarget,
}

/// `{"credential": {…}, "device": …}`, or `push_token` instead of `device`.
pub fn rotation(bytes: &[u8]) -> Result<Rotation, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body<'a> {
        credential: Map<String, Value>,
        device: Option<Text<DeviceId>>,
        #[serde(borrow)]
        push_token: Option<&'a RawValue>,
    }
    let Body { credential, device, push_token } = json::parse(bytes)?;
    if credential.is_empty() {
        return Err(Problem::field("credential", "must have the fields to change, such as the new key"));
    }
    Ok(Rotation { credential, target: target(device, push_token)? })
}

fn target(device: Option<Text<DeviceId>>, push_token: Option<&RawValue>) -> Result<TestTarget, Problem> {
    match (device, push_token) {
        (Some(Text(device)), None) => Ok(TestTarget::Device(device)),
        (None, Some(raw)) => checked(raw, "push_token", None).map(TestTarget::Token),
        _ => Err(Problem::field("device", "exactly one of `device` and `push_token` is required")),
    }
}

/// Which suspended tokens to use again.
pub struct RestoreRequest {
    /// Suspended at this time or later.
    pub since: Timestamp,
    /// Suspended for this reason; `None`: for any.
    pub reason: Option<String>,
}

/// `{"since": …, "reason": …}`, both optional.
pub fn restore(bytes: &[u8]) -> Result<RestoreRequest, Problem> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        since: Option<String>,
        reason: Option<String>,
    }
    let Body { since, reason } = json::parse(bytes)?;
    let wrong = || Problem::field("since", "must be an RFC 3339 time, such as \"2026-01-15T09:30:00Z\"");
    let since = since.map(|text| Timestamp::parse(&text).ok_or_else(wrong)).transpose()?;
    let is_word = |reason: &String| {
        (1..=64).contains(&reason.len())
            && reason.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    match reason {
        Some(reason) if !is_word(&reason) => {
            Err(Problem::field("reason", "must be 1 to 64 letters, digits and underscores"))
        }
        reason => Ok(RestoreRequest { since: since.unwrap_or(Timestamp(0)), reason }),
    }
}

/// `field`: path of the token in the body. `name`: that of the token, if it has one.
pub(super) fn checked(raw: &RawValue, field: &str, name: Option<&str>) -> Result<PushToken, Problem> {
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
        Form::Webhook { provider, token } => {
            let provider = provider.or(name.map(str::to_owned)).ok_or_else(|| {
                Problem::field(at("provider"), "is missing: the name of the provider's credential")
            })?;
            if provider.is_empty() || TokenKey::new(TokenKind::Webhook, &provider).is_err() {
                let rule = "must be 1 to 64 letters, digits and `.`, `_`, `-`";
                return Err(Problem::field(at("provider"), rule));
            }
            return webhook(&provider, &token).ok_or_else(|| {
                let rule = format!("must be 1 to {WEBHOOK_TOKEN_BYTES_MAX} bytes without control characters");
                Problem::field(at("token"), rule)
            });
        }
        Form::Hms { token } => {
            let printable = !token.is_empty()
                && token.bytes().all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
            printable
                .then_some(())
                .ok_or_else(|| Problem::field(at("token"), "a token of Push Kit must be visible ASCII"))?;
            (PushService::Hms, PushEnvironment::Production)
        }
        Form::Wns { channel } => {
            is_channel(&channel).then_some(()).ok_or_else(|| {
                Problem::field(at("channel"), "must be an https URL of a host below notify.windows.com")
            })?;
            (PushService::Wns, PushEnvironment::Production)
        }
    };
    Ok(PushToken { service, environment, json: JsonText::from_valid(text) })
}

/// With the provider in the token itself, whether the request had it there or as the token's name.
fn webhook(provider: &str, token: &str) -> Option<PushToken> {
    let fits = (1..=WEBHOOK_TOKEN_BYTES_MAX).contains(&token.len()) && !token.contains(char::is_control);
    let json = serde_json::json!({"service": "webhook", "provider": provider, "token": token});
    let (service, environment) = (PushService::Webhook, PushEnvironment::Production);
    fits.then(|| PushToken { service, environment, json: JsonText::from_valid(json.to_string()) })
}

/// Microsoft's servers. A test server on this machine is allowed too: a push reaches it only if the credential names it.
fn is_channel(text: &str) -> bool {
    let Ok(url) = Url::parse(text) else { return false };
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    let host = url.host_str().unwrap_or_default();
    let is_microsofts = host.ends_with(".notify.windows.com") && url.port().is_none();
    plain && url.scheme() == "https" && (is_microsofts || matches!(host, "localhost" | "127.0.0.1"))
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

impl FromText for Moment {
    const WHAT: &'static str = "a time (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("must be a time with its offset, such as \"2026-12-24T18:00:00Z\"");
        let time: jiff::Timestamp = text.parse().map_err(|_| wrong())?;
        u64::try_from(time.as_millisecond()).map(|ms| Self(Timestamp(ms))).map_err(|_| wrong())
    }
}

impl FromText for ApnsTopic {
    const WHAT: &'static str = "an APNs topic (a string)";
    fn from_text(text: &str) -> Result<Self, Invalid> {
        let fits = (1..=APNS_TOPIC_BYTES_MAX).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
        match fits {
            true => Ok(Self(text.to_owned())),
            false => Err(Invalid::new("must be a bundle id such as com.example.app")),
        }
    }
}

#[cfg(test)]
mod tests;
