//! App JWTs (RFC 7519): the app signs them itself with HS256, RS256 or ES256.
//!
//! `sub` is the user, `device` the device, `exp` the expiry, `iat` the time of issue (compared with revocations when
//! the device is read), `topics` are durable subscriptions. [`crate::select`] finds the app, whose keys verify the
//! token. `iss` must equal the app's issuer if the app declares one. `aud` must contain the app's audience if the app
//! declares one or the token has an `aud`.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, Header, decode_header};
use noroshi_store::{App, Issued};
use noroshi_types::rule::claims::is_filter;
use noroshi_types::{DeviceId, Timestamp, Topic, UserId, limits};
use ring::hmac;
use serde::Deserialize;

use crate::identity::Identity;
use crate::refused::Refused;
use crate::select::{Audience, Named, audience_of};

/// RFC 7519 sets no limit; a token is no place for 1,000 topics.
pub(crate) const TOKEN_BYTES_MAX: usize = 8_192;

/// The headers that libraries write for HS256, encoded: `{"alg":"HS256","typ":"JWT"}`, the same in the other order, and
/// `{"alg":"HS256"}`. A log-in compares them and parses other headers.
const HS256_HEADERS: [&str; 3] =
    ["eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9", "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9", "eyJhbGciOiJIUzI1NiJ9"];

/// The 32 bytes of an HMAC-SHA256, and what base64 may reserve while it decodes.
const SIGNATURE_BYTES_MAX: usize = 64;

const NOT_CLAIMS: Refused = Refused::Malformed(
    "the claims of a JWT must be JSON, with a string as iss and a string or an array of strings as aud",
);

#[derive(Deserialize)]
struct Claims<'a> {
    #[serde(borrow)]
    sub: Cow<'a, str>,
    #[serde(borrow)]
    device: Cow<'a, str>,
    exp: f64,
    #[serde(default)]
    nbf: Option<f64>,
    #[serde(default)]
    iat: Option<f64>,
    #[serde(default)]
    topics: Vec<String>,
    #[serde(default)]
    iss: Option<String>,
    #[serde(default)]
    aud: Option<Audience>,
}

/// The claims of a token whose signature is not verified yet, parsed once for all that reads them.
pub(crate) struct Unverified<'a> {
    pub(crate) named: Named,
    /// Without `iss` and `aud`, which are in `named`. None if they identify no device.
    claims: Option<Claims<'a>>,
}

/// The decoded claims of a token, for [`Unverified::read`].
pub(crate) fn body(token: &str) -> Result<Vec<u8>, Refused> {
    let (_, body, _) = parts(token).ok_or(NOT_CLAIMS)?;
    URL_SAFE_NO_PAD.decode(body).map_err(|_| NOT_CLAIMS)
}

/// Header, claims and signature, encoded.
fn parts(token: &str) -> Option<(&str, &str, &str)> {
    let (message, signature) = token.rsplit_once('.')?;
    let (header, body) = message.rsplit_once('.')?;
    Some((header, body, signature))
}

impl<'a> Unverified<'a> {
    pub(crate) fn read(body: &'a [u8]) -> Result<Self, Refused> {
        if let Ok(mut claims) = serde_json::from_slice::<Claims<'a>>(body) {
            let named = Named { iss: claims.iss.take(), aud: claims.aud.take() };
            return Ok(Self { named, claims: Some(claims) });
        }
        // The signature is checked before the other claims are refused.
        let named = serde_json::from_slice(body).map_err(|_| NOT_CLAIMS)?;
        Ok(Self { named, claims: None })
    }
}

pub(crate) fn header(token: &str) -> Result<Header, Refused> {
    if token.len() > TOKEN_BYTES_MAX {
        return Err(Refused::Malformed("a JWT must have at most 8 KiB"));
    }
    if parts(token).is_some_and(|(header, ..)| HS256_HEADERS.contains(&header)) {
        return Ok(Header::new(Algorithm::HS256));
    }
    let header = decode_header(token).map_err(|_| Refused::Malformed("neither a device token nor a JWT"))?;
    match header.alg {
        Algorithm::HS256 | Algorithm::RS256 | Algorithm::ES256 => Ok(header),
        _ => Err(Refused::Malformed("a JWT must be signed with HS256, RS256 or ES256")),
    }
}

/// Whether `key` signed the token with HS256. Costs about a microsecond, as the lookup in a cache of tokens would, so
/// there is none.
pub(crate) fn is_signed_with(token: &str, key: &hmac::Key) -> bool {
    let Some((message, encoded)) = token.rsplit_once('.') else { return false };
    let mut signature = [0; SIGNATURE_BYTES_MAX];
    let Ok(len) = URL_SAFE_NO_PAD.decode_slice(encoded, &mut signature) else { return false };
    hmac::verify(key, message.as_bytes(), &signature[..len]).is_ok()
}

/// Whether `key` signed the token. Costs 30 to 300 microseconds with a public key.
pub(crate) fn is_signed_by(token: &str, algorithm: Algorithm, key: &DecodingKey) -> bool {
    let Some((message, signature)) = token.rsplit_once('.') else { return false };
    jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, algorithm).unwrap_or(false)
}

