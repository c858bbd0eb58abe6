//! Notifications: accepting them, what became of them, and cancelling them.

use std::sync::Arc;

use noroshi_types::{
    AppId, CampaignId, DeviceId, DeviceNum, Lane, Message, NotificationId, Outcome, Request, Timestamp,
    TraceContext, UserId,
};

use crate::{Error, REMOVED_DEVICES_MAX, RemovedMessages, Trace, VariantNum};

/// A request to accept. The store assigns ids in commit order: of two accepted notifications the one with the smaller
/// id was committed first.
#[derive(Debug, Clone)]
pub struct Accept {
    pub app: AppId,
    /// Shared with the callers that deliver it, so that ten thousand targets are not copied.
    pub request: Arc<Request>,
    pub now: Timestamp,
    pub idempotency: Option<Idempotency>,
    /// A campaign publishes this notification: its push work takes the campaign's lane, and its outcomes count for
    /// the campaign.
    pub campaign: Option<OfCampaign>,
    /// Asked before inbox rows are written.
    pub gate: Option<Gate>,
}

/// The caller's part in an acceptance.
///
/// It may decide by the number of inbox rows that are about to be written. If it refuses, nothing is accepted
/// ([`Error::Refused`]). It may be asked again for the same acceptance when a transaction is retried; the last answer
/// counts. It runs inside a transaction and must not block.
///
/// It may also learn that the acceptance takes more than one commit, or waits for one that does.
#[derive(Clone, Default)]
pub struct Gate {
    passes: Option<Arc<dyn Fn(u64) -> bool + Send + Sync>>,
    waits: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl Gate {
    /// A gate that decides.
    pub fn new(passes: impl Fn(u64) -> bool + Send + Sync + 'static) -> Self {
        Self { passes: Some(Arc::new(passes)), waits: None }
    }

    /// Calls `waits` when the acceptance turns out to take longer, at least once. It must not block.
    #[must_use]
    pub fn with_waits(self, waits: impl Fn() + Send + Sync + 'static) -> Self {
        Self { waits: Some(Arc::new(waits)), ..self }
    }

    pub(crate) fn decides(&self) -> bool {
        self.passes.is_some()
    }

    pub(crate) fn check(gate: Option<&Self>, rows: usize) -> Result<(), Error> {
        match gate.and_then(|gate| gate.passes.as_ref()) {
            Some(passes) if !passes(rows as u64) => Err(Error::Refused),
            _ => Ok(()),
        }
    }

    pub(crate) fn waits(&self) {
        if let Some(waits) = &self.waits {
            waits();
        }
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

/// The campaign that a notification belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfCampaign {
    pub id: CampaignId,
    pub lane: Lane,
    /// All outcomes of the notification count for this variant, now and later.
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
    /// The message to deliver now.
    pub message: Arc<Message>,
    /// How many recipients the request names; `None` for topics, conditions and everyone.
    pub targets: Option<u64>,
    /// What was recorded: [`Outcome::Kept`], [`Outcome::Unknown`], [`Outcome::NoPushToken`],
    /// [`Outcome::PushTokenSuspect`]. Each part names at most [`REMOVED_DEVICES_MAX`] devices.
    pub parts: Vec<OutcomePart>,
    /// Notifications that it replaced or evicted: [`Outcome::Collapsed`] and [`Outcome::Evicted`].
    pub departed: RemovedMessages,
    /// The users that got an item.
    pub item_users: Vec<UserId>,
    /// The answer of an earlier request with the same idempotency key: deliver nothing.
    pub replayed: bool,
}

impl Accepted {
    /// Inbox rows that were written.
    pub fn kept(&self) -> u64 {
        let kept = self.parts.iter().filter(|part| part.outcome == Outcome::Kept);
        kept.map(|part| part.count).sum()
    }
}

/// Called on the writer's thread in commit order, after the commit is on stable storage. A caller that hands messages
/// on from here keeps the order of every inbox and every topic. Must not block.
pub type Done = Box<dyn FnOnce(Result<Accepted, Error>) + Send>;

/// `count` devices had the same outcome at the same time. `devices` is sorted and may be shorter than `count`:
/// devices of an unknown user are not known, and very many are not listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutcomePart {
    pub app: AppId,
    pub id: NotificationId,
    pub outcome: Outcome,
    pub at: Timestamp,
    pub devices: Vec<DeviceNum>,
    pub count: u64,
}

impl OutcomePart {
    /// A part of a notification that is being accepted; `devices` must be sorted. Only as many as an answer may name
    /// are kept.
    pub(crate) fn of(
        app: AppId,
        id: NotificationId,
        outcome: Outcome,
        at: Timestamp,
        mut devices: Vec<DeviceNum>,
    ) -> Self {
        let count = devices.len() as u64;
        if devices.len() > REMOVED_DEVICES_MAX {
            devices.truncate(REMOVED_DEVICES_MAX);
            devices.shrink_to_fit();
        }
        Self { app, id, outcome, at, devices, count }
    }

