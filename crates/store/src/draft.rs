//! Drafts of campaigns: what people write before a campaign starts, and who approved it.
//!
//! Every change of a draft raises its revision and removes the approval. A change names the revision that it was made
//! from, so that two authors do not overwrite each other, and a start names the revision that was checked. The store
//! decides both in the transaction that writes.

use noroshi_types::{AppId, CampaignId, JsonText, Timestamp, UserId};

use crate::{Campaign, CampaignState, Error, NewCampaign};

/// Why a draft is not changed, approved or started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unready {
    /// The campaign has this state.
    State(CampaignState),
    /// It has this revision, not the one that the caller knows.
    Revision(u64),
    Incomplete,
    Unapproved,
    /// Who wants to approve it wrote some of it.
    Author,
}

/// Starts a campaign that has not started.
#[derive(Debug, Clone, Copy)]
pub struct StartDraft {
    pub app: AppId,
    pub id: CampaignId,
    pub revision: u64,
    /// Only if the revision is approved.
    pub needs_approval: bool,
    /// Draft, or scheduled if its time has come.
    pub from: CampaignState,
    /// Running or scheduled.
    pub to: CampaignState,
}

/// Which campaigns a list has, newest first.
#[derive(Debug, Clone)]
pub struct CampaignFilter {
    /// Empty: all.
    pub states: Vec<CampaignState>,
    /// A part of the name, whatever its case.
    pub name: Option<String>,
    pub created_by: Option<String>,
    /// Created at or after.
    pub since: Option<Timestamp>,
    /// Created before.
    pub until: Option<Timestamp>,
    /// Scheduled at or after, and before. Campaigns without a time do not match.
    pub start_since: Option<Timestamp>,
    pub start_until: Option<Timestamp>,
    /// Only campaigns created before this one.
    pub before: Option<CampaignId>,
    pub limit: usize,
}

impl CampaignFilter {
    pub fn first(limit: usize) -> Self {
        Self {
            states: Vec::new(),
            name: None,
            created_by: None,
            since: None,
            until: None,
            start_since: None,
            start_until: None,
            before: None,
            limit,
        }
    }
}

/// Campaigns of a list. A page may have fewer than the limit although more follow: one call examines at most 5,000.
#[derive(Debug, Clone, PartialEq)]
pub struct CampaignPage {
    pub campaigns: Vec<Campaign>,
    /// For the next page's `before`. `None`: this is the last page.
    pub next: Option<CampaignId>,
}

#[async_trait::async_trait]
pub trait CampaignDrafts: Send + Sync {
    async fn list_campaigns(
        &self,
        app: AppId,
        filter: CampaignFilter,
        now: Timestamp,
    ) -> Result<CampaignPage, Error>;

    /// The request as it was written, with its revision. `None`: an older program created the campaign, or there is none.
    async fn definition_of_campaign(
        &self,
        app: AppId,
        id: CampaignId,
    ) -> Result<Option<(u64, JsonText)>, Error>;

    /// Replaces everything of a campaign that has not started; it becomes a draft. Returns the new revision.
    /// [`Error::NotFound`] if there is no such campaign.
    async fn edit_campaign(
        &self,
        id: CampaignId,
        revision: u64,
        campaign: NewCampaign,
        now: Timestamp,
    ) -> Result<Result<u64, Unready>, Error>;

    async fn start_draft(&self, start: StartDraft, now: Timestamp) -> Result<Result<(), Unready>, Error>;

    /// Approves this revision of a complete draft, or withdraws the approval (`by` is `None`).
    async fn approve_campaign(
        &self,
        app: AppId,
        id: CampaignId,
        revision: u64,
        by: Option<String>,
        now: Timestamp,
    ) -> Result<Result<(), Unready>, Error>;

    /// The line of a user of an uploaded audience.
    async fn uploaded_line(
        &self,
        app: AppId,
        id: CampaignId,
        user: &UserId,
    ) -> Result<Option<JsonText>, Error>;

    /// The devices' ids, as far as they exist, in any order.
    async fn device_ids(
        &self,
        app: AppId,
        devices: Vec<noroshi_types::DeviceNum>,
    ) -> Result<Vec<(noroshi_types::DeviceNum, noroshi_types::DeviceId)>, Error>;
}
