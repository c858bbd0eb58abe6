//! Drafts: changes by several authors, approval, start, and filtered lists.
//!
//! The store decides in one transaction whether the revision is still the one that the caller checked. So a change or new
//! recipients between the check of a large campaign and its start make the start fail.

use std::time::Duration;

use noroshi_store::{CampaignFilter, CampaignState, NewCampaign, NewDraft, StartDraft, Unready};
use noroshi_types::{AppId, CampaignId, JsonText, PushMode, Quota, UserId};

use super::{Campaigns, LOCAL_SPAN, started, unreadable};
use crate::campaign::audience::Audience;
use crate::campaign::count;
use crate::campaign::estimate::{self, Estimated, Measured, Population};
use crate::campaign::plan;
use crate::campaign::progress::CampaignProgress;
use crate::campaign::spec::Spec;
use crate::campaign::upload::Own;
use crate::error::Error;

/// How often a start that names no revision tries again after a concurrent change.
const START_ATTEMPTS: usize = 5;
/// The longest count that decides whether a campaign is large. One that takes longer counts as large.
const SIZE_LIMIT: Duration = Duration::from_secs(5);
/// Campaigns whose rate counts for an estimate.
const MEASURED_MAX: usize = 5;
const MEASURED_LIST: usize = 30;
/// Smaller campaigns end too fast to measure a rate.
const MEASURED_DEVICES_MIN: u64 = 100;
/// Estimates that a node computes at a time, over all apps; one for each app.
const ESTIMATES_MAX: usize = 4;

/// Who wrote a campaign, and how.
#[derive(Debug, Clone)]
pub struct Written {
    /// The request as it was written. `None`: it cannot be changed later.
    pub definition: Option<JsonText>,
    /// False: parts are missing or invalid, and the campaign cannot start.
    pub is_complete: bool,
    /// The address of a person, or `key:` and the name of an API key.
    pub by: String,
}

impl Default for Written {
    fn default() -> Self {
        Self { definition: None, is_complete: true, by: String::new() }
    }
}

/// What a start checks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Starting {
    /// `None`: the present one.
    pub revision: Option<u64>,
    /// A campaign with more devices needs the approval of its revision. `None`: no campaign does.
    pub approval_above: Option<u64>,
}

/// Another estimate runs: of this app, or too many on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Busy;

impl Campaigns {
    /// What the store keeps of a request.
    pub(super) fn new_campaign(
        &self,
        app: AppId,
        spec: &Spec,
        state: CampaignState,
        written: Written,
    ) -> NewCampaign {
        let now = self.context.now();
        let schedule = spec.schedule(now);
        let span = if schedule.is_local() { LOCAL_SPAN } else { Duration::ZERO };
        let mut push = spec.message.push.clone();
        if spec.message.when.is_none() {
            push.mode = PushMode::Always;
        }
        NewCampaign {
            app,
            spec: spec.to_json(),
            state,
            notification: spec.message.notification.clone(),
            data: spec.message.data.clone(),
            urgency: spec.message.urgency,
            when: spec.message.when,
            push,
            expires_at: schedule.start.saturating_add(span).saturating_add(spec.message.ttl.duration()),
            variants: plan::notifications(spec),
            idempotency: None,
            draft: NewDraft {
                name: spec.name.clone().unwrap_or_default(),
                start_at: spec.start_at,
                definition: written.definition,
                is_complete: written.is_complete,
                by: written.by,
            },
        }
    }

    /// The request of a campaign as it was written, with its revision.
    pub async fn definition(&self, app: AppId, id: CampaignId) -> Result<Option<(u64, JsonText)>, Error> {
        Ok(self.context.store.definition_of_campaign(app, id).await?)
    }

    /// Replaces the request of a campaign that has not started. A scheduled one becomes a draft.
    pub async fn edit(
        &self,
        app: AppId,
        id: CampaignId,
        revision: u64,
        spec: &Spec,
        written: Written,
    ) -> Result<Result<CampaignProgress, Unready>, Error> {
        if let Some(token) = &spec.message.push.token {
            self.nodes.require_token(token)?;
        }
        let new = self.new_campaign(app, spec, CampaignState::Draft, written);
        let now = self.context.now();
        let was_scheduled = self.found(app, id).await?.state == CampaignState::Scheduled;
        if let Err(unready) = self.context.store.edit_campaign(id, revision, new, now).await? {
            return Ok(Err(unready));
        }
        if was_scheduled {
            self.context.outcomes.campaign_changed(app, id, CampaignState::Draft.as_str());
            self.push_work.wake();
        }
        Ok(Ok(self.progress(self.found(app, id).await?)))
    }

