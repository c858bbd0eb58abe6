//! Accepting notifications, and what became of them.

use std::sync::Arc;

use noroshi_types::{
    AppId, CampaignId, DeviceId, DeviceNum, Lane, Message, NotificationId, Outcome, Request, Timestamp,
    TraceContext,
};

use crate::{DEPARTED_DEVICES_MAX, Departed, Error, VariantNum};

/// A request to accept. The store gives it its id, in commit order: of two accepted notifications
/// the one with the smaller id was committed first.
#[derive(Debug, Clone)]
pub struct Accept {
    pub app: AppId,
    /// Shared with whoever delivers it: ten thousand targets are not copied.
    pub request: Arc<Request>,
    pub now: Timestamp,
    pub idempotency: Option<Idempotency>,
    /// A campaign publishes this: its push work takes this lane, and all its outcomes count there too.
    pub campaign: Option<OfCampaign>,
    /// Asked before inbox rows are written.
    pub gate: Option<Gate>,
}

/// Asked with the number of inbox rows that an acceptance is about to write; where it answers false nothing is accepted
/// ([`Error::Refused`]). It may be asked again for the same acceptance, when a transaction is tried again: the last
/// answer counts. It is called inside a transaction and must not block.
#[derive(Clone)]
pub struct Gate(Arc<dyn Fn(u64) -> bool + Send + Sync>);

impl Gate {
    pub fn new(passes: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(passes))
    }

    pub(crate) fn check(gate: Option<&Self>, rows: usize) -> Result<(), Error> {
        match gate {
            Some(Self(passes)) if !passes(rows as u64) => Err(Error::Refused),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

/// Of which campaign a notification is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfCampaign {
    pub id: CampaignId,
    pub lane: Lane,
    /// For ever: what becomes of it on its devices, now and later, counts for this variant.
    pub variant: Option<VariantNum>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    pub key: Box<str>,
    /// SHA-256 of the request body.
    pub body_hash: [u8; 32],
}

#[derive(Debug, Clone)]
pub struct Accepted {
    /// What to deliver now.
    pub message: Arc<Message>,
    /// How many were named; none for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// What was recorded of it: [`Outcome::Kept`], [`Outcome::Unknown`], [`Outcome::NoPushToken`],
    /// [`Outcome::PushTokenSuspect`]. Of each part at most [`DEPARTED_DEVICES_MAX`] devices are named.
    pub parts: Vec<OutcomePart>,
    /// Those that it took the place of: [`Outcome::Collapsed`] and [`Outcome::Evicted`].
    pub departed: Departed,
    /// An earlier request with the same idempotency key was answered: deliver nothing.
    pub replayed: bool,
}

impl Accepted {
    /// Inbox rows written.
    pub fn kept(&self) -> u64 {
        let kept = self.parts.iter().filter(|part| part.outcome == Outcome::Kept);
        kept.map(|part| part.count).sum()
    }
}

/// Called on the writer's thread, in commit order, after the commit is on stable storage: whoever
/// hands messages on from here keeps the order of every inbox and every topic. Must not block.
pub type Done = Box<dyn FnOnce(Result<Accepted, Error>) + Send>;

/// `count` devices had the same outcome at the same time. `devices` is sorted and may be shorter
/// than `count` where devices are not known (an unknown user) or too many to keep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomePart {
    pub id: NotificationId,
    pub outcome: Outcome,
    pub at: Timestamp,
    pub devices: Vec<DeviceNum>,
    pub count: u64,
}

impl OutcomePart {
    /// Of a notification that is being accepted; `devices` must be sorted. Many of them are cut down to those that an
    /// answer may name.
    pub(crate) fn of(
        id: NotificationId,
        outcome: Outcome,
        at: Timestamp,
        mut devices: Vec<DeviceNum>,
    ) -> Self {
        let count = devices.len() as u64;
        if devices.len() > DEPARTED_DEVICES_MAX {
            devices.truncate(DEPARTED_DEVICES_MAX);
            devices.shrink_to_fit();
        }
        Self { id, outcome, at, devices, count }
    }

