//! Message encryption for Web Push (RFC 8291) in the encoding `aes128gcm` (RFC 8188), on `ring`.
//!
//! One message is one record without padding: salt (16), record size (4), key id length (1), our public key (65), then
//! the plaintext, a delimiter and the tag. Each message has a new key pair and a new salt, so no content encryption key
//! is used twice.

use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::agreement::{ECDH_P256, EphemeralPrivateKey, UnparsedPublicKey, agree_ephemeral};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::{SecureRandom as _, SystemRandom};

pub(super) const PUBLIC_KEY_LENGTH: usize = 65;
pub(super) const AUTH_SECRET_LENGTH: usize = 16;
const SALT_LENGTH: usize = 16;
const TAG_LENGTH: usize = 16;
/// RFC 8188 §2.1: salt, record size, the length of the key id and the key id.
const HEADER_LENGTH: usize = SALT_LENGTH + 4 + 1 + PUBLIC_KEY_LENGTH;
/// "A push service is not required to support more than 4096 octets of payload body" (RFC 8030 §7.2).
const BODY_BYTES_MAX: usize = 4_096;
/// RFC 8291 §4: the record holds the whole message, so any size from 4096 minus the header works.
const RECORD_SIZE: u32 = 4_096;
/// The delimiter of the last record (RFC 8188 §2).
const LAST_RECORD: u8 = 2;

/// 4096 - 86 - 1 - 16 = 3993
pub(super) const PLAINTEXT_BYTES_MAX: usize = BODY_BYTES_MAX - HEADER_LENGTH - 1 - TAG_LENGTH;
const _: () = assert!(PLAINTEXT_BYTES_MAX == 3_993);

/// The keys of a subscription: the browser's public key, and the secret that the browser shares with its senders.
#[derive(Clone, Copy)]
pub(super) struct Keys {
    pub(super) p256dh: [u8; PUBLIC_KEY_LENGTH],
    pub(super) auth: [u8; AUTH_SECRET_LENGTH],
}

/// The subscription's public key is not a point of the curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BadKey;

/// The body of a push message.
pub(super) fn encrypt(random: &SystemRandom, keys: &Keys, plaintext: &[u8]) -> Result<Vec<u8>, BadKey> {
    let dry = "the system's random numbers do not run dry";
    let ours = EphemeralPrivateKey::generate(&ECDH_P256, random).expect(dry);
    let public = ours.compute_public_key().expect("a key just generated has a public key");
    let public = <[u8; PUBLIC_KEY_LENGTH]>::try_from(public.as_ref()).expect("a P-256 point has 65 bytes");
    let mut salt = [0; SALT_LENGTH];
    random.fill(&mut salt).expect(dry);
    let theirs = UnparsedPublicKey::new(&ECDH_P256, &keys.p256dh);
    agree_ephemeral(ours, &theirs, |secret| seal(secret, &public, &salt, keys, plaintext)).map_err(|_| BadKey)
}

/// RFC 8291 §3.4: everything after the key agreement.
fn seal(
    ecdh_secret: &[u8],
    public: &[u8; PUBLIC_KEY_LENGTH],
    salt: &[u8; SALT_LENGTH],
    keys: &Keys,
    plaintext: &[u8],
) -> Vec<u8> {
    let key_info = [b"WebPush: info\0", keys.p256dh.as_slice(), public].concat();
    let ikm: [u8; 32] = derive(&keys.auth, ecdh_secret, &key_info);
    let content_key: [u8; 16] = derive(salt, &ikm, b"Content-Encoding: aes128gcm\0");
    // The sequence number of the first record is 0, so it leaves the nonce as it is (RFC 8188 §2.3).
    let nonce: [u8; 12] = derive(salt, &ikm, b"Content-Encoding: nonce\0");

    let mut body = Vec::with_capacity(HEADER_LENGTH + plaintext.len() + 1 + TAG_LENGTH);
    body.extend_from_slice(salt);
    body.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    body.push(PUBLIC_KEY_LENGTH as u8);
    body.extend_from_slice(public);
    body.extend_from_slice(plaintext);
    body.push(LAST_RECORD);
    let key = UnboundKey::new(&AES_128_GCM, &content_key).expect("AES-128-GCM takes any 16 bytes");
    let tag = LessSafeKey::new(key)
        .seal_in_place_separate_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::empty(),
            body.get_mut(HEADER_LENGTH..).unwrap_or_default(),
        )
        .expect("a record is far shorter than AES-GCM's 64 GiB");
    body.extend_from_slice(tag.as_ref());
    body
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF with SHA-256 (RFC 5869), of at most 32 bytes.
fn derive<const N: usize>(salt: &[u8], secret: &[u8], info: &[u8]) -> [u8; N] {
    let mut output = [0; N];
    let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let expanded = extracted.expand(&info, Length(N)).expect("HKDF-SHA-256 gives up to 255 times 32 bytes");
    expanded.fill(&mut output).expect("the output has the requested length");
    output
}

#[cfg(test)]
pub(super) mod tests;
