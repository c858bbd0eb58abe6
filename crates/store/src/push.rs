//! Push work: what has to reach push services, kept until its outcome is known.
//!
//! Work is a queue of *batches* of at most [`BATCH_RECIPIENTS_MAX`] devices, written by
//! [`crate::Notifications::accept`] (users and devices), [`PushQueue::walked`] (topics, conditions, everyone) and
//! [`crate::Campaigns::enqueue`]. A sender *takes* batches under a lease and *finishes* each once. A taken batch
//! stays in the store until it is finished, so a crash repeats taken batches and loses none. Opening a store of one
//! node ends all leases; where several nodes share a store, the holder of the lease owns the batch
//! ([`PushQueue::renew`]). A batch that crashes its senders is not taken forever: takes are counted ([`TAKES_MAX`]).
//!
//! Tokens end here too: `finish` removes tokens that a push service proved invalid and suspends suspect ones, and
//! records an [`Invalidation`] for each.

use std::time::Duration;

use noroshi_types::{
    AppId, BatchId, CampaignId, Category, Condition, DeviceId, DeviceNum, JsonText, Lane, NotificationId,
    Outcome, Preferences, Push, PushEnvironment, PushService, PushToken, Timestamp, TokenKey, Topic,
    TraceContext, Urgency, UserId,
};

use crate::{Attributes, Error, RemovedMessages, VariantNum, Work};

/// Devices of a batch that the store creates. A campaign may use up to 1,000.
pub const BATCH_RECIPIENTS_MAX: usize = 500;

/// After this many takes a batch is set aside, and its recipients are refused with [`SENDER_ENDED`]. A take stops
/// counting when its taker finishes or returns the batch, so only processes that crashed in between add up.
pub const TAKES_MAX: u32 = 5;

/// The reason with which the recipients of a batch that was taken too often are refused.
pub const SENDER_ENDED: &str = "sender_ended";

/// A batch whose sending process crashed at least twice is due again at a random time within this span, multiplied by
/// the number of further crashes. Otherwise all batches of the crashed process would be taken together again, and be
/// set aside together with the one that caused the crashes.
pub(crate) const SPREAD: Duration = Duration::from_secs(10);

/// Devices that go to one push service together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    pub id: BatchId,
    pub app: AppId,
    /// `None`: a campaign's batch that is published as a notification instead of pushed.
    pub service: Option<PushService>,
    pub lane: Lane,
    pub due_at: Timestamp,
    /// 0 at first, then the value of [`Again`].
    pub attempt: u32,
    pub work: Work,
    /// The campaign whose counts include the batch's outcomes.
    pub campaign: Option<CampaignId>,
    /// The campaign's variant, drawn for all recipients when they were first tried; may be [`VariantNum::NO_VARIANT`].
    /// `None`: not drawn yet.
    pub variant: Option<VariantNum>,
    /// The token of each device that the push is for; `None`: the main token.
    pub token: Option<TokenKey>,
    /// When the lease ends; identifies this take among all takes of the batch.
    pub leased_until: Timestamp,
    /// Sorted, without duplicates.
    pub recipients: Vec<DeviceNum>,
}

/// A taken batch, and when its lease ends as far as the taker knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    pub batch: BatchId,
    pub until: Timestamp,
}

/// Why a lease is moved, which determines how it changes the count of takes ([`TAKES_MAX`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewal {
    /// The holder continues.
    Kept,
    /// Another sender continues with the batch: a take that counts.
    Claimed,
    /// The holder returns the batch and is healthy: its take does not count.
    Returned,
}

impl Renewal {
    /// The change of the batch's count of takes.
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
    /// A batch that is neither finished nor renewed for this long is taken again.
    pub lease: Duration,
    pub batches_max: usize,
    /// Takes no more batches of these.
    pub busy: Vec<(AppId, PushService)>,
    /// Takes no more batches of these campaigns (their rate is used up).
    pub held: Vec<CampaignId>,
    /// Takes only these lanes.
    pub lanes: Vec<Lane>,
    /// The taker sends the batches itself, so that the take counts ([`TAKES_MAX`]). Otherwise a later claim counts
    /// ([`Renewal::Claimed`]).
    pub sends: bool,
}

