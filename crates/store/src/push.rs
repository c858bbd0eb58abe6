//! Push work: what is to reach push services, kept until it is known what became of it.
//!
//! Work is a queue of *batches* of at most [`BATCH_RECIPIENTS_MAX`] devices, written by
//! [`crate::Notifications::accept`] (users and devices), by [`PushQueue::walked`] (topics, conditions,
//! everyone) and by [`crate::Campaigns::enqueue`]. A sender *takes* batches under a lease and *finishes*
//! each once. A batch that is taken stays in the store until it is finished, so a crash repeats the
//! batches that were taken and loses none; when a store of one node is opened all leases are void. Where
//! several nodes share a store, a batch is whose lease it is: [`PushQueue::renew`] answers who that is.
//! A batch that ends whoever sends it is not taken for ever: takes are counted ([`TAKES_MAX`]).
//!
//! The life of a token ends here too: `finish` removes what a push service proved dead and sets aside
//! what it doubts, and both leave an [`Invalidation`].

use std::time::Duration;

use noroshi_types::{
    AppId, BatchId, CampaignId, Condition, DeviceId, DeviceNum, JsonText, Lane, NotificationId, Outcome,
    Push, PushEnvironment, PushService, PushToken, Timestamp, Topic, TraceContext, Urgency, UserId,
};

use crate::ids::{Ids, Num};
use crate::{Attributes, Departed, Error, VariantNum};

/// Devices of a batch that the store packs itself. A campaign may choose up to 1,000.
pub const BATCH_RECIPIENTS_MAX: usize = 500;

/// So often a batch is taken to be sent; then it is set aside, with its recipients refused as [`SENDER_ENDED`]. A take
/// counts until its taker finishes the batch or gives it back in order, so only processes that ended in between add up.
pub const TAKES_MAX: u32 = 5;

/// The reason with which the recipients of a batch are refused that was taken too often.
pub const SENDER_ENDED: &str = "sender_ended";

/// A batch that was being sent when its process ended, for the second time or more, is due again at some moment within
/// so long, and so long again for each further time. Else all that were under way together would be taken together
/// again, and be set aside with the one of them that is to blame.
pub(crate) const SPREAD: Duration = Duration::from_secs(10);

/// What is rendered for the recipients of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Work {
    Notification(NotificationId),
    Campaign(CampaignId),
}

impl Work {
    /// Of a row of the queue: its notification, or with 0 its campaign. None: that was deleted.
    pub(crate) fn of(ids: &Ids, num: Num, campaign: Option<CampaignId>) -> Option<Self> {
        match num {
            0 => campaign.map(Self::Campaign),
            num => Some(Self::Notification(ids.id(num))),
        }
    }
}

/// Devices that go to one push service together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub id: BatchId,
    pub app: AppId,
    /// None: a campaign's batch that is published as a notification, not pushed.
    pub service: Option<PushService>,
    pub lane: Lane,
    pub due_at: Timestamp,
    /// 0 at first; what [`Again`] said afterwards.
    pub attempt: u32,
    pub work: Work,
    /// Whose counts its outcomes are added to.
    pub campaign: Option<CampaignId>,
    /// Of the campaign: drawn for all of them when they were tried before, also [`VariantNum::OF_NONE`]. None: nobody
    /// was drawn for yet.
    pub variant: Option<VariantNum>,
    /// Until when it is the taker's: which take it was, among all of this batch.
    pub leased_until: Timestamp,
    /// Sorted, without duplicates.
    pub recipients: Vec<DeviceNum>,
}

/// A batch that somebody took, and until when it was theirs as far as they know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub batch: BatchId,
    pub until: Timestamp,
}

/// Why a lease is moved, which says whether the batch was taken once more or less ([`TAKES_MAX`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// Its holder goes on.
    Kept,
    /// Somebody else goes on with it, and sends it: a take that counts.
    Claimed,
    /// Its holder leaves it to others and is well: its take does not count.
    Returned,
}

impl Renewal {
    /// What is added to a batch's takes.
    pub(crate) fn takes(self) -> i64 {
        match self {
            Self::Kept => 0,
            Self::Claimed => 1,
            Self::Returned => -1,
        }
    }
}

/// Asks for batches that are due.
#[derive(Debug, Clone)]
pub struct Take {
    pub now: Timestamp,
    /// Not finished and not renewed for so long, it is taken again.
    pub lease: Duration,
    pub batches_max: usize,
    /// Takes no more of these.
    pub busy: Vec<(AppId, PushService)>,
    /// Takes no more of these campaigns (their rate is used up).
    pub held: Vec<CampaignId>,
    /// Only these.
    pub lanes: Vec<Lane>,
    /// Whether the taker sends them itself, so that the take counts ([`TAKES_MAX`]). If not, a claim does
    /// ([`Renewal::Claimed`]).
    pub sends: bool,
}

