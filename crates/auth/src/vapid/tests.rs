//! Tokens as libraries send them, and invalid ones.

use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};

use super::*;

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const NOW_S: u64 = 1_800_000_000;
const ORIGIN: &str = "https://push.example.com:8443";

struct Sender {
    pair: EcdsaKeyPair,
}

impl Sender {
    fn new() -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).expect("its own");
        Self { pair }
    }

    fn key(&self) -> VapidKey {
        self.pair.public_key().as_ref().try_into().expect("a point")
    }

    fn token(&self, header: &str, claims: &str) -> String {
        let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("signed");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn plain(&self, claims: &str) -> String {
        self.token(r#"{"typ":"JWT","alg":"ES256"}"#, claims)
    }
}

fn text(key: &VapidKey) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

fn claims(exp: u64) -> String {
    format!(r#"{{"aud":"{ORIGIN}","exp":{exp},"sub":"mailto:a@example.com"}}"#)
}

#[test]
fn tokens_of_libraries_are_accepted() {
    let sender = Sender::new();
    let (token, key) = (sender.plain(&claims(NOW_S + 43_200)), text(&sender.key()));
    let check = |authorization: &str, crypto_key: Option<&str>| {
        let verified = verify_vapid(Some(authorization), crypto_key, &sender.key(), ORIGIN, NOW);
        assert_eq!(verified, Ok(()), "{authorization}");
    };
    check(&format!("vapid t={token}, k={key}"), None);
    check(&format!("vapid t={token},k={key}"), None);
    check(&format!("VAPID k=\"{key}=\" , t=\"{token}\""), None);
    check(&format!("WebPush {token}"), Some(&format!("dh=abc;p256ecdsa={key}")));
    check(&format!("WebPush {token}"), Some(&format!("keyid=p256dh;dh=abc,p256ecdsa={key}")));
    let several = sender.plain(&format!(r#"{{"aud":["x","{ORIGIN}/"],"exp":{}.5}}"#, NOW_S + 60));
    check(&format!("vapid t={several}, k={key}"), None);
}

#[test]
fn tokens_that_do_not_prove_the_key_are_rejected() {
    let (sender, other) = (Sender::new(), Sender::new());
    let key = text(&sender.key());
    let token = |claims: &str| format!("vapid t={}, k={key}", sender.plain(claims));
    let check = |authorization: &str, expected: VapidRefused| {
        let refused = verify_vapid(Some(authorization), None, &sender.key(), ORIGIN, NOW);
        assert_eq!(refused, Err(expected), "{authorization}");
    };
    assert_eq!(verify_vapid(None, None, &sender.key(), ORIGIN, NOW), Err(VapidRefused::Missing));
    check("Basic eDp5", VapidRefused::Missing);
    check("vapid", VapidRefused::Missing);
    check(&format!("vapid k={key}"), VapidRefused::Malformed("t is missing"));
    check("vapid t=a.b.c", VapidRefused::Malformed("k is missing"));
    check(&format!("vapid t=a.b, k={key}"), VapidRefused::Malformed("t is not a JWT"));
    check("vapid t=a.b.c, k=***", VapidRefused::Malformed("the key is not base64url"));
    let good = claims(NOW_S + 60);
    check(&format!("vapid t={}, k={}", other.plain(&good), text(&other.key())), VapidRefused::OtherKey);
    check(&format!("vapid t={}, k={key}", other.plain(&good)), VapidRefused::Signature);
    let none = sender.token(r#"{"alg":"none"}"#, &good);
    check(&format!("vapid t={none}, k={key}"), VapidRefused::Malformed("alg is not ES256"));
    check(&token(r#"{"aud":"https://push.example.com","exp":1800000060}"#), VapidRefused::Audience);
    check(&token(&claims(NOW_S - 61)), VapidRefused::Expired);
    check(&token(&claims(NOW_S + 86_400 + 61)), VapidRefused::TooLong);
    for bad in [r#"{"exp":1800000060}"#, &format!(r#"{{"aud":"{ORIGIN}"}}"#), "[]"] {
        let refused = VapidRefused::Malformed("aud or exp is missing, or of another type");
        check(&token(bad), refused);
    }
    check(&token(&claims(NOW_S + 86_400)).replace('.', ".A"), VapidRefused::Signature);
}
