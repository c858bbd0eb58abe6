//! App JWTs (RFC 7519): signed by the app itself with HS256, RS256 or ES256.
//!
//! `sub` is the user, `device` the device, `exp` the end of life; `topics` are durable
//! subscriptions. `aud` or `iss` may name the app; a token that names none is tried against every
//! app that signs, which is what a node with one app wants.

use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use noroshi_types::rule::claims::is_filter;
use noroshi_types::{AppId, DeviceId, Timestamp, Topic, UserId, limits};
use serde::Deserialize;

use crate::{Identity, Refused};

/// RFC 7519 sets no bound; 1,000 topics do not belong into a token.
pub(crate) const TOKEN_BYTES_MAX: usize = 8_192;

#[derive(Deserialize)]
struct Claims {
    sub: String,
    device: String,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    topics: Vec<String>,
}

/// What the unverified token says of where its key may be found. Nothing else is taken from it.
#[derive(Deserialize, Default)]
pub(crate) struct Hint {
    #[serde(default)]
    aud: Audience,
    #[serde(default)]
    iss: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
    #[default]
    None,
}

impl Hint {
    pub(crate) fn read(token: &str) -> Self {
        jsonwebtoken::dangerous::insecure_decode_claims(token).unwrap_or_default()
    }

    pub(crate) fn names(&self, app: &str) -> bool {
        let in_audience = match &self.aud {
            Audience::One(name) => name == app,
            Audience::Many(names) => names.iter().any(|name| name == app),
            Audience::None => false,
        };
        in_audience || self.iss.as_deref() == Some(app)
    }
}

pub(crate) fn header(token: &str) -> Result<Header, Refused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refused::Malformed("a JWT is at most 8 KiB long"));
    }
    let header = decode_header(token).map_err(|_| Refused::Malformed("neither a device token nor a JWT"))?;
    match header.alg {
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 => Ok(header),
        _ => Err(Refused::Malformed("a JWT is signed with HS256, RS256 or ES256")),
    }
}

pub(crate) fn verify(
    token: &str,
    algorithm: Algorithm,
    key: &DecodingKey,
    app: AppId,
    now: Timestamp,
) -> Result<Identity, Refused> {
    let mut validation = Validation::new(algorithm);
    // Times are checked below against our own clock; the audience was used to find the app.
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let claims = decode::<Claims>(token, key, &validation).map_err(|error| refused(&error))?.claims;
    identity(claims, app, now)
}

fn refused(error: &jsonwebtoken::errors::Error) -> Refused {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm => Refused::Signature,
        ErrorKind::Json(_) => Refused::Malformed("a JWT needs the claims sub, device and exp"),
        _ => Refused::Malformed("not a JWT"),
    }
}

fn identity(claims: Claims, app: AppId, now: Timestamp) -> Result<Identity, Refused> {
    let expires_at = timestamp(claims.exp);
    if expires_at <= now {
        return Err(Refused::Expired);
    }
    if claims.nbf.is_some_and(|nbf| timestamp(nbf) > now) {
        return Err(Refused::NotYet);
    }
    if claims.topics.len() > limits::TOPICS_PER_DEVICE_MAX {
        return Err(Refused::Malformed("a JWT names at most 1,000 topics"));
    }
    // A filter subscribes to nothing: topic rules may ask whether the token lists a topic.
    let (filters, names): (Vec<&String>, Vec<&String>) =
        claims.topics.iter().partition(|topic| topic.contains(['+', '#']) && is_filter(topic));
    let topics: Result<Vec<Topic>, _> = names.iter().map(|topic| Topic::parse_subscription(topic)).collect();
    Ok(Identity {
        app,
        device: DeviceId::parse(&claims.device).map_err(|_| {
            Refused::Malformed("the claim device is 1 to 128 bytes without control characters")
        })?,
        user: Some(
            UserId::parse(&claims.sub).map_err(|_| {
                Refused::Malformed("the claim sub is 1 to 255 bytes without control characters")
            })?,
        ),
        create: true,
        token_version: None,
        topics: topics.map_err(|_| Refused::Malformed("the claim topics holds an invalid topic"))?,
        topic_filters: filters.into_iter().map(|filter| filter.as_str().into()).collect(),
        denied_topics: Vec::new(),
        claims: None,
        expires_at,
    })
}

/// A NumericDate (RFC 7519 §2): seconds, possibly with a fraction.
fn timestamp(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1_000.0).clamp(0.0, 253_402_300_799_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use ring::hmac;

    const SECRET: &[u8] = b"a secret of the app";

    fn signed(header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    fn check(claims: &str, secret: &[u8]) -> Result<Identity, Refused> {
        crate::provider::install();
        let token = signed(r#"{"alg":"HS256","typ":"JWT"}"#, claims);
        let key = DecodingKey::from_secret(secret);
        header(&token).and_then(|header| verify(&token, header.alg, &key, AppId(1), Timestamp(1_000_000)))
    }

    #[test]
    fn claims_make_an_identity() {
        let claims = r#"{"sub":"u1","device":"d1","exp":2000.5,"topics":["news"],"extra":true}"#;
        let identity = check(claims, SECRET).expect("valid");
        assert_eq!(identity.user.as_ref().map(UserId::as_str), Some("u1"));
        assert_eq!((identity.device.as_str(), identity.create), ("d1", true));
        assert_eq!(identity.expires_at, Timestamp(2_000_500));
        assert_eq!(identity.topics.len(), 1);
    }

    #[test]
    fn wrong_tokens_say_what_is_wrong() {
        let good = r#"{"sub":"u1","device":"d1","exp":2000}"#;
        assert_eq!(check(good, b"another secret"), Err(Refused::Signature));
        assert_eq!(check(r#"{"sub":"u1","device":"d1","exp":1000}"#, SECRET), Err(Refused::Expired));
        assert_eq!(
            check(r#"{"sub":"u1","device":"d1","exp":2000,"nbf":1001}"#, SECRET),
            Err(Refused::NotYet)
        );
        let malformed =
            |claims: &str| assert!(matches!(check(claims, SECRET), Err(Refused::Malformed(_))), "{claims}");
        malformed(r#"{"sub":"u1","exp":2000}"#);
        malformed(r#"{"sub":"u1","device":"d1"}"#);
        malformed(r#"{"sub":"","device":"d1","exp":2000}"#);
        malformed(r#"{"sub":"u1","device":"d1","exp":2000,"topics":["$everyone"]}"#);
    }

    #[test]
    fn an_unsigned_token_is_refused() {
        let token = signed(r#"{"alg":"none"}"#, r#"{"sub":"u1","device":"d1","exp":2000}"#);
        assert!(matches!(header(&token), Err(Refused::Malformed(_))));
        let token = signed(r#"{"alg":"HS512"}"#, "{}");
        assert!(matches!(header(&token), Err(Refused::Malformed(_))));
        assert!(header("a.b").is_err() && header(&"x".repeat(10_000)).is_err());
    }

    #[test]
    fn a_token_may_name_its_app() {
        let hint = |claims: &str| Hint::read(&signed(r#"{"alg":"HS256"}"#, claims));
        assert!(hint(r#"{"aud":"game"}"#).names("game"));
        assert!(hint(r#"{"aud":["x","game"]}"#).names("game"));
        assert!(hint(r#"{"iss":"game"}"#).names("game"));
        assert!(!hint(r#"{"sub":"game"}"#).names("game"));
    }
}
