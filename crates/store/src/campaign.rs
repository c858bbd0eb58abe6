//! Campaigns: one message for an audience, walked and sent behind.
//!
//! The store keeps a campaign's request as text that its owner reads, how far the audience was walked,
//! what was uploaded for it, and its sums. Its batches are on the push queue ([`crate::push`]).

use noroshi_types::{
    AppId, CampaignId, JsonText, NotificationId, Outcome, Push, Timestamp, Urgency, UserId, When,
};

use crate::{Departed, Error, Idempotency, NewBatch, PushPart};

/// Values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CampaignState {
    /// Being put together; lines may be uploaded.
    Draft = 1,
    /// Waits for its time.
    Scheduled = 2,
    Running = 3,
    Paused = 4,
    /// Walked to the end, and no batch is left.
    Done = 5,
    Aborted = 6,
}

impl CampaignState {
    pub const ALL: [CampaignState; 6] = [
        CampaignState::Draft,
        CampaignState::Scheduled,
        CampaignState::Running,
        CampaignState::Paused,
        CampaignState::Done,
        CampaignState::Aborted,
    ];

    /// The name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            CampaignState::Draft => "draft",
            CampaignState::Scheduled => "scheduled",
            CampaignState::Running => "running",
            CampaignState::Paused => "paused",
            CampaignState::Done => "done",
            CampaignState::Aborted => "aborted",
        }
    }

    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == code)
    }

    pub fn ended(self) -> bool {
        matches!(self, CampaignState::Done | CampaignState::Aborted)
    }
}

/// A variant of a campaign, by its place there from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariantNum(pub u8);

impl VariantNum {
    /// In place of a variant, for devices that were drawn for and are not of the experiment's audience: they stay so.
    /// No campaign has as many, so what becomes of them is recorded under the campaign's own notification.
    pub const OF_NONE: Self = Self(u8::MAX);

    /// As stored where there may be none: 0.
    pub(crate) fn code(variant: Option<Self>) -> u8 {
        variant.map_or(0, |VariantNum(place)| place)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        (code > 0).then_some(Self(code))
    }
}

/// What one of a new campaign's variants is shown as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVariant {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
}

/// What became of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantSums {
    /// Its outcomes are recorded under this one, as a campaign's are under [`Campaign::notification`].
    pub notification: NotificationId,
    /// Of [`Campaign::counts`] what is of this variant, and besides how many confirmed it.
    pub counts: Vec<(Outcome, String, u64)>,
}

/// A campaign to be made.
#[derive(Debug, Clone)]
pub struct NewCampaign {
    pub app: AppId,
    /// The checked request; its owner reads it again.
    pub spec: JsonText,
    /// Draft, scheduled or running.
    pub state: CampaignState,
    /// What the notification is shown as under which the campaign's outcomes are recorded.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    /// None: only push services are asked.
    pub when: Option<When>,
    pub push: Push,
    pub expires_at: Timestamp,
    /// Most campaigns have none.
    pub variants: Vec<NewVariant>,
    /// Keys of campaigns and of notifications are the same app's: one used for the other kind conflicts.
    pub idempotency: Option<Idempotency>,
}

#[derive(Debug, Clone)]
pub struct CreatedCampaign {
    /// As it is now.
    pub campaign: Campaign,
    /// An earlier request with the same idempotency key made it.
    pub replayed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    pub id: CampaignId,
    pub app: AppId,
    pub spec: JsonText,
    pub state: CampaignState,
    pub created_at: Timestamp,
    /// When it first ran.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// Its outcomes are recorded under this one, unless a batch of it was published as a notification
    /// of its own.
    pub notification: NotificationId,
    /// For [`crate::PushQueue::audience`]; 0 at the start.
    pub cursor: u64,
    /// The audience was walked to its end.
    pub walked: bool,
    /// Devices enqueued so far.
    pub recipients: u64,
    /// Lines uploaded, one a user.
    pub uploaded: u64,
    /// Sums of its outcomes by reason, in order of the outcomes' codes, zeros left out; the reason is empty where there is none.
    pub counts: Vec<(Outcome, String, u64)>,
    /// In order; as many as it was made with.
    pub variants: Vec<VariantSums>,
    /// Answers by the caller's bucket, zeros left out.
    pub latencies: Vec<(u16, u64)>,
    /// Batches that are not finished.
    pub batches_open: u64,
    /// Those of `batches_open` that are due after the time asked about.
    pub batches_later: u64,
    /// Those of `batches_open` that somebody took.
    pub batches_taken: u64,
}

/// What is sent to one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadLine {
    pub user: UserId,
    pub line: JsonText,
}

#[async_trait::async_trait]
pub trait Campaigns: Send + Sync {
    /// Draws the id (UUIDv7) and makes the notification under which the campaign's outcomes are recorded;
    /// or answers an idempotency key with the first campaign. A campaign that was deleted is forgotten with
    /// its key.
    async fn create_campaign(&self, campaign: NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error>;

    /// The campaign that a request with this key made, to be asked before what a new one needs is looked up: that
    /// may have gone since. None if there was no such request, or its campaign was deleted.
    async fn created_campaign(
        &self,
        app: AppId,
        idempotency: Idempotency,
        now: Timestamp,
    ) -> Result<Option<Campaign>, Error>;

    async fn campaign(&self, app: AppId, id: CampaignId, now: Timestamp) -> Result<Option<Campaign>, Error>;

    /// The newest first; those made before `before`, which need not exist.
    async fn campaigns(
        &self,
        app: AppId,
        before: Option<CampaignId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Campaign>, Error>;

    /// All of all apps that have not ended, oldest first.
    async fn active_campaigns(&self, now: Timestamp) -> Result<Vec<Campaign>, Error>;

    /// Adds lines; a later one of the same user takes the place of the earlier. How many there are in
    /// all. [`Error::Conflict`] unless it is a draft or scheduled.
    async fn upload(&self, app: AppId, id: CampaignId, lines: Vec<UploadLine>) -> Result<u64, Error>;

    /// [`Error::Conflict`] if its state is none of `from`. To run again what has nothing left ends it at
    /// once. Answers the state it reached. Aborting removes the batches that are not under way and records their
    /// devices as [`Outcome::Cancelled`], in pages, which are answered; those under way are finished, and not tried
    /// again. What a crash, or a page that fails, leaves of that is removed by [`crate::PushQueue::take`]. Not
    /// cancel-safe: what was removed by then is answered to nobody.
    async fn set_campaign_state(
        &self,
        app: AppId,
        id: CampaignId,
        from: &[CampaignState],
        to: CampaignState,
        now: Timestamp,
    ) -> Result<(CampaignState, Departed), Error>;

    /// Puts a page of the audience onto the queue with the cursor behind it and the outcomes of those
    /// that are not to be pushed, in one commit: after a crash the walk goes on behind exactly what was
    /// enqueued. [`Error::Conflict`] and nothing written unless it runs, is not walked yet and stands at
    /// `from`. Its state afterwards: done, if it was walked to the end and no batch is left.
    #[allow(clippy::too_many_arguments, reason = "one commit has to hold all of it")]
    async fn enqueue(
        &self,
        id: CampaignId,
        from: u64,
        batches: Vec<NewBatch>,
        cursor: u64,
        walked: bool,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<CampaignState, Error>;

    /// Forgets a campaign that has ended, its lines in pages before it; [`Error::Conflict`] if it has not.
    async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error>;
}
