//! How many connections a pool has: when to open another, what a failure means, when to retry.
//!
//! One connection at a time is being opened. A failure while others live lowers the ceiling for a while; failures
//! without any connection back off, and after a few of them the queued pushes are answered. So are pushes that wait too
//! long for connections whose peer accepts nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::{Member, Pool, State, count_lanes};
use crate::Answer;
use crate::backoff::{Backoff, chance};
use crate::push::Reason;

/// Between attempts while there is no connection. Pushes that live for 20 s find the end of an outage with this maximum.
const RECONNECTS: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(8) };
/// After this many failed attempts the queued pushes are answered.
const CONNECT_FAILURES_MAX: u32 = 3;
/// How long the lower ceiling lasts after another connection was rejected.
const CEILINGS: Backoff = Backoff { first: Duration::from_secs(60), max: Duration::from_secs(30 * 60) };

/// The result of an attempt to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    Again,
    GiveUp,
}

/// A connection's membership in the pool; ends with its task, however that ends.
pub(super) struct Place {
    pub(super) pool: Arc<Pool>,
    pub(super) id: u32,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.pool.retire(self.id, None);
    }
}

impl Pool {
    /// A connection has no free stream and pushes wait: wakes another parked one, or opens another if allowed.
    pub(crate) fn grow(self: &Arc<Self>) {
        let (waker, connect) = {
            let mut state = self.state.lock();
            let waker = if state.queue.is_empty() { None } else { state.unpark() };
            let connect = waker.is_none() && self.may_connect(&mut state);
            (waker, connect)
        };
        self.act(waker, connect);
    }

    pub(super) fn may_connect(&self, state: &mut State) -> bool {
        if state.connecting || state.aborted || state.queue.is_empty() {
            return false;
        }
        let most = self.account.connections_max();
        let most = match &mut state.ceiling {
            Some((ceiling, until)) if Instant::now() < *until => most.min(*ceiling),
            Some((ceiling, _)) => most.min(*ceiling + 1),
            None => most,
        };
        state.connecting = state.members.len() < most;
        state.connecting
    }

    /// A connection is open and its peer has spoken. Returns its id.
    pub(super) fn connected(&self) -> u32 {
        let mut state = self.state.lock();
        state.connecting = false;
        state.connect_at = None;
        state.unreachable = None;
        let id = state.next_member;
        state.next_member = id.wrapping_add(1);
        state.members.push(Member { id, waker: Waker::noop().clone(), parked: false });
        drop(state);
        self.account.counters.connects.inc();
        self.account.counters.connections.inc();
        id
    }

    /// A connection accepts no more pushes: others have to send the queue. `failed`: its peer closed it before any
    /// answer, which counts as a failed attempt.
    pub(crate) fn retire(self: &Arc<Self>, id: u32, failed: Option<Reason>) {
        let mut state = self.state.lock();
        let before = state.members.len();
        state.members.retain(|member| member.id != id);
        if state.members.len() == before {
            return;
        }
        self.account.counters.connections.dec();
        if let Some(reason) = failed {
            match state.members.is_empty() {
                true => {
                    let delay = state.back_off();
                    if state.connect_failures >= CONNECT_FAILURES_MAX {
                        self.give_up(state, reason, delay);
                        return self.account.failed_to_connect(reason);
                    }
                }
                false => state.lower_ceiling(),
            }
        }
        // It may be the connection that was woken for the queue.
        let waker = if state.queue.is_empty() { None } else { state.unpark() };
        let connect = waker.is_none() && state.members.is_empty() && self.may_connect(&mut state);
        drop(state);
        if let Some(reason) = failed {
            self.account.failed_to_connect(reason);
        }
        self.act(waker, connect);
    }

    /// An attempt to connect failed.
    pub(super) fn connect_failed(&self, reason: Reason, permanent: bool) -> Attempt {
        self.account.failed_to_connect(reason);
        let mut state = self.state.lock();
        state.connecting = false;
        if permanent {
            drop(state);
            let answer = match self.account.has_origins_from_devices() {
                // The address came from a device.
                true => Answer::Refused { reason },
                // The address is ours: an operator must act.
                false => Answer::Later { reason, after: self.account.broken(reason, Instant::now()) },
            };
            self.flush(self.state.lock(), &answer);
            return Attempt::GiveUp;
        }
        if !state.members.is_empty() {
            state.lower_ceiling();
            return Attempt::GiveUp;
        }
        let delay = state.back_off();
        if state.connect_failures < CONNECT_FAILURES_MAX && !state.queue.is_empty() && !state.aborted {
            state.connecting = true;
            return Attempt::Again;
        }
        self.give_up(state, reason, delay);
        Attempt::GiveUp
    }

    /// Answers the queued pushes, and those that arrive before the next attempt, as unreachable.
    fn give_up(&self, mut state: MutexGuard<'_, State>, reason: Reason, delay: Duration) {
        state.unreachable = Some((reason, Instant::now() + delay));
        // No push reached the service, so it need not wait longer than the next attempt to connect.
        self.flush(state, &Answer::Later { reason, after: delay });
    }

    /// Answers pushes that waited too long although none of our limits held them back: connections exist, but their
    /// peer accepts almost nothing. Such a peer must not delay a batch indefinitely.
    pub(super) fn answer_overdue(&self, now: Instant) {
        if self.queued() == 0 {
            return;
        }
        let wait_max = self.account.context.config.queue_wait_max();
        let mut state = self.state.lock();
        let lately = |at: Instant| now.saturating_duration_since(at) < wait_max;
        if state.paced_at.is_some_and(lately) {
            return;
        }
        let mut overdue = Vec::new();
        while let Some(pending) = state.queue.pop_waiting_since(|since| !lately(since)) {
            overdue.push(pending);
        }
        if overdue.is_empty() {
            return;
        }
        self.queued.store(state.queue.len(), Ordering::Relaxed);
        self.taken(state, count_lanes(&overdue));
        overdue.into_iter().for_each(|pending| {
            pending.later("queue_timeout", self.account.retry_after(), &self.account.counters);
        });
    }

    /// The first answer on a connection: if there are more connections than the ceiling, raises it.
    pub(crate) fn answered_first(&self) {
        let mut state = self.state.lock();
        state.connect_failures = 0;
        if let Some((ceiling, _)) = state.ceiling
            && state.members.len() > ceiling
        {
            state.ceiling = None;
            state.ceilings_in_a_row = 0;
        }
    }

    /// When the next attempt may start; none: no attempt is needed.
    pub(super) fn connect_at(&self) -> Option<Instant> {
        let mut state = self.state.lock();
        if state.queue.is_empty() || state.aborted {
            state.connecting = false;
            return None;
        }
        Some(state.connect_at.unwrap_or_else(Instant::now))
    }

    pub(super) fn not_connecting(&self) {
        self.state.lock().connecting = false;
    }
}

impl State {
    /// There is no connection, and the next attempt has to wait.
    fn back_off(&mut self) -> Duration {
        self.connect_failures = self.connect_failures.saturating_add(1);
        let delay = RECONNECTS.delay(self.connect_failures, chance());
        self.connect_at = Some(Instant::now() + delay);
        delay
    }

    /// There are connections, and another one was rejected.
    fn lower_ceiling(&mut self) {
        self.ceilings_in_a_row = self.ceilings_in_a_row.saturating_add(1);
        let until = Instant::now() + CEILINGS.delay(self.ceilings_in_a_row, chance());
        self.ceiling = Some((self.members.len(), until));
    }
}