/// The identity in the claims. The caller has verified the signature.
pub(crate) fn claimed(token: &Unverified<'_>, app: &App, now: Timestamp) -> Result<Identity, Refused> {
    const CLAIMS: Refused = Refused::Malformed("a JWT needs the claims sub, device and exp");
    let claims = token.claims.as_ref().ok_or(CLAIMS)?;
    check_named(&token.named, app)?;
    identity(claims, app, now)
}

/// Checks issuer and audience against what the app declares.
fn check_named(named: &Named, app: &App) -> Result<(), Refused> {
    if app.settings.issuer.as_ref().is_some_and(|issuer| named.iss.as_ref() != Some(issuer)) {
        return Err(Refused::Issuer);
    }
    match &named.aud {
        Some(audience) if audience.contains(audience_of(app)) => Ok(()),
        None if app.settings.audience.is_none() => Ok(()),
        _ => Err(Refused::Audience),
    }
}

fn identity(claims: &Claims<'_>, app: &App, now: Timestamp) -> Result<Identity, Refused> {
    let expires_at = timestamp(claims.exp);
    if expires_at <= now {
        return Err(Refused::Expired);
    }
    if claims.nbf.is_some_and(|nbf| timestamp(nbf) > now) {
        return Err(Refused::NotYet);
    }
    if claims.topics.len() > limits::TOPICS_PER_DEVICE_MAX {
        return Err(Refused::Malformed("a JWT must name at most 1,000 topics"));
    }
    // A filter is no subscription; topic rules may check whether the token lists it.
    let (filters, names): (Vec<&String>, Vec<&String>) =
        claims.topics.iter().partition(|topic| topic.contains(['+', '#']) && is_filter(topic));
    let topics: Result<Vec<Topic>, _> = names.iter().map(|topic| Topic::parse_subscription(topic)).collect();
    let device = DeviceId::parse(&claims.device).map_err(|_| {
        Refused::Malformed("the claim device must have 1 to 128 bytes without control characters")
    })?;
    let user = UserId::parse(&claims.sub).map_err(|_| {
        Refused::Malformed("the claim sub must have 1 to 255 bytes without control characters")
    })?;
    Ok(Identity {
        user: Some(user),
        issued: claims.iat.map_or(Issued::Unknown, |iat| Issued::At(timestamp(iat))),
        topics: topics.map_err(|_| Refused::Malformed("the claim topics has an invalid topic"))?,
        topic_filters: filters.into_iter().map(|filter| filter.as_str().into()).collect(),
        expires_at,
        ..Identity::anonymous(app.id, device)
    })
}

