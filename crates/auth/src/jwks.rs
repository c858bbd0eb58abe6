//! JWK sets (RFC 7517): the public keys with which apps sign RS256 and ES256 tokens.
//!
//! Limits of a set bound the cost of a token: RSA moduli of 2,048 to 4,096 bits, [`SET_KEYS_MAX`] keys, and at most
//! [`TRIED_KEYS_MAX`] keys tried per token. A set that an app gives directly is rejected as a whole if a key violates a
//! rule, so that its author notices. From a set that is fetched, or was stored by an earlier version, such keys are
//! omitted and logged.
//!
//! `jwk_sets` decides where sets come from and when they are fetched.

use std::sync::atomic::{AtomicU64, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey, Header};

/// Keys per set: identity providers publish two to five.
const SET_KEYS_MAX: usize = 64;

/// Keys tried per token: those with its `kid`, or any if it has none. Providers without a `kid` publish two keys (the
/// present one and the next); each further key costs up to 150 µs per token.
pub(crate) const TRIED_KEYS_MAX: usize = 4;

/// RFC 7518 §3.3 forbids smaller keys; larger ones cost up to 0.5 ms per verification and no provider uses them.
const RSA_BITS_MIN: usize = 2_048;
const RSA_BITS_MAX: usize = 4_096;

/// Why a JWK set is unusable.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to fetch the JWK set: {0}")]
    Fetch(#[from] noroshi_egress::Error),
    #[error("the JWK set is not UTF-8")]
    NotText,
    #[error("the JWK set is invalid: {}", rule(.0))]
    Set(serde_json::Error),
    #[error("the JWK set has no RS256 or ES256 key")]
    Empty,
    #[error("the JWK set has more than {SET_KEYS_MAX} keys")]
    TooManyKeys,
    #[error(
        "key {index} of the JWK set is an RSA key of {bits} bits; accepted are {RSA_BITS_MIN} to {RSA_BITS_MAX}"
    )]
    RsaSize { index: usize, bits: usize },
}

/// How to treat a key that violates a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Strictness {
    /// Reject the set.
    Given,
    /// Omit the key.
    Found,
}

#[derive(Debug)]
struct SetKey {
    kid: Option<String>,
    algorithm: Algorithm,
    key: DecodingKey,
}

/// The keys of one app.
#[derive(Debug)]
pub(crate) struct KeySet {
    /// Unique in this process.
    version: u64,
    /// The text it was parsed from.
    digest: [u8; 32],
    keys: Vec<SetKey>,
}

impl KeySet {
    pub(crate) fn parse(json: &str, strictness: Strictness) -> Result<Self, Error> {
        static VERSIONS: AtomicU64 = AtomicU64::new(0);
        let set: JwkSet = serde_json::from_str(json).map_err(Error::Set)?;
        if set.keys.len() > SET_KEYS_MAX {
            return Err(Error::TooManyKeys);
        }
        let mut keys = Vec::with_capacity(set.keys.len());
        for (index, jwk) in set.keys.iter().enumerate() {
            match (set_key(index, jwk), strictness) {
                (Ok(key), _) => keys.extend(key),
                (Err(error), Strictness::Given) => return Err(error),
                (Err(error), Strictness::Found) => tracing::warn!(%error, "a key of a JWK set is omitted"),
            }
        }
        if keys.is_empty() {
            return Err(Error::Empty);
        }
        Ok(Self { version: VERSIONS.fetch_add(1, Ordering::Relaxed), digest: digest(json), keys })
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Whether it was parsed from this text.
    pub(crate) fn is_of(&self, json: &str) -> bool {
        self.digest == digest(json)
    }

    /// The keys that may have signed a token with this header.
    pub(crate) fn candidates(&self, header: &Header) -> impl Iterator<Item = &DecodingKey> {
        self.keys
            .iter()
            .filter(|key| key.algorithm == header.alg && (header.kid.is_none() || header.kid == key.kid))
            .map(|key| &key.key)
            .take(TRIED_KEYS_MAX)
    }
}

/// None for a key of a type that is not supported.
fn set_key(index: usize, jwk: &Jwk) -> Result<Option<SetKey>, Error> {
    let algorithm = match &jwk.algorithm {
        AlgorithmParameters::RSA(rsa) => {
            let bits = URL_SAFE_NO_PAD.decode(&rsa.n).map_or(0, |modulus| bits(&modulus));
            if !(RSA_BITS_MIN..=RSA_BITS_MAX).contains(&bits) {
                return Err(Error::RsaSize { index, bits });
            }
            Algorithm::RS256
        }
        AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => Algorithm::ES256,
        _ => return Ok(None),
    };
    let Ok(key) = DecodingKey::from_jwk(jwk) else { return Ok(None) };
    Ok(Some(SetKey { kid: jwk.common.key_id.clone(), algorithm, key }))
}

/// The bit length of a big-endian number.
fn bits(number: &[u8]) -> usize {
    let begin = number.iter().position(|byte| *byte != 0).unwrap_or(number.len());
    let significant = &number[begin..];
    significant.first().map_or(0, |first| significant.len() * 8 - first.leading_zeros() as usize)
}

fn digest(json: &str) -> [u8; 32] {
    let mut digest = [0; 32];
    digest.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, json.as_bytes()).as_ref());
    digest
}

