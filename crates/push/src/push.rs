//! One push to one device, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, Lane, PushToken, Timestamp, TraceContext};

use crate::Content;

/// One push to one device.
#[derive(Debug)]
pub struct Push {
    pub app: AppId,
    pub lane: Lane,
    pub token: PushToken,
    pub content: Arc<Content>,
    /// The same for every attempt at this device: what a push service can deduplicate by (`apns-id`).
    pub id: uuid::Uuid,
    /// Told to the push service as `traceparent`; none where it is not to know, which is the rule: a pointer, since
    /// hundreds of thousands of pushes wait without one.
    pub trace: Option<Box<TraceContext>>,
    pub reply: Reply,
}

/// Where the answer goes.
#[derive(Clone)]
pub struct Reply {
    pub to: Arc<dyn Answered>,
    /// Which of the asker's pushes it was.
    pub index: u32,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Hears answers. Called exactly once for each push, on the thread of a connection, as soon as the answer
/// is there: must not block.
pub trait Answered: Send + Sync {
    fn answered(&self, index: u32, answer: Answer);
}

/// Why, in the push service's own word (`BadDeviceToken`, `UNREGISTERED`) or ours (`timeout`): one of a closed
/// table, so it can be a metric's label; a word that no table has is `other`.
pub type Reason = &'static str;

/// What became of one push, by what is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The push service took it.
    Accepted,
    /// Proof that the token is no longer valid: to be removed if it was registered before `since` (none:
    /// the service told no time, it is valid no longer whenever it was registered).
    Gone { reason: Reason, since: Option<Timestamp> },
    /// The token seems to belong to another environment, topic or sender: to be set aside, not removed.
    Suspect { reason: Reason },
    /// It will never be taken: nothing that waiting changes.
    Refused { reason: Reason },
    /// To be tried again, no sooner than `after`.
    Later { reason: Reason, after: Duration },
    /// The app has no credential for this service and environment.
    Unconfigured,
    /// Its time ended while it waited here.
    Expired,
}
