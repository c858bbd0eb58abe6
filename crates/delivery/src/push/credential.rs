//! Push credentials: sealed into the store, opened at the start, handed to the connection pools, and tested.
//!
//! A credential that cannot be opened is reported and its pushes wait. Only the pools get the secrets.
//! Other nodes reload an app's credentials after a record, and at intervals.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use noroshi_push::credential::Invalid;
use noroshi_push::{Answer, Answered, Content, Credential, Fields, Push, Reply, Vault};
use noroshi_store::{NewCredential, RestoreTokens, RotatedCredential, Store, StoredCredential};
use noroshi_types::{
    AppId, CredentialId, JsonText, Lane, OwnFields, PushEnvironment, PushService, PushToken, Timestamp,
    Urgency,
};
use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use serde_json::{Map, Value};
use tokio::sync::oneshot;

use super::configured::Configured;
use super::outlet::Outlet;
use super::token_health::Realm;
use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;
use crate::push_work::PushWork;

/// The longest wait of a test for its answer; pools time out after 30 s.
const TEST_TIMEOUT: Duration = Duration::from_secs(40);

/// Suspended tokens that one commit restores.
const RESTORED_AT_ONCE: usize = 500;

/// A credential without its secrets, for display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialView {
    pub id: CredentialId,
    pub service: PushService,
    pub environment: PushEnvironment,
    /// The provider behind a webhook; empty for every other service.
    pub provider: String,
    pub name: String,
    pub shown: JsonText,
    pub created_at: Timestamp,
}

const ACCEPTED: &str = "accepted";

/// The answer of a push service to a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tested {
    /// `accepted`, `gone`, `suspect`, `refused`, `later`, `not_configured`, `expired` or `no_answer`.
    pub answer: &'static str,
    /// The reason, by the push service or by Noroshi.
    pub reason: Option<&'static str>,
}

/// The result of a rotation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rotated {
    /// The new credential is in use.
    Replaced(CredentialView),
    /// The push service did not accept the test; the old credential is in use as before.
    Rejected(Tested),
}

/// A field that no rotation takes over: it belongs to the secret that was replaced before.
const NOT_KEPT: &str = "previous_secret";

/// The sealed credentials of each app.
type Sealed = HashMap<AppId, Vec<(CredentialId, Vec<u8>)>>;

/// The credentials of all apps.
pub struct Credentials {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    work: Arc<PushWork>,
    outlet: Arc<dyn Outlet>,
    configured: Arc<Configured>,
    freshness: Arc<Freshness>,
    /// `None`: the configuration has no key, and no credential can be stored.
    vault: Option<Vault>,
    /// Opened credentials with their sealed form: the pools of unchanged credentials stay.
    opened: Mutex<HashMap<CredentialId, (Vec<u8>, Credential)>>,
    /// Stored credentials that cannot be opened: their pushes wait until an operator acts.
    pub(super) unreadable: Mutex<HashSet<Realm>>,
    unreadable_count: Gauge,
    /// Held from the read of the store until the pools have the result, so that of two concurrent changes the pools
    /// keep the later read.
    updating: tokio::sync::Mutex<()>,
    /// What [`Credentials::reload_changed`] last read.
    seen: tokio::sync::Mutex<Sealed>,
}

impl Credentials {
    pub(super) fn new(service: &super::Service, outlet: Arc<dyn Outlet>, vault: Option<Vault>) -> Self {
        Self {
            context: service.context.clone(),
            nodes: service.nodes.clone(),
            work: service.work.clone(),
            outlet,
            configured: service.configured.clone(),
            freshness: service.freshness.clone(),
            vault,
            opened: Mutex::default(),
            unreadable: Mutex::default(),
            unreadable_count: service.metrics.credentials_unreadable.clone(),
            updating: tokio::sync::Mutex::default(),
            seen: tokio::sync::Mutex::default(),
        }
    }

    /// Opens all credentials and hands them to the pools, once at the start. One that cannot be opened is counted
    /// and logged, and its pushes wait; the others work.
    pub async fn load(&self) -> Result<(), Error> {
        let mut apps: Vec<AppId> = Vec::new();
        for stored in self.context.store.credentials().await? {
            apps.push(stored.app);
            if let Err(reason) = self.open(&stored) {
                let (app, service, environment) = labels(&stored);
                tracing::warn!(
                    app,
                    service,
                    environment,
                    reason,
                    "could not open a push credential; its pushes wait"
                );
            }
        }
        apps.sort_unstable();
        apps.dedup();
        for app in apps {
            self.update_pools(app).await?;
        }
        Ok(())
    }

