//! Encrypts credentials at rest with AES-256-GCM under the configured key.
//!
//! A sealed credential is `version (1) · nonce (12, random) · ciphertext and tag`. App, service, environment and
//! provider are authenticated with it, so a row that is copied to another app does not open.

use noroshi_types::{AppId, PushEnvironment, PushService};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};

/// The first byte of a sealed credential: the version of its format.
const VERSION: u8 = 1;

/// Why a credential cannot be decrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("sealed in a format that this version does not support")]
    Version,
    #[error("sealed with another key, or damaged")]
    Key,
}

/// Seals and opens with one key.
#[derive(Debug)]
pub struct Vault {
    key: LessSafeKey,
    random: SystemRandom,
}

impl Vault {
    pub fn new(key: [u8; 32]) -> Self {
        let key = UnboundKey::new(&AES_256_GCM, &key).expect("AES-256-GCM takes any 32 bytes");
        Self { key: LessSafeKey::new(key), random: SystemRandom::new() }
    }

    /// A random nonce of 96 bits is safe for 2^32 seals with one key (NIST SP 800-38D §8.3), far more than an operator
    /// stores.
    pub fn seal(
        &self,
        app: AppId,
        service: PushService,
        environment: PushEnvironment,
        provider: &str,
        plain: &[u8],
    ) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).expect("the system has randomness");
        let mut text = plain.to_vec();
        self.key
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                aad(app, service, environment, provider),
                &mut text,
            )
            .expect("a credential is far shorter than AES-GCM's 64 GiB");
        [&[VERSION], nonce.as_slice(), text.as_slice()].concat()
    }

    pub fn open(
        &self,
        app: AppId,
        service: PushService,
        environment: PushEnvironment,
        provider: &str,
        sealed: &[u8],
    ) -> Result<Vec<u8>, OpenError> {
        let (version, rest) = sealed.split_first().ok_or(OpenError::Key)?;
        if *version != VERSION {
            return Err(OpenError::Version);
        }
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or(OpenError::Key)?;
        let mut text = text.to_vec();
        let plain = self
            .key
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                aad(app, service, environment, provider),
                &mut text,
            )
            .map_err(|_| OpenError::Key)?;
        Ok(plain.to_vec())
    }
}

fn aad(app: AppId, service: PushService, environment: PushEnvironment, provider: &str) -> Aad<String> {
    let mut text = format!("{}|{}|{}", app.0, service.as_str(), environment.as_str());
    if !provider.is_empty() {
        text.push('|');
        text.push_str(provider);
    }
    Aad::from(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const APNS: PushService = PushService::Apns;
    const SANDBOX: PushEnvironment = PushEnvironment::Sandbox;

    #[test]
    fn a_sealed_credential_opens_only_in_its_own_place() {
        let vault = Vault::new([7; 32]);
        let sealed = vault.seal(AppId(1), APNS, SANDBOX, "", b"secret");
        assert_eq!(vault.open(AppId(1), APNS, SANDBOX, "", &sealed).unwrap(), b"secret");
        let elsewhere = [
            vault.open(AppId(2), APNS, SANDBOX, "", &sealed),
            vault.open(AppId(1), PushService::Fcm, SANDBOX, "", &sealed),
            vault.open(AppId(1), APNS, PushEnvironment::Production, "", &sealed),
            vault.open(AppId(1), APNS, SANDBOX, "mail", &sealed),
            Vault::new([8; 32]).open(AppId(1), APNS, SANDBOX, "", &sealed),
        ];
        for opened in elsewhere {
            assert_eq!(opened, Err(OpenError::Key));
        }
    }

    #[test]
    fn a_damaged_or_unknown_seal_is_an_error() {
        let vault = Vault::new([7; 32]);
        let sealed = vault.seal(AppId(1), APNS, SANDBOX, "", b"secret");
        for length in 0..sealed.len() {
            assert_eq!(
                vault.open(AppId(1), APNS, SANDBOX, "", &sealed[..length]),
                Err(OpenError::Key),
                "{length}"
            );
        }
        for at in 1..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(vault.open(AppId(1), APNS, SANDBOX, "", &damaged), Err(OpenError::Key), "{at}");
        }
        let mut newer = sealed;
        newer[0] = 2;
        assert_eq!(vault.open(AppId(1), APNS, SANDBOX, "", &newer), Err(OpenError::Version));
    }

    #[test]
    fn sealing_is_randomized_and_hides_the_text() {
        let vault = Vault::new([7; 32]);
        let (one, two) = (
            vault.seal(AppId(1), APNS, SANDBOX, "", b"secret"),
            vault.seal(AppId(1), APNS, SANDBOX, "", b"secret"),
        );
        assert_ne!(one, two);
        assert_eq!(one.len(), 1 + NONCE_LEN + 6 + AES_256_GCM.tag_len());
        assert!(!one.windows(6).any(|window| window == b"secret"));
    }
}
