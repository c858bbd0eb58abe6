//! The handle of the crate: reads apps and keys from the store, follows their changes, keeps JWK sets fresh, and answers
//! who a caller is. Verification itself is `verify`; the state that both read is [`crate::snapshot`].

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use noroshi_egress::Egress;
use noroshi_store::{App, AppSettings, Before, EndpointHash, Error, Key, NewKey, Store};
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;
use noroshi_types::rule::TopicRules;
use noroshi_types::{AppId, AppName, DeviceId, KeyId, NotificationId, Scopes, Timestamp};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::task::JoinSet;

use crate::capability::{Capabilities, Permit};
use crate::failures::FailureLimits;
use crate::identity::Access;
use crate::jwk_sets::{FETCHES_MAX, JwkSets, Source, source};
use crate::key::{self, ApiKey};
use crate::mirror::{self, MirrorKey};
use crate::pool::Pool;
use crate::refused::Refused;
use crate::snapshot::{RulesByApp, Snapshot};
use crate::token::Signer;
use crate::{provider, select};

mod verify;

use verify::Checks;
pub use verify::{Checked, Costly, Credential};

/// Shared as `Arc<Auth>`.
pub struct Auth {
    store: Arc<dyn Store>,
    snapshot: Arc<ArcSwap<Snapshot>>,
    /// Held from reading a snapshot until it is in place: an older snapshot must not replace a newer one, or a revoked
    /// key would be valid again. The JWK sets and the watchers are locked under it.
    reloading: tokio::sync::Mutex<()>,
    capabilities: Capabilities,
    jwk_sets: Arc<JwkSets>,
    signer: Signer,
    pool: Pool,
    checks: Arc<Checks>,
    random: SystemRandom,
    /// Notifies other nodes of changes. Set once, in a cluster.
    changed: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// Called after every reload. The lock guards the list; watchers run under it.
    watchers: Mutex<Vec<Watcher>>,
}

/// Called with all apps and their topic rules, sequentially and in order; must not block.
type Watcher = Box<dyn Fn(&[App], &RulesByApp) + Send + Sync>;

impl Auth {
    /// JWK sets are fetched through `egress`.
    pub async fn open(store: Arc<dyn Store>, egress: Arc<Egress>) -> Result<Arc<Self>, Error> {
        Self::open_with(store, egress, FailureLimits::default(), &Threads::default()).await
    }

