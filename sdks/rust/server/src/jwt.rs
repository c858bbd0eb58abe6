//! App JWTs, with which devices log in: docs/authorization.md of the service.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{self, EcdsaKeyPair, RsaKeyPair};
use ring::{hmac, rand};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value, json};

/// Why there is no JWT.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignError {
    /// The secret does not have 32 to 1,024 bytes.
    Secret,
    /// The text is not a private key in PKCS#8 of this algorithm.
    Key(String),
    /// A claim has no value, or a value that the service rejects.
    Claim(&'static str),
    /// The operating system returned no random bytes.
    Random,
}

impl fmt::Display for SignError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Secret => f.write_str("the secret of an app has 32 to 1,024 bytes"),
            Self::Key(text) => write!(f, "the private key cannot be used: {text}"),
            Self::Claim(text) => f.write_str(text),
            Self::Random => f.write_str("the operating system returned no random bytes"),
        }
    }
}

impl std::error::Error for SignError {}

/// The claims of an app JWT.
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct DeviceClaims {
    user: String,
    device: String,
    lifetime: Duration,
    issued_at: Option<SystemTime>,
    claims: Map<String, Value>,
}

impl DeviceClaims {
    /// `user`: 1 to 255 bytes. `device`: 1 to 128 bytes; its first log-in creates it. `lifetime`: at least a second.
    pub fn new(user: impl Into<String>, device: impl Into<String>, lifetime: Duration) -> Self {
        Self { user: user.into(), device: device.into(), lifetime, issued_at: None, claims: Map::new() }
    }

    /// Durable subscriptions.
    pub fn topics<T: Into<String>>(self, topics: impl IntoIterator<Item = T>) -> Self {
        let topics: Vec<String> = topics.into_iter().map(Into::into).collect();
        self.claim("topics", topics)
    }

    /// Required if the app declares an issuer.
    pub fn issuer(self, issuer: impl Into<String>) -> Self {
        self.claim("iss", issuer.into())
    }

    /// Required if the app declares an audience.
    pub fn audience(self, audience: impl Into<String>) -> Self {
        self.claim("aud", audience.into())
    }

    /// The time from which on the JWT is valid.
    pub fn not_before(self, time: SystemTime) -> Self {
        self.claim("nbf", seconds(time))
    }

    /// The time of issue. Default: now.
    pub fn issued_at(mut self, time: SystemTime) -> Self {
        self.issued_at = Some(time);
        self
    }

    /// A further claim, which topic rules may name.
    pub fn claim(mut self, name: impl Into<String>, value: impl Into<Value>) -> Self {
        self.claims.insert(name.into(), value.into());
        self
    }

    fn payload(&self) -> Result<Value, SignError> {
        if !(1..=255).contains(&self.user.len()) {
            return Err(SignError::Claim("the user has 1 to 255 bytes"));
        }
        if !(1..=128).contains(&self.device.len()) {
            return Err(SignError::Claim("the device has 1 to 128 bytes"));
        }
        if self.lifetime.as_secs() == 0 {
            return Err(SignError::Claim("the lifetime is at least a second"));
        }
        // Always set, because revocation needs it.
        let issued = seconds(self.issued_at.unwrap_or_else(SystemTime::now));
        let expires = issued.checked_add(self.lifetime.as_secs());
        let expires = expires.ok_or(SignError::Claim("the lifetime is too long"))?;
        let mut payload = self.claims.clone();
        for (name, value) in [
            ("sub", json!(self.user)),
            ("device", json!(self.device)),
            ("iat", json!(issued)),
            ("exp", json!(expires)),
        ] {
            payload.insert(name.to_owned(), value);
        }
        Ok(Value::Object(payload))
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Creates app JWTs on this machine, without a request.
pub struct Signer {
    key: Key,
    key_id: Option<String>,
    random: SystemRandom,
}

enum Key {
    Hs256(hmac::Key),
    Rs256(Box<RsaKeyPair>),
    Es256(EcdsaKeyPair),
}

impl Signer {
    /// With the secret of the app, 32 to 1,024 bytes.
    pub fn hs256(secret: impl AsRef<[u8]>) -> Result<Self, SignError> {
        match secret.as_ref() {
            secret if (32..=1_024).contains(&secret.len()) => {
                Ok(Self::with(Key::Hs256(hmac::Key::new(hmac::HMAC_SHA256, secret))))
            }
            _ => Err(SignError::Secret),
        }
    }

    /// With an RSA key in PKCS#8, as PEM. Its public key is among those of the app.
    pub fn rs256(pem: &str) -> Result<Self, SignError> {
        let pair = RsaKeyPair::from_pkcs8(pkcs8(pem)?.secret_pkcs8_der());
        pair.map(|pair| Self::with(Key::Rs256(Box::new(pair))))
            .map_err(|error| SignError::Key(error.to_string()))
    }

    /// With an ECDSA key of the curve P-256 in PKCS#8, as PEM. Its public key is among those of the app.
    pub fn es256(pem: &str) -> Result<Self, SignError> {
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, pkcs8(pem)?.secret_pkcs8_der(), &SystemRandom::new());
        pair.map(|pair| Self::with(Key::Es256(pair))).map_err(|error| SignError::Key(error.to_string()))
    }

    fn with(key: Key) -> Self {
        Self { key, key_id: None, random: SystemRandom::new() }
    }

    /// The `kid` of the public key.
    #[must_use]
    pub fn key_id(mut self, id: impl Into<String>) -> Self {
        self.key_id = Some(id.into());
        self
    }

    /// A JWT.
    pub fn sign(&self, claims: &DeviceClaims) -> Result<String, SignError> {
        let algorithm = match &self.key {
            Key::Hs256(_) => "HS256",
            Key::Rs256(_) => "RS256",
            Key::Es256(_) => "ES256",
        };
        let mut header = json!({"alg": algorithm, "typ": "JWT"});
        if let Some(id) = &self.key_id {
            header["kid"] = json!(id);
        }
        let encode = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(header), encode(claims.payload()?));
        let signature = self.signature(text.as_bytes())?;
        Ok(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn signature(&self, text: &[u8]) -> Result<Vec<u8>, SignError> {
        let random: &dyn rand::SecureRandom = &self.random;
        match &self.key {
            Key::Hs256(key) => Ok(hmac::sign(key, text).as_ref().to_vec()),
            Key::Rs256(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                let signed = pair.sign(&signature::RSA_PKCS1_SHA256, random, text, &mut signature);
                signed.map(|()| signature).map_err(|_| SignError::Random)
            }
            Key::Es256(pair) => pair
                .sign(random, text)
                .map(|signature| signature.as_ref().to_vec())
                .map_err(|_| SignError::Random),
        }
    }
}

/// Without the key.
impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("key_id", &self.key_id).finish_non_exhaustive()
    }
}

