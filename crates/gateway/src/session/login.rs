//! A log-in before its session begins, and how log-ins are batched.
//!
//! [`crate::session::verification`] identifies the device; everything else is one read of the store for all log-ins of
//! the same few milliseconds. A log-in is read in the turn in which it arrived, unless a batch was sent just before
//! ([`GATHER_MS`]) or is in progress. Then the next batch gathers until that answer arrives, the batch is large enough,
//! or [`LINGER_MS`] have passed: the busier the node, the larger the batches.
//!
//! The shard reads and opens sessions (`shard::login`).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use noroshi_auth::Identity;
use noroshi_delivery::rules::{Known, Reason};
use noroshi_store::{BacklogPage, LoggedIn, Login, Place};
use noroshi_types::rule::Claims;
use noroshi_types::{Timestamp, Topic};

use crate::session::permission::Permissions;
use crate::session::registry::{Address, Registry, Session, Versions};

/// Batches in progress at once: readers of the store work in parallel.
pub(crate) const BATCHES_MAX: usize = 8;
pub(crate) const BATCH_MAX: usize = 256;
pub(crate) const LINGER_MS: u64 = 5;
/// Between two batches of a shard. Each batch wakes two threads: at 15,000 log-ins per second and shard, 30 of them
/// share that.
const GATHER_MS: u64 = 2;
/// The store answers within milliseconds or not at all.
pub(crate) const LOG_IN_TIMEOUT: Duration = Duration::from_secs(30);

/// While a log-in has waited this long for the store, devices are asked to connect later. Otherwise each would wait
/// behind all others of a storm, and be gone when its turn comes.
pub(crate) const LOG_IN_DELAY_MAX: Duration = Duration::from_secs(1);

/// A log-in in progress, and what topic rules need to know about it.
pub(crate) struct PendingLogIn {
    pub(crate) login: Login,
    /// Claims of the token that topic rules need.
    pub(crate) claims: Option<Arc<Claims>>,
    /// Topics that rules denied to the log-in.
    pub(crate) denied: Vec<(Topic, Reason)>,
    /// Topics and filters that a webhook allowed for this log-in.
    pub(crate) permitted: Permissions,
    /// How often the log-in was read again because rules denied something.
    pub(crate) passes: u8,
}

/// A session that is attached, as its protocol gets it.
pub(crate) struct OpenedSession {
    pub(crate) session: Arc<Session>,
    /// Durable ones, without `$everyone`.
    pub(crate) topics: Vec<Topic>,
    /// No message of its topics is lost behind the place to resume from.
    pub(crate) complete: bool,
    /// What the protocol stored for an earlier connection.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) as_of: Place,
    /// What a webhook permitted for the log-in.
    pub(crate) permitted: Permissions,
    /// The client asked for an event stream under gzip.
    pub(crate) asks_gzip: bool,
}

/// A session that is attached and begins when the one it displaced is gone, since it continues with what that leaves.
/// What arrives meanwhile is held.
pub(crate) struct Succession {
    pub(crate) generation: u64,
    pub(crate) begun: OpenedSession,
    pub(crate) page: BacklogPage,
}

/// A connection (slot and generation) that logs in.
struct Waiting {
    connection: (u32, u64),
    since_ms: u64,
}

/// Log-ins that the store reads next, in batches.
#[derive(Default)]
pub(crate) struct LogInQueue {
    waiting: VecDeque<Waiting>,
    /// Not before that the next batch is sent, unless it is full.
    next_ms: u64,
    /// Batches in progress, at most [`BATCHES_MAX`].
    pub(crate) batches_out: usize,
}

impl LogInQueue {
    pub(crate) fn push(&mut self, connection: (u32, u64), now_ms: u64) {
        self.waiting.push_back(Waiting { connection, since_ms: now_ms });
    }

    /// The next batch that is due.
    pub(crate) fn next_batch(&mut self, now_ms: u64) -> Option<Vec<(u32, u64)>> {
        if self.waiting.is_empty() || self.batches_out >= BATCHES_MAX {
            return None;
        }
        if self.waiting.len() < BATCH_MAX && now_ms < self.due_ms() {
            return None;
        }
        self.next_ms = now_ms + GATHER_MS;
        let take = self.waiting.len().min(BATCH_MAX);
        Some(self.waiting.drain(..take).map(|waiting| waiting.connection).collect())
    }

    fn due_ms(&self) -> u64 {
        match self.batches_out {
            0 => self.next_ms,
            _ => self.since_ms().map_or(0, |since_ms| since_ms + LINGER_MS),
        }
    }

    /// Since when the first log-in waits.
    fn since_ms(&self) -> Option<u64> {
        self.waiting.front().map(|waiting| waiting.since_ms)
    }

