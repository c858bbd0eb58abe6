//! What all connections of one credential share: its client, authorization, breaker, quota and pools. A change of
//! credentials makes a new account; the old one finishes its work and closes.
//!
//! Locks: each guards the field that it wraps, is held for a few instructions, and never across an `.await`. Nested
//! locks are taken in this order: `pools`, a pool's state, `gate`.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use noroshi_egress::{Egress, Limits};
use noroshi_types::{AppId, PushEnvironment, PushService, PushToken, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::Pool;
use crate::apns::channel;
use crate::backoff::{Backoff, chance};
use crate::breaker::{Breaker, Pass};
use crate::catalog;
use crate::config::Config;
use crate::credential::CredentialStatus;
use crate::exchange::{Authorization, Client, Response, Verdict};
use crate::metrics::Counters;
use crate::push::Reason;
use crate::quota::{Devices, Rate};
use crate::service::Origins;
use crate::{Answer, ChannelAnswer, ChannelCall, ChannelError, ChannelSite, Credential, Push, call};

/// How long everything pauses when a push service is overloaded and names no time.
const OVERLOADS: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };
/// This many in a row concern the service, fewer concern single requests.
const OVERLOADS_IN_A_ROW: u32 = 8;
/// A longer `Retry-After` is cut: the next answer may repeat it.
const PAUSE_MAX: Duration = Duration::from_secs(15 * 60);
const FETCHES: Backoff = Backoff { first: Duration::from_secs(1), max: Duration::from_secs(60) };
const TOKEN_LIMITS: Limits = Limits { body_bytes_max: 64 << 10, timeout: Duration::from_secs(20) };

/// What [`crate::Services`] gives to every account.
#[derive(Debug, Clone)]
pub(crate) struct AccountContext {
    pub(crate) config: Arc<Config>,
    pub(crate) egress: Arc<Egress>,
    pub(crate) runtime: Handle,
    pub(crate) tasks: TaskTracker,
}

#[derive(Debug)]
pub(crate) struct Account {
    pub(crate) app: AppId,
    pub(crate) service: PushService,
    pub(crate) environment: PushEnvironment,
    pub(crate) provider: Arc<str>,
    pub(crate) client: Arc<dyn Client>,
    pub(crate) counters: Counters,
    pub(crate) context: AccountContext,
    gate: Mutex<Gate>,
    /// Whether `gate` has something for a good answer to reset; saves the lock otherwise.
    troubled: AtomicBool,
    devices: Option<Mutex<Devices>>,
    fetch: Mutex<Fetch>,
    /// By origin.
    pools: Mutex<HashMap<Arc<str>, Arc<Pool>>>,
    closing: AtomicBool,
}

#[derive(Debug)]
struct Gate {
    breaker: Breaker,
    rate: Option<Rate>,
    paused: Option<(Reason, Instant)>,
    overloads_in_a_row: u32,
    pauses_in_a_row: u32,
    last_error: Option<(Timestamp, Reason)>,
    /// Whether the metric of open breakers counts it.
    alarm: bool,
}

impl Gate {
    fn alarm(&mut self, on: bool, account: &Account) {
        match (std::mem::replace(&mut self.alarm, on), on) {
            (false, true) => account.counters.breaker_open.inc(),
            (true, false) => account.counters.breaker_open.dec(),
            _ => return,
        };
    }
}

/// The state of fetching an authorization; at most one fetch runs.
#[derive(Debug, Default)]
struct Fetch {
    running: bool,
    failures: u32,
    not_before: Option<Instant>,
}

/// How many pushes may be sent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// As many as `count`; as a probe, one.
    Some { count: usize, probe: bool },
    /// Nothing; ask again then.
    Wait(Instant),
    /// Nothing, for longer than a push should wait in the queue.
    Refuse { reason: Reason, after: Duration },
}

impl Account {
    pub(crate) fn new(
        app: AppId,
        credential: Credential,
        counters: Counters,
        context: AccountContext,
    ) -> Arc<Self> {
        let (quota, now) = (credential.quota, Instant::now());
        Arc::new(Self {
            app,
            service: credential.service,
            environment: credential.environment,
            provider: credential.provider,
            client: credential.client,
            counters,
            gate: Mutex::new(Gate {
                breaker: Breaker::new(context.config.probes),
                rate: Rate::new(&quota, now),
                paused: None,
                overloads_in_a_row: 0,
                pauses_in_a_row: 0,
                last_error: None,
                alarm: false,
            }),
            troubled: AtomicBool::new(false),
            devices: Devices::new(&quota, now).map(Mutex::new),
            context,
            fetch: Mutex::default(),
            pools: Mutex::default(),
            closing: AtomicBool::new(false),
        })
    }