/// A batch that was taken [`TAKES_MAX`] times without being finished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AbandonedBatch {
    pub batch: BatchId,
    pub app: AppId,
    pub service: Option<PushService>,
    pub lane: Lane,
    pub work: Work,
    pub recipients: Vec<DeviceNum>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// By lane, then by due time.
    pub batches: Vec<Batch>,
    /// Devices that had acknowledged: [`Outcome::PushNotNeeded`]; devices of notifications whose ttl had ended:
    /// [`Outcome::PushExpired`]; devices of cancelled or aborted work: [`Outcome::Cancelled`].
    pub departed: RemovedMessages,
    /// Batches that were taken too often, recorded as [`Outcome::PushRefused`] with [`SENDER_ENDED`]. All devices are
    /// named: a take stops after few enough devices.
    pub set_aside: Vec<AbandonedBatch>,
    /// Campaigns that ended because batches were dropped.
    pub done: Vec<(AppId, CampaignId)>,
    /// When to ask again: when the next matching batch is due or a lease expires. Not after `now` if more batches are
    /// due.
    pub next_due: Option<Timestamp>,
}

/// A device to push to, in its current state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecipient {
    pub num: DeviceNum,
    pub id: DeviceId,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    pub token: Option<PushToken>,
    /// When the device last registered this token; 0 without one.
    pub token_at: Timestamp,
    /// Nothing is sent to the token from then on.
    pub token_expires_at: Option<Timestamp>,
    /// A push service reported the token as suspect, and it was not registered again since.
    pub suspect: bool,
    /// What the device follows.
    pub preferences: Option<Preferences>,
    /// The campaign's line for this user.
    pub line: Option<JsonText>,
}

/// What decides whether a device still needs a push when its batch is taken. Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Fallback {
    /// Nothing: every device does, or the decision was made before.
    Settled = 0,
    /// Whether the notification is in the device's inbox.
    Inbox = 1,
    /// Whether the device's position in the topic is before the message.
    Position = 2,
    /// Whether there is no acknowledgement.
    Acknowledged = 3,
}

/// The content of a notification, to render for push services.
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
    /// What decided whether a device needs the push.
    pub fallback: Fallback,
    /// The target, if it is a topic.
    pub topic: Option<Topic>,
    pub category: Option<Category>,
    /// The request named users or devices, so its size bounds their number.
    pub names_recipients: bool,
}

/// Devices of a batch with the same outcome for the same reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushPart {
    pub outcome: Outcome,
    /// The push service's own reason, or ours.
    pub reason: Option<&'static str>,
    /// The variant of the batch's campaign that was drawn for them.
    pub variant: Option<VariantNum>,
    pub devices: Vec<DeviceNum>,
}

/// Devices of a batch to retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Again {
    pub due_at: Timestamp,
    pub attempt: u32,
    /// The variant of the batch's campaign that was drawn for them, which they keep; may be [`VariantNum::NO_VARIANT`].
    pub variant: Option<VariantNum>,
    /// Decides once more whether they still need the push.
    pub fallback: Fallback,
    pub recipients: Vec<DeviceNum>,
}

impl Again {
    /// Their outcome if the work is no longer wanted.
    pub(crate) fn cancelled(&self) -> PushPart {
        let (outcome, reason) = (Outcome::Cancelled, None);
        PushPart { outcome, reason, variant: self.variant, devices: self.recipients.clone() }
    }
}

/// A push service's proof that a token is invalid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidToken {
    pub device: DeviceNum,
    /// When the token that was pushed to was registered ([`PushRecipient::token_at`]).
    pub token_at: Timestamp,
    /// Since when the token is invalid, if the service reported it.
    pub since: Option<Timestamp>,
    pub reason: &'static str,
}

/// A token that seems to belong to another sender or environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuspectToken {
    pub device: DeviceNum,
    /// When the token that was pushed to was registered ([`PushRecipient::token_at`]).
    pub token_at: Timestamp,
    pub reason: &'static str,
}

/// What a batch still has to do after a part of its results.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rest {
    /// The end of the lease under which the results arose ([`Batch::leased_until`], or of its last renewal). If the
    /// batch has another lease by now, nothing of the part is written.
    pub leased_until: Timestamp,
    /// Sorted, and not empty.
    pub recipients: Vec<DeviceNum>,
}

