//! Credentials: sealed into the store, opened at the start, handed to the pools, and tried out.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_push::{Answer, Answered, Content, Credential, Fields, Push, Reply};
use noroshi_store::{NewCredential, StoredCredential};
use noroshi_types::{
    AppId, CredentialId, JsonText, Lane, PushEnvironment, PushService, PushToken, Timestamp, Urgency,
};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::delivery::{Delivery, Error};
use crate::push::Side;

/// How long a test waits for its answer; pools give up after 30 s themselves.
const TEST_TIMEOUT: Duration = Duration::from_secs(40);

/// A credential as it may be shown: nothing of it is secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialView {
    pub id: CredentialId,
    pub service: PushService,
    pub environment: PushEnvironment,
    pub name: String,
    pub shown: JsonText,
    pub created_at: Timestamp,
}

/// What a push service answered to a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tested {
    /// `accepted`, `gone`, `suspect`, `refused`, `later`, `not_configured`, `expired` or `no_answer`.
    pub answer: &'static str,
    /// In the push service's word or ours.
    pub reason: Option<&'static str>,
}

/// What the store had of each app, sealed as it was.
pub(crate) type Seen = HashMap<AppId, Vec<(CredentialId, Vec<u8>)>>;

impl Delivery {
    /// Opens all credentials and hands them to the pools: once, at the start. One that does not open is
    /// counted and told, and its pushes wait; the others work.
    pub async fn load_credentials(&self) -> Result<(), Error> {
        let side = self.side()?;
        let mut apps: Vec<AppId> = Vec::new();
        for stored in self.store.credentials().await? {
            apps.push(stored.app);
            if let Err(reason) = open(side, &stored) {
                let (app, service, environment) = labels(&stored);
                tracing::warn!(
                    app,
                    service,
                    environment,
                    reason,
                    "a push credential cannot be opened: its pushes wait"
                );
            }
        }
        apps.sort_unstable();
        apps.dedup();
        for app in apps {
            self.hand_credentials(app).await?;
        }
        Ok(())
    }

    /// The app's credentials, by id.
    pub async fn credentials(&self, app: AppId) -> Result<Vec<CredentialView>, Error> {
        let all = self.store.credentials().await?;
        Ok(all.into_iter().filter(|stored| stored.app == app).map(CredentialView::from).collect())
    }

    /// Checks, seals and keeps the credential in `body`, and uses it from now on.
    pub async fn put_credential(
        &self,
        app: AppId,
        body: &[u8],
        replace: bool,
    ) -> Result<CredentialView, Error> {
        let side = self.side()?;
        let vault = side.vault.as_ref().ok_or(Error::NoVault)?;
        let credential = Credential::parse(body).map_err(Error::Credential)?;
        let (service, environment) = (credential.service, credential.environment);
        let new = NewCredential {
            app,
            service,
            environment,
            name: credential.name,
            shown: credential.shown,
            sealed: vault.seal(app, service, environment, body),
            replace,
        };
        let stored = self.store.put_credential(new, self.clock.now()).await?;
        self.hand_credentials(app).await?;
        self.credentials_changed(app);
        // What waited for a credential is due as before; what failed without one is not repeated.
        side.wake();
        Ok(stored.into())
    }

    /// Pushes under way with it are finished; its connections close.
    pub async fn delete_credential(&self, app: AppId, id: CredentialId) -> Result<(), Error> {
        let side = self.side()?;
        self.store.delete_credential(app, id).await?;
        let handed = self.hand_credentials(app).await;
        self.credentials_changed(app);
        side.opened.lock().remove(&id);
        handed
    }

