//! VAPID (RFC 8292), the push service's side: the sender to a key-bound endpoint proves that it has the key.
//!
//! Supports two forms: `Authorization: vapid t=…, k=…`, and the form that libraries used before the standard, with
//! `Content-Encoding: aesgcm`, `Authorization: WebPush …` and the key in `Crypto-Key: p256ecdsa=…`.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::VapidKey;
use noroshi_types::Timestamp;
use ring::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use serde::Deserialize;

use crate::select::Audience;

/// RFC 8292 §2: a token is valid for at most 24 hours.
const LIFETIME_MAX_S: u64 = 86_400;
/// Tolerance for the sender's clock.
const LEEWAY_S: u64 = 60;
/// Real ones have about 300 bytes.
const TOKEN_BYTES_MAX: usize = 4_096;

/// Why a signature is rejected. The text is public and contains nothing of the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum VapidRefused {
    #[error("the endpoint is bound to a key and needs the header \"Authorization: vapid t=…, k=…\"")]
    Missing,
    #[error("the VAPID credential is malformed: {0}")]
    Malformed(&'static str),
    #[error("the endpoint is bound to another key")]
    OtherKey,
    #[error("the VAPID token's signature does not verify")]
    Signature,
    #[error("the VAPID token's aud is not the origin of the endpoint")]
    Audience,
    #[error("the VAPID token has expired")]
    Expired,
    #[error("the VAPID token's exp is more than 24 hours ahead")]
    TooLong,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
}

/// Other claims, such as `sub`, are informative.
#[derive(Deserialize)]
struct Claims {
    aud: Audience,
    /// Seconds; some libraries send fractions.
    exp: f64,
}

/// Verifies the headers of a request to an endpoint that is bound to `bound` and has the origin `origin`.
pub fn verify_vapid(
    authorization: Option<&str>,
    crypto_key: Option<&str>,
    bound: &VapidKey,
    origin: &str,
    now: Timestamp,
) -> Result<(), VapidRefused> {
    let (token, key) = credential(authorization.ok_or(VapidRefused::Missing)?, crypto_key)?;
    let key = decoded(key).ok_or(VapidRefused::Malformed("the key is not base64url"))?;
    if key != bound {
        return Err(VapidRefused::OtherKey);
    }
    verify_token(token, bound, origin, now)
}

/// Token and key.
fn credential<'a>(
    authorization: &'a str,
    crypto_key: Option<&'a str>,
) -> Result<(&'a str, &'a str), VapidRefused> {
    let (scheme, rest) = authorization.trim().split_once(' ').ok_or(VapidRefused::Missing)?;
    if scheme.eq_ignore_ascii_case("webpush") {
        let key = crypto_key.and_then(|value| parameter(value, "p256ecdsa"));
        return Ok((rest.trim(), key.ok_or(VapidRefused::Malformed("Crypto-Key has no p256ecdsa"))?));
    }
    if !scheme.eq_ignore_ascii_case("vapid") {
        return Err(VapidRefused::Missing);
    }
    let token = parameter(rest, "t").ok_or(VapidRefused::Malformed("t is missing"))?;
    Ok((token, parameter(rest, "k").ok_or(VapidRefused::Malformed("k is missing"))?))
}

/// A parameter of `name=value` pairs that are separated by commas or semicolons.
fn parameter<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    list.split([',', ';']).find_map(|pair| {
        let (key, value) = pair.trim().split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches('"'))
    })
}

/// Base64url; some libraries keep the padding.
fn decoded(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()
}

fn verify_token(token: &str, key: &VapidKey, origin: &str, now: Timestamp) -> Result<(), VapidRefused> {
    const MALFORMED: VapidRefused = VapidRefused::Malformed("t is not a JWT");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(MALFORMED);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(MALFORMED)?;
    let (header, claims) = signed.split_once('.').ok_or(MALFORMED)?;
    let header: Header = json(header).ok_or(MALFORMED)?;
    if header.alg != "ES256" {
        return Err(VapidRefused::Malformed("alg is not ES256"));
    }
    let signature = decoded(signature).ok_or(MALFORMED)?;
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key)
        .verify(signed.as_bytes(), &signature)
        .map_err(|_| VapidRefused::Signature)?;
    let claims: Claims =
        json(claims).ok_or(VapidRefused::Malformed("aud or exp is missing, or of another type"))?;
    let is_ours = |aud: &str| aud.trim_end_matches('/').eq_ignore_ascii_case(origin);
    if !claims.aud.values().iter().any(|aud| is_ours(aud)) {
        return Err(VapidRefused::Audience);
    }
    let now_s = now.0 / 1_000;
    if claims.exp + LEEWAY_S as f64 <= now_s as f64 {
        return Err(VapidRefused::Expired);
    }
    match claims.exp <= (now_s + LIFETIME_MAX_S + LEEWAY_S) as f64 {
        true => Ok(()),
        false => Err(VapidRefused::TooLong),
    }
}

fn json<T: serde::de::DeserializeOwned>(part: &str) -> Option<T> {
    serde_json::from_slice(&decoded(part)?).ok()
}

#[cfg(test)]
mod tests;
