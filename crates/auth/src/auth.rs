//! The one place that is asked.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use noroshi_egress::Egress;
use noroshi_store::{App, AppSettings, Before, EndpointHash, Error, Issued, Key, KeyHash, NewKey, Store};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;
use noroshi_types::rule::{Claims, TopicRules};
use noroshi_types::{
    AppId, AppName, DeviceId, KeyId, NotificationId, Scope, Scopes, Timestamp, Topic, UserId,
};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::task::JoinSet;

use crate::capability::{Capabilities, Permit};
use crate::failures::FailureLimits;
use crate::jwk_sets::{FETCHES_MAX, JwkSets, Source, source};
use crate::key::{self, ApiKey};
use crate::pool::Pool;
use crate::select::{self, Directory};
use crate::verify::{Checked, Credential, Verifier};
use crate::{Refused, jwt, provider, subject, token, topic_rules};

/// A provider, by its API key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Access {
    pub app: AppId,
    pub key: KeyId,
    pub scopes: Scopes,
}

impl Access {
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(scope)
    }
}

/// A consumer, by its device token or app JWT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub app: AppId,
    pub device: DeviceId,
    /// Named by an app JWT.
    pub user: Option<UserId>,
    /// An app JWT makes its device on first use.
    pub create: bool,
    /// In a device token; compared with the device's own at log-in.
    pub token_version: Option<u32>,
    /// By an app JWT; compared with when such were revoked.
    pub issued: Issued,
    /// Durable subscriptions that an app JWT names and the app's topic rules do not deny.
    pub topics: Vec<Topic>,
    /// Filters in the JWT's claim `topics`, until the rules of its app are applied.
    pub(crate) topic_filters: Vec<Box<str>>,
    /// Subscriptions that the JWT names and the app's topic rules deny.
    pub denied_topics: Vec<Topic>,
    /// What the app's topic rules have to know of a JWT. None without rules, and for a device token, which carries no
    /// claims.
    pub claims: Option<Arc<Claims>>,
    pub expires_at: Timestamp,
}

impl Identity {
    /// Of a device that came without a token.
    pub fn anonymous(app: AppId, device: DeviceId) -> Self {
        Self {
            app,
            device,
            user: None,
            create: true,
            token_version: None,
            issued: Issued::Elsewhere,
            topics: Vec::new(),
            topic_filters: Vec::new(),
            denied_topics: Vec::new(),
            claims: None,
            expires_at: Timestamp(u64::MAX),
        }
    }
}

/// The topic rules of each app that has some, with the app's name.
pub type RulesByApp = HashMap<AppId, (AppName, Arc<TopicRules>)>;

/// Apps and keys as of the last change.
#[derive(Default)]
struct Snapshot {
    rules: RulesByApp,
    apps: Vec<App>,
    directory: Directory,
    keys: HashMap<KeyHash, Key>,
}

impl Snapshot {
    fn app(&self, id: AppId) -> Option<&App> {
        self.directory.by_id(&self.apps, id)
    }

    /// The topic rules of an app. It parses them only if their text is new: rules can be large, and a change of any app
    /// reads all apps again.
    fn rules_for(&self, app: &App) -> Option<Arc<TopicRules>> {
        let text = app.settings.topic_rules.as_deref()?;
        let known = self.rules.get(&app.id).map(|(_, rules)| rules);
        let text_before = self.app(app.id).and_then(|app| app.settings.topic_rules.as_deref());
        if let (Some(known), true) = (known, text_before == Some(text)) {
            return Some(known.clone());
        }
        let read = topic_rules::read(text).unwrap_or_else(|error| {
            tracing::error!(app = %app.name, %error, "the app's topic rules cannot be read: every topic is denied");
            TopicRules::denying_all()
        });
        // Rules that mean the same are the same: nobody has to check anything again.
        Some(known.filter(|known| ***known == read).cloned().unwrap_or_else(|| Arc::new(read)))
    }
}