/// A NumericDate (RFC 7519 §2): seconds, possibly with a fraction.
fn timestamp(seconds: f64) -> Timestamp {
    Timestamp((seconds * 1_000.0).clamp(0.0, 253_402_300_799_000.0) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_store::AppSettings;
    use noroshi_types::{AppId, AppName};

    const SECRET: &[u8] = b"a secret of the app";

    fn signed(header: &str, claims: &str) -> String {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, SECRET), message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    fn check(claims: &str, secret: &[u8]) -> Result<Identity, Refused> {
        check_for(&app(None, None), claims, secret)
    }

    fn app(issuer: Option<&str>, audience: Option<&str>) -> App {
        let (issuer, audience) = (issuer.map(str::to_owned), audience.map(str::to_owned));
        App {
            id: AppId(1),
            name: AppName::parse("game").expect("a name"),
            created_at: Timestamp(0),
            settings: AppSettings { issuer, audience, ..AppSettings::default() },
        }
    }

    fn check_for(app: &App, claims: &str, secret: &[u8]) -> Result<Identity, Refused> {
        crate::provider::install();
        let token = signed(r#"{"alg":"HS256","typ":"JWT"}"#, claims);
        let header = header(&token)?;
        let is_signed = is_signed_with(&token, &hmac::Key::new(hmac::HMAC_SHA256, secret));
        assert_eq!(is_signed_by(&token, header.alg, &DecodingKey::from_secret(secret)), is_signed);
        match is_signed {
            true => claimed(&Unverified::read(&body(&token)?)?, app, Timestamp(1_000_000)),
            false => Err(Refused::Signature),
        }
    }

    #[test]
    fn claims_make_an_identity() {
        let claims = r#"{"sub":"u1","device":"d1","exp":2000.5,"topics":["news"],"extra":true}"#;
        let identity = check(claims, SECRET).expect("valid");
        assert_eq!(identity.user.as_ref().map(UserId::as_str), Some("u1"));
        assert_eq!((identity.device.as_str(), identity.create), ("d1", true));
        assert_eq!(identity.expires_at, Timestamp(2_000_500));
        assert_eq!((identity.topics.len(), identity.issued), (1, Issued::Unknown));
        let claims = r#"{"sub":"u1","device":"d1","exp":2000,"iat":999.5}"#;
        assert_eq!(check(claims, SECRET).map(|identity| identity.issued), Ok(Issued::At(Timestamp(999_500))));
    }

    #[test]
    fn each_defect_of_a_token_has_its_reason() {
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
    fn an_unsigned_token_is_rejected() {
        let token = signed(r#"{"alg":"none"}"#, r#"{"sub":"u1","device":"d1","exp":2000}"#);
        assert!(matches!(header(&token), Err(Refused::Malformed(_))));
        let token = signed(r#"{"alg":"HS512"}"#, "{}");
        assert!(matches!(header(&token), Err(Refused::Malformed(_))));
        assert!(header("a.b").is_err() && header(&"x".repeat(10_000)).is_err());
    }

    #[test]
    fn known_headers_are_read_like_all_others() {
        let claims = r#"{"sub":"u1","device":"d1","exp":2000}"#;
        let headers = [
            r#"{"alg":"HS256","typ":"JWT"}"#,
            r#"{"typ":"JWT","alg":"HS256"}"#,
            r#"{"alg":"HS256"}"#,
            r#"{ "alg": "HS256" }"#,
        ];
        for (number, text) in headers.into_iter().enumerate() {
            let token = signed(text, claims);
            assert_eq!(HS256_HEADERS.iter().any(|known| token.starts_with(*known)), number < 3, "{text}");
            assert_eq!(header(&token).map(|header| header.alg), Ok(Algorithm::HS256), "{text}");
        }
        let known = HS256_HEADERS[0];
        for malformed in [format!("{known}.e30"), format!("x.{known}.e30.x"), known.to_owned()] {
            assert!(header(&malformed).is_err(), "{malformed}");
        }
    }

    #[test]
    fn a_signature_has_its_exact_length_and_form() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
        let token = signed(r#"{"alg":"HS256"}"#, "{}");
        assert!(is_signed_with(&token, &key));
        let (message, signature) = token.rsplit_once('.').expect("a signature");
        let long = signature.repeat(9);
        for other in ["", "A", "=", &signature[1..], &format!("{signature}="), &long, &signature[..42]] {
            assert!(!is_signed_with(&format!("{message}.{other}"), &key), "{other}");
        }
    }

    #[test]
    fn the_signature_is_checked_before_the_claims() {
        let bad = r#"{"sub":1,"device":"d1","exp":2000}"#;
        assert_eq!(check(bad, b"another secret"), Err(Refused::Signature));
        assert!(matches!(check(bad, SECRET), Err(Refused::Malformed(_))));
        let escaped = r#"{"sub":"\u0061\n","device":"d\"1","exp":2000}"#;
        assert!(matches!(check(escaped, SECRET), Err(Refused::Malformed(_))), "a control character");
        let identity = check(r#"{"sub":"\u0061","device":"d\"1","exp":2000}"#, SECRET).expect("valid");
        assert_eq!(
            (identity.user.as_ref().map(UserId::as_str), identity.device.as_str()),
            (Some("a"), "d\"1")
        );
    }

    #[test]
    fn issuer_and_audience_must_match_the_app() {
        let with = |extra: &str| format!(r#"{{"sub":"u1","device":"d1","exp":2000{extra}}}"#);
        let check = |app: &App, extra: &str| check_for(app, &with(extra), SECRET).map(|_| ());
        let plain = app(None, None);
        assert_eq!(check(&plain, ""), Ok(()));
        assert_eq!(check(&plain, r#","iss":"https://anyone","aud":"game""#), Ok(()));
        assert_eq!(check(&plain, r#","aud":["x","game"]"#), Ok(()));
        assert_eq!(check(&plain, r#","aud":"other""#), Err(Refused::Audience));
        assert_eq!(check(&plain, r#","aud":[]"#), Err(Refused::Audience));
        let declared = app(Some("https://id"), Some("api"));
        assert_eq!(check(&declared, r#","iss":"https://id","aud":["api"]"#), Ok(()));
        assert_eq!(check(&declared, r#","iss":"https://id","aud":"game""#), Err(Refused::Audience));
        assert_eq!(check(&declared, r#","iss":"https://id""#), Err(Refused::Audience));
        assert_eq!(check(&declared, r#","iss":"https://id/","aud":"api""#), Err(Refused::Issuer));
        assert_eq!(check(&declared, r#","aud":"api""#), Err(Refused::Issuer));
        // The signature is checked first.
        assert_eq!(check_for(&declared, &with(""), b"another secret"), Err(Refused::Signature));
    }

    #[test]
    fn a_repeated_claim_is_malformed() {
        let named = |claims: &str| {
            let body = body(&signed(r#"{"alg":"HS256"}"#, claims))?;
            Unverified::read(&body).map(|token| token.named)
        };
        assert!(named(r#"{"aud":["x","game"],"iss":"a","sub":1}"#).is_ok());
        for claims in
            [r#"{"aud":"a","aud":"b"}"#, r#"{"iss":"a","iss":"b"}"#, r#"{"aud":1}"#, r#"{"aud":[1]}"#]
        {
            assert!(matches!(named(claims), Err(Refused::Malformed(_))), "{claims}");
        }
    }
}
