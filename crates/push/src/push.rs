//! One push to one device, and its result.

use std::sync::Arc;
use std::time::Duration;

use noroshi_types::{AppId, DeviceId, Lane, PushToken, Timestamp, TraceContext, UserId};

use crate::attempt::{Attempt, Record};
use crate::content::Content;
use crate::fields::InvalidContent;

/// One push to one device.
#[derive(Debug)]
pub struct Push {
    pub app: AppId,
    pub lane: Lane,
    pub token: PushToken,
    pub content: Arc<Content>,
    /// The same for every attempt at this device, so that a push service can deduplicate (`apns-id`).
    pub id: uuid::Uuid,
    /// Usually none. Boxed, because hundreds of thousands of pushes wait without them.
    pub details: Option<Box<Details>>,
    /// Which attempts are reported to [`Answered::attempted`].
    pub record: Record,
    pub reply: Reply,
}

/// What few pushes have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Sent to the push service as `traceparent`.
    pub trace: Option<TraceContext>,
    /// Of services that name their recipients, unless the push is a test.
    pub recipient: Option<Recipient>,
}

impl Push {
    pub(crate) fn trace(&self) -> Option<&TraceContext> {
        self.details.as_ref()?.trace.as_ref()
    }

    pub(crate) fn recipient(&self) -> Option<&Recipient> {
        self.details.as_ref()?.recipient.as_ref()
    }
}

/// The device that a push is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipient {
    pub device: DeviceId,
    pub user: Option<UserId>,
}

/// Where the answer goes.
#[derive(Clone)]
pub struct Reply {
    pub to: Arc<dyn Answered>,
    /// The caller's index of the push.
    pub index: u32,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reply").field("index", &self.index).finish_non_exhaustive()
    }
}

/// Receives answers. Called exactly once for each push, on a connection's thread, as soon as the answer arrives; must
/// not block.
pub trait Answered: Send + Sync {
    fn answered(&self, index: u32, answer: Answer);

    /// Called for each attempt that [`Push::record`] selects, before the answer. A push that is sent again has several.
    fn attempted(&self, index: u32, attempt: Attempt) {
        let _ = (index, attempt);
    }
}

/// The push service's own code (`BadDeviceToken`, `UNREGISTERED`) or ours (`timeout`), from a closed table, so that it
/// can be a metric label. Codes that are in no table become `other`.
pub type Reason = &'static str;

/// The outcome of one push. The variants differ in what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The push service accepted it.
    Accepted,
    /// Proof that the token is invalid: remove it if it was registered before `since` (none: the service named no time,
    /// and the token is invalid whenever it was registered).
    Gone { reason: Reason, since: Option<Timestamp> },
    /// The token seems to belong to another environment, topic or sender: set it aside, do not remove it.
    Suspect { reason: Reason },
    /// Rejected permanently: a retry would fail too.
    Refused { reason: Reason },
    /// Retry, not before `after`.
    Later { reason: Reason, after: Duration },
    /// The app has no credential for this service and environment.
    Unconfigured,
    /// Its time to live ended in the queue.
    Expired,
}

impl Answer {
    /// Why the push was not accepted.
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Accepted => None,
            Self::Gone { reason, .. }
            | Self::Suspect { reason }
            | Self::Refused { reason }
            | Self::Later { reason, .. } => Some(reason),
            Self::Unconfigured => Some("unconfigured"),
            Self::Expired => Some("expired"),
        }
    }
}

impl From<&InvalidContent> for Answer {
    fn from(unfit: &InvalidContent) -> Self {
        Answer::Refused { reason: unfit.reason() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use noroshi_types::{JsonText, PushEnvironment, PushService};
    use serde_json::Value;

    use super::*;
    use crate::fields::Fields;

    /// A push to a device that only a test knows; answers are ignored.
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
            details: None,
            record: Record::Nothing,
            reply: Reply { to: Arc::new(Nobody), index: 0 },
        }
    }
}
