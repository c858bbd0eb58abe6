//! The credentials that the fakes accept, in the forms issued by the real services: a `.p8` file, a service
//! account's JSON, VAPID keys. They are generated, or stored in a folder so that they survive a restart.
//!
//! The service account's RSA key is public and always the same: it is only valid for these fakes, and
//! generating one would need another dependency.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::{Value, json};

use crate::jwt;

pub const KEY_ID: &str = "DEVKEY0001";
pub const TEAM_ID: &str = "DEVTEAM001";
/// The bundle id that the APNs fake knows.
pub const TOPIC: &str = "com.example.app";
pub const PROJECT: &str = "noroshi-dev";
pub const ACCOUNT: &str = "push@noroshi-dev.iam.gserviceaccount.com";
/// The audience that Google's own libraries use, regardless of `token_uri`.
pub const GOOGLE_TOKEN_URL: &str = "https://oauth2.googleapis.com/token";
pub const SUBJECT: &str = "mailto:dev@example.com";
/// The provider that the webhook's fake knows.
pub const PROVIDER: &str = "dev";
/// Public: it is only valid for these fakes.
pub const WEBHOOK_SECRET: &str = "whsec_bm9yb3NoaSBmYWtlcyBmb3IgZGV2ZWxvcG1lbnQ=";
pub const HMS_PROJECT: &str = "388421841221199999";
pub const HMS_ACCOUNT: &str = "100000001";
pub(crate) const HMS_KEY_ID: &str = "public-key-of-the-noroshi-fakes";
pub(crate) const HMS_TOKEN_URL: &str = "https://oauth-login.cloud.huawei.com/oauth2/v3/token";
pub const WNS_TENANT: &str = "11111111-2222-3333-4444-555555555555";
pub const WNS_CLIENT_ID: &str = "66666666-7777-8888-9999-000000000000";
/// Public: it is only valid for these fakes.
pub const WNS_SECRET: &str = "wns-secret-of-the-noroshi-fakes";
const ACCOUNT_KEY: &str = include_str!("fcm/account-key.pem");
const APNS_FILE: &str = "AuthKey_DEVKEY0001.p8";
const VAPID_FILE: &str = "vapid-private-key.txt";

/// A key that could not be created, read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: std::io::Error },
    #[error("cannot create or read {what}: {why}")]
    Key { what: &'static str, why: String },
}

pub(crate) fn key_error(what: &'static str) -> impl Fn(&dyn std::fmt::Display) -> Error {
    move |why| Error::Key { what, why: why.to_string() }
}

/// The credentials a provider needs for the fakes.
#[derive(Debug, Clone)]
pub struct Keys {
    /// PKCS#8 PEM, like Apple's download.
    pub apns_p8: String,
    /// Uncompressed point.
    pub(crate) apns_public: Vec<u8>,
    /// base64url of 32 bytes.
    pub vapid_private: String,
    /// base64url of an uncompressed point: the browser's `applicationServerKey`.
    pub vapid_public: String,
    /// DER `RSAPublicKey`.
    pub(crate) account_public: Vec<u8>,
}

impl Keys {
    pub fn generate() -> Result<Self, Error> {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256);
        let pair = pair.map_err(|error| key_error("the key of APNs")(&error))?;
        let (vapid, _) = new_p256(&SystemRandom::new())?;
        Self::from_parts(pair.serialize_pem(), jwt::encode(&vapid.to_bytes()))
    }

    /// Opens those stored in `folder`, which must exist; missing ones are created and stored.
    pub fn open(folder: &Path) -> Result<Self, Error> {
        let (apns, vapid) = (folder.join(APNS_FILE), folder.join(VAPID_FILE));
        if apns.exists() && vapid.exists() {
            return Self::from_parts(read(&apns)?, read(&vapid)?.trim().to_owned());
        }
        let keys = Self::generate()?;
        write(&apns, &keys.apns_p8)?;
        write(&vapid, &format!("{}\n", keys.vapid_private))?;
        Ok(keys)
    }

    fn from_parts(apns_p8: String, vapid_private: String) -> Result<Self, Error> {
        let public = |what, pem: &str| match KeyPair::from_pem(pem) {
            Ok(pair) => Ok(pair.public_key_raw().to_vec()),
            Err(error) => Err(key_error(what)(&error)),
        };
        let failed = key_error("the VAPID key");
        let bytes = jwt::decode(&vapid_private).ok_or_else(|| failed(&"it is not base64url"))?;
        let vapid = p256::SecretKey::from_slice(&bytes).map_err(|error| failed(&error))?;
        Ok(Self {
            apns_public: public("the key of APNs", &apns_p8)?,
            apns_p8,
            vapid_public: jwt::encode(&vapid.public_key().to_sec1_bytes()),
            vapid_private,
            account_public: public("the service account's key", ACCOUNT_KEY)?,
        })
    }

    /// The JSON file from Google, with the fake's token endpoint.
    pub fn service_account(&self, token_url: &str) -> Value {
        json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "public-key-of-the-noroshi-fakes",
            "private_key": ACCOUNT_KEY,
            "client_email": ACCOUNT,
            "client_id": "100000000000000000001",
            "auth_uri": "https://accounts.google.com/o/oauth2/auth",
            "token_uri": token_url,
            "auth_provider_x509_cert_url": "https://www.googleapis.com/oauth2/v1/certs",
            "universe_domain": "googleapis.com",
        })
    }

    /// The JSON file from Huawei.
    pub fn hms_account(&self) -> Value {
        json!({
            "project_id": HMS_PROJECT,
            "key_id": HMS_KEY_ID,
            "private_key": ACCOUNT_KEY,
            "sub_account": HMS_ACCOUNT,
            "auth_uri": "https://oauth-login.cloud.huawei.com/oauth2/v3/authorize",
            "token_uri": HMS_TOKEN_URL,
        })
    }
}

/// A new P-256 key pair for VAPID or a subscription.
pub(crate) fn new_p256(random: &SystemRandom) -> Result<(p256::SecretKey, Vec<u8>), Error> {
    let failed = key_error("a key on P-256");
    let mut bytes = [0; 32];
    loop {
        random.fill(&mut bytes).map_err(|error| failed(&error))?;
        // All but one in 2^32 values are below the group's order.
        if let Ok(secret) = p256::SecretKey::from_slice(&bytes) {
            let public = secret.public_key().to_sec1_bytes().into_vec();
            return Ok((secret, public));
        }
    }
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(|source| Error::File { path: path.to_owned(), source })
}

/// Readable only by its owner.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    let mut options = std::fs::File::options();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|source| Error::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stored_keys_survive_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let made = Keys::open(folder.path()).unwrap();
        let found = Keys::open(folder.path()).unwrap();
        assert_eq!((&made.apns_p8, &made.vapid_public), (&found.apns_p8, &found.vapid_public));
        assert_ne!(made.apns_p8, Keys::generate().unwrap().apns_p8);
        assert_eq!(jwt::decode(&made.vapid_public).unwrap().len(), 65);
        assert_eq!(made.apns_public.len(), 65);
    }
}
