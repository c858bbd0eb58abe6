//! The component of campaigns: create, start, pause, resume, abort, delete; and their progress.
//!
//! Changes the state in the store, reports each change to the event log, and wakes push work. It neither walks
//! audiences nor sends: [`crate::push`] does.

use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{
    Campaign, CampaignState, DefinitionKind, Idempotency, NewCampaign, StartDraft, UploadLine, Uploader,
    Waiting,
};
use noroshi_types::{AppId, CampaignId, Invalid, Quota, Timestamp};

use crate::campaign::audience::Audience;
use crate::campaign::count::{self, Count};
use crate::campaign::progress::CampaignProgress;
use crate::campaign::spec::Spec;
use crate::campaign::tracker::Tracker;
use crate::campaign::upload::{Line, Own};
use crate::cluster::Nodes;
use crate::context::Context;
use crate::error::Error;
use crate::push_work::PushWork;
use crate::quota::{Held, Usage};

mod drafts;

pub use drafts::{Busy, Starting, Written};

/// The longest delay of a device in local time: time zones differ by 26 hours, and quiet hours last up to 24.
const LOCAL_SPAN: Duration = Duration::from_secs(50 * 3_600);

/// Steps of waiting batches that a campaign shows: there are 38 offsets of time zones.
const STEPS_MAX: usize = 64;

pub struct Campaigns {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    usage: Arc<Usage>,
    push_work: Arc<PushWork>,
    pub(crate) tracker: Tracker,
    estimates: drafts::Estimates,
}

impl Campaigns {
    pub(crate) fn new(
        context: Arc<Context>,
        nodes: Arc<Nodes>,
        usage: Arc<Usage>,
        push_work: Arc<PushWork>,
    ) -> Self {
        Self {
            context,
            nodes,
            usage,
            push_work,
            tracker: Tracker::default(),
            estimates: drafts::Estimates::default(),
        }
    }

    /// The campaign that an earlier request with this idempotency key created, even if what it needed is gone.
    pub async fn created(
        &self,
        app: AppId,
        idempotency: &Idempotency,
    ) -> Result<Option<CampaignProgress>, Error> {
        let found = self.context.store.created_campaign(app, idempotency.clone(), self.context.now()).await?;
        Ok(found.map(|campaign| self.progress(campaign)))
    }

    /// Creates a campaign from a checked request whose experiment was looked up ([`Campaigns::with_experiment`]). It
    /// starts, waits for its time, or stays a draft. Also returns whether an earlier request with the same idempotency
    /// key created it.
    pub async fn create(
        &self,
        app: AppId,
        spec: Spec,
        idempotency: Option<Idempotency>,
    ) -> Result<(CampaignProgress, bool), Error> {
        self.create_written(app, spec, idempotency, Written::default()).await
    }

    /// As [`Campaigns::create`], with who wrote the request.
    pub async fn create_written(
        &self,
        app: AppId,
        spec: Spec,
        idempotency: Option<Idempotency>,
        written: Written,
    ) -> Result<(CampaignProgress, bool), Error> {
        if let Some(token) = &spec.message.push.token {
            self.nodes.require_token(token)?;
        }
        let now = self.context.now();
        let state = match spec.start {
            false => CampaignState::Draft,
            true => started(&spec, now),
        };
        let campaign = NewCampaign { idempotency, ..self.new_campaign(app, &spec, state, written) };
        let held = match state {
            CampaignState::Draft => Held::default(),
            _ => match self.usage.admit_one(app, Quota::Campaigns).await {
                Ok(held) => held,
                // A concurrent request with the same key may have used the last room.
                Err(over @ Error::OverQuota(_)) => {
                    let Some(idempotency) = &campaign.idempotency else { return Err(over) };
                    let earlier = self.created(app, idempotency).await?;
                    return earlier.map(|progress| (progress, true)).ok_or(over);
                }
                Err(error) => return Err(error),
            },
        };
        let created = self.context.store.create_campaign(campaign, now).await?;
        if !created.replayed {
            held.settle();
            self.context.outcomes.campaign_changed(app, created.campaign.id, created.campaign.state.as_str());
        }
        self.push_work.wake();
        Ok((self.progress(created.campaign), created.replayed))
    }

    /// Looks up the experiment whose variants the campaign sends, if any. The inner error is the reason if it cannot
    /// send them.
    pub async fn with_experiment(&self, app: AppId, spec: Spec) -> Result<Result<Spec, Invalid>, Error> {
        let Some(trial) = &spec.trial else { return Ok(Ok(spec)) };
        let kind = DefinitionKind::Experiment;
        let found = self.context.store.definition(app, kind, &trial.experiment).await?;
        let now = self.context.now();
        let starts_at = spec.start_at.map_or(now, |start_at| start_at.max(now));
        let defined = trial.clone().define(found, &spec.audience, starts_at);
        Ok(defined.map(|trial| Spec { trial: Some(trial), ..spec }))
    }

    /// The present size of the audience; writes nothing. An uploaded audience is still empty.
    pub async fn dry_run(&self, app: AppId, spec: &Spec) -> Result<Count, Error> {
        if spec.audience == Audience::Upload {
            return Ok(Count { users: Some(0), ..Count::default() });
        }
        Ok(count::count(&*self.context.store, app, CampaignId::from_bytes([0; 16]), spec, false).await?)
    }

