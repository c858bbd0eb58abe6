//! The closed set of events. docs/events.md documents their meaning and format; a change that affects readers
//! increments [`crate::line::SCHEMA`].
//!
//! A record crosses from a thread to the collector: small, with at most one allocation.

use noroshi_types::trace::TraceId;
use noroshi_types::{
    AppId, CampaignId, CloseReason, DeviceId, DeviceNum, NotificationId, Outcome, PushService, SessionId,
    Timestamp, Topic, UserId, names,
};

/// One event and when it happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub at: Timestamp,
    pub event: Event,
}

// A ring of 8,192 places is 640 KiB. The largest event, `PushAnswered`, has app 4, of 17, service 1, outcome 1, reason 16,
// devices 16, trace 16 and the variant 1: 72 bytes, and `at` 8.
const _: () = assert!(size_of::<Record>() <= 80);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The log starts: the first event of this process.
    Started {
        version: &'static str,
    },
    /// This many events were lost since the last event of this kind.
    Lost {
        count: u64,
    },
    /// A notification was accepted; the durable part is on disk.
    Accepted(Box<Accepted>),
    /// It was passed to the nodes that may have its recipients connected.
    Routed {
        app: AppId,
        id: NotificationId,
        to: Routed,
    },
    /// The outcome of a notification on devices. Unknown devices are only in `count`.
    Outcome {
        app: AppId,
        of: Subject,
        outcome: Outcome,
        devices: Box<[DeviceNum]>,
        count: u64,
    },
    /// Devices of an app acknowledged notifications; entries of one notification are adjacent. A device may name any
    /// notification, also one of another app.
    Acked {
        app: AppId,
        acked: Box<[(NotificationId, DeviceNum)]>,
    },
    /// Recipients were passed to a push service's connections.
    PushSent {
        app: AppId,
        of: Subject,
        service: PushService,
        devices: Box<[DeviceNum]>,
        trace: Traced,
    },
    /// A push service gave a final answer; retries are sent again.
    PushAnswered {
        app: AppId,
        of: Subject,
        service: PushService,
        outcome: Outcome,
        /// The push service's own code.
        reason: Option<&'static str>,
        devices: Box<[DeviceNum]>,
        trace: Traced,
    },
    /// A device was created or registered again.
    Registered(Box<Registered>),
    /// A device's session started.
    Connected(Box<Connected>),
    /// A device's session ended, with its close reason.
    Closed {
        app: AppId,
        device: DeviceNum,
        session: SessionId,
        reason: CloseReason,
    },
    /// A campaign's state changed.
    Campaign {
        app: AppId,
        campaign: CampaignId,
        step: &'static str,
    },
    /// An operator or provider changed the configuration.
    Configured(Box<Configured>),
    Exposed(Box<Exposed>),
    /// An entry of the audit log.
    Audited(Box<Audited>),
    /// A log-in was rejected.
    Rejected(Box<Rejected>),
}

/// The subject of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    Notification(NotificationId),
    /// All notifications of a campaign, which have one message.
    Campaign(CampaignId),
    /// Several, which only the store distinguishes.
    Several,
}

/// A trace, if there is one, in 16 bytes: an `Option<TraceId>` has 17.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traced([u8; 16]);

impl Traced {
    pub fn id(self) -> Option<TraceId> {
        TraceId::from_bytes(self.0)
    }
}