/// Shared as `Arc<Auth>`.
pub struct Auth {
    store: Arc<dyn Store>,
    snapshot: ArcSwap<Snapshot>,
    /// Held from the reading of a snapshot until it is in its place: one that was read earlier must not
    /// come later, or a revoked key would be good again. The JWK sets and the watchers are locked under it.
    reloading: tokio::sync::Mutex<()>,
    signer: token::Signer,
    capabilities: Capabilities,
    jwk_sets: JwkSets,
    verifier: Arc<Verifier>,
    pool: Pool,
    random: SystemRandom,
    /// Set once, where other nodes are to be told.
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Called after every reload. The lock guards the list; watchers run under it.
    watchers: Mutex<Vec<Watcher>>,
}

/// Called with all apps and their topic rules, one call at a time and in order; must not block.
type Watcher = Box<dyn Fn(&[App], &RulesByApp) + Send + Sync>;

impl Auth {
    /// JWK sets are fetched through `egress`.
    pub async fn open(store: Arc<dyn Store>, egress: Arc<Egress>) -> Result<Arc<Self>, Error> {
        Self::open_with(store, egress, FailureLimits::default(), &Threads::default()).await
    }

    /// [`Auth::open`] with limits of the operator's. `threads`: where the threads that verify report progress.
    pub async fn open_with(
        store: Arc<dyn Store>,
        egress: Arc<Egress>,
        limits: FailureLimits,
        threads: &Threads,
    ) -> Result<Arc<Self>, Error> {
        provider::install();
        let random = SystemRandom::new();
        let mut fresh = vec![0; 32];
        random.fill(&mut fresh).map_err(no_randomness)?;
        let signer = token::Signer::new(&store.secret("device-token-key", fresh).await?);
        let mut fresh = vec![0; 32];
        random.fill(&mut fresh).map_err(no_randomness)?;
        let capabilities = Capabilities::new(&store.secret("endpoint-key", fresh).await?);
        let snapshot = ArcSwap::from_pointee(load(&*store, &Snapshot::default()).await?);
        let (reloading, jwk_sets) = (tokio::sync::Mutex::default(), JwkSets::new(egress));
        let verifier = Arc::new(Verifier::new(limits));
        let pool = Pool::start(threads)
            .map_err(|error| Error::Engine(format!("no thread to verify with: {error}")))?;
        let auth = Self {
            store,
            snapshot,
            reloading,
            signer,
            capabilities,
            jwk_sets,
            verifier,
            pool,
            random,
            changed: OnceLock::new(),
            watchers: Mutex::default(),
        };
        auth.load_given_sets().await;
        Ok(Arc::new(auth))
    }

    /// Sets that apps give directly are there before the first device is; `run` fetches the others.
    async fn load_given_sets(&self) {
        for app in self.apps() {
            if matches!(source(&app.settings), Some(Source::Given(_))) {
                self.refresh(&app).await;
            }
        }
    }

    /// Who the provider with this API key is.
    pub fn key(&self, bearer: &str) -> Result<Access, Refused> {
        let snapshot = self.snapshot.load();
        let key = snapshot
            .keys
            .get(&key::hash(bearer))
            .ok_or_else(|| if crate::is_of_a_device(bearer) { Refused::NotAKey } else { Refused::Unknown })?;
        Ok(Access { app: key.app, key: key.id, scopes: key.scopes })
    }

    /// [`Auth::authenticate`] for a caller that has a thread to spare: it blocks while the pool verifies.
    pub fn device(&self, token: &str, app: Option<&str>, now: Timestamp) -> Result<Identity, Refused> {
        match self.check(Credential { token, app, client: None }, now) {
            Checked::Known(result) => result,
            Checked::Costly(costly) => {
                let (answer, answered) = std::sync::mpsc::sync_channel(1);
                // Fails only if this thread is gone.
                self.submit(costly, move |result| drop(answer.send(result)));
                answered.recv().unwrap_or(Err(Refused::Busy))
            }
        }
    }

    /// What a JWT claims, completed with what the topic rules of its app have to know. Its signature is checked elsewhere.
    pub(crate) fn claimed(&self, token: &str, app: &App, now: Timestamp) -> Result<Identity, Refused> {
        let identity = jwt::claimed(token, app, now)?;
        let rules = self.topic_rules(app.id);
        subject::complete(identity, token, rules.as_deref())
    }

