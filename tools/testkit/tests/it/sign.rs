//! Tokens and payloads of a correct provider, and invalid ones for tests.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, EcdsaSigningAlgorithm,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};

pub(crate) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

pub(crate) fn b64(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let text = format!("{}.{}", b64(header.to_string().as_bytes()), b64(claims.to_string().as_bytes()));
    let signature = sign(text.as_bytes());
    format!("{text}.{}", b64(&signature))
}

fn es256(algorithm: &'static EcdsaSigningAlgorithm, p8: &str, header: &Value, claims: &Value) -> String {
    let der = PrivatePkcs8KeyDer::from_pem_slice(p8.as_bytes()).unwrap();
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, der.secret_pkcs8_der(), &random).unwrap();
    signed(header, claims, |text| pair.sign(&random, text).unwrap().as_ref().to_vec())
}

pub(crate) fn jwt(p8: &str, header: &Value, claims: &Value) -> String {
    es256(&ECDSA_P256_SHA256_FIXED_SIGNING, p8, header, claims)
}

/// With a DER signature, which RFC 7518 does not allow.
pub(crate) fn jwt_in_der(p8: &str, header: &Value, claims: &Value) -> String {
    es256(&ECDSA_P256_SHA256_ASN1_SIGNING, p8, header, claims)
}

pub(crate) fn assertion(account: &Value, claims: &Value) -> String {
    let pem = account["private_key"].as_str().unwrap();
    let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    let pair = RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()).unwrap();
    signed(&json!({"alg": "RS256", "typ": "JWT"}), claims, |text| {
        let mut signature = vec![0; pair.public().modulus_len()];
        pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text, &mut signature).unwrap();
        signature
    })
}

/// `vapid t=…, k=…` by the private key (base64url).
pub(crate) fn vapid(private: &str, public: &str, claims: &Value) -> String {
    let (private, point) =
        (URL_SAFE_NO_PAD.decode(private).unwrap(), URL_SAFE_NO_PAD.decode(public).unwrap());
    let random = SystemRandom::new();
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &ECDSA_P256_SHA256_FIXED_SIGNING,
        &private,
        &point,
        &random,
    )
    .unwrap();
    let token = signed(&json!({"alg": "ES256", "typ": "JWT"}), claims, |text| {
        pair.sign(&random, text).unwrap().as_ref().to_vec()
    });
    format!("vapid t={token}, k={public}")
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

fn hkdf<const N: usize>(salt: &[u8], secret: &[u8], info: &[&[u8]]) -> [u8; N] {
    let mut out = [0; N];
    Salt::new(HKDF_SHA256, salt).extract(secret).expand(info, Length(N)).unwrap().fill(&mut out).unwrap();
    out
}

/// RFC 8291 for the subscription `keys` of a `push_token`, with a fixed sender key and salt.
pub(crate) fn encrypt(push_token: &Value, plain: &[u8], delimiter: u8) -> Vec<u8> {
    let text = |key: &str| URL_SAFE_NO_PAD.decode(push_token["keys"][key].as_str().unwrap()).unwrap();
    let (receiver, auth) = (text("p256dh"), text("auth"));
    let secret = p256::SecretKey::from_slice(&[7; 32]).unwrap();
    let public = secret.public_key().as_affine().to_sec1_point(false).as_bytes().to_vec();
    let peer = p256::PublicKey::from_sec1_bytes(&receiver).unwrap();
    let shared = p256::ecdh::diffie_hellman(secret.to_nonzero_scalar(), peer.as_affine());
    let ikm: [u8; 32] = hkdf(&auth, shared.raw_secret_bytes(), &[b"WebPush: info\0", &receiver, &public]);
    let salt = [9; 16];
    let key: [u8; 16] = hkdf(&salt, &ikm, &[b"Content-Encoding: aes128gcm\0"]);
    let nonce: [u8; 12] = hkdf(&salt, &ikm, &[b"Content-Encoding: nonce\0"]);
    let mut record = [plain, &[delimiter]].concat();
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut record).unwrap();
    [&salt[..], &4096_u32.to_be_bytes(), &[65], &public, &record].concat()
}
