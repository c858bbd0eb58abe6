//! A log-in before its session begins, and how log-ins are batched.
//!
//! [`crate::session::verification`] identifies the device; everything else is one read of the store for all log-ins of
//! the same few milliseconds. If no batch is in progress, a log-in is read in the turn in which it arrived. Otherwise
//! the next batch gathers until the answer arrives, the batch is large enough, or [`LINGER_MS`] have passed: the busier
//! the node, the larger the batches.
//!
//! The shard reads and opens sessions (`shard::login`).

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
/// The store answers within milliseconds or not at all.
pub(crate) const LOG_IN_TIMEOUT: Duration = Duration::from_secs(30);

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

/// Log-ins that the store reads next, in batches.
#[derive(Default)]
pub(crate) struct LogInQueue {
    waiting: Vec<(u32, u64)>,
    /// When the first of `waiting` was added.
    since_ms: u64,
    /// Batches in progress, at most [`BATCHES_MAX`].
    pub(crate) batches_out: usize,
}

impl LogInQueue {
    /// Adds a connection (slot and generation).
    pub(crate) fn push(&mut self, connection: (u32, u64), now_ms: u64) {
        if self.waiting.is_empty() {
            self.since_ms = now_ms;
        }
        self.waiting.push(connection);
    }

    /// The next batch that is due.
    pub(crate) fn next_batch(&mut self, now_ms: u64) -> Option<Vec<(u32, u64)>> {
        if self.waiting.is_empty() || self.batches_out >= BATCHES_MAX {
            return None;
        }
        let is_due =
            self.batches_out == 0 || self.waiting.len() >= BATCH_MAX || now_ms >= self.since_ms + LINGER_MS;
        let take = self.waiting.len().min(BATCH_MAX);
        is_due.then(|| self.waiting.drain(..take).collect())
    }

    /// How long the loop may sleep if log-ins wait.
    pub(crate) fn patience_ms(&self) -> Option<u64> {
        (!self.waiting.is_empty() && self.batches_out < BATCHES_MAX).then_some(LINGER_MS)
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
