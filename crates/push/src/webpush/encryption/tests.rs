//! The vectors of RFC 8291 §5 and RFC 8188 §3.1, and messages decrypted by another implementation of the key agreement.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::elliptic_curve::sec1::FromSec1Point as _;
use proptest::prelude::*;

use super::*;

fn decode<const N: usize>(text: &str) -> [u8; N] {
    URL_SAFE_NO_PAD.decode(text).unwrap().try_into().unwrap()
}

/// The browser of RFC 8291 §5.
fn browser() -> (p256::SecretKey, Keys) {
    let private: [u8; 32] = decode("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94");
    let public = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    let keys = Keys { p256dh: decode(public), auth: decode("BTBZMqHH6r4Tts7J_aSIgg") };
    (p256::SecretKey::from_slice(&private).unwrap(), keys)
}

fn agree(private: &p256::SecretKey, public: &[u8]) -> [u8; 32] {
    let point = p256::Sec1Point::from_bytes(public).unwrap();
    let public = p256::PublicKey::from_sec1_point(&point).unwrap();
    let secret = p256::ecdh::diffie_hellman(private.to_nonzero_scalar(), public.as_affine());
    secret.raw_secret_bytes().as_slice().try_into().unwrap()
}

/// A user agent: decrypts a message with the subscription's private key, following the RFCs' pseudo code on HMAC.
pub(in crate::webpush) fn decrypt(private: &p256::SecretKey, keys: &Keys, body: &[u8]) -> Option<Vec<u8>> {
    let hmac = |key: &[u8], parts: &[&[u8]]| {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
        ring::hmac::sign(&key, &parts.concat()).as_ref().to_vec()
    };
    let (salt, rest) = body.split_at_checked(16)?;
    let (size, rest) = rest.split_at_checked(4)?;
    let (length, rest) = rest.split_first()?;
    let (public, record) = rest.split_at_checked(usize::from(*length))?;
    if size != 4_096_u32.to_be_bytes() || record.len() > 4_096 {
        return None;
    }
    let key = hmac(&keys.auth, &[&agree(private, public)]);
    let ikm = hmac(&key, &[b"WebPush: info\0", &keys.p256dh, public, &[1]]);
    let key = hmac(salt, &[&ikm]);
    let content_key = hmac(&key, &[b"Content-Encoding: aes128gcm\0", &[1]]);
    let nonce = hmac(&key, &[b"Content-Encoding: nonce\0", &[1]]);
    open(&content_key[..16], nonce[..12].try_into().ok()?, record)
}

fn open(key: &[u8], nonce: [u8; 12], record: &[u8]) -> Option<Vec<u8>> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, key).ok()?);
    let mut text = record.to_vec();
    let plain = key.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut text).ok()?;
    match plain.split_last()? {
        (&LAST_RECORD, plain) => Some(plain.to_vec()),
        _ => None,
    }
}

#[test]
fn the_example_of_rfc_8291_is_reproduced() {
    let (_, keys) = browser();
    let private: [u8; 32] = decode("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
    let private = p256::SecretKey::from_slice(&private).unwrap();
    let public =
        decode("BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8");
    let salt = decode("DGv6ra1nlYgDCS1FRnbzlw");
    let secret = agree(&private, &keys.p256dh);
    assert_eq!(URL_SAFE_NO_PAD.encode(secret), "kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs");
    let body = seal(&secret, &public, &salt, &keys, b"When I grow up, I want to be a watermelon");
    assert_eq!(
        URL_SAFE_NO_PAD.encode(body),
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK\
         6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    );
}

#[test]
fn the_example_of_rfc_8188_has_our_keys() {
    let salt: [u8; 16] = decode("I1BsxtFttlv3u_Oo94xnmw");
    let ikm: [u8; 16] = decode("yqdlZ-tYemfogSmv7Ws5PQ");
    let content_key: [u8; 16] = derive(&salt, &ikm, b"Content-Encoding: aes128gcm\0");
    let nonce: [u8; 12] = derive(&salt, &ikm, b"Content-Encoding: nonce\0");
    assert_eq!(URL_SAFE_NO_PAD.encode(content_key), "_wniytB-ofscZDh4tbSjHw");
    assert_eq!(URL_SAFE_NO_PAD.encode(nonce), "Bcs8gkIRKLI8GeI8");
    let message = URL_SAFE_NO_PAD
        .decode("I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg")
        .unwrap();
    assert_eq!(open(&content_key, nonce, &message[21..]).unwrap(), b"I am the walrus");
}

#[test]
fn the_largest_plaintext_fills_the_largest_body() {
    let (private, keys) = browser();
    let plaintext = vec![b'x'; PLAINTEXT_BYTES_MAX];
    let body = encrypt(&SystemRandom::new(), &keys, &plaintext).unwrap();
    assert_eq!(body.len(), BODY_BYTES_MAX);
    assert_eq!(decrypt(&private, &keys, &body).unwrap(), plaintext);
}

#[test]
fn no_two_messages_share_a_key_or_a_salt() {
    let (_, keys) = browser();
    let random = SystemRandom::new();
    let bodies: Vec<_> = (0..8).map(|_| encrypt(&random, &keys, b"same").unwrap()).collect();
    let mut salts: Vec<_> = bodies.iter().map(|body| &body[..16]).collect();
    let mut publics: Vec<_> = bodies.iter().map(|body| &body[21..86]).collect();
    salts.sort_unstable();
    salts.dedup();
    publics.sort_unstable();
    publics.dedup();
    assert_eq!((salts.len(), publics.len()), (8, 8));
}

#[test]
fn a_key_that_is_not_on_the_curve_is_an_error() {
    let (_, keys) = browser();
    let random = SystemRandom::new();
    for change in [0, 1, 40, 64] {
        let mut bad = keys;
        bad.p256dh[change] ^= 1;
        assert_eq!(encrypt(&random, &bad, b"x"), Err(BadKey), "{change}");
    }
    let infinity = Keys { p256dh: [0; PUBLIC_KEY_LENGTH], ..keys };
    assert_eq!(encrypt(&random, &infinity, b"x"), Err(BadKey));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn the_browser_decrypts_only_unmodified_messages(plaintext in proptest::collection::vec(any::<u8>(), 0..400), at: usize) {
        let (private, keys) = browser();
        let mut body = encrypt(&SystemRandom::new(), &keys, &plaintext).unwrap();
        prop_assert_eq!(decrypt(&private, &keys, &body), Some(plaintext));
        let at = HEADER_LENGTH + at % (body.len() - HEADER_LENGTH);
        body[at] ^= 1;
        prop_assert_eq!(decrypt(&private, &keys, &body), None);
    }
}