    /// A part without known devices.
    pub(crate) fn of_unknown(app: AppId, id: NotificationId, at: Timestamp, count: u64) -> Self {
        Self { app, id, outcome: Outcome::Unknown, at, devices: Vec::new(), count }
    }
}

/// The state of a notification over all devices.
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
    /// Sums of the recorded parts, in the order of [`Outcome::ALL`], without zeros.
    pub counts: Vec<(Outcome, u64)>,
}

/// The parts of a request that are shown later.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSummary {
    /// `users`, `devices`, `topic`, `condition`, `everyone` or `campaign`.
    pub target: &'static str,
    /// The topic's name or the condition's text.
    pub target_text: Option<String>,
    pub targets: Option<u64>,
    pub collapse_key: Option<String>,
    pub retain: bool,
    /// The provider's trace context.
    pub trace: Option<TraceContext>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cancelled {
    /// Inbox rows that were removed.
    pub removed: u64,
    /// Devices with pending push work.
    pub not_pushed: u64,
    /// Devices of both kinds, each once: [`Outcome::Cancelled`].
    pub departed: RemovedMessages,
    /// Campaigns that ended because of this.
    pub done: Vec<(AppId, CampaignId)>,
}

#[async_trait::async_trait]
pub trait Notifications: Send + Sync {
    /// Stores the notification and then calls `done`, in one commit for any number of named targets. A `stored`
    /// notification to a condition that more than 1,000 devices match takes several commits, of which the last one
    /// makes it visible; later notifications of the app wait for it, and rows that it replaces are removed by
    /// [`crate::Maintenance::prune`].
    /// - `stored` to users, devices or a condition: one inbox row per device. A device keeps its newest
    ///   [`crate::sqlite::Options::inbox_rows`] rows, with [`noroshi_types::limits::inbox_slack`]; rows of the same
    ///   collapse key are replaced. Recorded as [`Outcome::Kept`], [`Outcome::Collapsed`] and [`Outcome::Evicted`],
    ///   and as [`Outcome::Unknown`] for users and devices that do not exist.
    /// - to a topic or everyone: the next offset, a row in the topic's log if `stored`, and the retained message if
    ///   `retain`. Older rows of the same collapse key leave the log.
    /// - anything else: the notification itself and the idempotency key.
    /// - with [`Request::item`], whatever its presence rule: an item for each named user, also for users without a
    ///   device, or for the users of the named devices ([`crate::Items`]).
    ///
    /// For a push mode other than `never`, the same commit has the push work ([`crate::push`]). Users and devices get
    /// batches per push service; with `fallback` they are due `after` later, at the latest at the end of the ttl.
    /// Devices without a token are recorded as [`Outcome::NoPushToken`], devices with a suspect token as
    /// [`Outcome::PushTokenSuspect`]. Other targets get one walk, for any number of devices.
    fn accept(&self, accept: Accept, done: Done);

    /// For notifications of which only the trace is kept (`active` and `connected` to users or devices without an
    /// idempotency key): assigns an id now and writes the notification in the background. A crash loses the row, and
    /// a writer that is behind drops and counts it. Creates no push work.
    fn note(&self, accept: Accept) -> Accepted;

    /// Records outcomes in the background. A crash loses them, and a writer that is behind drops and counts them.
    fn record(&self, parts: Vec<OutcomePart>);

    async fn notification(
        &self,
        app: AppId,
        id: NotificationId,
        now: Timestamp,
    ) -> Result<Option<NotificationState>, Error>;

    /// What is known about a notification on a device. `None` if there is no such notification or device. A campaign's id
    /// is accepted too: it, and the id of the notification under which the campaign is recorded, stand for everything
    /// that the campaign sends.
    async fn trace(&self, app: AppId, id: NotificationId, device: &DeviceId) -> Result<Option<Trace>, Error>;

    /// Removes everything not acknowledged yet: inbox rows, the row in the log, the retained message, and push work
    /// that no sender has taken. Also removes its items. Each device with a removed row is recorded once. [`Error::NotFound`] if there
    /// is no such notification.
    async fn cancel(&self, app: AppId, id: NotificationId, now: Timestamp) -> Result<Cancelled, Error>;
}
