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

use crate::config::Config;
use crate::credential::CredentialStatus;
use crate::metrics::{Counters, Metrics};
use crate::pool::{Account, AccountContext, Pending, Pool, wall_clock};
use crate::{Answer, Credential, Push};

type Key = (AppId, PushService, PushEnvironment);

/// All push services of all apps.
#[derive(Debug)]
pub struct Services {
    context: AccountContext,
    metrics: Metrics,
    /// Never held across an `.await`; under it, only an account's lock is taken.
    accounts: RwLock<HashMap<Key, Arc<Account>>>,
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
            let mut before: HashMap<Key, Arc<Account>> = accounts.extract_if(|key, _| key.0 == app).collect();
            for credential in credentials {
                let key = (app, credential.service, credential.environment);
                let kept =
                    before.remove(&key).filter(|account| Arc::ptr_eq(&account.client, &credential.client));
                let account = kept.unwrap_or_else(|| {
                    let counters = self.counters(key.1, key.2);
                    Account::new(app, credential, counters, self.context.clone())
                });
                removed.extend(accounts.insert(key, account));
            }
            removed.extend(before.into_values());
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

    fn pool_of(&self, push: &Push) -> Result<Arc<Pool>, Answer> {
        let key = (push.app, push.token.service, push.token.environment);
        loop {
            if self.draining.load(Ordering::Relaxed) {
                return Err(Answer::Later { reason: "drain", after: Duration::ZERO });
            }
            let account = self.accounts.read().get(&key).cloned().ok_or(Answer::Unconfigured)?;
            // An account leaves the map before it closes: the next iteration finds its successor or nothing.
            if let Some(pool) = account.pool(&push.token)? {
                return Ok(pool);
            }
        }
    }

    /// The pools whose lane is full: a caller with work for them would wait.
    pub fn busy(&self, lane: Lane) -> Vec<(AppId, PushService)> {
        let accounts: Vec<(Key, Arc<Account>)> =
            self.accounts.read().iter().map(|(key, account)| (*key, account.clone())).collect();
        let full = |account: &Account| account.pools().iter().any(|pool| pool.is_full(lane));
        let busy = accounts.into_iter().filter(|(_, account)| full(account));
        busy.map(|((app, service, _), _)| (app, service)).collect()
    }

    /// Accepts nothing new, waits for the outstanding answers, and closes all connections. At the deadline the rest is
    /// answered `Later`.
    pub async fn drain(&self, deadline: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let end = Instant::now() + deadline;
        let accounts: Vec<Arc<Account>> = self.accounts.write().drain().map(|(_, account)| account).collect();
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
            accounts.iter().filter(|(key, _)| key.0 == app).map(|(_, account)| account.clone()).collect()
        };
        let mut status: Vec<CredentialStatus> = accounts.iter().map(|account| account.status()).collect();
        status.sort_by_key(|status| (status.service, status.environment));
        status
    }

    fn counters(&self, service: PushService, environment: PushEnvironment) -> Counters {
        self.metrics.of(service, environment)
    }
}