    /// Checks, seals and stores the credential in `body`, and uses it from now on.
    pub async fn put(&self, app: AppId, body: &[u8], replace: bool) -> Result<CredentialView, Error> {
        let vault = self.vault.as_ref().ok_or(Error::NoVault)?;
        let credential = Credential::parse(body).map_err(Error::Credential)?;
        let (service, environment) = (credential.service, credential.environment);
        // Another node would not read the app's credentials any more.
        self.nodes.require_push_service("service", service)?;
        let provider = credential.provider.to_string();
        let new = NewCredential {
            app,
            service,
            environment,
            sealed: vault.seal(app, service, environment, &provider, body),
            provider,
            name: credential.name,
            shown: credential.shown,
            replace,
        };
        let stored = self.context.store.put_credential(new, self.context.now()).await?;
        self.replaced(app).await?;
        Ok(stored.into())
    }

    /// Deletes a credential. Its pushes in flight are finished, and its connections close.
    pub async fn delete(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        self.context.store.delete_credential(app, id).await?;
        let updated = self.update_pools(app).await;
        // Senders, and API nodes, which manage channels.
        self.nodes.send(To::All, Record::CredentialsChanged { app });
        self.opened.lock().remove(&id);
        updated
    }

    /// Uses tokens again that were suspended since a time, for the credential's service and environment. Returns how
    /// many. After an error, tokens of earlier commits are restored.
    pub async fn restore(
        &self,
        app: AppId,
        id: CredentialId,
        since: Timestamp,
        reason: Option<String>,
    ) -> Result<u64, Error> {
        let views = list(&*self.context.store, app).await?;
        let view = views.into_iter().find(|view| view.id == id).ok_or(noroshi_store::Error::NotFound)?;
        let (service, environment) = (view.service, view.environment);
        let restore = RestoreTokens { service, environment, since, reason, tokens_max: RESTORED_AT_ONCE };
        let mut count = 0;
        loop {
            let restored = self.context.store.restore_tokens(app, restore.clone()).await?;
            if restored.is_empty() {
                return Ok(count);
            }
            count += restored.len() as u64;
            self.freshness.nums_changed(restored);
        }
    }

    /// Sends one push to `token` and returns the answer. The answer does not change the stored token.
    pub async fn test(&self, app: AppId, id: CredentialId, token: PushToken) -> Result<Tested, Error> {
        let views = list(&*self.context.store, app).await?;
        let view = views.into_iter().find(|view| view.id == id).ok_or(noroshi_store::Error::NotFound)?;
        require_same(&view, &token)?;
        Ok(self.try_push(app, token, None).await)
    }

    /// Changes fields of a credential, once the push service has accepted a push to `token` with the changed one.
    /// `null` removes a field. The store replaces the credential in one commit, unless it was changed meanwhile
    /// ([`noroshi_store::Error::Conflict`]); pushes that are queued or in flight are finished with the old one.
    pub async fn rotate(
        &self,
        app: AppId,
        id: CredentialId,
        change: Map<String, Value>,
        token: PushToken,
    ) -> Result<Rotated, Error> {
        let vault = self.vault.as_ref().ok_or(Error::NoVault)?;
        let all = self.context.store.credentials().await?;
        let of_app = |stored: &StoredCredential| stored.app == app && stored.id == id;
        let stored = all.into_iter().find(of_app).ok_or(noroshi_store::Error::NotFound)?;
        require_same(&stored.clone().into(), &token)?;
        let plain = vault
            .open(app, stored.service, stored.environment, &stored.provider, &stored.sealed)
            .map_err(|_| unreadable())?;
        require_same_use(&stored, &change)?;
        let body = changed(&plain, change)?;
        let credential = Credential::parse(&body).map_err(in_credential)?;
        if *credential.provider != *stored.provider {
            return Err(cannot_change("name"));
        }
        let tested = self.try_push(app, token, Some(credential.clone())).await;
        if tested.answer != ACCEPTED {
            return Ok(Rotated::Rejected(tested));
        }
        let sealed = vault.seal(app, stored.service, stored.environment, &stored.provider, &body);
        let (name, shown) = (credential.name, credential.shown);
        let rotated = RotatedCredential { app, id, before: stored.sealed, name, shown, sealed };
        let stored = self.context.store.rotate_credential(rotated, self.context.now()).await?;
        self.replaced(app).await?;
        Ok(Rotated::Replaced(stored.into()))
    }

