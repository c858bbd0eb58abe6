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

use crate::backoff::Backoff;
use crate::metrics::{Counters, Metrics};
use crate::pool::{Account, Means, Pending, Pool, wall_clock};
use crate::push::Reason;
use crate::{Answer, Credential, Push};

/// Bounds of the pools. All durations are positive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Connections of a pool. Few are enough: one carries a thousand requests at a time, and push services
    /// refuse those who open many.
    pub connections_max: usize,
    /// Requests open on a connection, as far as the peer allows.
    pub streams_max: usize,
    /// Pushes that wait in one lane of a pool: as much as a fast pool sends in a fraction of a second.
    pub queue_max: usize,
    /// Pools of one credential: more than one only for Web Push, whose origins come from clients.
    pub pools_max: usize,
    /// From sending a push to giving its answer up. Push services do answer after 10 s and more.
    pub request_timeout: Duration,
    /// From resolving the name to the peer's first word.
    pub connect_timeout: Duration,
    /// A peer that said nothing for so long is pinged.
    pub ping_after: Duration,
    /// A ping is answered within this; and a peer that owes answers is pinged after such a silence.
    pub ping_timeout: Duration,
    /// A connection to a Web Push origin closes when it was not used for so long; those to APNs and FCM stay.
    pub idle_close: Duration,
    /// Pushes wait here for a pause (`Retry-After`) of at most so long; before a longer one they are
    /// answered `Later`.
    pub hold_max: Duration,
    /// Between probes of a credential that is not taken: a bad key is not mended in seconds, and nobody wants
    /// to wait an hour after it was.
    pub probes: Backoff,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            connections_max: 4,
            streams_max: 1_500,
            queue_max: 8_192,
            pools_max: 64,
            request_timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            ping_after: Duration::from_secs(60),
            ping_timeout: Duration::from_secs(15),
            idle_close: Duration::from_secs(5 * 60),
            hold_max: Duration::from_secs(30),
            probes: Backoff { first: Duration::from_secs(30), max: Duration::from_secs(15 * 60) },
        }
    }
}

impl Config {
    /// How often a connection looks for what is late.
    pub(crate) fn tick(&self) -> Duration {
        let shortest = self.request_timeout.min(self.ping_after).min(self.ping_timeout).min(self.idle_close);
        (shortest / 10).clamp(Duration::from_millis(5), Duration::from_secs(1))
    }

    /// How long a push waits for a stream of connections that are there: as long as those before it may take
    /// twice. It has more time where it waits for a quota or a pause.
    pub(crate) fn queue_wait_max(&self) -> Duration {
        self.request_timeout * 2
    }
}

/// How one credential is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialStatus {
    pub service: PushService,
    pub environment: PushEnvironment,
    pub connections: usize,
    pub in_flight: usize,
    pub queued: usize,
    /// Why the breaker is open, if it is.
    pub breaker_open: Option<Reason>,
    /// The last thing that was wrong with the service, its connections or the credential.
    pub last_error: Option<(Timestamp, Reason)>,
}

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