    /// Who chooses its servers.
    pub(crate) fn origins(&self) -> Origins {
        catalog::service(self.service).origins
    }

    pub(crate) fn has_origins_from_devices(&self) -> bool {
        self.origins() == Origins::Devices
    }

    pub(crate) fn connections_max(&self) -> usize {
        let own = self.client.batches().map(|batches| batches.limits().connections_max);
        own.unwrap_or(self.context.config.connections_max).max(1)
    }

    /// How long a push waits at least after a failure for which the service named no time.
    pub(crate) fn retry_after(&self) -> Duration {
        catalog::service(self.service).retry_after
    }

    /// The pool of a push's origin, created if necessary. Origins of Web Push come from clients: at the limit the
    /// least recently used idle pool closes; without an idle one the answer is to retry. None: the account is closed,
    /// and a new pool would never close.
    pub(crate) fn pool(self: &Arc<Self>, push: &Push) -> Result<Option<Arc<Pool>>, Answer> {
        let origin = match push.content.to_channel() {
            Some(_) => self.client.broadcast_origin().ok_or("no_channels"),
            None => self.client.origin(&push.token),
        };
        let origin = origin.map_err(|reason| Answer::Refused { reason })?;
        let mut pools = self.pools.lock();
        // Under the lock that `close` takes them all under.
        if self.is_closing() {
            return Ok(None);
        }
        if let Some(pool) = pools.get(&origin) {
            return Ok(Some(pool.clone()));
        }
        if pools.len() >= self.context.config.pools_max {
            let idle = pools.values().filter(|pool| pool.is_idle());
            let Some(oldest) = idle.min_by_key(|pool| pool.used_at()).cloned() else {
                return Err(Answer::Later { reason: "too_many_origins", after: self.retry_after() });
            };
            pools.remove(oldest.origin());
            oldest.close();
        }
        let pool = Pool::new(self.clone(), &origin).map_err(|reason| Answer::Refused { reason })?;
        pools.insert(origin, pool.clone());
        Ok(Some(pool))
    }

    pub(crate) fn pools(&self) -> Vec<Arc<Pool>> {
        self.pools.lock().values().cloned().collect()
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Accepts nothing new; connections close when all their pushes are answered.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let pools = std::mem::take(&mut *self.pools.lock());
        pools.values().for_each(|pool| pool.close());
        self.gate.lock().alarm(false, self);
    }

    /// How many of `wanted` pushes may be sent.
    pub(crate) fn admit(&self, wanted: usize, now: Instant) -> Admitted {
        let config = &self.context.config;
        let mut gate = self.gate.lock();
        if let Some((reason, until)) = gate.paused {
            match until.saturating_duration_since(now) {
                Duration::ZERO => gate.paused = None,
                after if after > config.hold_max => return Admitted::Refuse { reason, after },
                _ => return Admitted::Wait(until),
            }
        }
        let probe = match gate.breaker.pass(now, config.request_timeout) {
            Pass::All => false,
            Pass::Probe => true,
            Pass::None { reason, after } => return Admitted::Refuse { reason, after },
        };
        let wanted = if probe { wanted.min(1) } else { wanted };
        match gate.rate.as_mut().map(|rate| rate.take(wanted, now)) {
            None => Admitted::Some { count: wanted, probe },
            Some((0, again)) if wanted > 0 => {
                if probe {
                    gate.breaker.unsent();
                }
                self.counters.quota_waits.inc();
                Admitted::Wait(again.unwrap_or(now))
            }
            Some((count, _)) => Admitted::Some { count, probe },
        }
    }

    /// Returns `count` admitted pushes that were not sent.
    pub(crate) fn unsent(&self, count: usize, probe: bool) {
        if count == 0 && !probe {
            return;
        }
        let mut gate = self.gate.lock();
        if let Some(rate) = &mut gate.rate {
            rate.give_back(count);
        }
        if probe {
            gate.breaker.unsent();
        }
    }

    /// Counts a push to its device. The error is how long to wait for the device.
    pub(crate) fn admit_device(&self, token: &PushToken, now: Instant) -> Result<(), Duration> {
        let Some(devices) = &self.devices else { return Ok(()) };
        let admitted = devices.lock().take(token.json.as_str(), now);
        if admitted.is_err() {
            self.counters.device_quota_waits.inc();
        }
        admitted
    }

