//! API keys: 256 random bits, shown once, stored as SHA-256.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_store::KeyHash;
use ring::digest::{SHA256, digest};
use ring::rand::SecureRandom;

/// A new key in clear text, to be shown once. `Display` shows the key, `Debug` does not.
pub struct ApiKey(String);

/// Makes a key recognizable for secret scanners and people.
const PREFIX: &str = "nk_";

impl ApiKey {
    pub(crate) fn generate(random: &dyn SecureRandom) -> Result<Self, ring::error::Unspecified> {
        let mut bytes = [0; 32];
        random.fill(&mut bytes)?;
        Ok(Self(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    pub(crate) fn hash(&self) -> KeyHash {
        hash(&self.0)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey(hidden)")
    }
}

/// The hash by which the store identifies a key.
pub fn hash(secret: &str) -> KeyHash {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    KeyHash(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_random_and_hidden() {
        let random = ring::rand::SystemRandom::new();
        let a = ApiKey::generate(&random).expect("randomness");
        let b = ApiKey::generate(&random).expect("randomness");
        assert_ne!(a.to_string(), b.to_string());
        assert_eq!(a.to_string().len(), PREFIX.len() + 43);
        assert!(!format!("{a:?}").contains(&a.to_string()));
        assert_eq!(a.hash(), hash(&a.to_string()));
    }
}
