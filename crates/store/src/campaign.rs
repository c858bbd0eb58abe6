//! Campaigns: one message for an audience, sent in the background.
//!
//! The store keeps a campaign's request as text that only its owner interprets, the position in the audience, the
//! uploaded lines, and the sums. A campaign's batches are on the push queue ([`crate::push`]).

use noroshi_types::{
    AppId, CampaignId, JsonText, NotificationId, Outcome, Push, Timestamp, Urgency, UserId, When,
};

use crate::{
    CampaignState, DraftState, Error, Idempotency, NewBatch, NewDraft, PushPart, RemovedMessages, Uploader,
};

/// The content of one of a new campaign's variants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVariant {
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
}

/// The results of a variant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariantSums {
    /// The variant's outcomes are recorded under this notification, as a campaign's are under
    /// [`Campaign::notification`].
    pub notification: NotificationId,
    /// The variant's share of [`Campaign::counts`], and how many devices acknowledged it.
    pub counts: Vec<(Outcome, String, u64)>,
}

/// Asks for a new campaign.
#[derive(Debug, Clone)]
pub struct NewCampaign {
    pub app: AppId,
    /// The validated request, which only the owner interprets.
    pub spec: JsonText,
    /// Draft, scheduled or running.
    pub state: CampaignState,
    /// The content of the notification that the campaign's outcomes are recorded under.
    pub notification: Option<JsonText>,
    pub data: Option<JsonText>,
    pub urgency: Urgency,
    /// `None`: the campaign only pushes.
    pub when: Option<When>,
    pub push: Push,
    pub expires_at: Timestamp,
    /// Empty for most campaigns.
    pub variants: Vec<NewVariant>,
    /// Campaigns and notifications of an app share one set of keys: a key used for the other kind conflicts.
    pub idempotency: Option<Idempotency>,
    pub draft: NewDraft,
}

#[derive(Debug, Clone)]
pub struct CreatedCampaign {
    /// The current state.
    pub campaign: Campaign,
    /// An earlier request with the same idempotency key created it.
    pub replayed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Campaign {
    pub id: CampaignId,
    pub app: AppId,
    pub spec: JsonText,
    pub state: CampaignState,
    pub created_at: Timestamp,
    /// When it started for the first time.
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    /// The campaign's outcomes are recorded under this notification, except those of batches that were published as
    /// notifications of their own.
    pub notification: NotificationId,
    /// For [`crate::PushQueue::audience`]; 0 at the start.
    pub cursor: u64,
    /// The whole audience was walked.
    pub walked: bool,
    /// Devices enqueued so far.
    pub recipients: u64,
    /// Uploaded lines, one per user.
    pub uploaded: u64,
    /// Outcome counts by reason, ordered by the outcome's code, without zeros. The reason is empty for outcomes
    /// without one.
    pub counts: Vec<(Outcome, String, u64)>,
    /// In order, as many as the campaign was created with.
    pub variants: Vec<VariantSums>,
    /// Response times by the caller's histogram bucket, without zeros.
    pub latencies: Vec<(u16, u64)>,
    /// Batches that are not finished.
    pub batches_open: u64,
    /// Those of `batches_open` that are due after the time that the caller passed.
    pub batches_later: u64,
    /// Those of `batches_open` that are leased.
    pub batches_taken: u64,
    pub draft: DraftState,
}

/// Batches of a campaign that wait for their time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// The earliest first. Batches that are due within a minute make one step.
    pub steps: Vec<WaitingStep>,
    /// When the last batch is due, also one beyond these steps.
    pub last_due_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitingStep {
    /// When the first of them is due.
    pub due_at: Timestamp,
    pub batches: u64,
}

/// The content for one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadLine {
    pub user: UserId,
    pub line: JsonText,
}

#[async_trait::async_trait]
pub trait Campaigns: Send + Sync {
    /// Draws the id (UUIDv7) and creates the notification that the campaign's outcomes are recorded under. For a
    /// known idempotency key it returns the first campaign. Deleting a campaign forgets its key.
    async fn create_campaign(&self, campaign: NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error>;

    /// Returns the campaign that a request with this key created; `None` if there was no such request, or the
    /// campaign was deleted. Call it before looking up what a new campaign needs, which may be gone by now.
    async fn created_campaign(
        &self,
        app: AppId,
        idempotency: Idempotency,
        now: Timestamp,
    ) -> Result<Option<Campaign>, Error>;

    async fn campaign(&self, app: AppId, id: CampaignId, now: Timestamp) -> Result<Option<Campaign>, Error>;

    /// The batches that are due after `now`, as at most `limit` steps. [`Error::NotFound`] if there is no such campaign.
    async fn waiting_batches(
        &self,
        app: AppId,
        id: CampaignId,
        now: Timestamp,
        limit: usize,
    ) -> Result<Waiting, Error>;

    /// All campaigns of all apps that have not ended, oldest first.
    async fn active_campaigns(&self, now: Timestamp) -> Result<Vec<Campaign>, Error>;

    /// Adds lines; a later line of the same user replaces the earlier one. Returns how many lines there are.
    /// [`Error::Conflict`] unless the campaign is a draft or scheduled; [`Error::Limit`] if it is scheduled and the
    /// uploader may not add as many. Raises the revision of the draft, unless there are no lines.
    async fn upload(
        &self,
        app: AppId,
        id: CampaignId,
        lines: Vec<UploadLine>,
        uploader: Uploader,
        now: Timestamp,
    ) -> Result<u64, Error>;

    /// [`Error::Conflict`] if the state is not one of `from`. Resuming a campaign without remaining work ends it.
    /// Returns the new state.
    ///
    /// Aborting removes the batches that no sender has taken and records their devices as [`Outcome::Cancelled`], page
    /// by page; leased batches are finished but not retried. After a crash or a failed page,
    /// [`crate::PushQueue::take`] removes the rest. Not cancel-safe: the caller does not learn which devices were
    /// removed.
    async fn set_campaign_state(
        &self,
        app: AppId,
        id: CampaignId,
        from: &[CampaignState],
        to: CampaignState,
        now: Timestamp,
    ) -> Result<(CampaignState, RemovedMessages), Error>;

    /// Enqueues a page of the audience. One commit holds the batches, the cursor after the page, and the outcomes of
    /// the devices that are not pushed to, so that after a crash the walk continues exactly after what was enqueued.
    /// [`Error::Conflict`] unless the campaign is running, not walked to its end, and at `from`. Returns the new
    /// state: `Done` if the audience was walked to its end and no batch is left.
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

    /// Makes batches due now that are due at `started_at` or earlier: the campaign has started, so a clock that went
    /// back must not hold them. Later batches keep their time. Returns how many it changed, at most 1,000.
    async fn make_due(&self, id: CampaignId, started_at: Timestamp, now: Timestamp) -> Result<u64, Error>;

    /// Deletes a campaign that has ended, after removing its lines page by page; [`Error::Conflict`] if it has not
    /// ended.
    async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error>;
}
