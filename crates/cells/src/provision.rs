//! Apps and keys: they are the front's, and every cell is told the whole of an app whenever that is not what it was
//! told last, and again when it comes back. Telling is repeatable, so a cell that was away or lost its data ends up
//! with the same. What a cell was told of is kept, so that an app deleted here while the cell was away goes there too.
//!
//! The cell answers with the number that its device tokens have for the app. That is how the front knows the app of a
//! token that only the cell can verify.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, StatusCode};
use noroshi_store::{App, AppSettings, Key};
use noroshi_types::{AppId, AppName, Scope, Scopes};
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cell::Cell;
use crate::client::{Answer, Ask};
use crate::front::Front;

/// A key made at the front is good in the cells after this time.
const INTERVAL: Duration = Duration::from_millis(500);
/// After a failure.
const BACKOFF: Duration = Duration::from_secs(2);
/// All of it, even where nothing seems to have changed.
const REPEAT: Duration = Duration::from_secs(600);
/// The same for a cell that did not tell its numbers: it may have been upgraded.
const REPEAT_OLDER: Duration = Duration::from_secs(30);
const TIMEOUT: Duration = Duration::from_secs(10);
/// What the front's own key is called in cells.
const KEY_NAME: &str = "front";

/// Each app that a cell was told of.
type Told = HashMap<AppName, Known>;

/// What a cell knows of an app.
#[derive(Default)]
struct Known {
    /// The digest of what it was told; none: it has to be told again, or was deleted here.
    hash: Option<[u8; 32]>,
    /// What its device tokens call the app; none: not told yet, or its version is too old to tell.
    number: Option<AppId>,
}

pub(crate) async fn run(front: Arc<Front>, cell: Arc<Cell>) {
    let mut told = Told::new();
    let mut repeat_at = tokio::time::Instant::now();
    loop {
        cell.until_up().await;
        let repeat = tokio::time::Instant::now() >= repeat_at;
        let result = match repeat {
            true => start_anew(&front, &cell, &mut told).await,
            false => Ok(()),
        };
        // What the cell rejects of one app is tried again, and holds up no other app.
        let result = match result {
            Ok(()) => bring_up_to_date(&front, &cell, &mut told).await,
            Err(reason) => Err(reason),
        };
        // Also of a cell that refuses one of the apps: devices of the others go on.
        cell.set_apps(numbers(&front.state.auth.apps(), &told));
        let pause = match result {
            Ok(rejected) if repeat => {
                let is_older = told.values().any(|known| known.number.is_none());
                if is_older {
                    let cell = cell.name();
                    tracing::warn!(
                        cell,
                        "the cell does not tell the numbers of its apps: device tokens of it are refused (503) at the front until the cell is upgraded"
                    );
                }
                repeat_at = tokio::time::Instant::now() + if is_older { REPEAT_OLDER } else { REPEAT };
                pause(&cell, rejected)
            }
            Ok(rejected) => pause(&cell, rejected),
            Err(reason) => pause(&cell, Some(reason)),
        };
        if tokio::time::timeout(pause, cell.unprovisioned.notified()).await.is_ok() {
            repeat_at = tokio::time::Instant::now();
            // Whoever keeps asking must not make this a storm.
            tokio::time::sleep(INTERVAL).await;
        }
    }
}

/// Until the cell is told again.
fn pause(cell: &Cell, failure: Option<String>) -> Duration {
    let Some(reason) = failure else { return INTERVAL };
    tracing::warn!(cell = cell.name(), reason, "the cell could not be told of apps and keys");
    BACKOFF
}

/// Everything the cell was ever told of is doubtful.
async fn start_anew(front: &Front, cell: &Cell, told: &mut Told) -> Result<(), String> {
    let kept = front.store.provisioned(cell.num).await.map_err(|error| error.to_string())?;
    for (app, _) in kept {
        told.entry(app).or_default();
    }
    told.values_mut().for_each(|known| known.hash = None);
    Ok(())
}

/// Tells the cell of all apps. Returns the first rejection; an error where the cell could not be asked.
async fn bring_up_to_date(front: &Front, cell: &Cell, told: &mut Told) -> Result<Option<String>, String> {
    let mut rejected = None;
    let apps = front.state.auth.apps();
    for app in &apps {
        let body = described(front, cell, app, &front.state.auth.keys(app.id)).to_string();
        let hash = digest_of(body.as_bytes());
        if told.get(&app.name).is_none_or(|known| known.hash != Some(hash)) {
            let answer = tell(cell, Method::PUT, &app.name, body).await?;
            if answer.status != StatusCode::OK {
                rejected = rejected.or_else(|| Some(refused(&app.name, &answer)));
                continue;
            }
            keep(front, cell, &app.name, Some(hash)).await?;
            told.insert(app.name.clone(), Known { hash: Some(hash), number: number_in(&answer) });
        }
    }
    let names: HashSet<&AppName> = apps.iter().map(|app| &app.name).collect();
    let gone: Vec<AppName> = told.keys().filter(|name| !names.contains(name)).cloned().collect();
    for name in gone {
        let answer = tell(cell, Method::DELETE, &name, String::new()).await?;
        if !answer.status.is_success() && answer.status != StatusCode::NOT_FOUND {
            rejected = rejected.or_else(|| Some(refused(&name, &answer)));
            continue;
        }
        keep(front, cell, &name, None).await?;
        told.remove(&name);
    }
    Ok(rejected)
}

