//! Codes of an authenticator app (RFC 6238 with its defaults: SHA-1, 30 s, 6 digits), and recovery codes.
//!
//! The secret is sealed with AES-256-GCM under a key that is not in the database, so a copy of the database does not allow
//! log-ins. The person's number is authenticated with it. A sealed secret is `nonce (12) · ciphertext and tag`.

use noroshi_store::TokenHash;
use noroshi_types::{PersonId, Timestamp};
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use totp_rs::{Builder, Totp};

use crate::token;

/// RFC 4226 §4: 160 bits are recommended.
const SECRET_BYTES: usize = 20;
const ISSUER: &str = "Noroshi";
const RECOVERY_CODES: usize = 10;

pub(crate) struct Seal(LessSafeKey);

impl Seal {
    /// `key`: that of push credentials, which the operator keeps. The seal uses a key derived from it.
    pub(crate) fn new(key: &[u8; 32]) -> Self {
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), b"noroshi console totp");
        let key = UnboundKey::new(&AES_256_GCM, derived.as_ref()).expect("AES-256-GCM takes any 32 bytes");
        Self(LessSafeKey::new(key))
    }

    pub(crate) fn fresh_secret(&self, person: PersonId) -> (Vec<u8>, Vec<u8>) {
        let secret = token::random::<SECRET_BYTES>().to_vec();
        let nonce = token::random::<NONCE_LEN>();
        let mut text = secret.clone();
        self.0
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad(person), &mut text)
            .expect("a secret is far shorter than AES-GCM's 64 GiB");
        (secret, [nonce.as_slice(), &text].concat())
    }

    /// `None`: sealed with another key, or for another person.
    pub(crate) fn open(&self, person: PersonId, sealed: &[u8]) -> Option<Vec<u8>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = text.to_vec();
        let plain = self.0.open_in_place(Nonce::assume_unique_for_key(*nonce), aad(person), &mut text);
        plain.ok().map(|plain| plain.to_vec())
    }
}

fn aad(person: PersonId) -> Aad<[u8; 8]> {
    Aad::from(person.0.to_be_bytes())
}

fn totp(secret: Vec<u8>, account: &str) -> Totp {
    let builder = Builder::new().with_secret(secret).with_issuer(Some(ISSUER));
    // A colon separates the issuer from the account.
    builder
        .with_account_name(account.replace(':', "_"))
        .build()
        .expect("the parameters are those of RFC 6238")
}

/// The secret in base32, and the URI of its QR code.
pub(crate) fn setup(secret: Vec<u8>, email: &str) -> (String, String) {
    let totp = totp(secret, email);
    (totp.secret().to_base32(), totp.to_url().expect("the account has a name"))
}

/// The time step of a code, if it is one of now, or of 30 s earlier or later.
pub(crate) fn step_of(secret: Vec<u8>, code: &str, now: Timestamp) -> Option<u64> {
    totp(secret, "").check(code, now.0 / 1_000)
}

/// New recovery codes, and what the store keeps of them.
pub(crate) fn recovery_codes() -> (Vec<String>, Vec<TokenHash>) {
    (0..RECOVERY_CODES)
        .map(|_| {
            let code: String = token::random::<10>().map(|byte| format!("{byte:02x}")).concat();
            let hash = token::hash(&code);
            (format!("{}-{}", &code[..10], &code[10..]), hash)
        })
        .unzip()
}

/// `None` if the text does not have the form of a recovery code.
pub(crate) fn recovery_hash(text: &str) -> Option<TokenHash> {
    let code: String = text.chars().filter(char::is_ascii_hexdigit).map(|c| c.to_ascii_lowercase()).collect();
    (code.len() == 20 && text.len() <= 2 * code.len()).then(|| token::hash(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rfc_6238() {
        // Appendix B, shortened to six digits.
        let secret = || b"12345678901234567890".to_vec();
        let at = |seconds: u64| Timestamp(seconds * 1_000);
        for (seconds, code) in [(59, "287082"), (1_111_111_109, "081804"), (2_000_000_000, "279037")] {
            assert_eq!(step_of(secret(), code, at(seconds)), Some(seconds / 30), "{code}");
            assert!(step_of(secret(), code, at(seconds + 30)).is_some());
            assert_eq!(step_of(secret(), code, at(seconds + 90)), None);
        }
        assert_eq!(step_of(secret(), "", at(59)), None);
        assert_eq!(step_of(secret(), "28708２", at(59)), None);
    }

    #[test]
    fn a_secret_opens_for_its_person_with_its_key() {
        let seal = Seal::new(&[7; 32]);
        let (secret, sealed) = seal.fresh_secret(PersonId(1));
        assert_eq!(seal.open(PersonId(1), &sealed), Some(secret.clone()));
        assert_eq!(seal.open(PersonId(2), &sealed), None);
        assert_eq!(Seal::new(&[8; 32]).open(PersonId(1), &sealed), None);
        assert_eq!(seal.open(PersonId(1), b"short"), None);
        let (text, uri) = setup(secret, "ann@example.com");
        assert_eq!(text.len(), 32);
        assert!(uri.starts_with("otpauth://totp/Noroshi:ann%40example.com?"), "{uri}");
        assert!(uri.contains(&text), "{uri}");
    }

    #[test]
    fn a_recovery_code_is_recognized_as_people_write_it() {
        let (codes, hashes) = recovery_codes();
        assert_eq!((codes.len(), hashes.len()), (RECOVERY_CODES, RECOVERY_CODES));
        for text in [codes[0].clone(), codes[0].to_uppercase(), codes[0].replace('-', " ")] {
            assert_eq!(recovery_hash(&text), Some(hashes[0]), "{text}");
        }
        for text in ["123456", "", "not-a-code"] {
            assert_eq!(recovery_hash(text), None);
        }
    }
}