    /// An answer to a push that was sent at `sent_at`: the credential and the service work.
    pub(crate) fn worked(&self, sent_at: Instant) {
        if !self.troubled.load(Ordering::Relaxed) {
            return;
        }
        let mut gate = self.gate.lock();
        gate.overloads_in_a_row = 0;
        gate.pauses_in_a_row = 0;
        let closed = gate.breaker.succeeded(sent_at);
        let troubled = gate.breaker.open().is_some();
        self.troubled.store(troubled, Ordering::Relaxed);
        if closed {
            gate.alarm(false, self);
            tracing::info!(
                app = self.app.0,
                service = self.service.as_str(),
                "a push service accepts the credential again"
            );
        }
    }

    /// The credential is rejected. Returns how long nothing is sent.
    pub(crate) fn broken(&self, reason: Reason, sent_at: Instant) -> Duration {
        let mut gate = self.gate.lock();
        let failed = gate.breaker.failed(reason, sent_at, Instant::now(), chance());
        gate.last_error = Some((wall_clock(), reason));
        self.troubled.store(true, Ordering::Relaxed);
        if failed.opened && !self.is_closing() {
            gate.alarm(true, self);
            tracing::error!(
                app = self.app.0,
                service = self.service.as_str(),
                environment = self.environment.as_str(),
                reason,
                "a push service rejects the credential; pushes wait until it is fixed"
            );
        }
        failed.after
    }

    /// The service requests a slower rate. Returns how long this push waits.
    pub(crate) fn overloaded(&self, reason: Reason, after: Option<Duration>) -> Duration {
        self.counters.overloaded(reason);
        let now = Instant::now();
        let mut gate = self.gate.lock();
        self.troubled.store(true, Ordering::Relaxed);
        gate.last_error = Some((wall_clock(), reason));
        gate.overloads_in_a_row = gate.overloads_in_a_row.saturating_add(1);
        let running = gate.paused.filter(|(_, until)| *until > now);
        let pause = match after {
            Some(after) => Some(after.min(PAUSE_MAX)),
            None if running.is_some() || gate.overloads_in_a_row < OVERLOADS_IN_A_ROW => None,
            None => {
                gate.overloads_in_a_row = 0;
                gate.pauses_in_a_row = gate.pauses_in_a_row.saturating_add(1);
                Some(OVERLOADS.delay(gate.pauses_in_a_row, chance()))
            }
        };
        if let Some(pause) = pause {
            let until = now + pause;
            if running.is_none_or(|(_, running)| running < until) {
                gate.paused = Some((reason, until));
            }
            if running.is_none()
                && let Some(rate) = &mut gate.rate
            {
                rate.overloaded(now);
            }
        }
        // Inconclusive: another push may probe.
        gate.breaker.unsent();
        drop(gate);
        after.unwrap_or(self.retry_after()).max(pause.unwrap_or_default()).mul_f64(1.0 + chance() / 2.0)
    }

    /// The authorization for requests, or the time until which there is none (the pools are woken earlier if it
    /// arrives).
    pub(crate) fn authorization(self: &Arc<Self>, origin: &str) -> Result<Option<Bytes>, Instant> {
        match self.client.authorization(origin, wall_clock()) {
            Authorization::NotNeeded => Ok(None),
            Authorization::Ready(value) => Ok(Some(value)),
            Authorization::Due(value) => {
                self.fetch();
                Ok(Some(value))
            }
            Authorization::Missing => {
                self.fetch();
                Err(Instant::now() + Duration::from_secs(1))
            }
        }
    }

    fn fetch(self: &Arc<Self>) {
        {
            let mut fetch = self.fetch.lock();
            if fetch.running || fetch.not_before.is_some_and(|at| Instant::now() < at) {
                return;
            }
            fetch.running = true;
        }
        let account = self.clone();
        self.context.tasks.spawn_on(async move { account.fetched().await }, &self.context.runtime);
    }

    async fn fetched(self: Arc<Self>) {
        let started = Instant::now();
        let result = self.request_token().await;
        {
            let mut fetch = self.fetch.lock();
            fetch.running = false;
            fetch.failures = if result.is_ok() { 0 } else { fetch.failures.saturating_add(1) };
            fetch.not_before =
                result.as_ref().err().map(|_| Instant::now() + FETCHES.delay(fetch.failures, chance()));
        }
        match result {
            Ok(()) => self.counters.renewed("fetched"),
            Err(verdict) => self.fetch_failed(verdict, started),
        }
        self.pools().iter().for_each(|pool| pool.wake());
    }

