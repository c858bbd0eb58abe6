//! Walks audiences, and packs devices into batches page by page. The cursor moves in the same commit: after a crash a
//! walk continues exactly behind what was enqueued.
//!
//! There are two kinds of walks: notifications to a topic, a condition or everyone with a push section; and campaigns.
//! Each walk stays a bounded number of batches ahead of the senders. Batches that are due later (an hour of the
//! device's own clock) do not count, because they wait in the store and not for a sender.
//!
//! If several nodes share the store, only the leader walks. The others keep their knowledge of campaigns current.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use noroshi_events::Subject;
use noroshi_store::{
    AudienceMember, BATCH_RECIPIENTS_MAX, Campaign, CampaignState, Error, NewBatch, PushPart, Walk, Work,
};
use noroshi_types::{AppId, DeviceNum, Lane, Outcome, PushService, Timestamp, TokenKey};
use tokio::sync::watch;

use super::finisher::{PAUSE_MAX, PAUSE_MIN};
use super::pipeline::Pipeline;
use crate::campaign::done::SET_ASIDE;
use crate::campaign::plan::Plan;

/// Devices in one page: the attributes of 10,000 take some 3 MB.
const PAGE_MAX: usize = 10_000;

/// Notification walks in one round.
const WALKS_MAX: usize = 32;

/// When a walk that is far enough ahead is checked again, in case a wake-up is missing.
const HELD_BACK: Duration = Duration::from_secs(1);

/// The same if several nodes take batches, since other nodes do not wake the collector.
const HELD_BACK_SHARED: Duration = Duration::from_millis(250);

/// How often a node that does not lead reads the campaigns.
const FOLLOW: Duration = Duration::from_secs(5);

/// The result of a round.
#[derive(Default)]
struct Round {
    /// A walk had room for more.
    more: bool,
    next_due: Option<Timestamp>,
}

impl Round {
    fn look_again(&mut self, at: Timestamp) {
        self.next_due = Some(self.next_due.map_or(at, |due| due.min(at)));
    }
}

/// Runs until `drain` is true. Cancel-safe: a page is committed as a whole, or not at all.
pub(crate) async fn run(pipeline: Arc<Pipeline>, mut drain: watch::Receiver<bool>) {
    tokio::select! {
        _ = drain.wait_for(|draining| *draining) => {}
        () = pipeline.walk_forever() => {}
    }
}