/// A batch that was taken [`TAKES_MAX`] times and never ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetAside {
    pub batch: BatchId,
    pub app: AppId,
    pub service: Option<PushService>,
    pub lane: Lane,
    pub work: Work,
    pub recipients: Vec<DeviceNum>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// By lane, then by the time they are due.
    pub batches: Vec<Batch>,
    /// Devices that had confirmed in time: recorded as [`Outcome::PushNotNeeded`]; of notifications whose ttl had ended:
    /// [`Outcome::PushExpired`]; of what was cancelled or aborted: [`Outcome::Cancelled`].
    pub departed: Departed,
    /// What was taken too often: recorded as [`Outcome::PushRefused`] for [`SENDER_ENDED`]. A take ends soon after so many
    /// devices that these are few enough to be named.
    pub set_aside: Vec<SetAside>,
    /// Campaigns that ended with what was dropped.
    pub done: Vec<(AppId, CampaignId)>,
    /// When to ask again: the earliest time at which something else that was asked for is due, or a
    /// lease lapses. Not after `now` if more is due than was taken.
    pub next_due: Option<Timestamp>,
}

/// A device to push to, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecipient {
    pub num: DeviceNum,
    pub id: DeviceId,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    pub token: Option<PushToken>,
    /// When the device last registered this token; 0 without one.
    pub token_at: Timestamp,
    /// A push service doubted the token, and it was not registered again since.
    pub suspect: bool,
    /// The line that the campaign has for this user.
    pub line: Option<JsonText>,
}

/// What of a notification is rendered for push services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushContent {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    pub collapse_key: Option<Box<str>>,
    pub push: Push,
    pub sent_at: Timestamp,
    pub expires_at: Timestamp,
    pub trace: Option<TraceContext>,
}

/// Devices of a batch with the same outcome for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushPart {
    pub outcome: Outcome,
    /// In the push service's word or ours.
    pub reason: Option<&'static str>,
    /// Of the batch's campaign, where one was chosen for them.
    pub variant: Option<VariantNum>,
    pub devices: Vec<DeviceNum>,
}

/// Devices of a batch that are tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Again {
    pub due_at: Timestamp,
    pub attempt: u32,
    /// Of the batch's campaign, where they were drawn for: it stays theirs, also [`VariantNum::OF_NONE`], and counts
    /// whatever becomes of them.
    pub variant: Option<VariantNum>,
    pub recipients: Vec<DeviceNum>,
}

impl Again {
    /// What becomes of them if the work is not wanted any more.
    pub(crate) fn cancelled(&self) -> PushPart {
        let (outcome, reason) = (Outcome::Cancelled, None);
        PushPart { outcome, reason, variant: self.variant, devices: self.recipients.clone() }
    }
}

/// A push service's proof that a token is no longer valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenGone {
    pub device: DeviceNum,
    /// Of the token that was pushed to ([`PushRecipient::token_at`]).
    pub token_at: Timestamp,
    /// Since when it is not valid, if the service told.
    pub since: Option<Timestamp>,
    pub reason: &'static str,
}

/// A token that seems to belong elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSuspect {
    pub device: DeviceNum,
    /// Of the token that was pushed to ([`PushRecipient::token_at`]).
    pub token_at: Timestamp,
    pub reason: &'static str,
}

/// All that came of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub batch: BatchId,
    pub parts: Vec<PushPart>,
    pub again: Vec<Again>,
    pub gone: Vec<TokenGone>,
    pub suspects: Vec<TokenSuspect>,
    /// How many answers fell into which bucket of the campaign's histogram of latencies, which is the
    /// caller's. Ignored where the batch is of no campaign.
    pub latencies: Vec<(u16, u32)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedCounts {
    pub tokens_removed: u64,
    pub tokens_suspected: u64,
    /// Recipients that were to be tried again, of what was cancelled or aborted meanwhile: [`Outcome::Cancelled`].
    pub cancelled: Departed,
    /// Batches that were not there any more: finished before, or their app or campaign is deleted.
    pub unknown: u64,
    /// Campaigns that ended with this.
    pub done: Vec<(AppId, CampaignId)>,
}

/// Recipients of a walk or a campaign that go onto the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// None: to be published, see [`Batch::service`].
    pub service: Option<PushService>,
    pub due_at: Timestamp,
    pub lane: Lane,
    /// In any order.
    pub recipients: Vec<DeviceNum>,
}

/// Whom a walk or a campaign goes through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Every device of the app.
    Everyone,
    /// Those that subscribe durably.
    Topic(Topic),
    Condition(Condition),
    /// The devices of the users that were uploaded.
    Upload(CampaignId),
}

/// A device of an audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceMember {
    pub num: DeviceNum,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    /// Of its push token; none if it has none.
    pub service: Option<PushService>,
    pub suspect: bool,
}

/// A part of an audience.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AudiencePage {
    /// In the order of the walk. May be empty before the end: a sparse condition is looked through in
    /// bounded steps.
    pub members: Vec<AudienceMember>,
    /// Users of this part of an upload that have no device.
    pub unknown: u64,
    /// Where to go on; none at the end.
    pub next: Option<u64>,
}

