//! A credential of Huawei Push Kit: the key file of a service account, as Huawei generates it.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::key::{RsaKey, fingerprint};
use crate::object::{Invalid, Object};

const ORIGIN: &str = "https://push-api.cloud.huawei.com";
/// The audience of tokens.
const TOKEN_URI: &str = "https://oauth-login.cloud.huawei.com/oauth2/v3/token";
/// The category that needs no permission by Huawei.
const CATEGORY: &str = "MARKETING";

#[derive(Debug)]
pub(crate) struct Config {
    pub(super) project_id: String,
    /// `iss` of tokens.
    pub(super) sub_account: String,
    pub(super) key_id: String,
    pub(super) key: RsaKey,
    pub(super) audience: String,
    pub(super) category: String,
    pub(super) origin: Arc<str>,
}

impl Config {
    pub(crate) fn read(object: &mut Object) -> Result<Self, Invalid> {
        let account = object.object("service_account", "service_account.")?;
        let mut account = account.ok_or_else(|| {
            Invalid::new("service_account", "is required: the JSON file of a service account")
        })?;
        let project_id = account.need_text("project_id")?;
        // The project id becomes part of the path.
        if !project_id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
            return Err(Invalid::new("service_account.project_id", "must be the id of a project"));
        }
        let sub_account = account.need_text("sub_account")?;
        let key_id = account.need_text("key_id")?;
        let key = RsaKey::from_pem("service_account.private_key", &account.need_long_text("private_key")?)?;
        let audience = account.url("token_uri", true)?.map_or_else(|| TOKEN_URI.to_owned(), String::from);
        // Other fields of Huawei's file are ignored, so that additions to it cause no error.
        drop(account);
        let category = object.text("category")?.unwrap_or_else(|| CATEGORY.to_owned());
        if !is_category(&category) {
            return Err(Invalid::new("category", "must be capital letters, digits and `_`, such as \"IM\""));
        }
        let origin = object.origin("endpoint")?.unwrap_or_else(|| ORIGIN.into());
        Ok(Self { project_id, sub_account, key_id, key, audience, category, origin })
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        add("project_id", json!(self.project_id));
        add("sub_account", json!(self.sub_account));
        add("key_id", json!(self.key_id));
        add("category", json!(self.category));
        add("endpoint", json!(&*self.origin));
        add("fingerprint", json!(fingerprint(self.key.public())));
        shown
    }
}

/// It is inserted into JSON without escapes.
pub(super) fn is_category(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}