    /// Whether log-ins wait for so long that devices should connect later.
    pub(crate) fn is_behind(&self, now_ms: u64) -> bool {
        let waited = |since_ms| Duration::from_millis(now_ms.saturating_sub(since_ms));
        self.since_ms().is_some_and(|since_ms| waited(since_ms) >= LOG_IN_DELAY_MAX)
    }

    /// How long the loop may sleep if log-ins wait.
    pub(crate) fn patience_ms(&self, now_ms: u64) -> Option<u64> {
        let waits = !self.waiting.is_empty() && self.batches_out < BATCHES_MAX;
        waits.then(|| self.due_ms().saturating_sub(now_ms))
    }
}

/// The log-in of a valid token.
pub(crate) fn login_of(identity: Identity, now: Timestamp) -> Login {
    Login {
        app: identity.app,
        device: identity.device,
        user: identity.user,
        create: identity.create,
        token_version: identity.token_version,
        issued: identity.issued,
        topics: identity.topics,
        session_topics: Vec::new(),
        resume: None,
        now,
    }
}

/// The session of a device that the store admitted. `claims`: the claims of its token, if the app has topic rules.
pub(crate) fn session_of(
    login: &Login,
    logged_in: &LoggedIn,
    claims: Option<&Option<Arc<Claims>>>,
    registry: &Registry,
    address: Address,
) -> Arc<Session> {
    let LoggedIn { num, user, token_version, revoked, revision, .. } = logged_in;
    let versions =
        Versions { token_version: *token_version, revision: *revision, revoked_at: revoked.latest() };
    let device = login.device.clone();
    let session = Session::new(registry, login.app, device, user.as_ref(), *num, address, versions);
    session.set_of_jwt(login.user.is_some());
    if let Some(claims) = claims {
        session.known.store(Some(Arc::new(Known { user: user.clone(), claims: claims.clone() })));
    }
    Arc::new(session)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(queue: &mut LogInQueue, now_ms: u64) -> usize {
        let batch = queue.next_batch(now_ms).unwrap_or_default();
        queue.batches_out += usize::from(!batch.is_empty());
        batch.len()
    }

    #[test]
    fn a_log_in_alone_is_read_at_once() {
        let mut queue = LogInQueue::default();
        for now_ms in [0, GATHER_MS, 10 * GATHER_MS] {
            queue.push((1, 1), now_ms);
            assert_eq!(queue.patience_ms(now_ms), Some(0));
            assert_eq!(batch(&mut queue, now_ms), 1);
            queue.batches_out = 0;
        }
    }

    #[test]
    fn log_ins_right_after_a_batch_gather() {
        let mut queue = LogInQueue::default();
        queue.push((1, 1), 10);
        assert_eq!(batch(&mut queue, 10), 1);
        queue.batches_out = 0; // the answer came within the millisecond
        queue.push((2, 1), 10);
        queue.push((3, 1), 10);
        assert_eq!((batch(&mut queue, 10), queue.patience_ms(10)), (0, Some(GATHER_MS)));
        assert_eq!(batch(&mut queue, 10 + GATHER_MS), 2);
        assert_eq!(queue.patience_ms(10 + GATHER_MS), None);
    }

    #[test]
    fn log_ins_that_wait_too_long_turn_others_away() {
        let (mut queue, delay_ms) = (LogInQueue { batches_out: BATCHES_MAX, ..LogInQueue::default() }, 1_000);
        assert!(!queue.is_behind(delay_ms));
        queue.push((1, 1), 0);
        queue.push((2, 1), delay_ms - 1);
        assert!(!queue.is_behind(delay_ms - 1) && queue.is_behind(delay_ms));
        queue.batches_out = 0;
        assert_eq!(batch(&mut queue, delay_ms), 2);
        assert!(!queue.is_behind(delay_ms));
    }

    #[test]
    fn log_ins_behind_a_batch_wait_for_it_but_not_long() {
        let mut queue = LogInQueue::default();
        queue.push((1, 1), 0);
        assert_eq!(batch(&mut queue, 0), 1);
        queue.push((2, 1), 1);
        assert_eq!(batch(&mut queue, LINGER_MS), 0);
        assert_eq!(batch(&mut queue, 1 + LINGER_MS), 1);
        (0..BATCH_MAX as u32 + 1).for_each(|slot| queue.push((slot, 1), 1 + LINGER_MS));
        assert_eq!(batch(&mut queue, 1 + LINGER_MS), BATCH_MAX, "a full batch does not wait");
        assert_eq!(batch(&mut queue, 1 + LINGER_MS), 0);
    }
}