impl Pipeline {
    async fn walk_forever(&self) {
        let mut pause = PAUSE_MIN;
        loop {
            let woken = self.work.collector.notified();
            let leads = self.leadership.is_ours();
            match if leads { self.round().await } else { self.follow().await } {
                Ok(Round { more: true, .. }) => tokio::task::yield_now().await,
                Ok(_) if !leads => self.leadership.wait(FOLLOW).await,
                Ok(Round { next_due, .. }) => {
                    let now = self.context.now();
                    let sleep_max = self.config.sleep_max();
                    let sleep = next_due.map_or(sleep_max, |due| due.saturating_since(now));
                    let _ = tokio::time::timeout(sleep.clamp(PAUSE_MIN, sleep_max), woken).await;
                }
                Err(Error::Closed) => return std::future::pending().await,
                Err(error) => {
                    self.metrics.store_errors.inc();
                    tracing::warn!(%error, "could not walk an audience; retrying");
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MAX);
                    continue;
                }
            }
            pause = PAUSE_MIN;
        }
    }

    /// Loads what the senders of this node need to know about campaigns that another node walks.
    async fn follow(&self) -> Result<Round, Error> {
        let now = self.context.now();
        let campaigns = self.context.store.active_campaigns(now).await?;
        let active: Vec<_> = campaigns.iter().map(|campaign| campaign.id).collect();
        self.campaigns.tracker.retain(&active);
        for campaign in campaigns.iter().filter(|campaign| campaign.started_at.is_some()) {
            self.campaigns.tracker.plan_of(campaign, now);
        }
        self.walk_depth.retain(&HashSet::new());
        let metrics = &self.metrics;
        // The leader reports these.
        metrics.campaign_batches_waiting.set(0);
        metrics.campaigns_running.set(0);
        Ok(Round::default())
    }

    fn held_back(&self) -> Timestamp {
        let wait = if self.config.shared { HELD_BACK_SHARED } else { HELD_BACK };
        self.context.now().saturating_add(wait)
    }

    /// Batches were added: wakes the senders of this node and, if they share the store, of others.
    fn wake_senders(&self) {
        match self.config.shared {
            true => self.work.wake(),
            false => self.work.wake_senders(),
        }
    }

    /// Packs one page of every walk that has room for it.
    async fn round(&self) -> Result<Round, Error> {
        let now = self.context.now();
        let mut round = Round::default();
        let walks = self.context.store.walks(now, WALKS_MAX).await?;
        round.next_due = walks.next_due;
        let mut works: HashSet<Work> =
            walks.due.iter().map(|walk| Work::Notification(walk.notification)).collect();
        for walk in walks.due {
            self.walk(walk, &mut round).await?;
        }
        let mut campaigns = self.context.store.active_campaigns(now).await?;
        let active: Vec<_> = campaigns.iter().map(|campaign| campaign.id).collect();
        self.campaigns.tracker.retain(&active);
        works.extend(active.into_iter().map(Work::Campaign));
        self.walk_depth.retain(&works);
        let waiting: u64 = campaigns.iter().map(|campaign| campaign.batches_open).sum();
        let metrics = &self.metrics;
        metrics.campaign_batches_waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        let running = |campaign: &&Campaign| campaign.state == CampaignState::Running;
        let running = campaigns.iter().filter(running).count();
        metrics.campaigns_running.set(i64::try_from(running).unwrap_or(i64::MAX));
        let mut plans = Vec::new();
        for campaign in campaigns.drain(..) {
            if let Some(plan) = self.plan(&campaign, now) {
                plans.push((campaign, plan));
            }
        }
        // Urgent campaigns first.
        plans.sort_by_key(|(campaign, plan)| (plan.spec.lane, campaign.id));
        for (campaign, plan) in plans {
            self.campaign(campaign, &plan, &mut round).await?;
        }
        Ok(round)
    }

    fn plan(&self, campaign: &Campaign, now: Timestamp) -> Option<Arc<Plan>> {
        if campaign.started_at.is_none() {
            // Not remembered: the due times of its devices are not known yet.
            return Plan::new(campaign, now).ok().map(Arc::new);
        }
        self.campaigns.tracker.plan_of(campaign, now)
    }

    /// A page of a notification's audience.
    async fn walk(&self, walk: Walk, round: &mut Round) -> Result<(), Error> {
        let work = Work::Notification(walk.notification);
        let store = &self.context.store;
        self.walk_depth.set(work, walk.batches_waiting);
        if walk.batches_waiting >= self.config.ahead_max() {
            round.look_again(self.held_back());
            return Ok(());
        }
        let page =
            store.audience(walk.app, &walk.audience, walk.cursor, PAGE_MAX, walk.token.clone()).await?;
        self.metrics.walk_pages.inc();
        let mut packer = BatchPacker::new(BATCH_RECIPIENTS_MAX, walk.lane);
        for member in &page.members {
            packer.push(member, walk.due_at);
        }
        let BatchPacker { batches, parts, .. } = packer.close();
        let made = batches.len();
        let now = self.context.now();
        let went_on = store.walked(&walk, batches, page.next, parts.clone(), now).await?;
        if went_on {
            self.count((walk.app, Subject::Notification(walk.notification)), &parts, walk.lane);
        }
        if went_on && page.next.is_some() {
            self.walk_depth.add(work, made);
        } else {
            self.walk_depth.forget(work);
        }
        self.wake_senders();
        round.more |= went_on && page.next.is_some();
        Ok(())
    }

    async fn campaign(&self, campaign: Campaign, plan: &Plan, round: &mut Round) -> Result<(), Error> {
        if let Some(started_at) = campaign.started_at {
            self.catch_up_with_clock(&campaign, started_at).await?;
        }
        match campaign.state {
            CampaignState::Scheduled => self.start(&campaign, plan, round).await,
            CampaignState::Running if !campaign.walked => {
                self.campaigns.count_once(&campaign);
                self.page(&campaign, plan, round).await
            }
            _ => Ok(()),
        }
    }

    /// A campaign that started in the future: the clock went back. Its batches do not wait for the clock.
    async fn catch_up_with_clock(&self, campaign: &Campaign, started_at: Timestamp) -> Result<(), Error> {
        let now = self.context.now();
        if started_at > now && self.context.store.make_due(campaign.id, started_at, now).await? > 0 {
            self.wake_senders();
        }
        Ok(())
    }

    async fn start(&self, campaign: &Campaign, plan: &Plan, round: &mut Round) -> Result<(), Error> {
        let now = self.context.now();
        if let Some(start_at) = plan.spec.start_at.filter(|start_at| *start_at > now) {
            round.look_again(start_at);
            return Ok(());
        }
        round.more |= self.campaigns.start_scheduled(campaign).await?;
        Ok(())
    }

    /// A page of a campaign's audience.
    async fn page(&self, campaign: &Campaign, plan: &Plan, round: &mut Round) -> Result<(), Error> {
        let work = Work::Campaign(campaign.id);
        let Campaign { batches_open, batches_later, batches_taken, .. } = *campaign;
        let open = batches_open.saturating_sub(batches_later).saturating_sub(batches_taken);
        let ahead_max = self.config.ahead_max();
        let ahead = usize::try_from(open).unwrap_or(ahead_max);
        self.walk_depth.set(work, ahead);
        if ahead >= ahead_max {
            round.look_again(self.held_back());
            return Ok(());
        }
        let size = plan.spec.recipients_per_batch();
        let limit = (size * (ahead_max - ahead)).min(PAGE_MAX);
        let audience = plan.spec.audience.stored(campaign.id);
        let (store, token) = (&self.context.store, &plan.spec.message.push.token);
        let page = store.audience(campaign.app, &audience, campaign.cursor, limit, token.clone()).await?;
        self.metrics.walk_pages.inc();
        let mut packer = BatchPacker::new(size, plan.spec.lane);
        packer.published = plan.spec.message.when.is_some();
        // A published batch is not pushed; its notifications name the token again.
        packer.token = token.clone().filter(|_| !packer.published);
        let mut due = DueTimes::new(plan, self.context.now());
        for member in page.members.iter().filter(|member| plan.spec.filter.matches(&member.attributes)) {
            packer.push(member, due.of(member));
        }
        let BatchPacker { batches, parts, .. } = packer.close();
        let made = batches.len();
        let now = self.context.now();
        let cursor = page.next.unwrap_or(campaign.cursor);
        match store
            .enqueue(campaign.id, campaign.cursor, batches, cursor, page.next.is_none(), parts.clone(), now)
            .await
        {
            // Paused, aborted, or continued by another node in the meantime: nothing was written.
            Err(Error::Conflict | Error::NotFound) => return Ok(()),
            // No recipients are left. Otherwise the finisher of the last batch reports it.
            Ok(CampaignState::Done) => {
                self.context.outcomes.campaign_changed(
                    campaign.app,
                    campaign.id,
                    CampaignState::Done.as_str(),
                );
            }
            Ok(_) => {}
            Err(error) => return Err(error),
        }
        self.count((campaign.app, Subject::Campaign(campaign.id)), &parts, plan.spec.lane);
        self.walk_depth.add(work, made);
        self.wake_senders();
        round.more |= page.next.is_some();
        Ok(())
    }

    fn count(&self, of: (AppId, Subject), parts: &[PushPart], lane: Lane) {
        for part in parts {
            let count = part.devices.len() as u64;
            self.context.outcomes.pushed(of, None, part, None);
            self.metrics.count(part.outcome, part.reason, lane, count);
        }
    }
}