    pub(crate) fn device_token(&self, token: &str, now: Timestamp) -> Result<Identity, Refused> {
        let identity = self.signer.verify(token, now)?;
        // The app may be gone while its tokens live on.
        if self.has_app(identity.app) { Ok(identity) } else { Err(Refused::Unknown) }
    }

    pub(crate) fn is_key(&self, hash: &KeyHash) -> bool {
        self.snapshot.load().keys.contains_key(hash)
    }

    /// Calls `then` with the app that a JWT belongs to; an app may be large, so it is not copied.
    pub(crate) fn with_app_of<T>(
        &self,
        token: &str,
        named: Option<&str>,
        then: impl FnOnce(&App) -> T,
    ) -> Result<T, Refused> {
        let snapshot = self.snapshot.load();
        let app = snapshot.directory.select(&snapshot.apps, &jwt::unverified(token)?, named)?;
        Ok(then(app))
    }

    pub(crate) fn verifier(&self) -> &Arc<Verifier> {
        &self.verifier
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    pub(crate) fn jwk_sets(&self) -> &JwkSets {
        &self.jwk_sets
    }

    /// Once, before the registry is shown.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.verifier.metrics.register(registry);
    }

    /// Another app that an app of this name with these settings would newly share tokens with: both have the same
    /// audience, and the same issuer or one of them declares none.
    pub fn rival(&self, name: &AppName, settings: &AppSettings) -> Option<AppName> {
        let snapshot = self.snapshot.load();
        snapshot.directory.rival(&snapshot.apps, name.as_str(), settings).map(|app| app.name.clone())
    }

    /// Whether these settings would make `app` the second app that signs tokens. From then on the tokens of the first
    /// one have to name their app.
    pub fn ends_unnamed_tokens(&self, app: AppId, settings: &AppSettings) -> bool {
        let snapshot = self.snapshot.load();
        select::signs(settings) && snapshot.directory.only(&snapshot.apps).is_some_and(|only| only.id != app)
    }

    /// A device token.
    pub fn issue(&self, app: AppId, device: &DeviceId, token_version: u32, expires_at: Timestamp) -> String {
        self.signer.issue(app, device, token_version, expires_at)
    }

    /// The secret of a new Web Push endpoint, to be shown once.
    pub fn draw_endpoint(&self) -> Result<String, Error> {
        self.capabilities.draw_endpoint(&self.random).map_err(no_randomness)
    }

    /// Under which hash an endpoint is kept; none for what was never given out.
    pub fn endpoint(&self, token: &str) -> Option<EndpointHash> {
        self.capabilities.endpoint(token)
    }

    /// What permits its holder something about a message.
    pub fn permit(&self, permit: Permit, app: AppId, id: NotificationId) -> String {
        self.capabilities.message(permit, app, id)
    }

    /// What a permit is about. None for what was never given out, or is of an app that is gone.
    pub fn permitted(&self, permit: Permit, token: &str) -> Option<(AppId, NotificationId)> {
        let (app, id) = self.capabilities.message_of(permit, token)?;
        self.has_app(app).then_some((app, id))
    }

    pub fn apps(&self) -> Vec<App> {
        self.snapshot.load().apps.clone()
    }

    pub fn apps_count(&self) -> usize {
        self.snapshot.load().apps.len()
    }

    pub fn app(&self, name: &str) -> Option<App> {
        let snapshot = self.snapshot.load();
        snapshot.directory.by_name(&snapshot.apps, name).cloned()
    }

    pub fn has_app(&self, id: AppId) -> bool {
        self.snapshot.load().app(id).is_some()
    }

    pub fn app_id(&self, name: &str) -> Option<AppId> {
        let snapshot = self.snapshot.load();
        snapshot.directory.by_name(&snapshot.apps, name).map(|app| app.id)
    }

    /// Calls `then` with an app; an app may be large, so it is not copied.
    pub fn with_app<T>(&self, id: AppId, then: impl FnOnce(&App) -> T) -> Option<T> {
        self.snapshot.load().app(id).map(then)
    }

    pub fn app_name(&self, id: AppId) -> Option<AppName> {
        self.with_app(id, |app| app.name.clone())
    }

    /// By id, oldest first.
    pub fn keys(&self, app: AppId) -> Vec<Key> {
        let mut keys: Vec<Key> =
            self.snapshot.load().keys.values().filter(|key| key.app == app).cloned().collect();
        keys.sort_by_key(|key| key.id);
        keys
    }

