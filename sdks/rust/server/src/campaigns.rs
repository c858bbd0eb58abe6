//! Campaigns.

use http::Method;

use crate::client::Client;
use crate::pages::Pages;
use crate::request::Request;
use crate::types::{
    Campaign, CampaignChange, CampaignCount, CampaignEstimate, CampaignRecipient, Campaigns, CampaignsQuery,
    NewCampaign,
};

impl Client {
    /// Creates a campaign. It starts at once or at its `start_at`, unless `start` is false or its audience is uploaded.
    pub fn create_campaign(&self, campaign: &NewCampaign) -> Request<Campaign> {
        self.post("/v1/campaigns", &[]).keyed().json(campaign)
    }

    /// Keeps a campaign as a draft although parts are missing or invalid; `problems` of the answer names them.
    pub fn draft_campaign(&self, campaign: &NewCampaign) -> Request<Campaign> {
        self.create_campaign(campaign).query([("draft", "true".to_owned())])
    }

    /// Counts the audience of a campaign, and creates nothing.
    pub fn count_campaign(&self, campaign: &NewCampaign) -> Request<CampaignCount> {
        self.post("/v1/campaigns", &[]).repeatable().json(campaign).query([("dry_run", "true".to_owned())])
    }

    /// A page of the campaigns. A page may be empty although more follow, while it has a `next`.
    pub fn list_campaigns(&self, query: &CampaignsQuery) -> Request<Campaigns> {
        self.get("/v1/campaigns", &[]).query(query.pairs())
    }

    /// The campaigns.
    pub fn campaigns(&self, query: CampaignsQuery) -> Pages<Campaign> {
        let client = self.clone();
        Pages::new(query.after.clone(), move |after| {
            let request = client.list_campaigns(&CampaignsQuery { after, ..query.clone() });
            async move { request.await.map(|page| (page.campaigns, page.next)) }
        })
    }

    /// A campaign with its progress.
    pub fn campaign(&self, id: &str) -> Request<Campaign> {
        self.get("/v1/campaigns/{}", &[id])
    }

    /// Changes a draft. Not repeated if the service may have processed it: the revision would be another one.
    pub fn change_campaign(&self, id: &str, change: &CampaignChange) -> Request<Campaign> {
        self.patch("/v1/campaigns/{}", &[id]).json(change)
    }

    /// Deletes a campaign.
    pub fn delete_campaign(&self, id: &str) -> Request<()> {
        self.act(Method::DELETE, "/v1/campaigns/{}", &[id])
    }

    /// Estimates the audience of a campaign, and when its devices would get the message.
    pub fn estimate_campaign(&self, id: &str) -> Request<CampaignEstimate> {
        self.post("/v1/campaigns/{}/estimate", &[id]).repeatable()
    }

    /// What a user got, or would get.
    pub fn campaign_recipient(&self, id: &str, user: &str) -> Request<CampaignRecipient> {
        self.get("/v1/campaigns/{}/recipients/{}", &[id, user])
    }

    /// Starts a draft now or at its `start_at`.
    pub fn start_campaign(&self, id: &str) -> Request<Campaign> {
        self.post("/v1/campaigns/{}/start", &[id])
    }

    /// Starts a draft if this is its revision.
    pub fn start_campaign_revision(&self, id: &str, revision: u64) -> Request<Campaign> {
        self.start_campaign(id).query([("revision", revision.to_string())])
    }

    /// Pauses a running or scheduled campaign.
    pub fn pause_campaign(&self, id: &str) -> Request<Campaign> {
        self.post("/v1/campaigns/{}/pause", &[id])
    }

    /// Resumes a paused campaign.
    pub fn resume_campaign(&self, id: &str) -> Request<Campaign> {
        self.post("/v1/campaigns/{}/resume", &[id])
    }

    /// Ends a campaign.
    pub fn abort_campaign(&self, id: &str) -> Request<Campaign> {
        self.post("/v1/campaigns/{}/abort", &[id])
    }
}
