//! The payload of a push message: one aes128gcm record (RFC 8188), with a key agreed between the sender and
//! the subscription (RFC 8291).

use p256::PublicKey;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};

use super::Wrong;
use crate::tokens::Subscription;

/// salt, record size, key id length, P-256 point
const HEADER_BYTES: usize = 16 + 4 + 1 + 65;
const TAG_BYTES: usize = 16;

fn invalid(why: &'static str) -> Wrong {
    Wrong(400, 110, why)
}

/// Checks what is visible without the keys.
pub(super) fn check_shape(body: &[u8]) -> Result<(), Wrong> {
    // At least the delimiter and the tag.
    if body.len() < HEADER_BYTES + 1 + TAG_BYTES {
        return Err(invalid("the payload is shorter than an empty message"));
    }
    let record_bytes = u32::from_be_bytes(body[16..20].try_into().expect("four bytes"));
    // RFC 8188 §2.1: "values smaller than 18 are invalid".
    if record_bytes < 18 {
        return Err(invalid("the record size is less than 18"));
    }
    if body[20] != 65 || body[21] != 4 {
        return Err(invalid("the key id is not an uncompressed P-256 point"));
    }
    // RFC 8291 §4: "a single record".
    match body.len() - HEADER_BYTES <= record_bytes as usize {
        true => Ok(()),
        false => Err(invalid("more than one record")),
    }
}

/// Decrypts a body that has passed [`check_shape`].
pub(super) fn open(body: &[u8], subscription: &Subscription) -> Result<Vec<u8>, Wrong> {
    let (salt, key_id) = (&body[..16], &body[21..HEADER_BYTES]);
    let sender =
        PublicKey::from_sec1_bytes(key_id).map_err(|_| invalid("the sender's key is not a valid point"))?;
    let shared = p256::ecdh::diffie_hellman(subscription.secret.to_nonzero_scalar(), sender.as_affine());
    // RFC 8291 §3.3 and §3.4.
    let info = [b"WebPush: info\0".as_slice(), &subscription.public, key_id];
    let mut secret = [0; 32];
    expand(&subscription.auth, shared.raw_secret_bytes(), &info, &mut secret)?;
    let (mut key, mut nonce) = ([0; 16], [0; 12]);
    expand(salt, &secret, &[b"Content-Encoding: aes128gcm\0"], &mut key)?;
    expand(salt, &secret, &[b"Content-Encoding: nonce\0"], &mut nonce)?;
    let key = UnboundKey::new(&AES_128_GCM, &key).map_err(|_| invalid("invalid key"))?;
    let mut record = body[HEADER_BYTES..].to_vec();
    let plain = LessSafeKey::new(key)
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record)
        .map_err(|_| invalid("the payload cannot be decrypted for this subscription"))?;
    // RFC 8188 §2: the delimiter of the last record is 2, followed by zeros.
    let end = plain.iter().rposition(|byte| *byte != 0);
    match end {
        Some(end) if plain[end] == 2 => Ok(plain[..end].to_vec()),
        _ => Err(invalid("the last record has no delimiter")),
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF with SHA-256 (RFC 5869).
fn expand(salt: &[u8], secret: &[u8], info: &[&[u8]], out: &mut [u8]) -> Result<(), Wrong> {
    let key = Salt::new(HKDF_SHA256, salt).extract(secret);
    let length = Length(out.len());
    let filled = key.expand(info, length).and_then(|okm| okm.fill(out));
    filled.map_err(|_| invalid("key derivation failed"))
}
