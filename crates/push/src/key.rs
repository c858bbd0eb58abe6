//! Private keys in the formats that people have (PEM of PKCS#8, SEC 1 or PKCS#1, or 32 bytes in base64url), and the
//! JSON Web Tokens signed with them. Errors name the field and the rule; no error and no `Debug` shows a key.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256,
    RsaEncoding, RsaKeyPair,
};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::object::Invalid;

/// id-ecPublicKey (RFC 5480 §2.1.1), then the curve.
const EC_PUBLIC_KEY: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const PRIME256V1: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];

const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const CURVE_OF_SEC1: u8 = 0xa0;

/// A key that signs ES256 (RFC 7518 §3.4).
#[derive(Debug)]
pub(crate) struct EcKey {
    pair: EcdsaKeyPair,
    random: SystemRandom,
}

impl EcKey {
    pub(crate) fn from_pem(field: &'static str, pem: &str) -> Result<Self, Invalid> {
        let rule = "must be a key on the curve P-256 (prime256v1)";
        let wrong = || Invalid::new(field, rule);
        let scalar = match private_key(field, pem)? {
            PrivateKeyDer::Pkcs8(der) => scalar_of_pkcs8(der.secret_pkcs8_der()).ok_or_else(wrong)?,
            PrivateKeyDer::Sec1(der) => scalar_of_sec1(der.secret_sec1_der(), None).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        Self::from_scalar(field, &scalar)
    }

    pub(crate) fn from_scalar(field: &'static str, scalar: &[u8; 32]) -> Result<Self, Invalid> {
        let wrong =
            || Invalid::new(field, "must be a private key of the curve P-256; this number is out of range");
        // `ring` signs, but needs both halves of the pair.
        let public = p256::SecretKey::from_slice(scalar).map_err(|_| wrong())?.public_key();
        let public = public.to_sec1_point(false);
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair =
            EcdsaKeyPair::from_private_key_and_public_key(algorithm, scalar, public.as_bytes(), &random);
        Ok(Self { pair: pair.map_err(|_| wrong())?, random })
    }

    /// The uncompressed point.
    pub(crate) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    pub(crate) fn jwt(&self, header: &Value, claims: &Value) -> String {
        // r and s of 32 bytes each, not DER (RFC 7518 §3.4).
        jwt(header, claims, |text| {
            let signed = self.pair.sign(&self.random, text);
            signed.expect("the system has randomness").as_ref().to_vec()
        })
    }
}

/// A key that signs RS256 (RFC 7518 §3.3) and PS256 (§3.5).
pub(crate) struct RsaKey {
    pair: RsaKeyPair,
    random: SystemRandom,
}

impl std::fmt::Debug for RsaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RsaKey")
            .field("bits", &(self.pair.public().modulus_len() * 8))
            .finish_non_exhaustive()
    }
}

impl RsaKey {
    pub(crate) fn from_pem(field: &'static str, pem: &str) -> Result<Self, Invalid> {
        let pair = match private_key(field, pem)? {
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            _ => return Err(Invalid::new(field, "must be an RSA key")),
        };
        let pair = pair.map_err(|_| Invalid::new(field, "must be an RSA key of 2048 to 4096 bits"))?;
        Ok(Self { pair, random: SystemRandom::new() })
    }

    /// The public key (RFC 8017 A.1.1), for the fingerprint.
    pub(crate) fn public(&self) -> &[u8] {
        self.pair.public_key().as_ref()
    }

    /// Signed with PS256 (RFC 7518 §3.5): the salt has the length of the hash.
    pub(crate) fn jwt_ps256(&self, header: &Value, claims: &Value) -> String {
        self.signed(&RSA_PSS_SHA256, header, claims)
    }

    pub(crate) fn jwt(&self, header: &Value, claims: &Value) -> String {
        self.signed(&RSA_PKCS1_SHA256, header, claims)
    }

    fn signed(&self, padding: &'static dyn RsaEncoding, header: &Value, claims: &Value) -> String {
        jwt(header, claims, |text| {
            let mut signature = vec![0; self.pair.public().modulus_len()];
            let signed = self.pair.sign(padding, &self.random, text, &mut signature);
            signed.expect("the buffer has the length of the modulus, and 2048 bits suffice for SHA-256");
            signature
        })
    }
}