/// The due times of a page, by time zone.
struct DueTimes<'a> {
    plan: &'a Plan,
    /// When a batch without a local time is due. The campaign has started, even if the clock went back since.
    at_once: Timestamp,
    by_zone: HashMap<Option<String>, Timestamp>,
}

impl<'a> DueTimes<'a> {
    fn new(plan: &'a Plan, now: Timestamp) -> Self {
        Self { plan, at_once: plan.schedule.start.min(now), by_zone: HashMap::new() }
    }

    fn of(&mut self, member: &AudienceMember) -> Timestamp {
        if !self.plan.schedule.is_local() {
            return self.at_once;
        }
        if let Some(due) = self.by_zone.get(&member.attributes.timezone) {
            return *due;
        }
        let due = self.plan.due_at(&member.attributes);
        self.by_zone.insert(member.attributes.timezone.clone(), due);
        due
    }
}

/// Packs the devices of a page into batches.
struct BatchPacker {
    size: usize,
    lane: Lane,
    /// Batches are published as notifications, so they also contain devices without a token.
    published: bool,
    /// The token of each device that the batches are for; `None`: the main token, or that of the walk.
    token: Option<TokenKey>,
    open: BTreeMap<(Timestamp, Option<PushService>), Vec<DeviceNum>>,
    batches: Vec<NewBatch>,
    parts: Vec<PushPart>,
    no_token: Vec<DeviceNum>,
    set_aside: Vec<DeviceNum>,
}

