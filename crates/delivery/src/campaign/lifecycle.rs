//! A campaign's life: made, started, paused, gone on with, aborted; and what is told of it.

use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{
    Audience as Stored, Campaign, CampaignState, DefinitionKind, Idempotency, NewCampaign, UploadLine,
};
use noroshi_types::{AppId, CampaignId, Invalid, PushMode, Quota, Timestamp};

use crate::campaign::count::{self, Count};
use crate::campaign::plan;
use crate::campaign::progress::{CampaignProgress, Recent};
use crate::campaign::spec::{Audience, Spec};
use crate::campaign::{Line, line::Own};
use crate::delivery::{Delivery, Error};
use crate::quota::Held;

/// Behind the last device's due time: clocks around the world differ by 26 hours, quiet hours by 24.
const LOCAL_SPAN: Duration = Duration::from_secs(50 * 3_600);

impl Delivery {
    /// What an earlier request with this idempotency key made, whatever became since of what it needed.
    pub async fn created_campaign(
        &self,
        app: AppId,
        idempotency: &Idempotency,
    ) -> Result<Option<CampaignProgress>, Error> {
        let found = self.store.created_campaign(app, idempotency.clone(), self.clock.now()).await?;
        Ok(found.map(|campaign| self.progress(campaign)))
    }

    /// Makes a campaign of a checked request, whose experiment was looked up ([`Delivery::with_experiment`]); it
    /// starts, waits for its time or stays a draft. True with it if an earlier request with the same idempotency
    /// key made it.
    pub async fn create_campaign(
        self: &Arc<Self>,
        app: AppId,
        spec: Spec,
        idempotency: Option<Idempotency>,
    ) -> Result<(CampaignProgress, bool), Error> {
        let now = self.clock.now();
        let state = match spec.start {
            false => CampaignState::Draft,
            true => started(&spec, now),
        };
        let schedule = spec.schedule(now);
        let span = if schedule.is_local() { LOCAL_SPAN } else { Duration::ZERO };
        let mut push = spec.message.push.clone();
        if spec.message.when.is_none() {
            push.mode = PushMode::Always;
        }
        let campaign = NewCampaign {
            app,
            spec: spec.to_json(),
            state,
            notification: spec.message.notification.clone(),
            data: spec.message.data.clone(),
            urgency: spec.message.urgency,
            when: spec.message.when,
            push,
            expires_at: schedule.start.saturating_add(span).saturating_add(spec.message.ttl.duration()),
            variants: plan::notifications(&spec),
            idempotency,
        };
        let held = match state {
            CampaignState::Draft => Held::default(),
            _ => match self.admit_one(app, Quota::Campaigns).await {
                Ok(held) => held,
                // A request with the same key, at the same time, may have used the last of it.
                Err(over @ Error::OverQuota(_)) => {
                    let Some(idempotency) = &campaign.idempotency else { return Err(over) };
                    let earlier = self.created_campaign(app, idempotency).await?;
                    return earlier.map(|progress| (progress, true)).ok_or(over);
                }
                Err(error) => return Err(error),
            },
        };
        let created = self.store.create_campaign(campaign, now).await?;
        if !created.replayed {
            held.settle();
        }
        if !created.replayed {
            self.campaign_changed(app, created.campaign.id, created.campaign.state.as_str());
        }
        self.wake_push();
        Ok((self.progress(created.campaign), created.replayed))
    }

    /// Looks up the experiment whose variants are to be sent, if any are. The text says why they cannot be.
    pub async fn with_experiment(&self, app: AppId, spec: Spec) -> Result<Result<Spec, Invalid>, Error> {
        let Some(trial) = &spec.trial else { return Ok(Ok(spec)) };
        let kind = DefinitionKind::Experiment;
        let found = self.store.definition(app, kind, &trial.experiment).await?;
        let now = self.clock.now();
        let starts_at = spec.start_at.map_or(now, |start_at| start_at.max(now));
        let defined = trial.clone().define(found, &spec.audience, starts_at);
        Ok(defined.map(|trial| Spec { trial: Some(trial), ..spec }))
    }

    /// What a campaign would reach now; nothing is written. An uploaded audience has nobody yet.
    pub async fn dry_run(&self, app: AppId, spec: &Spec) -> Result<Count, Error> {
        if spec.audience == Audience::Upload {
            return Ok(Count { users: Some(0), ..Count::default() });
        }
        Ok(count::count(self, app, CampaignId::from_bytes([0; 16]), spec, false).await?)
    }

    /// Adds recipients to a draft; how many there are in all. [`noroshi_store::Error::Conflict`] if its audience is
    /// no upload.
    pub async fn upload(&self, app: AppId, id: CampaignId, lines: Vec<Line>) -> Result<u64, Error> {
        let campaign = self.found(app, id).await?;
        let uploads = Spec::from_json(&campaign.spec).is_ok_and(|spec| spec.audience == Audience::Upload);
        if !uploads {
            return Err(noroshi_store::Error::Conflict.into());
        }
        let line = |line: Line| UploadLine { user: line.user, line: Own::to_json(&line.own) };
        Ok(self.store.upload(app, id, lines.into_iter().map(line).collect()).await?)
    }