/// The error without names of Rust types.
fn rule(error: &serde_json::Error) -> String {
    match error.to_string() {
        text if text.contains(", expected struct ") => {
            "must be an object with `keys`, an array of objects".to_owned()
        }
        text => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P256: &str = r#"{"kty":"EC","crv":"P-256","kid":"a","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}"#;

    fn parse(json: &str) -> Result<KeySet, Error> {
        KeySet::parse(json, Strictness::Given)
    }

    /// The modulus is not a product of two primes, which no check detects.
    fn rsa(bits: usize) -> String {
        let mut modulus = vec![0; bits.div_ceil(8)];
        modulus[0] = 1 << ((bits - 1) % 8);
        let modulus = URL_SAFE_NO_PAD.encode(modulus);
        format!(r#"{{"kty":"RSA","kid":"r","n":"{modulus}","e":"AQAB"}}"#)
    }

    #[test]
    fn a_set_keeps_the_usable_keys() {
        let p384 = r#"{"kty":"EC","crv":"P-384","kid":"b","x":"MKBC","y":"4Etl"}"#;
        let set = parse(&format!(r#"{{"keys":[{P256},{p384}]}}"#)).expect("a set");
        let mut header = Header::new(Algorithm::ES256);
        assert_eq!(set.candidates(&header).count(), 1);
        header.kid = Some("a".to_owned());
        assert_eq!(set.candidates(&header).count(), 1);
        header.kid = Some("b".to_owned());
        assert_eq!(set.candidates(&header).count(), 0);
        assert!(matches!(parse(r#"{"keys":[]}"#), Err(Error::Empty)));
        assert!(matches!(parse("{}"), Err(Error::Set(_))));
        for (wrong, rule) in
            [("{}", "missing field `keys`"), ("1", "must be an object"), ("[]", "must be an object")]
        {
            let text = parse(wrong).expect_err(wrong).to_string();
            assert!(text.contains(rule) && !text.contains("struct"), "{wrong}: {text}");
        }
        let many = vec![P256; SET_KEYS_MAX + 1].join(",");
        assert!(matches!(parse(&format!(r#"{{"keys":[{many}]}}"#)), Err(Error::TooManyKeys)));
    }

    #[test]
    fn a_token_is_tried_against_few_keys() {
        let set = parse(&format!(r#"{{"keys":[{}]}}"#, vec![P256; SET_KEYS_MAX].join(","))).expect("a set");
        let mut header = Header::new(Algorithm::ES256);
        assert_eq!(set.candidates(&header).count(), TRIED_KEYS_MAX);
        header.kid = Some("a".to_owned());
        assert_eq!(set.candidates(&header).count(), TRIED_KEYS_MAX, "all have the same name");
    }

    #[test]
    fn rsa_keys_have_2048_to_4096_bits() {
        for bits in [2_048, 2_049, 3_072, 4_096] {
            assert!(parse(&format!(r#"{{"keys":[{}]}}"#, rsa(bits))).is_ok(), "{bits}");
        }
        for bits in [1_024, 2_047, 4_097, 8_192] {
            let json = format!(r#"{{"keys":[{P256},{}]}}"#, rsa(bits));
            let refused = parse(&json).expect_err("a key of another size");
            assert!(
                matches!(refused, Error::RsaSize { index: 1, bits: found } if found == bits),
                "{refused}"
            );
            let found = KeySet::parse(&json, Strictness::Found).expect("the other key is good");
            assert_eq!(found.keys.len(), 1);
        }
        let only = format!(r#"{{"keys":[{}]}}"#, rsa(8_192));
        assert!(matches!(KeySet::parse(&only, Strictness::Found), Err(Error::Empty)));
    }

    #[test]
    fn every_set_has_its_own_version() {
        let json = format!(r#"{{"keys":[{P256}]}}"#);
        let (first, second) = (parse(&json).expect("a set"), parse(&json).expect("a set"));
        assert_ne!(first.version(), second.version());
        assert!(first.is_of(&json) && !first.is_of("{}"));
    }
}