    /// Sends one push to `token` and waits for the answer. What the answer says of the token is only told.
    pub async fn test_credential(
        &self,
        app: AppId,
        id: CredentialId,
        token: PushToken,
    ) -> Result<Tested, Error> {
        let side = self.side()?;
        let views = self.credentials(app).await?;
        let view = views.into_iter().find(|view| view.id == id).ok_or(noroshi_store::Error::NotFound)?;
        if (view.service, view.environment) != (token.service, token.environment) {
            let rule = "is of another push service or environment than the credential";
            return Err(Error::Credential(noroshi_push::credential::Invalid::new("push_token", rule)));
        }
        let (reply, answer) = oneshot::channel();
        let push = Push {
            app,
            lane: Lane::Extra,
            token,
            content: Arc::new(Content::new(test_fields(self.clock.now()))),
            id: uuid::Uuid::now_v7(),
            trace: None,
            reply: Reply { to: Arc::new(One(Mutex::new(Some(reply)))), index: 0 },
        };
        let answered = async {
            side.outlet.send(push).await;
            answer.await
        };
        let answered = tokio::time::timeout(TEST_TIMEOUT, answered).await;
        Ok(answered
            .ok()
            .and_then(Result::ok)
            .map_or(Tested { answer: "no_answer", reason: None }, Tested::from))
    }

    /// Gives the pools all credentials of the app as the store has them.
    async fn hand_credentials(&self, app: AppId) -> Result<(), Error> {
        let side = self.side()?;
        let _turn = side.handing.lock().await;
        let stored = self.store.credentials().await?;
        let (mut credentials, mut unreadable) = (Vec::new(), Vec::new());
        for stored in stored.iter().filter(|stored| stored.app == app) {
            match open(side, stored) {
                Ok(credential) => credentials.push(credential),
                Err(_) => unreadable.push((app, stored.service, stored.environment)),
            }
        }
        let mut known = side.unreadable.lock();
        known.retain(|realm| realm.0 != app);
        known.extend(unreadable);
        self.metrics.push.credentials_unreadable.set(i64::try_from(known.len()).unwrap_or(i64::MAX));
        drop(known);
        side.outlet.set_credentials(app, credentials);
        Ok(())
    }

    /// Another node changed the app's credentials.
    pub(crate) async fn reload_credentials(&self, app: AppId) -> Result<(), Error> {
        let Some(side) = self.push.get() else { return Ok(()) };
        self.hand_credentials(app).await?;
        // What waited for a credential is due as before.
        side.wake();
        Ok(())
    }

    /// Reads the credentials of apps whose credentials are others than when this was last called.
    pub(crate) async fn reload_changed_credentials(&self, seen: &mut Seen) -> Result<(), Error> {
        let mut present = Seen::new();
        if self.push.get().is_some() {
            for stored in self.store.credentials().await? {
                present.entry(stored.app).or_default().push((stored.id, stored.sealed));
            }
        }
        let mut changed: Vec<AppId> = seen.keys().filter(|app| !present.contains_key(app)).copied().collect();
        changed.extend(present.iter().filter(|(app, now)| seen.get(app) != Some(now)).map(|(app, _)| *app));
        for app in changed {
            self.reload_credentials(app).await?;
        }
        *seen = present;
        Ok(())
    }

    fn side(&self) -> Result<&Arc<Side>, Error> {
        self.push.get().ok_or(Error::NoVault)
    }
}

/// The error is what an operator does something about.
fn open(side: &Side, stored: &StoredCredential) -> Result<Credential, &'static str> {
    if let Some((sealed, credential)) = side.opened.lock().get(&stored.id)
        && *sealed == stored.sealed
    {
        return Ok(credential.clone());
    }
    let vault = side.vault.as_ref().ok_or("the configuration has no key for credentials")?;
    let plain = vault
        .open(stored.app, stored.service, stored.environment, &stored.sealed)
        .map_err(|_| "it was sealed with another key, or is damaged")?;
    let credential = Credential::parse(&plain).map_err(|_| "this version does not take it")?;
    side.opened.lock().insert(stored.id, (stored.sealed.clone(), credential.clone()));
    Ok(credential)
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
        apns: None,
        fcm: None,
        webpush: None,
    }
}

/// Hands on the one answer.
struct One(Mutex<Option<oneshot::Sender<Answer>>>);

impl Answered for One {
    fn answered(&self, _: u32, answer: Answer) {
        if let Some(reply) = self.0.lock().take() {
            // Whoever asked may be gone.
            let _ = reply.send(answer);
        }
    }
}

impl From<Answer> for Tested {
    fn from(answer: Answer) -> Self {
        let (answer, reason) = match answer {
            Answer::Accepted => ("accepted", None),
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
        let StoredCredential { id, service, environment, name, shown, created_at, .. } = stored;
        Self { id, service, environment, name, shown, created_at }
    }
}
