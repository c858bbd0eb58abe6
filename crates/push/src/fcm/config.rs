//! An FCM credential: the key file of a service account, as Google generates it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::key::{RsaKey, fingerprint};
use crate::object::{Invalid, Object};

const ORIGIN: &str = "https://fcm.googleapis.com";
/// Google's token endpoint, and the audience of the assertion.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";
#[derive(Debug)]
pub(crate) struct Config {
    pub(super) project_id: String,
    pub(super) client_email: String,
    pub(super) key: RsaKey,
    pub(super) key_id: Option<String>,
    /// `aud` of the assertion, independent of the server that receives it.
    pub(super) audience: String,
    pub(super) token_endpoint: Arc<str>,
    pub(super) origin: Arc<str>,
}

impl Config {
    pub(crate) fn read(object: &mut Object) -> Result<Self, Invalid> {
        let account = object.object("service_account", "service_account.")?;
        let mut account = account.ok_or_else(|| {
            Invalid::new("service_account", "is required: the JSON file of a service account")
        })?;
        if account.text("type")?.as_deref() != Some("service_account") {
            let rule = "must be \"service_account\": the file of the Google Cloud console's service account keys, \
                        not the app's google-services.json";
            return Err(Invalid::new("service_account.type", rule));
        }
        let project_id = account.need_text("project_id")?;
        // The project id becomes part of the path.
        if !project_id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b':' | b'_')) {
            return Err(Invalid::new("service_account.project_id", "must be a Google Cloud project id"));
        }
        let client_email = account.need_text("client_email")?;
        if !client_email.contains('@') {
            return Err(Invalid::new("service_account.client_email", "must be the account's e-mail address"));
        }
        let key = RsaKey::from_pem("service_account.private_key", &account.need_long_text("private_key")?)?;
        let key_id = account.text("private_key_id")?;
        let audience = account.url("token_uri", true)?.map_or_else(|| TOKEN_URI.to_owned(), String::from);
        // Other fields of Google's file are ignored, so that additions to it cause no error.
        drop(account);
        let token_endpoint =
            object.url("token_endpoint", true)?.map_or_else(|| audience.clone(), String::from);
        let token_endpoint = token_endpoint.into();
        let origin = object.origin("endpoint")?.unwrap_or_else(|| ORIGIN.into());
        Ok(Self { project_id, client_email, key, key_id, audience, token_endpoint, origin })
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        shown.insert("project_id".to_owned(), json!(self.project_id));
        shown.insert("client_email".to_owned(), json!(self.client_email));
        shown.insert("endpoint".to_owned(), json!(&*self.origin));
        shown.insert("token_endpoint".to_owned(), json!(&*self.token_endpoint));
        shown.insert("fingerprint".to_owned(), json!(fingerprint(self.key.public())));
        if let Some(key_id) = &self.key_id {
            shown.insert("key_id".to_owned(), json!(key_id));
        }
        shown
    }
}
