//! Apps, keys and topic rules as of the last change, all in memory. A snapshot never changes: [`crate::Auth`] reads a
//! new one from the store and swaps it in.

use std::collections::HashMap;
use std::sync::Arc;

use noroshi_store::{App, Error, Key, KeyHash, Store};
use noroshi_types::rule::TopicRules;
use noroshi_types::{AppId, AppName};
use ring::hmac;

use crate::refused::Refused;
use crate::select::{Directory, Named};
use crate::topic_rules;

/// Topic rules by app, with the app's name.
pub type RulesByApp = HashMap<AppId, (AppName, Arc<TopicRules>)>;

/// Apps and keys as of the last change.
#[derive(Default)]
pub(crate) struct Snapshot {
    pub(crate) rules: RulesByApp,
    pub(crate) apps: Vec<App>,
    pub(crate) directory: Directory,
    pub(crate) keys: HashMap<KeyHash, Key>,
    /// The HS256 keys of apps, ready to verify with.
    pub(crate) secrets: HashMap<AppId, hmac::Key>,
}

impl Snapshot {
    pub(crate) fn app(&self, id: AppId) -> Option<&App> {
        self.directory.by_id(&self.apps, id)
    }

    /// Reads apps and keys from the store. Rules whose text is the same as `before` are not parsed again.
    pub(crate) async fn read(store: &dyn Store, before: &Snapshot) -> Result<Self, Error> {
        let apps = store.apps().await?;
        let keys = store.keys().await?.into_iter().map(|key| (key.hash, key)).collect();
        let rules_of = |app: &App| Some((app.id, (app.name.clone(), before.rules_for(app)?)));
        let rules = apps.iter().filter_map(rules_of).collect();
        let secret_of = |app: &App| {
            let secret = app.settings.jwt_secret.as_deref()?;
            Some((app.id, hmac::Key::new(hmac::HMAC_SHA256, secret)))
        };
        let secrets = apps.iter().filter_map(secret_of).collect();
        Ok(Self { rules, directory: Directory::of(&apps), apps, keys, secrets })
    }

    /// The app that a JWT belongs to.
    pub(crate) fn app_of_token(&self, token: &Named, named: Option<&str>) -> Result<&App, Refused> {
        self.directory.select(&self.apps, token, named)
    }

    pub(crate) fn topic_rules(&self, app: AppId) -> Option<&Arc<TopicRules>> {
        self.rules.get(&app).map(|(_, rules)| rules)
    }

    /// The topic rules of an app. Parses them only if their text changed, because rules can be large and a change of
    /// any app reloads all apps.
    fn rules_for(&self, app: &App) -> Option<Arc<TopicRules>> {
        let text = app.settings.topic_rules.as_deref()?;
        let known = self.rules.get(&app.id).map(|(_, rules)| rules);
        let text_before = self.app(app.id).and_then(|app| app.settings.topic_rules.as_deref());
        if let (Some(known), true) = (known, text_before == Some(text)) {
            return Some(known.clone());
        }
        let read = topic_rules::read(text).unwrap_or_else(|error| {
            tracing::error!(app = %app.name, %error, "invalid topic rules of an app: all topics are denied");
            TopicRules::deny_all()
        });
        // Equal rules keep their identity, so that no session has to check its subscriptions again.
        Some(known.filter(|known| ***known == read).cloned().unwrap_or_else(|| Arc::new(read)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use noroshi_store::AppSettings;
    use noroshi_types::Timestamp;

    #[test]
    fn topic_rules_are_parsed_when_their_text_changes() {
        let app = |topic: &str| App {
            id: AppId(1),
            name: AppName::parse("a").expect("a name"),
            created_at: Timestamp(0),
            settings: AppSettings {
                topic_rules: Some(format!(r#"{{"subscribe":[{{"topic":"{topic}","allow":"anyone"}}]}}"#)),
                ..AppSettings::default()
            },
        };
        let (old, new) = (app("old"), app("new"));
        // Differs from the text, so the result shows whether the text was parsed.
        let known = Arc::new(TopicRules::deny_all());
        let snapshot = Snapshot {
            rules: RulesByApp::from([(old.id, (old.name.clone(), known.clone()))]),
            directory: Directory::of(std::slice::from_ref(&old)),
            apps: vec![old.clone()],
            ..Snapshot::default()
        };
        assert!(snapshot.rules_for(&old).is_some_and(|rules| Arc::ptr_eq(&rules, &known)));
        assert!(snapshot.rules_for(&new).is_some_and(|rules| *rules != *known));
    }
}
