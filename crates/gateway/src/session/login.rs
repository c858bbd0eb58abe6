//! Log-ins: [`crate::session::verification`] says whose token it is, everything else is one read of the store for all
//! that log in within the same few milliseconds.
//!
//! While no batch is out, a log-in leaves with the turn it came in. While one is out, the next
//! gathers until the answer comes, it is large enough, or [`LINGER_MS`] have passed: the busier the
//! node, the larger the batches.
//!
//! The order in [`Shard::open_session`] is what makes the way from the read to live delivery free of
//! gaps: attach, put into the topic index, and only then look at the stamps ([`crate::session::stamp`]).

use noroshi_auth::Identity;
use noroshi_store::{BacklogPage, Login, Place};
use noroshi_types::{Timestamp, Topic};
use std::sync::Arc;
use std::time::Duration;

use crate::session::permission::Permissions;
use crate::session::registry::Session;

/// Batches out at once: readers of the store work side by side.
pub(crate) const BATCHES_MAX: usize = 8;
pub(crate) const BATCH_MAX: usize = 256;
pub(crate) const LINGER_MS: u64 = 5;
/// The store answers in milliseconds or is beyond help.
pub(crate) const LOG_IN_TIMEOUT: Duration = Duration::from_secs(30);

/// A session that is attached, as its conversation is told.
pub(crate) struct Begun {
    pub(crate) session: Arc<Session>,
    /// Durable ones, without `$everyone`.
    pub(crate) topics: Vec<Topic>,
    /// Nothing behind the place to resume from is lost, as far as its topics go.
    pub(crate) complete: bool,
    /// What the protocol kept of an earlier connection.
    pub(crate) kept: Option<Vec<u8>>,
    pub(crate) as_of: Place,
    /// What a webhook allowed for the log-in.
    pub(crate) permitted: Permissions,
    /// The client asked for an event stream under gzip.
    pub(crate) asks_gzip: bool,
}

/// A session that is attached and begins when the one it displaced is gone, since it goes on with what
/// that leaves. What comes meanwhile is held.
pub(crate) struct Succession {
    pub(crate) generation: u64,
    pub(crate) begun: Begun,
    pub(crate) page: BacklogPage,
}

/// Log-ins on their way to the store.
#[derive(Default)]
pub(crate) struct LogIns {
    pub(crate) waiting: Vec<(u32, u64)>,
    /// When the first of `waiting` came.
    pub(crate) since_ms: u64,
    pub(crate) batches_out: usize,
}

impl LogIns {
    /// How long the loop may sleep if log-ins wait.
    pub(crate) fn patience_ms(&self) -> Option<u64> {
        (!self.waiting.is_empty() && self.batches_out < BATCHES_MAX).then_some(LINGER_MS)
    }
}

/// What the store is asked of who brought a valid token.
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