/// The front's apps by the cell's numbers.
fn numbers(apps: &[App], told: &Told) -> HashMap<AppId, AppId> {
    let number = |app: &App| told.get(&app.name)?.number;
    apps.iter().filter_map(|app| Some((number(app)?, app.id))).collect()
}

fn number_in(answer: &Answer) -> Option<AppId> {
    #[derive(Deserialize)]
    struct Answered {
        number: Option<u32>,
    }
    answer.json::<Answered>().ok()?.number.map(AppId)
}

async fn keep(front: &Front, cell: &Cell, app: &AppName, hash: Option<[u8; 32]>) -> Result<(), String> {
    let kept = front.store.set_provisioned(cell.num, app.clone(), hash).await;
    kept.map_err(|error| error.to_string())
}

async fn tell(cell: &Cell, method: Method, app: &AppName, body: String) -> Result<Answer, String> {
    let bearer = HeaderValue::from_str(&format!("Bearer {}", cell.config.operator_token))
        .map_err(|_| "the operator's token cannot stand in a header".to_owned())?;
    // A name needs no escapes.
    let path = format!("/v1/apps/{app}");
    let ask = Ask { method, ..Ask::post(path, bearer, TIMEOUT, Ask::JSON, body) };
    cell.operate(ask).await.map_err(|error| error.to_string())
}

/// The status is told, the answer not: it may repeat what was sent.
fn refused(app: &AppName, answer: &Answer) -> String {
    format!("its admin address answered {} for the app {app}", answer.status.as_u16())
}

/// An app with all its keys and the front's own.
fn described(front: &Front, cell: &Cell, app: &App, keys: &[Key]) -> Value {
    let own = (KEY_NAME, front.key_hash(cell, &app.name), front_scopes());
    let others = keys.iter().map(|key| (key.name.as_str(), key.hash, key.scopes));
    let keys: Vec<Value> =
        others.chain([own]).map(|(name, hash, scopes)| key(name, &hash.0, scopes)).collect();
    let mut described = settings_of(&app.settings);
    described["keys"] = keys.into();
    described
}

/// An older cell refuses fields that it does not know: newer ones are sent only where they are set.
fn settings_of(settings: &AppSettings) -> Value {
    let secret = settings.jwt_secret.as_ref().and_then(|secret| std::str::from_utf8(secret).ok());
    let jwks: Option<Value> = settings.jwks.as_ref().and_then(|jwks| serde_json::from_str(jwks).ok());
    let mut described = json!({"jwt_secret": secret, "jwks_url": settings.jwks_url, "jwks": jwks,
        "client_publish": settings.client_publish});
    let json = |text: &Option<String>| text.as_ref().and_then(|text| serde_json::from_str(text).ok());
    let text = |text: &Option<String>| text.clone().map(Value::from);
    let newer = [
        ("issuer", text(&settings.issuer)),
        ("audience", text(&settings.audience)),
        ("quotas", json(&settings.quotas)),
        ("topic_rules", json(&settings.topic_rules)),
    ];
    for (name, value) in newer {
        if let Some(value) = value {
            described[name] = value;
        }
    }
    described
}

fn key(name: &str, hash: &[u8; 32], scopes: Scopes) -> Value {
    let mut text = String::with_capacity(64);
    for byte in hash {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    json!({"name": name, "hash": text, "scopes": scopes})
}

/// It manages no apps with it: that is the operator's token's.
fn front_scopes() -> Scopes {
    Scopes::default().with(Scope::Publish).with(Scope::Devices).with(Scope::Read)
}

fn digest_of(bytes: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_cell_is_told_nothing_that_it_does_not_know() {
        let settings =
            AppSettings { jwks_url: Some("https://id.example".to_owned()), ..AppSettings::default() };
        let older =
            json!({"jwt_secret": null, "jwks_url": "https://id.example", "jwks": null, "client_publish": []});
        assert_eq!(settings_of(&settings), older);
        let some = |text: &str| Some(text.to_owned());
        let all = AppSettings {
            issuer: some("i"),
            audience: some("a"),
            quotas: some(r#"{"devices":1}"#),
            topic_rules: some("{}"),
            ..settings
        };
        let told = settings_of(&all);
        let newer = [&told["issuer"], &told["audience"], &told["quotas"], &told["topic_rules"]];
        assert_eq!(newer, [&json!("i"), &json!("a"), &json!({"devices": 1}), &json!({})]);
    }
}