    /// The credentials of the app changed: uses them, here and on other nodes.
    async fn replaced(&self, app: AppId) -> Result<(), Error> {
        self.update_pools(app).await?;
        // Senders, and API nodes, which manage channels.
        self.nodes.send(To::All, Record::CredentialsChanged { app });
        // Pushes that waited for a credential are due as before; those that failed without one are not repeated.
        self.work.wake_local();
        Ok(())
    }

    /// Pushes to `token`, with a credential that is not in use if one is given.
    async fn try_push(&self, app: AppId, token: PushToken, credential: Option<Credential>) -> Tested {
        let (reply, answer) = oneshot::channel();
        let push = Push {
            app,
            lane: Lane::Extra,
            token,
            content: Arc::new(Content::new(test_fields(self.context.now()))),
            id: uuid::Uuid::now_v7(),
            details: None,
            record: noroshi_push::Record::Nothing,
            reply: Reply { to: Arc::new(TestReply(Mutex::new(Some(reply)))), index: 0 },
        };
        let answered = async {
            match credential {
                Some(credential) => self.outlet.send_with(credential, push).await,
                None => self.outlet.send(push).await,
            }
            answer.await
        };
        let answered = tokio::time::timeout(TEST_TIMEOUT, answered).await;
        answered.ok().and_then(Result::ok).map_or(Tested { answer: "no_answer", reason: None }, Tested::from)
    }

    /// Hands the stored credentials of the app to the pools.
    async fn update_pools(&self, app: AppId) -> Result<(), Error> {
        let _one = self.updating.lock().await;
        self.configured.forget();
        let stored = self.context.store.credentials().await?;
        let (mut credentials, mut unreadable) = (Vec::new(), Vec::new());
        for stored in stored.iter().filter(|stored| stored.app == app) {
            match self.open(stored) {
                Ok(credential) => credentials.push(credential),
                Err(_) => unreadable.push((app, stored.service, stored.environment)),
            }
        }
        let mut known = self.unreadable.lock();
        known.retain(|realm| realm.0 != app);
        known.extend(unreadable);
        self.unreadable_count.set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        drop(known);
        self.outlet.set_credentials(app, credentials);
        Ok(())
    }

    /// Another node changed the app's credentials.
    pub(super) async fn reload(&self, app: AppId) -> Result<(), Error> {
        self.update_pools(app).await?;
        // Pushes that waited for a credential are due as before.
        self.work.wake_local();
        Ok(())
    }

    /// Reads the credentials of every app whose credentials changed since the last call.
    pub(super) async fn reload_changed(&self) -> Result<(), Error> {
        let mut seen = self.seen.lock().await;
        let mut present = Sealed::new();
        for stored in self.context.store.credentials().await? {
            present.entry(stored.app).or_default().push((stored.id, stored.sealed));
        }
        let mut changed: Vec<AppId> = seen.keys().filter(|app| !present.contains_key(app)).copied().collect();
        changed.extend(present.iter().filter(|(app, now)| seen.get(app) != Some(now)).map(|(app, _)| *app));
        for app in changed {
            self.reload(app).await?;
        }
        *seen = present;
        Ok(())
    }

    /// The error tells an operator what to do.
    fn open(&self, stored: &StoredCredential) -> Result<Credential, &'static str> {
        if let Some((sealed, credential)) = self.opened.lock().get(&stored.id)
            && *sealed == stored.sealed
        {
            return Ok(credential.clone());
        }
        let vault = self.vault.as_ref().ok_or("the configuration has no key for credentials")?;
        let plain = vault
            .open(stored.app, stored.service, stored.environment, &stored.provider, &stored.sealed)
            .map_err(|_| "it was sealed with another key, or is damaged")?;
        let credential = Credential::parse(&plain).map_err(|_| "this version does not support it")?;
        self.opened.lock().insert(stored.id, (stored.sealed.clone(), credential.clone()));
        Ok(credential)
    }
}