    /// Starts a draft: now, or at its `start_at`.
    pub async fn start(
        &self,
        app: AppId,
        id: CampaignId,
        starting: Starting,
    ) -> Result<Result<CampaignProgress, Unready>, Error> {
        let mut attempts = START_ATTEMPTS;
        loop {
            let started = self.start_once(app, id, starting).await?;
            attempts -= 1;
            let is_changed = matches!(started, Err(Unready::Revision(_))) && starting.revision.is_none();
            if !is_changed || attempts == 0 {
                return Ok(started);
            }
        }
    }

    async fn start_once(
        &self,
        app: AppId,
        id: CampaignId,
        Starting { revision, approval_above }: Starting,
    ) -> Result<Result<CampaignProgress, Unready>, Error> {
        let campaign = self.found(app, id).await?;
        // Only a draft needs room. For others the conflict comes before a refusal by the quota.
        if campaign.state != CampaignState::Draft {
            return Ok(Err(Unready::State(campaign.state)));
        }
        if revision.is_some_and(|revision| revision != campaign.draft.revision) {
            return Ok(Err(Unready::Revision(campaign.draft.revision)));
        }
        if !campaign.draft.is_complete {
            return Ok(Err(Unready::Incomplete));
        }
        let spec = Spec::from_json(&campaign.spec).map_err(unreadable)?;
        let revision = campaign.draft.revision;
        // An approved one need not be counted: the store checks the approval in any case.
        let needs_approval = match approval_above {
            Some(_) if campaign.draft.approved.is_some() => true,
            Some(max) => self.is_large(app, id, &spec, max).await?,
            None => false,
        };
        let to = started(&spec, self.context.now());
        let held = self.usage.admit_one(app, Quota::Campaigns).await?;
        let from = CampaignState::Draft;
        let start = StartDraft { app, id, revision, needs_approval, from, to };
        if let Err(unready) = self.context.store.start_draft(start, self.context.now()).await? {
            return Ok(Err(unready));
        }
        held.settle();
        tracing::info!(app = app.0, campaign = %id, state = to.as_str(), "a campaign changed");
        self.context.outcomes.campaign_changed(app, id, to.as_str());
        self.push_work.wake();
        Ok(Ok(self.progress(self.found(app, id).await?)))
    }

    /// Whether the audience has more than `max` devices, or users of an upload. An audience that cannot be counted in
    /// time has.
    pub async fn is_large(&self, app: AppId, id: CampaignId, spec: &Spec, max: u64) -> Result<bool, Error> {
        let campaign = self.context.store.campaign(app, id, self.context.now()).await?;
        if campaign.is_some_and(|campaign| campaign.uploaded > max) {
            return Ok(true);
        }
        let counted = count::exceeds(&*self.context.store, app, id, spec, max);
        match tokio::time::timeout(SIZE_LIMIT, counted).await {
            Ok(exceeds) => Ok(exceeds?),
            Err(_) => Ok(true),
        }
    }

    /// Approves a revision of a complete draft, or withdraws its approval (`by` is `None`).
    pub async fn approve(
        &self,
        app: AppId,
        id: CampaignId,
        revision: u64,
        by: Option<String>,
    ) -> Result<Result<CampaignProgress, Unready>, Error> {
        let now = self.context.now();
        if let Err(unready) = self.context.store.approve_campaign(app, id, revision, by, now).await? {
            return Ok(Err(unready));
        }
        Ok(Ok(self.progress(self.found(app, id).await?)))
    }

    /// Campaigns newest first, and where the next page starts.
    pub async fn list(
        &self,
        app: AppId,
        filter: CampaignFilter,
    ) -> Result<(Vec<CampaignProgress>, Option<CampaignId>), Error> {
        let page = self.context.store.list_campaigns(app, filter, self.context.now()).await?;
        Ok((page.campaigns.into_iter().map(|campaign| self.progress(campaign)).collect(), page.next))
    }

