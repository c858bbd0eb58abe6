//! JSON Web Tokens as checked by the services: exactly one algorithm each, signatures as in RFC 7518 (ES256:
//! r‖s, 64 bytes, not DER), all parts base64url without padding.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RSA_PSS_2048_8192_SHA256, UnparsedPublicKey,
};
use serde_json::{Map, Value};

/// Maximum size of a push service's token.
const TOKEN_BYTES_MAX: usize = 4_096;

/// A parsed token whose signature has not been verified yet.
#[derive(Debug)]
pub(crate) struct Unverified<'a> {
    pub(crate) header: Map<String, Value>,
    pub(crate) claims: Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// The key is an uncompressed point.
    Es256,
    /// The key is a DER `RSAPublicKey`.
    Rs256,
    /// The same with PSS.
    Ps256,
}

impl<'a> Unverified<'a> {
    pub(crate) fn read(token: &'a str) -> Result<Self, &'static str> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err("the token is too long");
        }
        let (signed, signature) = token.rsplit_once('.').ok_or("the token does not have three parts")?;
        let (header, claims) = signed.split_once('.').ok_or("the token does not have three parts")?;
        let object = |part: &str| match serde_json::from_slice(&decode(part)?) {
            Ok(Value::Object(object)) => Some(object),
            _ => None,
        };
        Ok(Self {
            header: object(header).ok_or("the header is not a JSON object in base64url")?,
            claims: object(claims).ok_or("the claims are not a JSON object in base64url")?,
            signed,
            signature: decode(signature).ok_or("the signature is not base64url")?,
        })
    }

    pub(crate) fn verify(&self, algorithm: Algorithm, key: &[u8]) -> Result<(), &'static str> {
        let (name, verifier): (_, &'static dyn ring::signature::VerificationAlgorithm) = match algorithm {
            Algorithm::Es256 => ("ES256", &ECDSA_P256_SHA256_FIXED),
            Algorithm::Rs256 => ("RS256", &RSA_PKCS1_2048_8192_SHA256),
            Algorithm::Ps256 => ("PS256", &RSA_PSS_2048_8192_SHA256),
        };
        if self.header.get("alg").and_then(Value::as_str) != Some(name) {
            return Err("wrong alg for this service");
        }
        if self.header.get("typ").is_some_and(|typ| typ != "JWT") {
            return Err("typ is not JWT");
        }
        let verified = UnparsedPublicKey::new(verifier, key).verify(self.signed.as_bytes(), &self.signature);
        verified.map_err(|_| "the signature is invalid")
    }

    pub(crate) fn text(&self, claim: &str) -> Option<&str> {
        self.claims.get(claim)?.as_str()
    }

    /// Seconds since 1970, if it is an integer.
    pub(crate) fn seconds(&self, claim: &str) -> Option<u64> {
        self.claims.get(claim)?.as_u64()
    }
}

/// Decodes base64url without padding (RFC 7515 §2).
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text).ok()
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