/// The results of a batch, or a part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    pub batch: BatchId,
    /// The batch continues with these recipients, under the same lease. `None`: it ends.
    pub rest: Option<Rest>,
    pub parts: Vec<PushPart>,
    pub again: Vec<Again>,
    pub gone: Vec<InvalidToken>,
    pub suspects: Vec<SuspectToken>,
    /// How many answers fell into which bucket of the caller's latency histogram for the campaign. Ignored for
    /// batches without a campaign.
    pub latencies: Vec<(u16, u32)>,
    /// Boxed: most campaign batches have none. Read with [`crate::Notifications::trace`].
    pub record: Option<Box<PushRecord>>,
}

/// Which suspended tokens to use again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestoreTokens {
    pub service: PushService,
    pub environment: PushEnvironment,
    /// Suspended at this time or later.
    pub since: Timestamp,
    /// Suspended for this reason; `None`: for any.
    pub reason: Option<String>,
    /// Tokens that one call restores.
    pub tokens_max: usize,
}

/// Attempts at pushes: requests to push services, and their responses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushRecord {
    pub keep_until: Timestamp,
    /// The devices of the attempts, sorted.
    pub devices: Vec<DeviceNum>,
    /// In the caller's format.
    pub attempts: Vec<u8>,
}

impl PushRecord {
    /// The device of attempts at broadcasts, which have none.
    pub const NO_DEVICE: DeviceNum = DeviceNum(0);
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FinishedCounts {
    pub tokens_removed: u64,
    pub tokens_suspected: u64,
    /// Recipients that were to be retried, of work that was cancelled or aborted in the meantime:
    /// [`Outcome::Cancelled`].
    pub cancelled: RemovedMessages,
    /// Batches without a row: finished before, or their app or campaign was deleted.
    pub unknown: u64,
    /// Batches of which a part was not written, because they have another lease by now or no row.
    pub stale: Vec<BatchId>,
    /// Campaigns that ended because of this.
    pub done: Vec<(AppId, CampaignId)>,
}

/// Recipients of a walk or a campaign to enqueue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewBatch {
    /// `None`: published as a notification, see [`Batch::service`].
    pub service: Option<PushService>,
    pub due_at: Timestamp,
    pub lane: Lane,
    /// As in [`Batch::token`]. The batches of a walk have the walk's token instead.
    pub token: Option<TokenKey>,
    /// In any order.
    pub recipients: Vec<DeviceNum>,
}

/// The devices that a walk or a campaign covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Audience {
    /// Every device of the app.
    Everyone,
    /// Devices that durably subscribe.
    Topic(Topic),
    Condition(Condition),
    /// The devices of the uploaded users.
    Upload(CampaignId),
}

/// A device of an audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceMember {
    pub num: DeviceNum,
    pub user: Option<UserId>,
    pub attributes: Attributes,
    /// The push service of the token that was asked for; `None` without such a token.
    pub service: Option<PushService>,
    pub suspect: bool,
}

/// A part of an audience.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AudiencePage {
    /// In the order of the walk. May be empty before the end, because a sparse condition is evaluated in bounded
    /// steps.
    pub members: Vec<AudienceMember>,
    /// Users of this part of an upload that have no device.
    pub unknown: u64,
    /// The cursor of the next page; `None` at the end.
    pub next: Option<u64>,
}

/// A notification to a topic, a condition or everyone, whose devices are still being collected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Walk {
    pub id: u64,
    pub app: AppId,
    pub notification: NotificationId,
    pub audience: Audience,
    /// For [`PushQueue::audience`]; 0 at the start.
    pub cursor: u64,
    pub lane: Lane,
    /// When it was scheduled to start; the batches it enqueues are due at once.
    pub due_at: Timestamp,
    /// Its due batches that no sender has taken; counted up to a few hundred.
    pub batches_waiting: usize,
    /// As in [`Batch::token`].
    pub token: Option<TokenKey>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Walks {
    /// Due walks: those with fewer waiting batches first, then the oldest first.
    pub due: Vec<Walk>,
    /// When the next walk is due.
    pub next_due: Option<Timestamp>,
}

/// A token was removed or suspended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalidation {
    /// Increases and is never reused; has no other meaning.
    pub seq: u64,
    pub at: Timestamp,
    pub device: DeviceId,
    pub service: PushService,
    pub key: TokenKey,
    pub environment: PushEnvironment,
    pub reason: String,
    /// False: suspended.
    pub removed: bool,
}