    /// Nobody knows of which devices.
    pub(crate) fn of_unknown(id: NotificationId, at: Timestamp, count: u64) -> Self {
        Self { id, outcome: Outcome::Unknown, at, devices: Vec::new(), count }
    }
}

/// Where a notification stands as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Some devices still have it in their inbox, or it is in a topic's log, and the ttl has not ended.
    Pending,
    /// Nothing more will happen.
    Done,
    Cancelled,
    Expired,
}

#[derive(Debug, Clone)]
pub struct NotificationState {
    pub message: Arc<Message>,
    pub request: RequestSummary,
    pub state: State,
    /// Sums of the recorded parts, in the order of [`Outcome::ALL`], zeros left out.
    pub counts: Vec<(Outcome, u64)>,
}

/// What of the request is worth showing later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSummary {
    /// `users`, `devices`, `topic`, `condition`, `everyone` or `campaign`.
    pub target: &'static str,
    /// The topic's name or the condition's text.
    pub target_text: Option<String>,
    pub targets: Option<u64>,
    pub collapse_key: Option<String>,
    pub retain: bool,
    /// Of whose trace it is a part.
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceStep {
    pub at: Timestamp,
    pub outcome: Outcome,
    /// In a push service's word.
    pub reason: Option<String>,
}

/// One notification on one device.
#[derive(Debug, Clone)]
pub struct Trace {
    /// In order of time, then of the outcome's code.
    pub steps: Vec<TraceStep>,
    /// It is in the device's inbox now.
    pub in_inbox: bool,
    /// The notification's topic, if any, is one the device durably subscribes to.
    pub subscribed: bool,
    /// Of whose trace the notification is a part.
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cancelled {
    /// Inbox rows removed.
    pub removed: u64,
    /// Devices that a push service was still to be asked for.
    pub not_pushed: u64,
    /// Both, each device once: [`Outcome::Cancelled`].
    pub departed: Departed,
    /// Campaigns that ended with it.
    pub done: Vec<(AppId, CampaignId)>,
}

#[async_trait::async_trait]
pub trait Notifications: Send + Sync {
    /// Keeps what must survive and then calls `done`, in one round trip whatever the number of
    /// targets:
    /// - `stored` to users, devices or a condition: an inbox row for every device, the newest
    ///   [`crate::sqlite::Options::inbox_rows`] of a device kept, with [`noroshi_types::limits::inbox_slack`]; rows of the same collapse key are
    ///   replaced; recorded as [`Outcome::Kept`], [`Outcome::Collapsed`], [`Outcome::Evicted`];
    ///   users and devices that do not exist as [`Outcome::Unknown`].
    /// - to a topic or everyone: the next offset, a row in the topic's log if `stored`, the retained
    ///   message if `retain`. With a collapse key the older rows of that key leave the log.
    /// - anything else: the notification itself and the idempotency key.
    ///
    /// With a push mode other than `never`, in the same commit, the push work ([`crate::push`]): of users
    /// and devices a batch for each push service (with `fallback` due `after` later, but not after the
    /// ttl), devices without a token recorded as [`Outcome::NoPushToken`] and those whose token is set
    /// aside as [`Outcome::PushTokenSuspect`]; of the others one walk, whatever the number of devices.
    fn accept(&self, accept: Accept, done: Done);

    /// For what nothing but its trace survives of (`active` and `connected` to users or devices
    /// without an idempotency key): gives an id now and writes the notification behind, without
    /// waiting. The row is lost in a crash; it is left out and counted when the writer is behind. No
    /// push work is made.
    fn note(&self, accept: Accept) -> Accepted;

    /// Records outcomes behind, without waiting; lost in a crash, left out and counted when the
    /// writer is behind.
    fn record(&self, parts: Vec<OutcomePart>);

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error>;

    /// None if there is no such notification or device.
    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error>;

    /// Removes what is not confirmed yet: inbox rows, the log row, the retained message, push work that
    /// is not under way. Each device whose inbox or push work it was in is recorded once.
    /// [`Error::NotFound`] if there is none.
    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error>;
}