    pub async fn create_app(
        &self,
        name: AppName,
        settings: AppSettings,
        now: Timestamp,
    ) -> Result<App, Error> {
        let app = self.store.create_app(name, settings, now).await?;
        self.changed(&app).await?;
        Ok(app)
    }

    pub async fn update_app(&self, app: AppId, settings: AppSettings) -> Result<App, Error> {
        let app = self.store.update_app(app, settings).await?;
        self.changed(&app).await?;
        Ok(app)
    }

    /// The app's quotas as checked JSON; none: the node's defaults.
    pub async fn set_quotas(&self, app: AppId, quotas: Option<String>) -> Result<App, Error> {
        let app = self.store.set_quotas(app, Before::Any, quotas).await?;
        self.reload().await?;
        Ok(app)
    }

    /// As [`Auth::set_quotas`], if they still are what they were `before`; else [`Error::Conflict`].
    pub async fn change_quotas(
        &self,
        app: AppId,
        before: Option<String>,
        quotas: Option<String>,
    ) -> Result<App, Error> {
        let app = self.store.set_quotas(app, Before::This(before), quotas).await?;
        self.reload().await?;
        Ok(app)
    }

    /// Sets or removes the topic rules of an app. Its other settings stay, also those that somebody changes at the same
    /// time.
    pub async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        let app = self.store.set_topic_rules(app, rules).await?;
        self.reload().await?;
        Ok(app)
    }

    /// The topic rules of an app that has some.
    pub fn topic_rules(&self, app: AppId) -> Option<Arc<TopicRules>> {
        self.snapshot.load().rules.get(&app).map(|(_, rules)| rules.clone())
    }

    pub async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.store.delete_app(app).await?;
        self.reload().await
    }

    /// A new key; the clear text is in the answer and nowhere else.
    pub async fn create_key(
        &self,
        app: AppId,
        name: String,
        scopes: Scopes,
        now: Timestamp,
    ) -> Result<(Key, ApiKey), Error> {
        let secret = ApiKey::generate(&self.random).map_err(no_randomness)?;
        let key = self.store.create_key(NewKey { app, name, hash: secret.hash(), scopes }, now).await?;
        self.reload().await?;
        Ok((key, secret))
    }

    /// A key that the operator chose. Adopting it again is the same key.
    pub async fn adopt_key(
        &self,
        app: AppId,
        name: &str,
        secret: &str,
        scopes: Scopes,
        now: Timestamp,
    ) -> Result<Key, Error> {
        let hash = key::hash(secret);
        if let Some(key) = self.snapshot.load().keys.get(&hash).filter(|key| key.app == app) {
            return Ok(key.clone());
        }
        let key = self.store.create_key(NewKey { app, name: name.to_owned(), hash, scopes }, now).await?;
        self.reload().await?;
        Ok(key)
    }

    pub async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.store.revoke_key(app, key).await?;
        self.reload().await
    }

    /// Keeps JWK sets fresh until `drain` resolves.
    pub async fn run(self: Arc<Self>, drain: impl Future<Output = ()>) {
        tokio::select! {
            () = drain => {}
            () = self.refresh_jwk_sets() => {}
        }
    }

    async fn refresh_jwk_sets(self: &Arc<Self>) {
        let mut fetches = JoinSet::new();
        loop {
            let apps = self.snapshot.load_full();
            let (due, next) = self.jwk_sets.take_due(&apps.apps, FETCHES_MAX - fetches.len());
            for app in due {
                let auth = self.clone();
                fetches.spawn(async move { auth.refresh(&app).await });
            }
            let until_next = async {
                match next {
                    // Where all places are taken, the next one that is free is what counts.
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(_) = fetches.join_next() => {}
                () = self.jwk_sets.changed.notified() => {}
                () = until_next, if fetches.len() < FETCHES_MAX => {}
            }
        }
    }

    async fn refresh(&self, app: &App) {
        // Its other settings may change during the fetch.
        let fetched_from = source(&app.settings);
        let is_current =
            || self.with_app(app.id, |now| source(&now.settings) == fetched_from).unwrap_or(false);
        let result = self.jwk_sets.refresh(app, is_current).await;
        let fetches = matches!(source(&app.settings), Some(Source::Url(_)));
        if fetches {
            let metrics = &self.verifier.metrics;
            let counter = if result.is_ok() { &metrics.fetched } else { &metrics.not_fetched };
            counter.inc();
        }
        if let Err(error) = result {
            tracing::warn!(app = %app.name, %error, "the JWK set of an app could not be refreshed; its last set stays in use");
        }
    }

    async fn changed(&self, app: &App) -> Result<(), Error> {
        self.load_again().await?;
        self.tell_others();
        self.refresh(app).await;
        // `run` learns when the next fetch is due.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    /// After a change made here: others are told.
    pub(crate) async fn reload(&self) -> Result<(), Error> {
        self.load_again().await?;
        self.tell_others();
        // What it loaded may hold changes of other nodes besides.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    fn tell_others(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    /// Calls `changed` after every change of apps or keys that is made here. A second call is ignored.
    pub fn tell_changes(&self, changed: impl Fn() + Send + Sync + 'static) {
        let _ = self.changed.set(Box::new(changed));
    }

    /// Calls `watcher` with all apps and their topic rules: now, and after every change on any node.
    pub async fn watch_apps(&self, watcher: impl Fn(&[App], &RulesByApp) + Send + Sync + 'static) {
        let _in_order = self.reloading.lock().await;
        let snapshot = self.snapshot.load_full();
        watcher(&snapshot.apps, &snapshot.rules);
        self.watchers.lock().push(Box::new(watcher));
    }

    fn tell_watchers(&self) {
        let snapshot = self.snapshot.load();
        let watchers = self.watchers.lock();
        watchers.iter().for_each(|watcher| watcher(&snapshot.apps, &snapshot.rules));
    }

    /// Follows a change that was made on another node, if there was one.
    pub async fn follow(&self) -> Result<(), Error> {
        self.load_again().await?;
        // `run` fetches what is new: an address that hangs must not delay what other nodes changed besides.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    /// Drops keys from a former source, even if the new ones cannot be fetched. Every reload does: one after a local
    /// change may be the first to load what another node changed.
    async fn load_again(&self) -> Result<(), Error> {
        let _in_order = self.reloading.lock().await;
        let before = self.snapshot.load_full();
        let now = Arc::new(load(&*self.store, &before).await?);
        // The snapshot comes first: from then on a fetch for the old settings changes nothing.
        self.snapshot.store(now.clone());
        for gone in before.apps.iter().filter(|app| now.app(app.id).is_none()) {
            self.jwk_sets.remove(gone.id);
        }
        for app in &now.apps {
            match before.app(app.id) {
                Some(known) if source(&known.settings) == source(&app.settings) => continue,
                Some(_) => self.jwk_sets.forget(app.id),
                None => {}
            }
            // `run` or the caller fetches the others.
            if matches!(source(&app.settings), Some(Source::Given(_))) {
                self.refresh(app).await;
            }
        }
        self.tell_watchers();
        Ok(())
    }
}

async fn load(store: &dyn Store, before: &Snapshot) -> Result<Snapshot, Error> {
    let apps = store.apps().await?;
    let keys = store.keys().await?.into_iter().map(|key| (key.hash, key)).collect();
    let rules_of = |app: &App| Some((app.id, (app.name.clone(), before.rules_for(app)?)));
    let rules = apps.iter().filter_map(rules_of).collect();
    Ok(Snapshot { rules, directory: Directory::of(&apps), apps, keys })
}

fn no_randomness(_: ring::error::Unspecified) -> Error {
    Error::Engine("the system has no randomness".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Not what the text says, so it tells whether the text was parsed.
        let known = Arc::new(TopicRules::denying_all());
        let snapshot = Snapshot {
            rules: RulesByApp::from([(old.id, (old.name.clone(), known.clone()))]),
            directory: Directory::of(std::slice::from_ref(&old)),
            apps: vec![old.clone()],
            keys: HashMap::new(),
        };
        assert!(snapshot.rules_for(&old).is_some_and(|rules| Arc::ptr_eq(&rules, &known)));
        assert!(snapshot.rules_for(&new).is_some_and(|rules| *rules != *known));
    }
}