fn pkcs8(pem: &str) -> Result<PrivatePkcs8KeyDer<'static>, SignError> {
    PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).map_err(|error| SignError::Key(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &str = "a-secret-of-at-least-thirty-two-bytes";

    fn claims() -> DeviceClaims {
        DeviceClaims::new("u1", "d1", Duration::from_secs(60))
            .issued_at(UNIX_EPOCH + Duration::from_secs(1_000))
    }

    fn parts(token: &str) -> (Value, Value, Vec<u8>) {
        let parts: Vec<Vec<u8>> =
            token.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).expect("base64url")).collect();
        let [header, payload, signature] = <[Vec<u8>; 3]>::try_from(parts).expect("three parts");
        let json = |bytes: Vec<u8>| serde_json::from_slice(&bytes).expect("JSON");
        (json(header), json(payload), signature)
    }

    #[test]
    fn a_jwt_has_the_claims() {
        let signer = Signer::hs256(SECRET).expect("a signer").key_id("k1");
        let full = claims()
            .topics(["news"])
            .issuer("i")
            .audience("a")
            .not_before(UNIX_EPOCH + Duration::from_secs(900))
            .claim("team", "red")
            .claim("sub", "another");
        let token = signer.sign(&full).expect("a token");
        let (header, payload, signature) = parts(&token);
        assert_eq!(header, json!({"alg": "HS256", "typ": "JWT", "kid": "k1"}));
        let expected = json!({
            "sub": "u1", "device": "d1", "iat": 1_000, "exp": 1_060, "topics": ["news"], "iss": "i", "aud": "a", "nbf": 900, "team": "red",
        });
        assert_eq!(payload, expected);
        let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
        let signed = token.rsplit_once('.').expect("a signature").0;
        assert!(hmac::verify(&key, signed.as_bytes(), &signature).is_ok());
    }

    #[test]
    fn an_ecdsa_signature_verifies() {
        let random = SystemRandom::new();
        let algorithm = &signature::ECDSA_P256_SHA256_FIXED_SIGNING;
        let der = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let body = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
        let pem = format!("-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n");
        let token = Signer::es256(&pem).expect("a signer").sign(&claims()).expect("a token");
        let (header, _, signature) = parts(&token);
        assert_eq!(header["alg"], "ES256");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.as_ref(), &random).expect("a key");
        let public = signature::UnparsedPublicKey::new(
            &signature::ECDSA_P256_SHA256_FIXED,
            signature::KeyPair::public_key(&pair).as_ref(),
        );
        let signed = token.rsplit_once('.').expect("a signature").0;
        assert!(public.verify(signed.as_bytes(), &signature).is_ok());
        assert!(Signer::rs256(&pem).is_err());
        assert!(Signer::es256("no key").is_err());
    }

    #[test]
    fn wrong_values_are_reported() {
        let signer = Signer::hs256(SECRET).expect("a signer");
        let is_wrong = |user: &str, device: &str, ms| {
            matches!(
                signer.sign(&DeviceClaims::new(user, device, Duration::from_millis(ms))),
                Err(SignError::Claim(_))
            )
        };
        assert!(is_wrong("", "d1", 1_000));
        assert!(is_wrong(&"u".repeat(256), "d1", 1_000));
        assert!(is_wrong("u1", "", 1_000));
        assert!(is_wrong("u1", &"d".repeat(129), 1_000));
        assert!(is_wrong("u1", "d1", 999));
        assert!(matches!(
            signer.sign(&DeviceClaims::new("u1", "d1", Duration::MAX)),
            Err(SignError::Claim(_))
        ));
        assert!(!is_wrong("u1", "d1", 1_000));
        assert!(matches!(Signer::hs256("short"), Err(SignError::Secret)));
        assert!(!format!("{signer:?}").contains("secret"));
    }
}