    /// [`Auth::open`] with the operator's limits. `threads` supervises the threads that verify.
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
        let signer = Signer::new(&store.secret("device-token-key", fresh).await?);
        let mut fresh = vec![0; 32];
        random.fill(&mut fresh).map_err(no_randomness)?;
        let capabilities = Capabilities::new(&store.secret("endpoint-key", fresh).await?);
        let snapshot = Snapshot::read(&*store, &Snapshot::default()).await?;
        let snapshot = Arc::new(ArcSwap::from_pointee(snapshot));
        let jwk_sets = Arc::new(JwkSets::new(egress));
        let pool = Pool::start(threads)
            .map_err(|error| Error::Engine(format!("failed to start a verification thread: {error}")))?;
        let auth = Self {
            store,
            snapshot,
            reloading: tokio::sync::Mutex::default(),
            capabilities,
            jwk_sets,
            signer,
            pool,
            checks: Arc::new(Checks::new(limits)),
            random,
            changed: OnceLock::new(),
            watchers: Mutex::default(),
        };
        auth.load_given_sets().await;
        Ok(Arc::new(auth))
    }

    /// Loads the sets that apps give directly before the first device logs in; `run` fetches the others.
    async fn load_given_sets(&self) {
        for app in self.apps() {
            if matches!(source(&app.settings), Some(Source::Given(_))) {
                self.refresh(&app).await;
            }
        }
    }

    /// Identifies the provider with this API key.
    pub fn key(&self, bearer: &str, now: Timestamp) -> Result<Access, Refused> {
        let snapshot = self.snapshot.load();
        let key = snapshot.keys.get(&key::hash(bearer)).ok_or_else(|| {
            if crate::is_device_credential(bearer) { Refused::NotAKey } else { Refused::Unknown }
        })?;
        match key.expires_at {
            Some(expires_at) if key.has_expired(now) => Err(Refused::KeyExpired(expires_at)),
            _ => Ok(Access { app: key.app, key: key.id, scopes: key.scopes }),
        }
    }

    /// Call it once, before the registry is shown.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.checks.metrics.register(registry);
    }

    /// Another app that an app of this name with these settings would newly share tokens with: both have the same
    /// audience, and the same issuer or one of them declares none.
    pub fn rival(&self, name: &AppName, settings: &AppSettings) -> Option<AppName> {
        let snapshot = self.snapshot.load();
        snapshot.directory.rival(&snapshot.apps, name.as_str(), settings).map(|app| app.name.clone())
    }

    /// Whether these settings would make `app` the second app that signs tokens. Tokens of the first app then have to
    /// name their app.
    pub fn ends_unnamed_tokens(&self, app: AppId, settings: &AppSettings) -> bool {
        let snapshot = self.snapshot.load();
        select::signs(settings) && snapshot.directory.only(&snapshot.apps).is_some_and(|only| only.id != app)
    }

    /// Issues a device token.
    pub fn issue(&self, app: AppId, device: &DeviceId, token_version: u32, expires_at: Timestamp) -> String {
        self.signer.issue(app, device, token_version, expires_at)
    }

    /// The secret of a new Web Push endpoint, which is shown once.
    pub fn draw_endpoint(&self) -> Result<String, Error> {
        self.capabilities.draw_endpoint(&self.random).map_err(no_randomness)
    }

    /// The hash that identifies an endpoint in the store; none for a token that was never issued.
    pub fn endpoint(&self, token: &str) -> Option<EndpointHash> {
        self.capabilities.endpoint(token)
    }

    /// A token that permits its holder one action on a message.
    pub fn permit(&self, permit: Permit, app: AppId, id: NotificationId) -> String {
        self.capabilities.message(permit, app, id)
    }

    /// The message of a permit. None if it was never issued, or if its app is deleted.
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

    /// Calls `then` with the app instead of copying it, because an app may be large.
    pub fn with_app<T>(&self, id: AppId, then: impl FnOnce(&App) -> T) -> Option<T> {
        self.snapshot.load().app(id).map(then)
    }

    pub fn app_name(&self, id: AppId) -> Option<AppName> {
        self.with_app(id, |app| app.name.clone())
    }

    /// By id, oldest first; also those that have expired.
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

    /// Sets the app's quotas, as validated JSON; none: the node's defaults.
    pub async fn set_quotas(&self, app: AppId, quotas: Option<String>) -> Result<App, Error> {
        let app = self.store.set_quotas(app, Before::Any, quotas).await?;
        self.reload().await?;
        Ok(app)
    }

    /// As [`Auth::set_quotas`], if the quotas are still `before`; else [`Error::Conflict`].
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

    /// Sets or removes the topic rules of an app. Its other settings stay, including concurrent changes.
    pub async fn set_topic_rules(&self, app: AppId, rules: Option<String>) -> Result<App, Error> {
        let app = self.store.set_topic_rules(app, rules).await?;
        self.reload().await?;
        Ok(app)
    }

    /// The topic rules of an app, if it has some.
    pub fn topic_rules(&self, app: AppId) -> Option<Arc<TopicRules>> {
        self.snapshot.load().topic_rules(app).cloned()
    }

    pub async fn delete_app(&self, app: AppId) -> Result<(), Error> {
        self.store.delete_app(app).await?;
        self.reload().await
    }

    /// Creates a key; only the return value contains its clear text.
    pub async fn create_key(
        &self,
        app: AppId,
        name: String,
        scopes: Scopes,
        expires_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<(Key, ApiKey), Error> {
        let secret = ApiKey::generate(&self.random).map_err(no_randomness)?;
        let new = NewKey { app, name, hash: secret.hash(), scopes, expires_at };
        let key = self.store.create_key(new, now).await?;
        self.reload().await?;
        Ok((key, secret))
    }

    /// Adopts a key that the operator chose. Idempotent.
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
        let new = NewKey { app, name: name.to_owned(), hash, scopes, expires_at: None };
        let key = self.store.create_key(new, now).await?;
        self.reload().await?;
        Ok(key)
    }

    pub async fn revoke_key(&self, app: AppId, key: KeyId) -> Result<(), Error> {
        self.store.revoke_key(app, key).await?;
        self.reload().await
    }

    /// Creates or updates an app that a front owns: its settings, and exactly these keys. [`Error::Exists`] if one of
    /// the keys belongs to another app. Not atomic: after a failure, repeat it.
    pub async fn mirror(
        &self,
        name: AppName,
        settings: AppSettings,
        keys: Vec<MirrorKey>,
        now: Timestamp,
    ) -> Result<App, Error> {
        // Another node of the cell may have mirrored the app already.
        self.follow().await?;
        let quotas = settings.quotas.clone();
        let rules = settings.topic_rules.clone();
        let app = match self.app(name.as_str()) {
            None => self.create_app(name, settings, now).await?,
            Some(app) => {
                // Quotas and topic rules have their own calls; an update does not change them.
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
        let change = mirror::change(&self.keys(app.id), keys);
        let changed = !change.revoke.is_empty() || !change.create.is_empty();
        for key in change.revoke {
            match self.store.revoke_key(app.id, key).await {
                // Another node was faster.
                Ok(()) | Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        for MirrorKey { name, hash, scopes, expires_at } in change.create {
            self.store.create_key(NewKey { app: app.id, name, hash, scopes, expires_at }, now).await?;
        }
        if changed {
            self.reload().await?;
        }
        Ok(app)
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
                    // With all slots in use, only a finished fetch matters.
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
            let metrics = &self.checks.metrics;
            let counter = if result.is_ok() { &metrics.fetched } else { &metrics.not_fetched };
            counter.inc();
        }
        if let Err(error) = result {
            tracing::warn!(app = %app.name, %error, "failed to refresh the JWK set of an app; its last set stays in use");
        }
    }

    async fn changed(&self, app: &App) -> Result<(), Error> {
        self.load_again().await?;
        self.tell_others();
        self.refresh(app).await;
        // `run` recomputes when the next fetch is due.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    /// Call it after a local change: notifies other nodes.
    async fn reload(&self) -> Result<(), Error> {
        self.load_again().await?;
        self.tell_others();
        // The reload may include changes of other nodes.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    fn tell_others(&self) {
        if let Some(changed) = self.changed.get() {
            changed();
        }
    }

    /// Calls `changed` after every local change of apps or keys. A second call is ignored.
    pub fn notify_changes(&self, changed: impl Fn() + Send + Sync + 'static) {
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

    /// Reloads, to follow changes of other nodes.
    pub async fn follow(&self) -> Result<(), Error> {
        self.load_again().await?;
        // `run` fetches new sets: a server that hangs must not delay other changes.
        self.jwk_sets.changed.notify_one();
        Ok(())
    }

    /// Also drops keys from a replaced source, even if the new ones cannot be fetched: a reload after a local change
    /// may be the first to see another node's change.
    async fn load_again(&self) -> Result<(), Error> {
        let _in_order = self.reloading.lock().await;
        let before = self.snapshot.load_full();
        let now = Arc::new(Snapshot::read(&*self.store, &before).await?);
        // The snapshot is replaced first, so that a fetch for the old settings has no effect.
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

fn no_randomness(_: ring::error::Unspecified) -> Error {
    Error::Engine("the system has no randomness".to_owned())
}