    /// What this user of an uploaded audience gets. `None`: the user was not uploaded.
    pub async fn uploaded(&self, app: AppId, id: CampaignId, user: &UserId) -> Result<Option<Own>, Error> {
        self.found(app, id).await?;
        let line = self.context.store.uploaded_line(app, id, user).await?;
        line.map(|line| Own::from_json(&line)).transpose().map_err(unreadable)
    }

    /// The size of an audience: counted up to a bound, beyond it estimated from a sample. `id` is that of an uploaded
    /// audience. `seed` chooses the sample.
    pub async fn estimate(
        &self,
        app: AppId,
        id: Option<CampaignId>,
        spec: &Spec,
        seed: u64,
    ) -> Result<Result<Estimated, Busy>, Error> {
        let Some(_place) = self.estimates.enter(app) else { return Ok(Err(Busy)) };
        let campaign = id.unwrap_or_else(|| CampaignId::from_bytes([0; 16]));
        let uploaded = match id.filter(|_| spec.audience == Audience::Upload) {
            Some(id) => Some(self.found(app, id).await?.uploaded),
            None => (spec.audience == Audience::Upload).then_some(0),
        };
        let store = &*self.context.store;
        let population = Population { store, app, audience: spec.audience.stored(campaign), spec, uploaded };
        let measured = self.measured(app).await?;
        Ok(Ok(estimate::estimate(&population, seed, measured, self.context.now()).await?))
    }

    /// The rate of the app's last campaigns: the median.
    async fn measured(&self, app: AppId) -> Result<Option<Measured>, Error> {
        let filter =
            CampaignFilter { states: vec![CampaignState::Done], ..CampaignFilter::first(MEASURED_LIST) };
        let done = self.context.store.list_campaigns(app, filter, self.context.now()).await?.campaigns;
        let rate = |campaign: &noroshi_store::Campaign| {
            let spec = Spec::from_json(&campaign.spec).ok()?;
            let (started_at, finished_at) = (campaign.started_at?, campaign.finished_at?);
            // Its own limit, or the clocks of its devices, decided how long it took.
            let is_free = spec.rate_per_second.is_none() && !spec.schedule(started_at).is_local();
            let seconds = finished_at.saturating_since(started_at).as_secs_f64();
            let fits = is_free && seconds > 0.0 && campaign.recipients >= MEASURED_DEVICES_MIN;
            fits.then(|| campaign.recipients as f64 / seconds)
        };
        let mut rates: Vec<f64> = done.iter().filter_map(rate).take(MEASURED_MAX).collect();
        rates.sort_by(f64::total_cmp);
        Ok(rates.get(rates.len() / 2).map(|rate| Measured { per_second: *rate, campaigns: rates.len() }))
    }
}

/// Whether the recipients of an incomplete draft are uploaded.
pub(super) fn is_upload(definition: &JsonText) -> bool {
    let value: serde_json::Value = serde_json::from_str(definition.as_str()).unwrap_or_default();
    value["audience"]["upload"] == true
}

/// Runs at most one estimate of an app, and few on the node.
#[derive(Debug, Default)]
pub(crate) struct Estimates(parking_lot::Mutex<Vec<AppId>>);

/// Held while an estimate runs.
pub(crate) struct Place<'a>(&'a Estimates, AppId);

impl Estimates {
    fn enter(&self, app: AppId) -> Option<Place<'_>> {
        let mut running = self.0.lock();
        if running.len() >= ESTIMATES_MAX || running.contains(&app) {
            return None;
        }
        running.push(app);
        Some(Place(self, app))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.0.lock().retain(|app| *app != self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_has_one_estimate_at_a_time_and_a_node_few() {
        let estimates = Estimates::default();
        let first = estimates.enter(AppId(1));
        assert!(first.is_some() && estimates.enter(AppId(1)).is_none());
        let others: Vec<_> = (2..10).filter_map(|app| estimates.enter(AppId(app))).collect();
        assert_eq!(others.len(), ESTIMATES_MAX - 1);
        drop((first, others));
        assert!(estimates.enter(AppId(1)).is_some());
    }
}
