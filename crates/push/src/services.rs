//! The handle of the whole crate: credentials come in, pools come of them, pushes go to the right one.
//!
//! Nothing here waits for a push service but [`Services::send`], and that only for room in a queue. A change of
//! credentials touches the pools of the changed ones alone: an account is kept if its `client` is the same.

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
use crate::pool::{Account, Means, Pending, Pool, wall_clock};
use crate::{Answer, Credential, Push};

type Key = (AppId, PushService, PushEnvironment);

/// Every push service of every app.
#[derive(Debug)]
pub struct Services {
    means: Means,
    metrics: Metrics,
    /// Never held while anything is awaited, or another lock but an account's is taken.
    accounts: RwLock<HashMap<Key, Arc<Account>>>,
    /// Accounts of credentials that were replaced, with pools that still have something to do.
    leaving: Mutex<Vec<Arc<Pool>>>,
    draining: AtomicBool,
}

impl Services {
    pub fn new(config: Config, egress: Arc<Egress>, registry: &mut Registry, runtime: Handle) -> Arc<Self> {
        let means = Means { config: Arc::new(config), egress, runtime, tasks: TaskTracker::new() };
        Arc::new(Self {
            means,
            metrics: Metrics::new(registry),
            accounts: RwLock::default(),
            leaving: Mutex::default(),
            draining: AtomicBool::new(false),
        })
    }

    /// All credentials of an app, which replace those it had. A credential whose `client` is the same as before
    /// keeps its connections; pools of the others finish what they have and close.
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
                    Account::new(app, credential, counters, self.means.clone())
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

    /// Waits while the queue of this push's lane is full. The answer comes through [`Push::reply`] exactly once,
    /// whatever happens. Not cancel-safe: dropped while it waits, the push is answered `Later`.
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
            // An account is closed after it has left the map: the next look finds its successor or nothing.
            if let Some(pool) = account.pool(&push.token)? {
                return Ok(pool);
            }
        }
    }

    /// What has no room in a lane at the moment: whoever takes work for these would wait.
    pub fn busy(&self, lane: Lane) -> Vec<(AppId, PushService)> {
        let accounts: Vec<(Key, Arc<Account>)> =
            self.accounts.read().iter().map(|(key, account)| (*key, account.clone())).collect();
        let full = |account: &Account| account.pools().iter().any(|pool| pool.is_full(lane));
        let busy = accounts.into_iter().filter(|(_, account)| full(account));
        busy.map(|((app, service, _), _)| (app, service)).collect()
    }

    /// Takes nothing new, waits for the answers to what it has, and closes all connections. What has no
    /// answer at the deadline is answered `Later`.
    pub async fn drain(&self, deadline: Duration) {
        self.draining.store(true, Ordering::Relaxed);
        let end = Instant::now() + deadline;
        let accounts: Vec<Arc<Account>> = self.accounts.write().drain().map(|(_, account)| account).collect();
        let mut pools = std::mem::take(&mut *self.leaving.lock());
        for account in accounts {
            pools.extend(account.pools());
            account.close();
        }
        self.means.tasks.close();
        if tokio::time::timeout_at(end, self.means.tasks.wait()).await.is_err() {
            pools.iter().for_each(|pool| pool.abort());
            // A tick, and the farewell to the peer.
            let _ = tokio::time::timeout(self.means.config.tick() * 2, self.means.tasks.wait()).await;
        }
    }

    /// For operators.
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
