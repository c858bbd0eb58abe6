//! Signatures of the ID tokens of an OpenID provider. What the claims must say is the caller's matter.
//!
//! Only RS256 and ES256 are accepted, so neither an unsigned token nor one that is signed with a public key as the secret of
//! HS256 passes. A token names its key (`kid`); without a name, a few keys of the set are tried.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, decode_header};

use crate::jwks::{Error, KeySet, Strictness};
use crate::{jwt, provider};

/// Providers put the groups of a person into the token: 200 of them need about 10 KiB.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Why the signature of an ID token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenRefused {
    #[error("the ID token is no JWT of at most {} KiB", TOKEN_BYTES_MAX >> 10)]
    Malformed,
    #[error("the ID token is not signed with RS256 or ES256")]
    Algorithm,
    /// The provider may have replaced its keys.
    #[error("the provider's JWK set has no key for the ID token")]
    UnknownKey,
    #[error("the signature of the ID token is wrong")]
    Signature,
}

/// The JWK set of a provider.
#[derive(Debug)]
pub struct SigningKeys(KeySet);

impl SigningKeys {
    pub fn parse(json: &str) -> Result<Self, Error> {
        provider::install();
        KeySet::parse(json, Strictness::Found).map(Self)
    }

    /// The claims, as JSON, of a token that one of the keys signed.
    pub fn verified(&self, token: &str) -> Result<Vec<u8>, IdTokenRefused> {
        if token.len() > TOKEN_BYTES_MAX || token.split('.').count() != 3 {
            return Err(IdTokenRefused::Malformed);
        }
        // The library knows no unsigned tokens, so their header is an error too.
        let header = decode_header(token).map_err(|_| IdTokenRefused::Algorithm)?;
        if !matches!(header.alg, Algorithm::RS256 | Algorithm::ES256) {
            return Err(IdTokenRefused::Algorithm);
        }
        let mut candidates = self.0.candidates(&header).peekable();
        if candidates.peek().is_none() {
            return Err(IdTokenRefused::UnknownKey);
        }
        if !candidates.any(|key| jwt::is_signed_by(token, header.alg, key)) {
            return Err(IdTokenRefused::Signature);
        }
        let claims = token.split('.').nth(1).ok_or(IdTokenRefused::Malformed)?;
        URL_SAFE_NO_PAD.decode(claims).map_err(|_| IdTokenRefused::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::rand::SystemRandom;
    use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

    struct Signer(EcdsaKeyPair);

    impl Signer {
        fn new() -> Self {
            let random = SystemRandom::new();
            let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
            let pkcs8 = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
            Self(EcdsaKeyPair::from_pkcs8(algorithm, pkcs8.as_ref(), &random).expect("a key"))
        }

        fn jwk(&self, kid: &str) -> String {
            let point = self.0.public_key().as_ref();
            let [x, y] = [&point[1..33], &point[33..]].map(|part| URL_SAFE_NO_PAD.encode(part));
            format!(r#"{{"kty":"EC","crv":"P-256","kid":"{kid}","x":"{x}","y":"{y}"}}"#)
        }

        fn sign(&self, header: &str, claims: &str) -> String {
            let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
            let signature = self.0.sign(&SystemRandom::new(), message.as_bytes()).expect("signed");
            format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
        }
    }

    #[test]
    fn only_a_key_of_the_set_signs() {
        let (ours, other) = (Signer::new(), Signer::new());
        let keys = SigningKeys::parse(&format!(r#"{{"keys":[{}]}}"#, ours.jwk("a"))).expect("a set");
        let header = r#"{"alg":"ES256","kid":"a"}"#;
        assert_eq!(keys.verified(&ours.sign(header, "{}")).as_deref(), Ok(b"{}".as_slice()));
        assert_eq!(keys.verified(&ours.sign(r#"{"alg":"ES256"}"#, "{}")).as_deref(), Ok(b"{}".as_slice()));
        assert_eq!(keys.verified(&other.sign(header, "{}")), Err(IdTokenRefused::Signature));
        let unknown = ours.sign(r#"{"alg":"ES256","kid":"b"}"#, "{}");
        assert_eq!(keys.verified(&unknown), Err(IdTokenRefused::UnknownKey));
        let rsa = ours.sign(r#"{"alg":"RS256","kid":"a"}"#, "{}");
        assert_eq!(keys.verified(&rsa), Err(IdTokenRefused::UnknownKey), "the key has another algorithm");
    }

    #[test]
    fn unsigned_and_symmetric_tokens_are_refused() {
        let ours = Signer::new();
        let keys = SigningKeys::parse(&format!(r#"{{"keys":[{}]}}"#, ours.jwk("a"))).expect("a set");
        for algorithm in ["none", "None", "HS256", "HS512", "RS384", "PS256"] {
            let header = format!(r#"{{"alg":"{algorithm}","kid":"a"}}"#);
            let token = ours.sign(&header, "{}");
            assert_eq!(keys.verified(&token), Err(IdTokenRefused::Algorithm), "{algorithm}");
            let (message, _) = token.rsplit_once('.').expect("a signature");
            assert_eq!(keys.verified(&format!("{message}.")), Err(IdTokenRefused::Algorithm), "{algorithm}");
        }
        for malformed in ["", "a.b", "a.b.c.d", &"x".repeat(TOKEN_BYTES_MAX + 1)] {
            assert_eq!(keys.verified(malformed), Err(IdTokenRefused::Malformed));
        }
    }
}
