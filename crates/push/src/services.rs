//! The handle of the crate: holds the credentials and their pools, and routes each push to its pool.
//!
//! Only [`Services::send`] waits, and only for room in a queue. A change of credentials affects only the pools of the
//! changed ones: an account with the same `client` stays.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use noroshi_egress::Egress;
use noroshi_telemetry::Registry;
use noroshi_types::{AppId, Lane, PushEnvironment, PushService, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use crate::catalog::provider_of;
use crate::config::Config;
use crate::credential::CredentialStatus;
use crate::metrics::{Counters, Metrics};
use crate::pool::{Account, AccountContext, Pending, Pool, wall_clock};
use crate::{Answer, ChannelAnswer, ChannelCall, ChannelError, ChannelSite, Credential, Push};

type Key = (AppId, PushService, PushEnvironment);

/// The accounts of a key by provider: one, unless an app has several credentials of the service.
type Accounts = HashMap<Key, Vec<Arc<Account>>>;

/// All push services of all apps.
#[derive(Debug)]
pub struct Services {
    context: AccountContext,
    metrics: Metrics,
    /// Never held across an `.await`; under it, only an account's lock is taken.
    accounts: RwLock<Accounts>,
    /// Pools of replaced credentials that still have work.
    leaving: Mutex<Vec<Arc<Pool>>>,
    draining: AtomicBool,
}

impl Services {
    pub fn new(config: Config, egress: Arc<Egress>, registry: &mut Registry, runtime: Handle) -> Arc<Self> {
        let context = AccountContext { config: Arc::new(config), egress, runtime, tasks: TaskTracker::new() };
        Arc::new(Self {
            context,
            metrics: Metrics::new(registry),
            accounts: RwLock::default(),
            leaving: Mutex::default(),
            draining: AtomicBool::new(false),
        })
    }

    /// Replaces all credentials of an app. A credential with the same `client` as before keeps its connections; pools
    /// of the others finish their work and close.
    pub fn set_credentials(&self, app: AppId, credentials: Vec<Credential>) {
        let mut removed = Vec::new();
        {
            let mut accounts = self.accounts.write();
            let before = accounts.extract_if(|key, _| key.0 == app);
            let mut before: Vec<Arc<Account>> = before.flat_map(|(_, accounts)| accounts).collect();
            for credential in credentials {
                let key = (app, credential.service, credential.environment);
                let of = |account: &Arc<Account>| Arc::ptr_eq(&account.client, &credential.client);
                let account = match before.iter().position(of) {
                    Some(same) => before.swap_remove(same),
                    None => {
                        let counters = self.counters(key.1, key.2);
                        Account::new(app, credential, counters, self.context.clone())
                    }
                };
                let others = accounts.entry(key).or_default();
                removed.extend(others.extract_if(.., |other| other.provider == account.provider));
                others.push(account);
            }
            removed.extend(before);
        }
        let mut leaving = self.leaving.lock();
        leaving.retain(|pool| !pool.is_idle() || pool.connections() > 0);
        for account in removed {
            leaving.extend(account.pools());
            account.close();
        }
    }

    /// Waits while the push's lane is full. The answer arrives through [`Push::reply`] exactly once in any case. Not
    /// cancel-safe: if dropped while waiting, the push is answered `Later`.
    pub async fn send(&self, push: Push) {
        match self.pool_of(&push) {
            Ok(pool) => pool.send(Pending::new(push, wall_clock())).await,
            Err(answer) => {
                let counters = self.counters(push.token.service, push.token.environment);
                Pending::new(push, Timestamp(0)).answer(answer, &counters);
            }
        }
    }

    /// Sends a push with a credential that is not in use, to test it. Its connections are its own and close after the
    /// answer, which arrives through [`Push::reply`] exactly once.
    pub async fn send_with(&self, credential: Credential, push: Push) {
        let counters = || self.counters(push.token.service, push.token.environment);
        let account = Account::new(push.app, credential, counters(), self.context.clone());
        let pool = match self.draining.load(Ordering::Relaxed) {
            true => Err(Answer::Later { reason: "drain", after: Duration::ZERO }),
            false => account.pool(&push).and_then(|pool| pool.ok_or(Answer::Unconfigured)),
        };
        match pool {
            Ok(pool) => {
                self.leaving.lock().push(pool.clone());
                pool.send(Pending::new(push, wall_clock())).await;
            }
            Err(answer) => {
                let counters = counters();
                Pending::new(push, Timestamp(0)).answer(answer, &counters);
            }
        }
        account.close();
    }

    fn pool_of(&self, push: &Push) -> Result<Arc<Pool>, Answer> {
        let key = (push.app, push.token.service, push.token.environment);
        let provider = provider_of(&push.token).ok_or(Answer::Suspect { reason: "bad_token" })?;
        loop {
            if self.draining.load(Ordering::Relaxed) {
                return Err(Answer::Later { reason: "drain", after: Duration::ZERO });
            }
            let account = self.account(&key, &provider).ok_or(Answer::Unconfigured)?;
            // An account leaves the map before it closes: the next iteration finds its successor or nothing.
            if let Some(pool) = account.pool(push)? {
                return Ok(pool);
            }
        }
    }

    fn account(&self, key: &Key, provider: &str) -> Option<Arc<Account>> {
        let accounts = self.accounts.read();
        accounts.get(key)?.iter().find(|account| *account.provider == *provider).cloned()
    }

    /// The bundle id of an app's credential for APNs; `None` without a credential.
    pub fn channel_bundle(&self, app: AppId, environment: PushEnvironment) -> Option<String> {
        let account = self.account(&(app, PushService::Apns, environment), "")?;
        Some(account.client.channels()?.bundle.clone())
    }

    /// Asks APNs to create, read, delete or list channels. `bundle`: the bundle id of the channel; none: that of the
    /// credential. Cancel-safe: the call may have reached APNs.
    pub async fn call_channels(
        &self,
        app: AppId,
        environment: PushEnvironment,
        bundle: Option<String>,
        call: &ChannelCall,
    ) -> Result<ChannelAnswer, ChannelError> {
        let account = self.account(&(app, PushService::Apns, environment), "");
        let account = account.ok_or(ChannelError::Unconfigured)?;
        let site = account.client.channels().ok_or(ChannelError::Unconfigured)?;
        let site = ChannelSite { bundle: bundle.unwrap_or_else(|| site.bundle.clone()), ..site.clone() };
        account.call_channels(&site, call).await
    }

    /// The pools whose lane is full: a caller with work for them would wait.
    pub fn busy(&self, lane: Lane) -> Vec<(AppId, PushService)> {
        let accounts: Vec<Arc<Account>> = self.accounts.read().values().flatten().cloned().collect();
        let full = |account: &Account| account.pools().iter().any(|pool| pool.is_full(lane));
        let busy = accounts.into_iter().filter(|account| full(account));
        busy.map(|account| (account.app, account.service)).collect()
    }

    /// Accepts nothing new, waits for the outstanding answers, and closes all connections. At the deadline the rest is
    /// answered `Later`.
    pub async fn drain(&self, deadline: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let end = Instant::now() + deadline;
        let accounts: Vec<Arc<Account>> =
            self.accounts.write().drain().flat_map(|(_, accounts)| accounts).collect();
        let mut pools = std::mem::take(&mut *self.leaving.lock());
        for account in accounts {
            pools.extend(account.pools());
            account.close();
        }
        self.context.tasks.close();
        if tokio::time::timeout_at(end, self.context.tasks.wait()).await.is_err() {
            pools.iter().for_each(|pool| pool.abort());
            // One tick, and the time to send GOAWAY.
            let _ = tokio::time::timeout(self.context.config.tick() * 2, self.context.tasks.wait()).await;
        }
    }

    /// The state of an app's credentials, for operators.
    pub fn status(&self, app: AppId) -> Vec<CredentialStatus> {
        let accounts: Vec<Arc<Account>> = {
            let accounts = self.accounts.read();
            accounts
                .iter()
                .filter(|(key, _)| key.0 == app)
                .flat_map(|(_, accounts)| accounts)
                .cloned()
                .collect()
        };
        let mut status: Vec<CredentialStatus> = accounts.iter().map(|account| account.status()).collect();
        status.sort_by(|a, b| {
            (a.service, a.environment, &a.provider).cmp(&(b.service, b.environment, &b.provider))
        });
        status
    }

    fn counters(&self, service: PushService, environment: PushEnvironment) -> Counters {
        self.metrics.of(service, environment)
    }
}