#[async_trait::async_trait]
pub trait PushQueue: Send + Sync {
    /// Leases due batches: lane by lane in [`Lane`]'s order, within a lane the longest due first. Skips batches of
    /// campaigns that are not running. The cost depends on what is taken, not on what is queued.
    ///
    /// The decision about a `fallback` batch is made here, once, in the same transaction. A device needs a push if
    /// - `stored` to users, devices or a condition: the notification is in its inbox,
    /// - `stored` to a topic or everyone: its position is before the message,
    /// - otherwise: no acknowledgement was written since the notification was accepted.
    ///
    /// Other devices leave the batch as [`Outcome::PushNotNeeded`], and the rest is written back as *claimed*. Of an
    /// acknowledgement and a claim, exactly the one whose commit comes first takes effect. After a crash exactly the
    /// claimed devices are taken again, whatever was acknowledged later.
    async fn take(&self, take: Take) -> Result<Taken, Error>;

    /// Moves the end of leases to `until`, which is `lease` from now by the clock of a store with several nodes; with
    /// 0, returns the batches for anyone to take. Leases that no longer match, because the batch was finished or
    /// taken by another sender, are left alone. Returns the batches whose leases moved, in any order.
    async fn renew(
        &self,
        leases: Vec<Lease>,
        until: Timestamp,
        lease: Duration,
        why: Renewal,
    ) -> Result<Vec<BatchId>, Error>;

    /// Ends batches in one commit: outcomes with their reasons, retries as new batches that are already claimed,
    /// tokens, the campaigns' counts, and campaigns that end with this. A batch counts once: a second `finish`
    /// changes nothing. Retries of work that was cancelled or aborted in the meantime are recorded as
    /// [`Outcome::Cancelled`].
    ///
    /// With [`Finished::rest`], the batch stays with the rest of its recipients: after a crash only these are taken
    /// again. A second call with the same rest changes nothing. A call names a batch once.
    ///
    /// A token is only removed if it is still the one that was pushed to, and was registered before `since`. Removed
    /// and suspended tokens leave an [`Invalidation`] each.
    async fn finish(&self, finished: Vec<Finished>, now: Timestamp) -> Result<FinishedCounts, Error>;

    /// Returns those of `devices` that exist, in order. Leaves out a device that changed its user after a
    /// notification to users, devices or a condition was accepted, because the notification was for the previous
    /// user. `token` is that of the batch ([`Batch::token`]).
    async fn push_recipients(
        &self,
        app: AppId,
        work: Work,
        campaign: Option<CampaignId>,
        token: Option<TokenKey>,
        devices: Vec<DeviceNum>,
    ) -> Result<Vec<PushRecipient>, Error>;

    /// `None` if the notification was removed.
    async fn push_content(&self, app: AppId, id: NotificationId) -> Result<Option<PushContent>, Error>;

    /// At most `limit` due walks of notifications. A walk whose batches no sender takes comes after the others, so that
    /// it does not block them.
    async fn walks(&self, now: Timestamp, limit: usize) -> Result<Walks, Error>;

    /// Moves a walk to `cursor`, or ends it with `None`. The same commit has the batches of this page (each with a
    /// service; they inherit the walk's notification, fallback and token) and its other outcomes, so that after a crash the
    /// walk continues exactly after what was enqueued. Returns false without writing if the walk is gone (cancelled,
    /// or its app deleted) or no longer at `walk.cursor`, because another node moved it.
    async fn walked(
        &self,
        walk: &Walk,
        batches: Vec<NewBatch>,
        cursor: Option<u64>,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<bool, Error>;

    /// About `limit` devices after the cursor `after` (0 at the start), by device number; for an upload in the order
    /// of its lines, with the devices of one user together. Members have the push service of their main token, or of the
    /// one that `token` names. The cost depends on the page, not on the audience.
    async fn audience(
        &self,
        app: AppId,
        audience: &Audience,
        after: u64,
        limit: usize,
        token: Option<TokenKey>,
    ) -> Result<AudiencePage, Error>;

    /// Uses suspended tokens again. Returns their devices, one for each token: none if no more are suspended.
    async fn restore_tokens(&self, app: AppId, restore: RestoreTokens) -> Result<Vec<DeviceNum>, Error>;

    /// Tokens that were removed or suspended, oldest first, for the trace retention.
    async fn invalidations(&self, app: AppId, after: u64, limit: usize) -> Result<Vec<Invalidation>, Error>;
}