/// Identifies a key or certificate without showing it. Half of a SHA-256 is enough for people.
pub(crate) fn fingerprint(public: &[u8]) -> String {
    let hash = digest(&SHA256, public);
    let hex: String = hash.as_ref()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// The compact form (RFC 7515 §7.1).
fn jwt(header: &Value, claims: &Value, sign: impl FnOnce(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let text = format!("{}.{}", part(header), part(claims));
    let signature = sign(text.as_bytes());
    format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))
}

/// The first private key of a PEM text. Text before it is ignored.
pub(crate) fn private_key(field: &'static str, pem: &str) -> Result<PrivateKeyDer<'static>, Invalid> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| {
        Invalid::new(
            field,
            match () {
                () if pem.contains("BEGIN ENCRYPTED PRIVATE KEY") => {
                    "must not be encrypted: remove the passphrase (openssl pkcs8 -topk8 -nocrypt)"
                }
                () if pem.contains("BEGIN CERTIFICATE") => "must be a private key, not a certificate",
                () if pem.contains("BEGIN PUBLIC KEY") => "must be a private key, not a public one",
                () if pem.contains("-----BEGIN") => {
                    "must be the whole PEM file with its line breaks; this one is damaged"
                }
                () => "must be a PEM file (\"-----BEGIN PRIVATE KEY-----\")",
            },
        )
    })
}

/// PrivateKeyInfo (RFC 5958 §2) with an ECPrivateKey inside.
fn scalar_of_pkcs8(der: &[u8]) -> Option<[u8; 32]> {
    let mut info = element(&mut &*der, SEQUENCE)?;
    element(&mut info, INTEGER)?;
    let mut algorithm = element(&mut info, SEQUENCE)?;
    match element(&mut algorithm, OBJECT)? {
        EC_PUBLIC_KEY => scalar_of_sec1(element(&mut info, OCTETS)?, Some(element(&mut algorithm, OBJECT)?)),
        _ => None,
    }
}

/// ECPrivateKey (RFC 5915 §3). The curve is inside unless PKCS#8 states it outside.
fn scalar_of_sec1(der: &[u8], curve: Option<&[u8]>) -> Option<[u8; 32]> {
    let mut key = element(&mut &*der, SEQUENCE)?;
    element(&mut key, INTEGER)?;
    let scalar = element(&mut key, OCTETS)?;
    let curve = match curve {
        Some(curve) => curve,
        None => element(&mut element(&mut key, CURVE_OF_SEC1)?, OBJECT)?,
    };
    if curve != PRIME256V1 {
        return None;
    }
    scalar.try_into().ok()
}

/// The content of the next element with this tag (X.690 §8.1). Advances `input` past it.
fn element<'a>(input: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (found, rest) = input.split_first()?;
    if *found != tag {
        return None;
    }
    let (length, rest) = match rest.split_first()? {
        (length @ 0..=0x7f, rest) => (usize::from(*length), rest),
        (0x81, rest) => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        (0x82, rest) => {
            let (length, rest) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), rest)
        }
        _ => return None,
    };
    let (inside, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some(inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_key_must_be_in_the_range_of_the_curve() {
        let mut order = [0xff; 32];
        order[4..8].copy_from_slice(&[0; 4]);
        order[16..].copy_from_slice(&0xbce6_faad_a717_9e84_f3b9_cac2_fc63_2551_u128.to_be_bytes());
        let wrong =
            Invalid::new("key", "must be a private key of the curve P-256; this number is out of range");
        for scalar in [[0; 32], order] {
            assert_eq!(EcKey::from_scalar("key", &scalar).err(), Some(wrong.clone()));
        }
        // `ring` compares both halves.
        order[31] -= 1;
        let mut one = [0; 32];
        one[31] = 1;
        let [last, first] = [order, one].map(|scalar| EcKey::from_scalar("key", &scalar).unwrap());
        // The generator, and its inverse: the same x.
        assert_eq!(first.public()[..5], [4, 0x6b, 0x17, 0xd1, 0xf2]);
        assert_eq!(first.public()[..33], last.public()[..33]);
        assert_ne!(first.public(), last.public());
    }
}
