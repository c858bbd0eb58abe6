//! One push to one device, and what comes back.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, Lane, PushToken, Timestamp, TraceContext};

use crate::content::Content;
use crate::fields::Unfit;

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

impl From<&Unfit> for Answer {
    fn from(unfit: &Unfit) -> Self {
        Answer::Refused { reason: unfit.reason() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use noroshi_types::{JsonText, PushEnvironment, PushService};
    use serde_json::Value;

    use super::*;
    use crate::fields::Fields;

    /// A push of such a message to a device that only a test knows; nobody hears the answer.
    pub(crate) fn push(service: PushService, token: &Value, fields: Fields) -> Push {
        struct Nobody;
        impl Answered for Nobody {
            fn answered(&self, _: u32, _: Answer) {}
        }
        Push {
            app: AppId(1),
            lane: Lane::Direct,
            token: PushToken {
                service,
                environment: PushEnvironment::Production,
                json: JsonText::from_valid(token.to_string()),
            },
            content: Arc::new(Content::new(fields)),
            id: uuid::Uuid::from_u128(0x0197_b3f0_aaaa_7bbb_8ccc_dddd_eeee_ffff),
            trace: None,
            reply: Reply { to: Arc::new(Nobody), index: 0 },
        }
    }
}