    async fn request_token(&self) -> Result<(), Verdict> {
        let Some(request) = self.client.token_request(wall_clock()) else { return Ok(()) };
        let answer =
            self.context.egress.for_app(self.app.0).post_form(&request.url, request.body, TOKEN_LIMITS).await;
        let answer = answer.map_err(|error| {
            tracing::warn!(app = self.app.0, service = self.service.as_str(), %error, "failed to fetch an access token");
            Verdict::Overloaded { reason: error.label(), after: None }
        })?;
        let response = Response {
            status: answer.status,
            retry_after: None,
            header: b"",
            body: &answer.body,
            now: wall_clock(),
        };
        self.client.authorized(&response)
    }

    /// One call about channels, with a new provider token if Apple rejects the first one as too old.
    pub(crate) async fn call_channels(
        &self,
        site: &ChannelSite,
        call: &ChannelCall,
    ) -> Result<ChannelAnswer, ChannelError> {
        let (egress, limit) = (self.context.egress.for_app(self.app.0), self.context.config.request_timeout);
        let id = uuid::Uuid::now_v7();
        let mut renewed = false;
        loop {
            let authorization = match self.client.authorization(&site.origin, wall_clock()) {
                Authorization::Ready(value) | Authorization::Due(value) => Some(value),
                Authorization::NotNeeded | Authorization::Missing => None,
            };
            let (method, request) = channel::request(site, call, id, authorization.as_ref());
            let called = call::call(&egress, &*self.client, (&site.origin, method), &request, limit).await;
            let called = called.map_err(|failed| {
                let call::Failed { reason, may_be_done } = failed;
                tracing::warn!(app = self.app.0, reason, "failed to ask APNs about channels");
                ChannelError::Failed { reason, may_be_done }
            })?;
            let id_of = called.headers.get("apns-channel-id").and_then(|id| std::str::from_utf8(id).ok());
            let called = channel::Called {
                status: called.status,
                retry_after: called.retry_after,
                channel: id_of.map(str::to_owned),
                body: called.body,
            };
            match (channel::read(call, &called), authorization) {
                (channel::Read::Answer(answer), _) => return answer,
                (channel::Read::Renew(_), Some(used))
                    if !renewed && self.client.renew(&site.origin, &used, wall_clock()) =>
                {
                    renewed = true;
                    self.counters.renewed("refused");
                }
                (channel::Read::Renew(reason), _) => return Err(ChannelError::Rejected(reason)),
            }
        }
    }

    /// No push waits for it while the old token is valid.
    fn fetch_failed(&self, verdict: Verdict, started: Instant) {
        // A closing account has given up its pools, which may still have pushes to send.
        let needed = self.is_closing()
            || self.pools().iter().any(|pool| {
                matches!(self.client.authorization(pool.origin(), wall_clock()), Authorization::Missing)
            });
        match verdict {
            Verdict::Overloaded { reason, after } => {
                self.counters.renewed(reason);
                if needed {
                    let pause = after.unwrap_or(FETCHES.delay(self.fetch.lock().failures, chance()));
                    let mut gate = self.gate.lock();
                    gate.paused = Some((reason, Instant::now() + pause.min(PAUSE_MAX)));
                    gate.last_error = Some((wall_clock(), reason));
                }
            }
            Verdict::Broken { reason } | Verdict::Unauthorized { reason } | Verdict::Wedged { reason } => {
                self.counters.renewed(reason);
                if needed {
                    self.broken(reason, started);
                }
            }
            Verdict::Answer(_) => self.counters.renewed("other"),
        }
    }

    pub(crate) fn failed_to_connect(&self, reason: Reason) {
        self.counters.connect_failed(reason);
        self.gate.lock().last_error = Some((wall_clock(), reason));
    }

    pub(crate) fn status(&self) -> CredentialStatus {
        let pools = self.pools();
        let connections = pools.iter().map(|pool| pool.connections()).sum();
        // Taken last: a pool takes the gate's lock under its own.
        let gate = self.gate.lock();
        let now = Instant::now();
        CredentialStatus {
            service: self.service,
            environment: self.environment,
            provider: self.provider.clone(),
            connections,
            in_flight: pools.iter().map(|pool| pool.in_flight()).sum(),
            queued: pools.iter().map(|pool| pool.queued()).sum(),
            breaker: gate.breaker.condition(now),
            paused: gate
                .paused
                .map(|(reason, until)| (reason, until.saturating_duration_since(now)))
                .filter(|(_, left)| !left.is_zero()),
            last_error: gate.last_error,
        }
    }
}

/// The time of day, for authorizations and expiry. Timeouts use [`Instant`].
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
