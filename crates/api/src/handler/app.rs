//! Apps and their API keys. On the public listener, a key with the scope `admin` manages its own app. On the admin listener,
//! the operator manages all apps, and creates and deletes them.

use http::StatusCode;
use noroshi_auth::Auth;
use noroshi_store::{App, AppSettings, Key};
use noroshi_types::{AppName, KeyId, Quota};
use serde::Serialize;

use crate::body::{self, Author};
use crate::error::{Code, Problem};
use crate::request::access::Manager;
use crate::request::body::JsonBody;
use crate::request::parameter::Path;
use crate::respond::{self, Answer};

/// Shows whether secrets are set, never the secrets.
#[derive(Serialize)]
struct AppBody {
    name: String,
    created_at: String,
    jwt_secret_set: bool,
    jwks_url: Option<String>,
    jwks_set: bool,
    issuer: Option<String>,
    audience: Option<String>,
    client_publish: Vec<String>,
    essential_categories: Vec<String>,
    /// The app's number in device tokens of this node. Only for a front, which uses it to find the app of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u32>,
}

#[derive(Serialize)]
struct KeyBody {
    id: String,
    name: String,
    scopes: Vec<&'static str>,
    created_at: String,
    /// `null`: never.
    expires_at: Option<String>,
    /// Only in the response that creates it.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
}

/// `GET /v1/apps`
pub(crate) async fn list(manager: Manager) -> Answer {
    respond::field("apps", manager.auth.apps().into_iter().map(AppBody::from).collect::<Vec<_>>())
}

/// `POST /v1/apps`
pub(crate) async fn create(manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let (name, settings) = body::app(&body)?;
    check_claims(&manager.auth, &name, &settings)?;
    let app = manager.auth.create_app(name, settings, manager.delivery.clock().now()).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("app", "made"), None);
    manager.trail.in_app(app.id);
    let after = AppBody::from(app);
    manager.trail.after(&after);
    Ok(respond::json(StatusCode::CREATED, &after))
}

/// `GET /v1/apps/{app}`
pub(crate) async fn show(manager: Manager) -> Answer {
    respond::ok(&AppBody::from(manager.app()?))
}

/// `PATCH /v1/apps/{app}`
pub(crate) async fn change(manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let app = manager.app()?;
    manager.trail.before(&AppBody::from(app.clone()));
    let author = manager.author();
    let settings = body::app_change(&body, app.settings, author)?;
    check_claims(&manager.auth, &app.name, &settings)?;
    if author == Author::Tenant && manager.auth.ends_unnamed_tokens(app.id, &settings) {
        return Err(Problem::new(
            Code::Forbidden,
            "tokens of another app on this server need not name their app yet; only the operator can enable app JWTs \
             for a second app",
        ));
    }
    let app = manager.auth.update_app(app.id, settings).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("app", "changed"), None);
    let after = AppBody::from(app);
    manager.trail.after(&after);
    respond::ok(&after)
}

/// `PUT /v1/apps/{app}`: mirrors an app of a front, with all its keys.
pub(crate) async fn mirror(manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let name = AppName::parse(&manager.name).map_err(|invalid| Problem::from(invalid).at("app"))?;
    // The front checked issuers and audiences. While its changes arrive one by one, two apps may share them here; until then
    // their tokens are rejected as ambiguous.
    let (settings, keys) = body::mirror(&body)?;
    let app = manager.auth.mirror(name, settings, keys, manager.delivery.clock().now()).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("app", "changed"), None);
    let number = Some(app.id.0);
    respond::ok(&AppBody { number, ..AppBody::from(app) })
}

/// Rejects settings with which a token would belong to two apps.
fn check_claims(auth: &Auth, name: &AppName, settings: &AppSettings) -> Result<(), Problem> {
    let Some(rival) = auth.rival(name, settings) else { return Ok(()) };
    let detail = format!(
        "tokens of the app {rival} would match this app too: both have the same audience (by default the app's name), \
         and the same issuer or at least one without an issuer; set a different audience, or different issuers for both"
    );
    Err(Problem::new(Code::AlreadyExists, detail).at("audience"))
}

/// `DELETE /v1/apps/{app}`: deletes the app with everything it owns.
pub(crate) async fn delete(manager: Manager) -> Result<StatusCode, Problem> {
    let app = manager.app()?;
    manager.trail.before(&AppBody::from(app.clone()));
    manager.delivery.context.outcomes.configured(Some(app.id), ("app", "removed"), Some(&manager.name));
    manager.auth.delete_app(app.id).await?;
    manager.delivery.close_app(app.id).await;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /v1/apps/{app}/keys`
pub(crate) async fn keys(manager: Manager) -> Answer {
    let app = manager.app()?;
    let keys = manager.auth.keys(app.id).into_iter().map(|key| key_body(key, None));
    respond::field("keys", keys.collect::<Vec<_>>())
}

/// `POST /v1/apps/{app}/keys`: only this response contains the key itself.
pub(crate) async fn create_key(manager: Manager, JsonBody(body): JsonBody) -> Answer {
    let app = manager.app()?;
    let now = manager.delivery.clock().now();
    let body::NewAppKey { name, scopes, expires_at } = body::key(&body, now)?;
    let present = manager.auth.keys(app.id).len() as u64;
    manager.delivery.quotas.check(app.id, Quota::Keys, present)?;
    let (key, secret) = manager.auth.create_key(app.id, name, scopes, expires_at, now).await?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("key", "made"), Some(&key.id.0.to_string()));
    manager.trail.after(&key_body(key.clone(), None));
    Ok(respond::json(StatusCode::CREATED, &key_body(key, Some(secret.to_string()))))
}

/// `DELETE /v1/apps/{app}/keys/{key}`
pub(crate) async fn revoke_key(
    manager: Manager,
    Path((_, key)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let app = manager.app()?;
    let key = KeyId(key.parse().map_err(|_| Problem::not_found("key"))?);
    if let Some(found) = manager.auth.keys(app.id).into_iter().find(|found| found.id == key) {
        manager.trail.before(&key_body(found, None));
    }
    manager.auth.revoke_key(app.id, key).await.map_err(Problem::missing("key"))?;
    manager.delivery.context.outcomes.configured(Some(app.id), ("key", "removed"), Some(&key.0.to_string()));
    Ok(StatusCode::NO_CONTENT)
}

impl From<App> for AppBody {
    fn from(app: App) -> Self {
        Self {
            name: app.name.to_string(),
            created_at: app.created_at.to_string(),
            jwt_secret_set: app.settings.jwt_secret.is_some(),
            jwks_url: app.settings.jwks_url,
            jwks_set: app.settings.jwks.is_some(),
            issuer: app.settings.issuer,
            audience: app.settings.audience,
            client_publish: app.settings.client_publish,
            essential_categories: app.settings.essential_categories.iter().map(ToString::to_string).collect(),
            number: None,
        }
    }
}

fn key_body(key: Key, secret: Option<String>) -> KeyBody {
    KeyBody {
        id: key.id.0.to_string(),
        name: key.name,
        scopes: key.scopes.iter().map(|scope| scope.as_str()).collect(),
        created_at: key.created_at.to_string(),
        expires_at: key.expires_at.map(|at| at.to_string()),
        key: secret,
    }
}
