//! Provisions apps and keys. The front owns them; it sends a whole app to every cell when it changes and when the cell
//! comes back. The request is idempotent, so a cell that was down or lost its data ends up with the same state. The
//! store records which apps a cell knows, so that an app that was deleted while the cell was down is deleted there too.
//!
//! The cell answers with the number of the app in its device tokens. The front needs it to find the app of a token that
//! only the cell can verify.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use noroshi_api::parts::body_hash;
use noroshi_store::{App, AppSettings, Key};
use noroshi_types::{AppId, AppName, Label, Scope, Scopes, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cell::Cell;
use crate::cell_set::CellSet;
use crate::client::{CellRequest, CellResponse};

/// A key made at the front works in the cells after this time.
const INTERVAL: Duration = Duration::from_millis(500);
/// After a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// Between two complete repetitions.
const REPEAT: Duration = Duration::from_secs(600);
/// The same for a cell that did not report its numbers: it may have been upgraded.
const REPEAT_OLD_CELL: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The name of the front's own key in cells.
const KEY_NAME: &str = "front";

/// The apps that the front has sent to a cell.
type Provisioned = HashMap<AppName, AppInCell>;

/// The state of an app in a cell.
#[derive(Default)]
struct AppInCell {
    /// The digest of the last transfer; none: send it again, or the front deleted the app.
    hash: Option<[u8; 32]>,
    /// The app's number in the cell's device tokens; none: not reported yet, or the cell's version is too old.
    number: Option<AppId>,
}

pub(crate) async fn run(cells: Arc<CellSet>, cell: Arc<Cell>) {
    let mut provisioned = Provisioned::new();
    let mut repeat_at = tokio::time::Instant::now();
    loop {
        cell.until_up().await;
        let repeat = tokio::time::Instant::now() >= repeat_at;
        let result = match repeat {
            true => forget_digests(&cells, &cell, &mut provisioned).await,
            false => Ok(()),
        };
        // A rejected app is retried and does not delay the others.
        let result = match result {
            Ok(()) => provision_all(&cells, &cell, &mut provisioned).await,
            Err(reason) => Err(reason),
        };
        // Also after a rejection: the other apps of the cell keep working.
        cell.set_apps(numbers(&cells.state.auth.apps(), &provisioned));
        let pause = match result {
            Ok(rejected) if repeat => {
                let is_old = provisioned.values().any(|known| known.number.is_none());
                if is_old {
                    let cell = cell.name();
                    tracing::warn!(
                        cell,
                        "the cell does not report its app numbers: the front rejects its device tokens (503) until the cell is upgraded"
                    );
                }
                repeat_at = tokio::time::Instant::now() + if is_old { REPEAT_OLD_CELL } else { REPEAT };
                pause(&cell, rejected)
            }
            Ok(rejected) => pause(&cell, rejected),
            Err(reason) => pause(&cell, Some(reason)),
        };
        if tokio::time::timeout(pause, cell.unprovisioned.notified()).await.is_ok() {
            repeat_at = tokio::time::Instant::now();
            // Bounds the rate of repetitions.
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// The pause before the next round.
fn pause(cell: &Cell, failure: Option<String>) -> Duration {
    let Some(reason) = failure else { return INTERVAL };
    tracing::warn!(cell = cell.name(), reason, "failed to send apps and keys to the cell; will retry");
    BACKOFF
}

/// Marks every app that the cell was ever sent for repetition.
async fn forget_digests(cells: &CellSet, cell: &Cell, provisioned: &mut Provisioned) -> Result<(), String> {
    let kept = cells.store.provisioned(cell.num).await.map_err(|error| error.to_string())?;
    for (app, _) in kept {
        provisioned.entry(app).or_default();
    }
    provisioned.values_mut().for_each(|known| known.hash = None);
    Ok(())
}

/// Sends all changed apps to the cell. Returns the first rejection; an error if the cell did not answer.
async fn provision_all(
    cells: &CellSet,
    cell: &Cell,
    provisioned: &mut Provisioned,
) -> Result<Option<String>, String> {
    let mut rejected = None;
    let apps = cells.state.auth.apps();
    for app in &apps {
        let body = described(cells, cell, app, &cells.state.auth.keys(app.id)).to_string();
        let hash = body_hash(body.as_bytes());
        if provisioned.get(&app.name).is_none_or(|known| known.hash != Some(hash)) {
            let answer = put(cell, Method::PUT, &app.name, body).await?;
            if answer.status != StatusCode::OK {
                rejected = rejected.or_else(|| Some(refused(&app.name, &answer)));
                continue;
            }
            keep(cells, cell, &app.name, Some(hash)).await?;
            provisioned.insert(app.name.clone(), AppInCell { hash: Some(hash), number: number_in(&answer) });
        }
    }
    let names: HashSet<&AppName> = apps.iter().map(|app| &app.name).collect();
    let gone: Vec<AppName> = provisioned.keys().filter(|name| !names.contains(name)).cloned().collect();
    for name in gone {
        let answer = put(cell, Method::DELETE, &name, String::new()).await?;
        if !answer.status.is_success() && answer.status != StatusCode::NOT_FOUND {
            rejected = rejected.or_else(|| Some(refused(&name, &answer)));
            continue;
        }
        keep(cells, cell, &name, None).await?;
        provisioned.remove(&name);
    }
    Ok(rejected)
}

/// The front's app ids by the cell's numbers.
fn numbers(apps: &[App], provisioned: &Provisioned) -> HashMap<AppId, AppId> {
    let number = |app: &App| provisioned.get(&app.name)?.number;
    apps.iter().filter_map(|app| Some((number(app)?, app.id))).collect()
}

fn number_in(answer: &CellResponse) -> Option<AppId> {
    #[derive(Deserialize)]
    struct Answered {
        number: Option<u32>,
    }
    answer.json::<Answered>().ok()?.number.map(AppId)
}

async fn keep(cells: &CellSet, cell: &Cell, app: &AppName, hash: Option<[u8; 32]>) -> Result<(), String> {
    let kept = cells.store.set_provisioned(cell.num, app.clone(), hash).await;
    kept.map_err(|error| error.to_string())
}

async fn put(cell: &Cell, method: Method, app: &AppName, body: String) -> Result<CellResponse, String> {
    let bearer = HeaderValue::from_str(&format!("Bearer {}", cell.config.operator_token))
        .map_err(|_| "the operator token is not a valid header value".to_owned())?;
    // App names need no escapes.
    let path = format!("/v1/apps/{app}");
    let request = CellRequest { method, bearer, timeout: Some(TIMEOUT), ..CellRequest::post(path, body) };
    cell.operate(request).await.map_err(|error| error.to_string())
}

/// Reports the status only: the body may repeat secrets.
fn refused(app: &AppName, answer: &CellResponse) -> String {
    format!("the admin address answered {} for the app {app}", answer.status.as_u16())
}

/// An app with all its keys and the front's own key.
fn described(cells: &CellSet, cell: &Cell, app: &App, keys: &[Key]) -> Value {
    let own = (KEY_NAME, cells.key_hash(cell, &app.name), front_scopes(), None);
    let others = keys.iter().map(|key| (key.name.as_str(), key.hash, key.scopes, key.expires_at));
    let keys: Vec<Value> = others
        .chain([own])
        .map(|(name, hash, scopes, expires_at)| self::key(name, &hash.0, scopes, expires_at))
        .collect();
    let mut described = settings_of(&app.settings);
    described["keys"] = keys.into();
    described
}

/// Older cells reject unknown fields, so newer fields are sent only if they are set.
fn settings_of(settings: &AppSettings) -> Value {
    let secret = settings.jwt_secret.as_ref().and_then(|secret| std::str::from_utf8(secret).ok());
    let jwks: Option<Value> = settings.jwks.as_ref().and_then(|jwks| serde_json::from_str(jwks).ok());
    let mut described = json!({"jwt_secret": secret, "jwks_url": settings.jwks_url, "jwks": jwks,
        "client_publish": settings.client_publish});
    let json = |text: &Option<String>| text.as_ref().and_then(|text| serde_json::from_str(text).ok());
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let essential: Vec<&str> = settings.essential_categories.iter().map(Label::as_str).collect();
    let newer = [
        ("issuer", text(&settings.issuer)),
        ("audience", text(&settings.audience)),
        ("quotas", json(&settings.quotas)),
        ("topic_rules", json(&settings.topic_rules)),
        ("essential_categories", (!essential.is_empty()).then(|| essential.into())),
    ];
    for (name, value) in newer {
        if let Some(value) = value {
            described[name] = value;
        }
    }
    described
}

/// Older cells reject a key that expires, as every unknown field: they would accept it after its expiry.
fn key(name: &str, hash: &[u8; 32], scopes: Scopes, expires_at: Option<Timestamp>) -> Value {
    let mut text = String::with_capacity(64);
    for byte in hash {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    let mut key = json!({"name": name, "hash": text, "scopes": scopes});
    if let Some(expires_at) = expires_at {
        key["expires_at"] = expires_at.to_string().into();
    }
    key
}

/// Without the scope for apps, which only the operator's token has.
fn front_scopes() -> Scopes {
    Scopes::default().with(Scope::Publish).with(Scope::Devices).with(Scope::Read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_cell_gets_no_unknown_fields() {
        let settings =
            AppSettings { jwks_url: Some("https://id.example".to_owned()), ..AppSettings::default() };
        let older =
            json!({"jwt_secret": null, "jwks_url": "https://id.example", "jwks": null, "client_publish": []});
        assert_eq!(settings_of(&settings), older);
        let read = Scopes::default().with(Scope::Read);
        let hash = "07".repeat(32);
        let older = json!({"name": "k", "hash": hash, "scopes": ["read"]});
        assert_eq!(key("k", &[7; 32], read, None), older);
        let expiring = key("k", &[7; 32], read, Some(Timestamp(1_800_000_000_000)));
        assert_eq!(expiring["expires_at"], json!("2027-01-15T08:00:00.000Z"));
        let some = |text: &str| Some(text.to_owned());
        let all = AppSettings {
            issuer: some("i"),
            audience: some("a"),
            quotas: some(r#"{"devices":1}"#),
            topic_rules: some("{}"),
            essential_categories: vec![Label::parse("alarm").expect("a label")],
            ..settings
        };
        let provisioned = settings_of(&all);
        let newer = [
            &provisioned["issuer"],
            &provisioned["audience"],
            &provisioned["quotas"],
            &provisioned["topic_rules"],
            &provisioned["essential_categories"],
        ];
        assert_eq!(newer, [&json!("i"), &json!("a"), &json!({"devices": 1}), &json!({}), &json!(["alarm"])]);
    }
}