impl BatchPacker {
    fn new(size: usize, lane: Lane) -> Self {
        Self {
            size,
            lane,
            published: false,
            token: None,
            open: BTreeMap::new(),
            batches: Vec::new(),
            parts: Vec::new(),
            no_token: Vec::new(),
            set_aside: Vec::new(),
        }
    }

    fn push(&mut self, member: &AudienceMember, due_at: Timestamp) {
        let service = match (self.published, member.service, member.suspect) {
            (true, ..) => None,
            (false, None, _) => return self.no_token.push(member.num),
            (false, Some(_), true) => return self.set_aside.push(member.num),
            (false, service, false) => service,
        };
        let recipients = self.open.entry((due_at, service)).or_default();
        recipients.push(member.num);
        if recipients.len() >= self.size {
            let recipients = std::mem::take(recipients);
            let batch = self.batch(service, due_at, recipients);
            self.batches.push(batch);
        }
    }

    fn batch(&self, service: Option<PushService>, due_at: Timestamp, recipients: Vec<DeviceNum>) -> NewBatch {
        NewBatch { service, due_at, lane: self.lane, token: self.token.clone(), recipients }
    }

    fn close(mut self) -> Self {
        for ((due_at, service), recipients) in std::mem::take(&mut self.open) {
            if !recipients.is_empty() {
                let batch = self.batch(service, due_at, recipients);
                self.batches.push(batch);
            }
        }
        let left_out = [
            (Outcome::NoPushToken, None, std::mem::take(&mut self.no_token)),
            (Outcome::PushTokenSuspect, Some(SET_ASIDE), std::mem::take(&mut self.set_aside)),
        ];
        for (outcome, reason, devices) in left_out {
            if !devices.is_empty() {
                self.parts.push(PushPart { outcome, reason, variant: None, devices });
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_packed_by_service_and_time() {
        let member = |num: u64| AudienceMember {
            num: DeviceNum(num),
            user: None,
            attributes: noroshi_store::Attributes::default(),
            service: match num % 4 {
                0 => None,
                1 => Some(PushService::Fcm),
                _ => Some(PushService::Apns),
            },
            suspect: num == 41,
        };
        let mut packer = BatchPacker::new(10, Lane::Campaign);
        for num in 0..100 {
            packer.push(&member(num), Timestamp(num / 50));
        }
        let packer = packer.close();
        assert!(packer.batches.iter().all(|batch| (1..=10).contains(&batch.recipients.len())));
        let recipients: usize = packer.batches.iter().map(|batch| batch.recipients.len()).sum();
        assert_eq!(recipients, 74);
        for batch in &packer.batches {
            let belongs = |num: &DeviceNum| {
                (Timestamp(num.0 / 50), member(num.0).service) == (batch.due_at, batch.service)
            };
            assert!(batch.recipients.iter().all(belongs), "{batch:?}");
        }
        let parts: Vec<_> =
            packer.parts.iter().map(|part| (part.outcome, part.reason, part.devices.len())).collect();
        assert_eq!(
            parts,
            [(Outcome::NoPushToken, None, 25), (Outcome::PushTokenSuspect, Some(SET_ASIDE), 1)]
        );
        let mut published = BatchPacker { published: true, ..BatchPacker::new(10, Lane::Campaign) };
        published.push(&member(0), Timestamp(0));
        assert_eq!(published.close().batches[0].service, None);
    }
}