/// A notification to a topic, a condition or everyone, whose devices are still to be gathered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    pub id: u64,
    pub app: AppId,
    pub notification: NotificationId,
    pub audience: Audience,
    /// For [`PushQueue::audience`]; 0 at the start.
    pub cursor: u64,
    pub lane: Lane,
    /// When it was to begin; what it enqueues is due from now on.
    pub due_at: Timestamp,
    /// Batches of it that are due and that nobody has taken; more than some hundred are not told apart.
    pub batches_waiting: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walks {
    /// Those that are due: the fewer of its batches wait the sooner, then the oldest first.
    pub due: Vec<Walk>,
    /// The earliest of those that are not due yet.
    pub next_due: Option<Timestamp>,
}

/// A token was removed or set aside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalidation {
    /// Increases, is never used twice, and says nothing else.
    pub seq: u64,
    pub at: Timestamp,
    pub device: DeviceId,
    pub service: PushService,
    pub environment: PushEnvironment,
    pub reason: String,
    /// False: set aside.
    pub removed: bool,
}

#[async_trait::async_trait]
pub trait PushQueue: Send + Sync {
    /// Leases batches that are due: lane by lane in [`Lane`]'s order, in a lane the longest due first.
    /// Batches of campaigns that do not run are passed over. Costs what is taken, not what is queued.
    ///
    /// A `fallback` batch is decided here, once, in the same transaction: a device still has to be
    /// pushed to if
    /// - `stored` to users, devices or a condition: the notification is in its inbox,
    /// - `stored` to a topic or everyone: its position there is before the message,
    /// - else: no confirmation was written since it was accepted.
    ///
    /// The others leave the batch as [`Outcome::PushNotNeeded`], and the rest is written back as
    /// *claimed*: of a confirmation and the claim exactly the one wins whose commit came first. After a
    /// crash exactly the claimed devices are taken again, whatever was confirmed later.
    async fn take(&self, take: Take) -> Result<Taken, Error>;

    /// Moves leases on to `until`, `lease` from now (which a store of several nodes measures by its own
    /// clock), or with 0 gives the batches back to be taken by anyone. Only those that still have exactly the lease that is named: one that was
    /// finished, or taken by another since, is left alone. Which were moved, in any order.
    async fn renew(
        &self,
        leases: Vec<Lease>,
        until: Timestamp,
        lease: Duration,
        why: Renewal,
    ) -> Result<Vec<BatchId>, Error>;

    /// Ends batches, all in one commit: outcomes with their reasons, retries as new batches that are
    /// claimed already, tokens, the campaigns' counts, and campaigns that are done with this. A batch
    /// counts once: a second `finish` of it changes nothing. Retries of what was cancelled or aborted
    /// meanwhile are recorded as [`Outcome::Cancelled`] instead.
    ///
    /// A token goes only if it is still the one that was pushed to, and was registered before `since`.
    /// Removed and suspect tokens leave an [`Invalidation`] each.
    async fn finish(&self, finished: Vec<Finished>, now: Timestamp) -> Result<FinishedCounts, Error>;

    /// Those of `devices` that exist, in order. A device that changed its user after a notification to
    /// users, devices or a condition was accepted is left out: it was for another.
    async fn push_recipients(
        &self,
        app: AppId,
        work: Work,
        campaign: Option<CampaignId>,
        devices: Vec<DeviceNum>,
    ) -> Result<Vec<PushRecipient>, Error>;

    /// None if there is no such notification any more.
    async fn push_content(&self, app: AppId, id: NotificationId) -> Result<Option<PushContent>, Error>;

    /// At most `limit` notification walks that are due. One whose batches nobody takes stands behind the
    /// others, so that it does not hold them up.
    async fn walks(&self, now: Timestamp, limit: usize) -> Result<Walks, Error>;

    /// Takes a walk on to `cursor`, or ends it with none: the batches of this page (each with a service;
    /// they inherit the walk's notification and fallback) and its other outcomes in the same commit, so
    /// that after a crash the walk goes on behind exactly what was enqueued. False, and nothing is
    /// written, if the walk is gone (cancelled, or its app deleted), or does not stand at `walk.cursor` any
    /// more: another node took it on.
    async fn walked(
        &self,
        walk: &Walk,
        batches: Vec<NewBatch>,
        cursor: Option<u64>,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<bool, Error>;

    /// About `limit` devices behind the cursor `after` (0 at the start), by device number; of an upload
    /// in the order of the lines, the devices of one user together. Costs the page, not the audience.
    async fn audience(
        &self,
        app: AppId,
        audience: &Audience,
        after: u64,
        limit: usize,
    ) -> Result<AudiencePage, Error>;

    /// Tokens removed or set aside, oldest first, as long as they are kept (the trace's retention).
    async fn invalidations(&self, app: AppId, after: u64, limit: usize) -> Result<Vec<Invalidation>, Error>;
}