impl From<Option<TraceId>> for Traced {
    /// No trace is all zeros, which no id is.
    fn from(trace: Option<TraceId>) -> Self {
        Self(trace.map_or([0; 16], |trace| *trace.as_bytes()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub app: AppId,
    pub id: NotificationId,
    pub campaign: Option<CampaignId>,
    /// `users`, `devices`, `topic`, `condition` or `everyone`.
    pub target: &'static str,
    /// The number of named recipients; none for topics, conditions and everyone.
    pub targets: Option<u64>,
    pub topic: Option<Topic>,
    /// Named recipients, for a tap ([`crate::Events::recipients_wanted`]). No line has them.
    pub named: Option<Named>,
    pub when: &'static str,
    pub push: &'static str,
    pub urgency: &'static str,
    /// Inbox rows written with it.
    pub kept: u64,
    /// The trace that it belongs to.
    pub trace: Option<TraceId>,
}

/// The recipients that a request names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Named {
    Users(Box<[UserId]>),
    Devices(Box<[DeviceId]>),
}

/// Where a message for live delivery went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routed {
    /// The connections of this node.
    Here,
    /// The nodes that have its recipients.
    Nodes,
}

/// With [`Connected`], where a device's number is mapped to its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    pub app: AppId,
    pub device: DeviceNum,
    /// The app's name of the device.
    pub device_id: DeviceId,
    pub user: Option<UserId>,
    /// The type of its push token, if it has one.
    pub service: Option<PushService>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Connected {
    pub app: AppId,
    pub device: DeviceNum,
    pub device_id: DeviceId,
    pub user: Option<UserId>,
    pub session: SessionId,
    /// `native`, `mqtt`, …
    pub protocol: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Configured {
    pub app: Option<AppId>,
    /// What changed: `app`, `key`, `credential`, `certificate`, …
    pub what: &'static str,
    /// How it changed: `made`, `changed`, `removed`, `read_again`.
    pub change: &'static str,
    /// Its name; never a secret.
    pub name: Option<Box<str>>,
}

/// A device displayed its variant of an experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposed {
    pub app: AppId,
    pub device_id: DeviceId,
    pub user: Option<UserId>,
    pub experiment: Box<str>,
    pub variant: Box<str>,
}

/// A change by a person, an `admin` key or the operator, as in the audit log. Never has a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audited {
    pub app: Option<AppId>,
    /// `person`, `key`, `operator` or `node`.
    pub by: &'static str,
    /// The address of the person, or the name of the key.
    pub who: Option<Box<str>>,
    /// Method and route.
    pub action: Box<str>,
    /// The path.
    pub target: Box<str>,
    /// JSON.
    pub before: Option<Box<str>>,
    pub after: Option<Box<str>>,
    /// The client's address.
    pub address: Box<str>,
    pub request: Box<str>,
}

/// A log-in that was rejected. Never has the credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The app that the log-in named, or whose token it presented. `None`: unknown.
    pub app: Option<AppId>,
    /// Proven by the token; none if the token itself was rejected.
    pub device_id: Option<DeviceId>,
    pub user: Option<UserId>,
    /// `native`, `mqtt`, …
    pub protocol: &'static str,
    /// One of a fixed set (docs/events.md).
    pub reason: &'static str,
    /// As in the node's log.
    pub detail: Box<str>,
    /// The network of the client's address.
    pub network: Option<Box<str>>,
    /// How many log-ins were rejected since the last event and have none of their own.
    pub suppressed: u64,
}

impl Accepted {
    fn bytes(&self) -> usize {
        match &self.named {
            Some(Named::Users(users)) => {
                users.iter().map(|user| size_of::<UserId>() + user.as_str().len()).sum()
            }
            Some(Named::Devices(devices)) => {
                devices.iter().map(|device| size_of::<DeviceId>() + device.as_str().len()).sum()
            }
            None => 0,
        }
    }
}

impl Audited {
    fn bytes(&self) -> usize {
        let Self { who, action, target, before, after, address, request, .. } = self;
        let optional = [who, before, after].into_iter().flatten();
        [action, target, address, request].into_iter().chain(optional).map(|text| text.len()).sum()
    }
}

names! {
    /// The names of events in lines and metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Kind {
        Started => "started",
        Lost => "lost",
        Accepted => "accepted",
        Routed => "routed",
        Kept => "kept",
        Written => "written",
        Acked => "acked",
        Opened => "opened",
        Dropped => "dropped",
        Expired => "expired",
        PushSkipped => "push_skipped",
        PushSent => "push_sent",
        PushAnswered => "push_answered",
        TokenInvalidated => "token_invalidated",
        Registered => "registered",
        Connected => "connected",
        Closed => "closed",
        Campaign => "campaign",
        Configured => "configured",
        Exposed => "exposed",
        Audited => "audit",
        Rejected => "rejected",
    }
}

