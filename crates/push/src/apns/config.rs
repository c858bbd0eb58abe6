//! An APNs credential: the key of provider tokens (`.p8`), or a provider certificate.

use std::sync::Arc;

use noroshi_types::PushEnvironment;
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};

use crate::fields::is_header_value;
use crate::key::{EcKey, fingerprint, private_key};
use crate::object::{Invalid, Object};

const PRODUCTION: &str = "https://api.push.apple.com";
const SANDBOX: &str = "https://api.sandbox.push.apple.com";
const CHANNELS_PRODUCTION: &str = "https://api-manage-broadcast.push.apple.com:2196";
const CHANNELS_SANDBOX: &str = "https://api-manage-broadcast.sandbox.push.apple.com:2195";
/// The length of Apple's key ids and team ids.
const ID_LENGTH: usize = 10;
const CERTIFICATES_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Config {
    pub(super) authentication: Authentication,
    /// The bundle id.
    pub(super) topic: String,
    pub(super) origin: Arc<str>,
    /// For broadcasts to channels. Apple's text names the host of all pushes, its examples another one.
    pub(super) broadcast_origin: Arc<str>,
    /// For the management of channels.
    pub(super) channels_origin: Arc<str>,
}

#[derive(Debug)]
pub(super) enum Authentication {
    Token { key: Box<EcKey>, key_id: String, team_id: String },
    Certificate(Arc<CertifiedKey>),
}

impl Config {
    pub(crate) fn read(object: &mut Object, environment: PushEnvironment) -> Result<Self, Invalid> {
        let authentication = match (object.has("key"), object.has("certificate")) {
            (true, false) => token(object)?,
            (false, true) => certificate(object)?,
            _ => {
                return Err(Invalid::new(
                    "key",
                    "is required (a .p8 file), or certificate and private_key instead",
                ));
            }
        };
        let topic = object.need_text("topic")?;
        if !is_header_value(&topic) {
            return Err(Invalid::new("topic", "must be the app's bundle id (\"com.example.app\")"));
        }
        let origin = object.origin("endpoint")?.unwrap_or_else(|| {
            Arc::from(match environment {
                PushEnvironment::Production => PRODUCTION,
                PushEnvironment::Sandbox => SANDBOX,
            })
        });
        let broadcast_origin = object.origin("broadcast_endpoint")?.unwrap_or_else(|| origin.clone());
        let channels_origin = object.origin("channels_endpoint")?.unwrap_or_else(|| {
            Arc::from(match environment {
                PushEnvironment::Production => CHANNELS_PRODUCTION,
                PushEnvironment::Sandbox => CHANNELS_SANDBOX,
            })
        });
        Ok(Self { authentication, topic, origin, broadcast_origin, channels_origin })
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        shown.insert("topic".to_owned(), json!(self.topic));
        shown.insert("endpoint".to_owned(), json!(&*self.origin));
        if self.broadcast_origin != self.origin {
            shown.insert("broadcast_endpoint".to_owned(), json!(&*self.broadcast_origin));
        }
        if ![CHANNELS_PRODUCTION, CHANNELS_SANDBOX].contains(&&*self.channels_origin) {
            shown.insert("channels_endpoint".to_owned(), json!(&*self.channels_origin));
        }
        let public = match &self.authentication {
            Authentication::Token { key, key_id, team_id } => {
                shown.insert("key_id".to_owned(), json!(key_id));
                shown.insert("team_id".to_owned(), json!(team_id));
                key.public()
            }
            Authentication::Certificate(certified) => {
                shown.insert("certificate".to_owned(), json!(true));
                certified.cert.first().map(AsRef::as_ref).unwrap_or_default()
            }
        };
        shown.insert("fingerprint".to_owned(), json!(fingerprint(public)));
        shown
    }
}

fn token(object: &mut Object) -> Result<Authentication, Invalid> {
    let key = Box::new(EcKey::from_pem("key", &object.need_long_text("key")?)?);
    Ok(Authentication::Token { key, key_id: id(object, "key_id")?, team_id: id(object, "team_id")? })
}

fn id(object: &mut Object, field: &'static str) -> Result<String, Invalid> {
    let id = object.need_text(field)?;
    match id.len() == ID_LENGTH && id.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()) {
        true => Ok(id),
        false => Err(Invalid::new(field, "must be 10 upper-case letters and digits")),
    }
}

fn certificate(object: &mut Object) -> Result<Authentication, Invalid> {
    let pem = object.need_long_text("certificate")?;
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(pem.as_bytes()).take(CERTIFICATES_MAX + 1).collect();
    let chain =
        chain.ok().filter(|chain| (1..=CERTIFICATES_MAX).contains(&chain.len())).ok_or_else(|| {
            Invalid::new(
                "certificate",
                "must be PEM of 1 to 8 certificates (\"-----BEGIN CERTIFICATE-----\"), the app's own first",
            )
        })?;
    let key = private_key("private_key", &object.need_long_text("private_key")?)?;
    let provider = rustls::crypto::ring::default_provider();
    let certified = CertifiedKey::from_der(chain, key, &provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            Invalid::new("private_key", "does not belong to the certificate")
        }
        rustls::Error::InvalidCertificate(_) => Invalid::new("certificate", "must be an X.509 certificate"),
        _ => Invalid::new("private_key", "must be a key of a type that TLS supports"),
    })?;
    Ok(Authentication::Certificate(Arc::new(certified)))
}