/// The credentials of the app, by id.
pub(super) async fn list(store: &dyn Store, app: AppId) -> Result<Vec<CredentialView>, Error> {
    let all = store.credentials().await?;
    Ok(all.into_iter().filter(|stored| stored.app == app).map(CredentialView::from).collect())
}

/// The token must be one that the credential pushes to.
fn require_same(view: &CredentialView, token: &PushToken) -> Result<(), Error> {
    let same = (view.service, view.environment) == (token.service, token.environment)
        && noroshi_push::provider_of(token).as_deref() == Some(&*view.provider);
    let rule = "is of another push service, environment or provider than the credential";
    same.then_some(()).ok_or_else(|| Error::Credential(Invalid::new("push_token", rule)))
}

/// A rotation keeps what identifies the credential.
fn require_same_use(stored: &StoredCredential, change: &Map<String, Value>) -> Result<(), Error> {
    let present = [("service", stored.service.as_str()), ("environment", stored.environment.as_str())];
    let differs = |(field, present): &(&str, &str)| change.get(*field).is_some_and(|value| value != *present);
    present.into_iter().find(differs).map_or(Ok(()), |(field, _)| Err(cannot_change(field)))
}

fn cannot_change(field: &'static str) -> Error {
    in_credential(Invalid::new(field, "cannot change: add another credential"))
}

/// The credential's JSON with the changed fields.
fn changed(plain: &[u8], change: Map<String, Value>) -> Result<Vec<u8>, Error> {
    let Ok(Value::Object(mut fields)) = serde_json::from_slice(plain) else { return Err(unreadable()) };
    fields.remove(NOT_KEPT);
    for (name, value) in change {
        match value {
            Value::Null => fields.remove(&name),
            value => fields.insert(name, value),
        };
    }
    Ok(Value::Object(fields).to_string().into_bytes())
}

/// In a rotation the fields are those of `credential`.
fn in_credential(invalid: Invalid) -> Error {
    let field = match &*invalid.field {
        "credential" => "credential".to_owned(),
        field => format!("credential.{field}"),
    };
    Error::Credential(Invalid::new(field, invalid.rule))
}

fn unreadable() -> Error {
    let rule =
        "changes a stored credential that cannot be opened: add the whole credential with replace=true";
    Error::Credential(Invalid::new("credential", rule))
}

fn labels(stored: &StoredCredential) -> (u32, &'static str, &'static str) {
    (stored.app.0, stored.service.as_str(), stored.environment.as_str())
}

fn test_fields(now: Timestamp) -> Fields {
    Fields {
        notification_id: None,
        notification: Some(JsonText::from_valid(
            r#"{"title":"Noroshi","body":"A test: this device can be reached."}"#,
        )),
        data: None,
        urgency: Urgency::High,
        collapse_key: None,
        expires_at: now.saturating_add(Duration::from_secs(60)),
        unread: None,
        kind: None,
        own: OwnFields::default(),
    }
}

/// Passes the answer of the test on.
struct TestReply(Mutex<Option<oneshot::Sender<Answer>>>);

impl Answered for TestReply {
    fn answered(&self, _: u32, answer: Answer) {
        if let Some(reply) = self.0.lock().take() {
            // The caller may be gone.
            let _ = reply.send(answer);
        }
    }
}

impl From<Answer> for Tested {
    fn from(answer: Answer) -> Self {
        let (answer, reason) = match answer {
            Answer::Accepted => (ACCEPTED, None),
            Answer::Gone { reason, .. } => ("gone", Some(reason)),
            Answer::Suspect { reason } => ("suspect", Some(reason)),
            Answer::Refused { reason } => ("refused", Some(reason)),
            Answer::Later { reason, .. } => ("later", Some(reason)),
            Answer::Unconfigured => ("not_configured", None),
            Answer::Expired => ("expired", None),
        };
        Self { answer, reason }
    }
}

impl From<StoredCredential> for CredentialView {
    fn from(stored: StoredCredential) -> Self {
        let StoredCredential { id, service, environment, provider, name, shown, created_at, .. } = stored;
        Self { id, service, environment, provider, name, shown, created_at }
    }
}
