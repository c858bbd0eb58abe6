//! A Web Push credential: the VAPID key pair (RFC 8292), and the contact for push services.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use url::Url;

use crate::key::{EcKey, fingerprint};
use crate::object::{Invalid, Object};

#[derive(Debug)]
pub(crate) struct Config {
    pub(super) key: EcKey,
    pub(super) subject: String,
}

impl Config {
    pub(crate) fn read(object: &mut Object) -> Result<Self, Invalid> {
        let key = key(&object.need_long_text("private_key")?)?;
        let subject = object.need_text("subject")?;
        // RFC 8292 §2.1: a mailto or https URI.
        if !Url::parse(&subject).is_ok_and(|url| match url.scheme() {
            "mailto" => url.path().contains('@'),
            "https" => true,
            _ => false,
        }) {
            let rule = "must be a contact for push services: \"mailto:admin@example.com\" or an https URL";
            return Err(Invalid::new("subject", rule));
        }
        let config = Self { key, subject };
        match object.text("public_key")? {
            Some(public) if public.trim_end_matches('=') != config.public_key() => {
                Err(Invalid::new("public_key", "does not belong to private_key"))
            }
            _ => Ok(config),
        }
    }

    /// What browsers call `applicationServerKey`.
    pub(super) fn public_key(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.key.public())
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        shown.insert("public_key".to_owned(), json!(self.public_key()));
        shown.insert("subject".to_owned(), json!(self.subject));
        shown.insert("fingerprint".to_owned(), json!(fingerprint(self.key.public())));
        shown
    }
}

/// PEM, or 32 bytes in base64url as the tools for VAPID keys print them.
fn key(text: &str) -> Result<EcKey, Invalid> {
    if text.contains("-----") {
        return EcKey::from_pem("private_key", text);
    }
    let scalar = URL_SAFE_NO_PAD.decode(text.trim().trim_end_matches('='));
    match scalar.map(<[u8; 32]>::try_from) {
        Ok(Ok(scalar)) => EcKey::from_scalar("private_key", &scalar),
        _ => Err(Invalid::new("private_key", "must be 32 bytes in base64url (43 characters), or PEM")),
    }
}
