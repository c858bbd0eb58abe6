//! The development app: one app with a key with all scopes and a JWT secret, so that the first push takes a minute and scripts
//! can use a new node at once.

use std::net::SocketAddr;

use noroshi_auth::Auth;
use noroshi_store::{App, AppSettings};
use noroshi_types::{AppName, Invalid, Scopes, Timestamp, limits};

use crate::data::{self, Secrets};

/// Environment variables with the secrets, instead of the data folder.
pub const KEY_VARIABLE: &str = "NOROSHI_DEV_KEY";
pub const JWT_SECRET_VARIABLE: &str = "NOROSHI_DEV_JWT_SECRET";

pub const APP: &str = "dev";
/// Name of the app's key from the environment or the data folder.
const KEY_NAME: &str = "development";
/// 96 bits if the characters are random base64.
const KEY_BYTES_MIN: usize = 16;
/// Longer than any generated key; a key is sent in one HTTP header.
const KEY_BYTES_MAX: usize = 1_024;

/// Secrets from the environment.
#[derive(Clone, Default)]
pub struct Given {
    pub key: Option<String>,
    pub jwt_secret: Option<String>,
}

/// Shows which secrets are set, never the secrets.
impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = |secret: &Option<String>| secret.as_ref().map(|_| "set");
        f.debug_struct("Given")
            .field("key", &set(&self.key))
            .field("jwt_secret", &set(&self.jwt_secret))
            .finish()
    }
}

impl Given {
    pub fn from_environment() -> Self {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self { key: variable(KEY_VARIABLE), jwt_secret: variable(JWT_SECRET_VARIABLE) }
    }

    /// All violated rules, before anything is opened.
    pub fn check(&self) -> Vec<(&'static str, Invalid)> {
        let mut wrong = Vec::new();
        let is_key = |key: &String| {
            (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_graphic())
        };
        if self.key.as_ref().is_some_and(|key| !is_key(key)) {
            let rule = format!(
                "expected {KEY_BYTES_MIN} to {KEY_BYTES_MAX} printable ASCII characters without spaces"
            );
            wrong.push((KEY_VARIABLE, Invalid::new(rule)));
        }
        let secret_bytes = limits::JWT_SECRET_BYTES_MIN..=limits::JWT_SECRET_BYTES_MAX;
        if self.jwt_secret.as_ref().is_some_and(|secret| !secret_bytes.contains(&secret.len())) {
            let rule = format!("expected {} to {} bytes", secret_bytes.start(), secret_bytes.end());
            wrong.push((JWT_SECRET_VARIABLE, Invalid::new(rule)));
        }
        wrong
    }
}

/// Secrets to print at start. Contains only generated ones.
#[derive(Clone)]
pub struct Development {
    pub key: Option<String>,
    pub jwt_secret: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error("{KEY_VARIABLE} is already a key of another app")]
    KeyTaken,
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

/// Creates the app and updates its secrets. Does nothing if an operator manages the apps: apps exist, none is `dev`, and `--dev`
/// was not given.
pub async fn prepare(
    auth: &Auth,
    secrets: &Secrets,
    given: &Given,
    wanted: bool,
    now: Timestamp,
) -> Result<Option<Development>, Error> {
    let app = match auth.app(APP) {
        Some(app) => app,
        None if wanted || auth.apps().is_empty() => {
            let name = AppName::parse(APP).expect("a constant that is a valid name");
            match auth.create_app(name, AppSettings::default(), now).await {
                // Another node that starts at the same time created it.
                Err(noroshi_store::Error::Exists) => {
                    auth.follow().await?;
                    auth.app(APP).ok_or(noroshi_store::Error::NotFound)?
                }
                made => made?,
            }
        }
        None => return Ok(None),
    };
    let (key, key_shown) = supplied_or_generated(&given.key, secrets, data::DEV_KEY, "nk_").await?;
    adopt(auth, &app, &key, now).await?;
    let (secret, secret_shown) =
        supplied_or_generated(&given.jwt_secret, secrets, data::DEV_JWT_SECRET, "").await?;
    if app.settings.jwt_secret.as_deref() != Some(secret.as_bytes()) {
        let settings = AppSettings { jwt_secret: Some(secret.into_bytes()), ..app.settings };
        auth.update_app(app.id, settings).await?;
    }
    Ok(Some(Development { key: key_shown, jwt_secret: secret_shown }))
}

/// The secret, and a copy if it may be printed.
async fn supplied_or_generated(
    given: &Option<String>,
    secrets: &Secrets,
    name: &str,
    prefix: &str,
) -> Result<(String, Option<String>), data::Error> {
    match given {
        Some(secret) => Ok((secret.clone(), None)),
        None => secrets.get(name, prefix).await.map(|secret| (secret.clone(), Some(secret))),
    }
}

/// The first address that is reachable from other machines.
pub fn exposed<'a>(addresses: impl IntoIterator<Item = &'a SocketAddr>) -> Option<&'a SocketAddr> {
    addresses.into_iter().find(|address| !address.ip().to_canonical().is_loopback())
}

/// Makes this the app's only development key, and revokes earlier ones.
async fn adopt(auth: &Auth, app: &App, key: &str, now: Timestamp) -> Result<(), Error> {
    let mut adopted = auth.adopt_key(app.id, KEY_NAME, key, Scopes::ALL, now).await;
    if matches!(adopted, Err(noroshi_store::Error::Exists)) {
        // Another node that starts at the same time adopted it, or it belongs to another app.
        auth.follow().await?;
        adopted = auth.adopt_key(app.id, KEY_NAME, key, Scopes::ALL, now).await;
    }
    let adopted = match adopted {
        Ok(key) => key,
        Err(noroshi_store::Error::Exists) => return Err(Error::KeyTaken),
        Err(error) => return Err(error.into()),
    };
    for earlier in auth.keys(app.id).into_iter().filter(|key| key.name == KEY_NAME && key.id != adopted.id) {
        auth.revoke_key(app.id, earlier.id).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_secrets_are_rejected() {
        let wrong = |key: &str, secret: &str| {
            let given = Given { key: Some(key.to_owned()), jwt_secret: Some(secret.to_owned()) };
            given.check().into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        let (key, secret) = ("k".repeat(16), "s".repeat(32));
        assert!(wrong(&key, &secret).is_empty() && Given::default().check().is_empty());
        assert_eq!(wrong("k", "s"), [KEY_VARIABLE, JWT_SECRET_VARIABLE]);
        assert_eq!(wrong(&key[1..], &secret), [KEY_VARIABLE]);
        assert_eq!(wrong(&key, &secret[1..]), [JWT_SECRET_VARIABLE]);
        assert_eq!(wrong(&"k".repeat(1_025), &"s".repeat(1_025)), [KEY_VARIABLE, JWT_SECRET_VARIABLE]);
        assert_eq!(wrong("with a space in between", &secret), [KEY_VARIABLE]);
    }

    #[test]
    fn an_address_beyond_loopback_is_exposed() {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let loopback = ["127.0.0.1:80", "[::1]:80", "127.8.8.8:80", "[::ffff:127.0.0.1]:80"].map(address);
        assert_eq!(exposed(&loopback), None);
        for text in ["0.0.0.0:80", "[::]:80", "192.0.2.1:80"] {
            assert_eq!(exposed(&[loopback[0], address(text)]), Some(&address(text)));
        }
    }
}
