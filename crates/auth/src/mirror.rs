//! Apps that another place owns: here they are made to be what they are there, keys by their hashes.
//!
//! Repeating it changes nothing, so whoever owns them may say it again whenever in doubt.

use std::collections::HashSet;

use noroshi_store::{App, AppSettings, Error, KeyHash, NewKey};
use noroshi_types::{AppName, Scopes, Timestamp};

use crate::Auth;

/// A key whose clear text only its owner has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MirrorKey {
    pub name: String,
    pub hash: KeyHash,
    pub scopes: Scopes,
}

impl Auth {
    /// Makes the app, or brings it up to date: its settings, and exactly these keys. [`Error::Exists`] if one of
    /// the keys is another app's. Stopped in the middle, some of it is done: repeat it.
    pub async fn mirror(
        &self,
        name: AppName,
        settings: AppSettings,
        keys: Vec<MirrorKey>,
        now: Timestamp,
    ) -> Result<App, Error> {
        // Another node of the cell may have been told before.
        self.follow().await?;
        let quotas = settings.quotas.clone();
        let rules = settings.topic_rules.clone();
        let app = match self.app(name.as_str()) {
            None => self.create_app(name, settings, now).await?,
            Some(app) => {
                // Quotas and topic rules have calls of their own; an update leaves them as they are.
                let AppSettings { quotas, topic_rules, .. } = app.settings.clone();
                let updated = AppSettings { quotas, topic_rules, ..settings };
                if app.settings == updated { app } else { self.update_app(app.id, updated).await? }
            }
        };
        let app = match app.settings.quotas == quotas {
            true => app,
            false => self.set_quotas(app.id, quotas).await?,
        };
        let app = match app.settings.topic_rules == rules {
            true => app,
            false => self.set_topic_rules(app.id, rules).await?,
        };
        let there = self.keys(app.id);
        let wanted: HashSet<(KeyHash, Scopes)> = keys.iter().map(|key| (key.hash, key.scopes)).collect();
        let stale: Vec<_> = there.iter().filter(|key| !wanted.contains(&(key.hash, key.scopes))).collect();
        let known: HashSet<KeyHash> =
            there.iter().filter(|key| wanted.contains(&(key.hash, key.scopes))).map(|key| key.hash).collect();
        let mut changed = !stale.is_empty();
        for key in stale {
            match self.store().revoke_key(app.id, key.id).await {
                // Somebody else was faster.
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        for MirrorKey { name, hash, scopes } in keys.into_iter().filter(|key| !known.contains(&key.hash)) {
            self.store().create_key(NewKey { app: app.id, name, hash, scopes }, now).await?;
            changed = true;
        }
        if changed {
            self.reload().await?;
        }
        Ok(app)
    }
}