    /// Starts a draft: now, or at its `start_at`.
    pub async fn start_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        let to = self.started(app, id).await?;
        // Room is for drafts: others are told their state, whatever the quota says.
        if self.found(app, id).await?.state != CampaignState::Draft {
            return Err(noroshi_store::Error::Conflict.into());
        }
        let held = self.admit_one(app, Quota::Campaigns).await?;
        let started = self.change(app, id, &[CampaignState::Draft], to).await?;
        held.settle();
        Ok(started)
    }

    /// Takes no more batches of it; those under way are finished.
    pub async fn pause_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        self.change(app, id, &[CampaignState::Running, CampaignState::Scheduled], CampaignState::Paused).await
    }

    pub async fn resume_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        let to = self.started(app, id).await?;
        self.change(app, id, &[CampaignState::Paused], to).await
    }

    /// Ends it: who was not sent to yet never will be.
    pub async fn abort_campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        use CampaignState::{Aborted, Draft, Paused, Running, Scheduled};
        self.change(app, id, &[Draft, Scheduled, Running, Paused], Aborted).await
    }

    /// Forgets a campaign that has ended.
    pub async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error> {
        Ok(self.store.delete_campaign(app, id).await?)
    }

    pub async fn campaign(&self, app: AppId, id: CampaignId) -> Result<CampaignProgress, Error> {
        let campaign = self.found(app, id).await?;
        Ok(self.progress(campaign))
    }

    /// The newest first; those made before `before`.
    pub async fn campaigns(
        &self,
        app: AppId,
        before: Option<CampaignId>,
        limit: usize,
    ) -> Result<Vec<CampaignProgress>, Error> {
        let campaigns = self.store.campaigns(app, before, limit, self.clock.now()).await?;
        Ok(campaigns.into_iter().map(|campaign| self.progress(campaign)).collect())
    }

    async fn change(
        &self,
        app: AppId,
        id: CampaignId,
        from: &'static [CampaignState],
        to: CampaignState,
    ) -> Result<CampaignProgress, Error> {
        let now = self.clock.now();
        let (state, departed) = self.store.set_campaign_state(app, id, from, to, now).await?;
        tracing::info!(app = app.0, campaign = %id, state = state.as_str(), "a campaign changed");
        self.campaign_changed(app, id, state.as_str());
        self.became_departed(&departed);
        self.wake_push();
        let campaign = self.found(app, id).await?;
        Ok(self.progress(Campaign { state, ..campaign }))
    }

    /// The state of a campaign that is told to go.
    async fn started(&self, app: AppId, id: CampaignId) -> Result<CampaignState, Error> {
        let campaign = self.found(app, id).await?;
        let spec = Spec::from_json(&campaign.spec).map_err(unreadable)?;
        Ok(started(&spec, self.clock.now()))
    }

    async fn found(&self, app: AppId, id: CampaignId) -> Result<Campaign, Error> {
        let found = self.store.campaign(app, id, self.clock.now()).await?;
        Ok(found.ok_or(noroshi_store::Error::NotFound)?)
    }

    fn progress(&self, campaign: Campaign) -> CampaignProgress {
        let spec = Spec::from_json(&campaign.spec).ok();
        let recent = self.push.get().map_or_else(Recent::default, |side| side.book.recent(campaign.id));
        CampaignProgress::new(campaign, spec.as_ref(), recent, self.clock.now())
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

/// The time of a scheduled campaign has come. False if it changed meanwhile.
pub(crate) async fn run_scheduled(
    delivery: &Delivery,
    campaign: &Campaign,
) -> Result<bool, noroshi_store::Error> {
    let (from, to) = ([CampaignState::Scheduled], CampaignState::Running);
    let now = delivery.clock.now();
    match delivery.store.set_campaign_state(campaign.app, campaign.id, &from, to, now).await {
        Ok((state, _)) => {
            delivery.campaign_changed(campaign.app, campaign.id, state.as_str());
            Ok(true)
        }
        Err(noroshi_store::Error::Conflict | noroshi_store::Error::NotFound) => Ok(false),
        Err(error) => Err(error),
    }
}

/// The audience in the store's words; a filter is applied by whoever walks it.
pub(crate) fn stored_audience(campaign: CampaignId, audience: &Audience) -> Stored {
    match audience {
        Audience::Everyone | Audience::Devices => Stored::Everyone,
        Audience::Topic(topic) => Stored::Topic(topic.clone()),
        Audience::Condition(condition) => Stored::Condition(condition.clone()),
        Audience::Upload => Stored::Upload(campaign),
    }
}
