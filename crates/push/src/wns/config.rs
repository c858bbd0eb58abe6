//! A credential of WNS: an app registration of Microsoft Entra ID, or the package SID and secret of a Store app.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::key::fingerprint;
use crate::object::{Invalid, Object};

const ENTRA: &str = "https://login.microsoftonline.com";
const ENTRA_SCOPE: &str = "https://wns.windows.com/.default";
const LIVE: &str = "https://login.live.com/accesstoken.srf";
const LIVE_SCOPE: &str = "notify.windows.com";

pub(crate) struct Config {
    pub(super) client_id: String,
    pub(super) client_secret: String,
    tenant_id: Option<String>,
    pub(super) scope: &'static str,
    pub(super) token_endpoint: Arc<str>,
    /// The origin of a test server, which devices may name too.
    pub(super) origin: Option<Arc<str>>,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Config").field("client_id", &self.client_id).finish_non_exhaustive()
    }
}

impl Config {
    pub(crate) fn read(object: &mut Object) -> Result<Self, Invalid> {
        let client_id = object.need_text("client_id")?;
        let client_secret = object.need_text("client_secret")?;
        let tenant_id = object.text("tenant_id")?;
        let (scope, standard) = match &tenant_id {
            Some(tenant) => {
                // The tenant becomes part of the path.
                if !tenant.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.')) {
                    return Err(Invalid::new("tenant_id", "must be the id or a domain of a tenant"));
                }
                (ENTRA_SCOPE, format!("{ENTRA}/{tenant}/oauth2/v2.0/token"))
            }
            None if client_id.starts_with("ms-app://") => (LIVE_SCOPE, LIVE.to_owned()),
            None => {
                let rule = "is missing: only the package SID of a Store app (\"ms-app://…\") needs none";
                return Err(Invalid::new("tenant_id", rule));
            }
        };
        let token_endpoint = object.url("token_endpoint", true)?.map_or(standard, String::from).into();
        let origin = object.origin("endpoint")?;
        Ok(Self { client_id, client_secret, tenant_id, scope, token_endpoint, origin })
    }

    pub(crate) fn shown(&self) -> Map<String, Value> {
        let mut shown = Map::new();
        let mut add = |name: &str, value: Value| shown.insert(name.to_owned(), value);
        add("client_id", json!(self.client_id));
        if let Some(tenant) = &self.tenant_id {
            add("tenant_id", json!(tenant));
        }
        add("token_endpoint", json!(&*self.token_endpoint));
        if let Some(origin) = &self.origin {
            add("endpoint", json!(&**origin));
        }
        add("fingerprint", json!(fingerprint(self.client_secret.as_bytes())));
        shown
    }
}