impl Kind {
    /// The name of a notification's step on a device.
    pub fn of_outcome(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Kept => Kind::Kept,
            Outcome::Written => Kind::Written,
            Outcome::Acked => Kind::Acked,
            Outcome::Opened => Kind::Opened,
            Outcome::Offline
            | Outcome::Inactive
            | Outcome::Slow
            | Outcome::Collapsed
            | Outcome::Cancelled
            | Outcome::Evicted
            | Outcome::Unknown
            | Outcome::HeldOut
            | Outcome::Muted
            | Outcome::ChannelOff
            | Outcome::Quiet
            | Outcome::Capped => Kind::Dropped,
            Outcome::Expired | Outcome::PushExpired => Kind::Expired,
            Outcome::PushUnconfigured
            | Outcome::NoPushToken
            | Outcome::PushNotNeeded
            | Outcome::PushMuted
            | Outcome::PushChannelOff
            | Outcome::PushCapped => Kind::PushSkipped,
            Outcome::Pushed | Outcome::PushRefused | Outcome::PushTokenGone | Outcome::PushTokenSuspect => {
                Kind::PushAnswered
            }
        }
    }
}

impl Event {
    /// The app that it belongs to. `None`: it belongs to the node, or its app is not known.
    pub fn app(&self) -> Option<AppId> {
        match self {
            Event::Started { .. } | Event::Lost { .. } => None,
            Event::Routed { app, .. }
            | Event::Outcome { app, .. }
            | Event::Acked { app, .. }
            | Event::PushSent { app, .. }
            | Event::PushAnswered { app, .. }
            | Event::Closed { app, .. }
            | Event::Campaign { app, .. } => Some(*app),
            Event::Accepted(it) => Some(it.app),
            Event::Registered(it) => Some(it.app),
            Event::Connected(it) => Some(it.app),
            Event::Exposed(it) => Some(it.app),
            Event::Configured(it) => it.app,
            Event::Audited(it) => it.app,
            Event::Rejected(it) => it.app,
        }
    }
}

impl Record {
    /// Bytes outside of the record, which the capacity of a ring does not limit.
    pub(crate) fn extra_bytes(&self) -> usize {
        match &self.event {
            Event::Outcome { devices, .. }
            | Event::PushSent { devices, .. }
            | Event::PushAnswered { devices, .. } => size_of_val::<[DeviceNum]>(devices),
            Event::Acked { acked, .. } => size_of_val::<[(NotificationId, DeviceNum)]>(acked),
            Event::Audited(audited) => audited.bytes(),
            Event::Accepted(accepted) => accepted.bytes(),
            _ => 0,
        }
    }

    /// How many events it represents: one per device, or one if no device is named.
    pub fn weight(&self) -> u64 {
        match &self.event {
            Event::Outcome { count, .. } => (*count).max(1),
            Event::PushSent { devices, .. } | Event::PushAnswered { devices, .. } => {
                (devices.len() as u64).max(1)
            }
            Event::Acked { acked, .. } => acked.len() as u64,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name() {
        let names: std::collections::BTreeSet<_> = Kind::ALL.iter().map(|kind| kind.as_str()).collect();
        assert_eq!(names.len(), Kind::ALL.len());
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }

    #[test]
    fn the_weight_of_a_record_is_its_devices() {
        let devices: Box<[DeviceNum]> = (0..10).map(DeviceNum).collect();
        let (app, of, outcome) = (AppId(1), Subject::Several, Outcome::Written);
        let event = Event::Outcome { app, of, outcome, devices, count: 12 };
        let record = Record { at: Timestamp(0), event };
        assert_eq!((record.extra_bytes(), record.weight()), (80, 12));
    }
}
