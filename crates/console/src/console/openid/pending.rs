//! A log-in in progress: what its callback must match. The browser keeps it in a cookie, sealed with a key that all nodes of a
//! cluster have, so it needs no room in the server and no browser can read or change it.
//!
//! The provider takes each code once (RFC 6749 §4.1.2), so a callback that is repeated with its cookie logs nobody in.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_types::Timestamp;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};

use super::PENDING_LIFETIME;
use crate::token;

const KEY_BYTES: usize = 32;
/// Sealed contents are of this kind only.
const AAD: &[u8] = b"noroshi openid log-in";
/// The longest path, and the other values.
const COOKIE_BYTES_MAX: usize = 3 << 10;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Purpose {
    LogIn { to: Option<String> },
    Confirm { session: u64, person: u64 },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pending {
    pub(super) provider: String,
    pub(super) state: String,
    pub(super) nonce: String,
    /// Of PKCE.
    pub(super) verifier: String,
    /// In milliseconds.
    pub(super) started_at: u64,
    pub(super) purpose: Purpose,
}

impl Pending {
    pub(super) fn new(provider: &str, purpose: Purpose, now: Timestamp) -> Self {
        let random = || URL_SAFE_NO_PAD.encode(token::random::<32>());
        Self {
            provider: provider.to_owned(),
            state: random(),
            nonce: random(),
            verifier: random(),
            started_at: now.0,
            purpose,
        }
    }

    /// RFC 7636 §4.2, method S256.
    pub(super) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(&SHA256, self.verifier.as_bytes()))
    }
}

pub(crate) struct Seal(LessSafeKey);

impl Seal {
    /// `key`: 32 bytes, the same on all nodes.
    pub(crate) fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("AES-256-GCM takes any 32 bytes")))
    }

    pub(super) fn close(&self, pending: &Pending) -> String {
        let nonce = token::random::<NONCE_LEN>();
        let mut text = serde_json::to_vec(pending).expect("strings and numbers");
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(AAD), &mut text)
            .expect("a cookie is far shorter than AES-GCM's 64 GiB");
        URL_SAFE_NO_PAD.encode([nonce.as_slice(), &text].concat())
    }

    /// `None`: it was changed, sealed with another key, or expired.
    pub(super) fn open(&self, cookie: &str, now: Timestamp) -> Option<Pending> {
        if cookie.len() > COOKIE_BYTES_MAX {
            return None;
        }
        let sealed = URL_SAFE_NO_PAD.decode(cookie).ok()?;
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let plain = self.0.open_in_place(nonce, Aad::from(AAD), &mut text).ok()?;
        let pending: Pending = serde_json::from_slice(plain).ok()?;
        let ends_at = Timestamp(pending.started_at).saturating_add(PENDING_LIFETIME);
        (now < ends_at).then_some(pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_or_expired_cookie_is_refused() {
        let seal = Seal::new(&[7; KEY_BYTES]);
        let pending = Pending::new("corp", Purpose::LogIn { to: Some("a".repeat(512)) }, Timestamp(1_000));
        let cookie = seal.close(&pending);
        assert!(cookie.len() <= COOKIE_BYTES_MAX, "{} bytes", cookie.len());
        assert_eq!(seal.open(&cookie, Timestamp(1_000)), Some(pending));
        assert_eq!(seal.open(&cookie, Timestamp(601_000)), None, "expired");
        assert_eq!(Seal::new(&[8; KEY_BYTES]).open(&cookie, Timestamp(1_000)), None);
        for at in 0..cookie.len() {
            let mut bytes = cookie.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).expect("ASCII");
            assert_eq!(seal.open(&changed, Timestamp(1_000)), None, "byte {at}");
        }
        for other in ["", "AAAA", "=", &"A".repeat(COOKIE_BYTES_MAX + 1)] {
            assert_eq!(seal.open(other, Timestamp(0)), None);
        }
    }

    #[test]
    fn the_challenge_is_that_of_rfc_7636() {
        let mut pending = Pending::new("corp", Purpose::LogIn { to: None }, Timestamp(0));
        assert_ne!(pending.state, pending.nonce);
        assert_eq!(pending.verifier.len(), 43, "RFC 7636 §4.1: at least 43 characters");
        // Appendix B.
        pending.verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".to_owned();
        assert_eq!(pending.challenge(), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
