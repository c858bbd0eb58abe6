//! What is known about one notification on one device: the steps that were recorded, whether the notification was for
//! the device, and what still waits. Facts only: callers decide what they mean.
//!
//! [`crate::Notifications::trace`] reads them. Some can no longer be known: a subscription that has ended, the user that
//! a device had before the current one, and what older programs did not record.

use noroshi_types::{CampaignId, DeviceNum, JsonText, Outcome, Timestamp, Topic, TraceContext, UserId, When};

use crate::CampaignState;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// The push service's own reason.
    pub reason: Option<String>,
}

/// One notification on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// By time, then by the outcome's code.
    pub steps: Vec<TraceStep>,
    /// The device's inbox has it now.
    pub in_inbox: bool,
    /// The device durably subscribes to the notification's topic.
    pub subscribed: bool,
    /// The provider's trace context.
    pub trace: Option<TraceContext>,
    pub notification: TracedNotification,
    pub device: TracedDevice,
    pub target: TracedTarget,
    /// The push work that waits for the device; the earliest if there are several.
    pub push: Option<PendingPush>,
    /// Attempts at pushes to the device, oldest first, each as in [`crate::PushRecord::attempts`] and with those of other
    /// devices. At most 100 of the newest.
    pub attempts: Vec<Vec<u8>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedNotification {
    pub sent_at: Timestamp,
    pub expires_at: Timestamp,
    pub when: When,
    pub has_collapse_key: bool,
    pub is_cancelled: bool,
    /// It left its topic's log before its ttl ended: collapsed, or trimmed.
    pub is_replaced: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedDevice {
    pub num: DeviceNum,
    pub created_at: Timestamp,
    pub user: Option<UserId>,
    /// When the user last changed after the device was created; `None`: never.
    pub user_at: Option<Timestamp>,
}

/// Whom the notification was for.
#[derive(Debug, Clone, PartialEq)]
pub enum TracedTarget {
    /// `named`: it named the device's current user; `None`: not recorded.
    Users {
        named: Option<bool>,
    },
    /// `named`: it named the device; `None`: not recorded.
    Devices {
        named: Option<bool>,
    },
    Topic {
        topic: Topic,
        /// The device's durable subscription.
        subscription: Option<Subscribed>,
    },
    Everyone {
        subscription: Option<Subscribed>,
    },
    Condition {
        text: String,
        /// The device's durable subscriptions match it now.
        matches: bool,
        /// Those that it had when the notification was accepted, and still has, match it.
        matched: bool,
    },
    Campaign(Box<TracedCampaign>),
    /// Only a newer program knows the target.
    Unknown,
}

/// A durable subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribed {
    /// `None`: not recorded.
    pub since: Option<Timestamp>,
    /// The device's position is behind the message: it acknowledged the message or a later one, or it subscribed
    /// later.
    pub is_past: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct TracedCampaign {
    pub id: CampaignId,
    /// As the owner wrote it.
    pub spec: JsonText,
    pub state: CampaignState,
    pub started_at: Option<Timestamp>,
    /// The audience was walked past this device, or to its end. For an uploaded audience: to its end.
    pub is_past: bool,
    /// Lines were uploaded, and one is for the device's current user; `None`: the lines were removed.
    pub uploaded: Option<bool>,
    /// One of its notifications named the device.
    pub is_published: bool,
}

/// Push work that waits for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingPush {
    pub due_at: Timestamp,
    pub stage: PushStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushStage {
    /// The devices of the notification are still being collected, and this one comes later.
    Collected,
    /// It waits for its time, or for a sender.
    Queued,
    /// A sender has it; `None`: an older program took it.
    Taken { since: Option<Timestamp> },
}