    /// Adds recipients to a draft. Returns the number of all recipients, or [`noroshi_store::Error::Conflict`] if the
    /// audience is not uploaded.
    pub async fn upload(
        &self,
        app: AppId,
        id: CampaignId,
        lines: Vec<Line>,
        uploader: Uploader,
    ) -> Result<u64, Error> {
        let campaign = self.found(app, id).await?;
        let uploads = match campaign.draft.is_complete {
            true => Spec::from_json(&campaign.spec).is_ok_and(|spec| spec.audience == Audience::Upload),
            false => self.definition(app, id).await?.is_some_and(|(_, text)| drafts::is_upload(&text)),
        };
        if !uploads {
            return Err(noroshi_store::Error::Conflict.into());
        }
        let line = |line: Line| UploadLine { user: line.user, line: Own::to_json(&line.own) };
        Ok(self
            .context
            .store
            .upload(app, id, lines.into_iter().map(line).collect(), uploader, self.context.now())
            .await?)
    }

    /// Sends no further batches; batches in flight are finished.
    pub async fn pause(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.change(app, id, &[CampaignState::Running, CampaignState::Scheduled], CampaignState::Paused).await
    }

    pub async fn resume(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        let to = self.state_when_started(app, id).await?;
        self.change(app, id, &[CampaignState::Paused], to).await
    }

    /// Ends the campaign: the remaining recipients get nothing.
    pub async fn abort(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        use CampaignState::{Aborted, Draft, Paused, Running, Scheduled};
        self.change(app, id, &[Draft, Scheduled, Running, Paused], Aborted).await
    }

    /// Deletes a campaign that has ended.
    pub async fn delete(&self, app: AppId, id: CampaignId) -> Result<(), Error> {
        Ok(self.context.store.delete_campaign(app, id).await?)
    }

    pub async fn get(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        let campaign = self.found(app, id).await?;
        let now = self.context.now();
        let waiting = match campaign.batches_later {
            0 => Waiting::default(),
            _ => self.context.store.waiting_batches(app, id, now, STEPS_MAX).await?,
        };
        Ok(self.progress(campaign).with_waiting(waiting, now))
    }

    async fn change(
        &self,
        app: AppId,
        id: CampaignId,
        from: &'static [CampaignState],
        to: CampaignState,
    ) -> Result<CampaignProgress, Error> {
        let now = self.context.now();
        let (state, departed) = self.context.store.set_campaign_state(app, id, from, to, now).await?;
        tracing::info!(app = app.0, campaign = %id, state = state.as_str(), "a campaign changed");
        self.context.outcomes.campaign_changed(app, id, state.as_str());
        self.context.outcomes.departed(&departed);
        self.push_work.wake();
        let campaign = self.found(app, id).await?;
        Ok(self.progress(Campaign { state, ..campaign }))
    }

    /// The state that a campaign gets when it is started now.
    async fn state_when_started(&self, app: AppId, id: CampaignId) -> Result<CampaignState, Error> {
        let campaign = self.found(app, id).await?;
        let spec = Spec::from_json(&campaign.spec).map_err(unreadable)?;
        Ok(started(&spec, self.context.now()))
    }

    async fn found(&self, app: AppId, id: CampaignId) -> Result<Campaign, Error> {
        let found = self.context.store.campaign(app, id, self.context.now()).await?;
        Ok(found.ok_or(noroshi_store::Error::NotFound)?)
    }

    /// Starts a scheduled campaign whose time has come. Returns false if it changed in the meantime.
    pub(crate) async fn start_scheduled(&self, campaign: &Campaign) -> Result<bool, noroshi_store::Error> {
        let Campaign { app, id, .. } = *campaign;
        // Of this revision: a change has made it a draft, which may be scheduled again by now.
        let start = StartDraft {
            app,
            id,
            revision: campaign.draft.revision,
            needs_approval: false,
            from: CampaignState::Scheduled,
            to: CampaignState::Running,
        };
        match self.context.store.start_draft(start, self.context.now()).await {
            Ok(Ok(())) => {
                self.context.outcomes.campaign_changed(app, id, CampaignState::Running.as_str());
                Ok(true)
            }
            Ok(Err(_)) | Err(noroshi_store::Error::NotFound) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Counts the audience of a running campaign in the background, once. Only its progress shows the result.
    pub(crate) fn count_once(self: &Arc<Self>, campaign: &Campaign) {
        let (id, app) = (campaign.id, campaign.app);
        if !self.tracker.count_once(id) {
            return;
        }
        let campaigns = self.clone();
        tokio::spawn(async move {
            let Some(plan) = campaigns.tracker.plan(id) else { return };
            match count::count(&*campaigns.context.store, app, id, &plan.spec, true).await {
                Ok(count) => {
                    let published = plan.spec.message.when.is_some();
                    let pushed = count.by_service.iter().map(|(_, count)| count).sum();
                    campaigns.tracker.set_total(id, if published { count.devices } else { pushed });
                }
                Err(error) => tracing::debug!(campaign = %id, %error, "could not count an audience"),
            }
        });
    }

    fn progress(&self, campaign: Campaign) -> CampaignProgress {
        let spec = Spec::from_json(&campaign.spec).ok();
        let recent = self.tracker.recent(campaign.id);
        CampaignProgress::new(campaign, spec.as_ref(), recent, self.context.now())
    }
}

fn started(spec: &Spec, now: Timestamp) -> CampaignState {
    match spec.start_at.is_some_and(|start_at| start_at > now) {
        true => CampaignState::Scheduled,
        false => CampaignState::Running,
    }
}

fn unreadable(invalid: noroshi_types::Invalid) -> Error {
    noroshi_store::Error::Engine(invalid.to_string()).into()
}
