//! What this process remembers of running campaigns: plans, rates, and audience sizes.
//!
//! Filled by the collector and the senders ([`crate::push`]), read by `lifecycle` for the progress. Everything can be
//! rebuilt from the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_store::Campaign;
use noroshi_types::{CampaignId, Timestamp};
use parking_lot::Mutex;

use crate::campaign::plan::Plan;
use crate::campaign::progress::Recent;

/// Seconds over which a rate is measured.
const SECONDS: u64 = 10;

#[derive(Default)]
pub(crate) struct Tracker {
    /// Guards only the map; nothing is awaited under it.
    entries: Mutex<HashMap<CampaignId, Entry>>,
}

#[derive(Default)]
struct Entry {
    plan: Option<Arc<Plan>>,
    meter: Meter,
    total: Option<u64>,
    counting: bool,
}

impl Tracker {
    pub(crate) fn plan(&self, id: CampaignId) -> Option<Arc<Plan>> {
        self.entries.lock().get(&id)?.plan.clone()
    }

    /// The plan of a campaign, created if there is none. The first plan of a started campaign stays, because it counts the
    /// turns. That of one that has not started is not kept: the campaign may still be changed. `None`: this version cannot
    /// read the campaign.
    pub(crate) fn plan_of(&self, campaign: &Campaign, now: Timestamp) -> Option<Arc<Plan>> {
        if let Some(plan) = self.plan(campaign.id) {
            return Some(plan);
        }
        match Plan::new(campaign, now) {
            Ok(plan) if campaign.started_at.is_none() => Some(Arc::new(plan)),
            Ok(plan) => {
                let mut entries = self.entries.lock();
                let entry = entries.entry(plan.id).or_default();
                Some(entry.plan.get_or_insert_with(|| Arc::new(plan)).clone())
            }
            Err(error) => {
                tracing::error!(campaign = %campaign.id, %error, "could not read a campaign");
                None
            }
        }
    }

    /// Campaigns with a rate, and how far ahead their turns are assigned.
    pub(crate) fn limited(&self) -> Vec<(CampaignId, Duration)> {
        let entries = self.entries.lock();
        entries.iter().filter_map(|(id, entry)| Some((*id, entry.plan.as_ref()?.ahead()?))).collect()
    }

    /// Counts recipients that are done.
    pub(crate) fn count(&self, id: CampaignId, recipients: u64) {
        self.entries.lock().entry(id).or_default().meter.count(recipients);
    }

    /// Returns true for the first caller: the audience is counted once.
    pub(crate) fn count_once(&self, id: CampaignId) -> bool {
        !std::mem::replace(&mut self.entries.lock().entry(id).or_default().counting, true)
    }

    pub(crate) fn set_total(&self, id: CampaignId, total: u64) {
        if let Some(entry) = self.entries.lock().get_mut(&id) {
            entry.total = Some(total);
        }
    }

    pub(crate) fn recent(&self, id: CampaignId) -> Recent {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(&id) else { return Recent::default() };
        Recent { rate_per_second: entry.meter.rate(), total: entry.total }
    }

    /// Forgets all other campaigns.
    pub(crate) fn retain(&self, active: &[CampaignId]) {
        self.entries.lock().retain(|id, _| active.contains(id));
    }
}

/// Events of the last seconds.
struct Meter {
    zero: Instant,
    /// By second, modulo: which second it is, and how many.
    seconds: [(u64, u64); SECONDS as usize],
}

impl Default for Meter {
    fn default() -> Self {
        Self { zero: Instant::now(), seconds: [(0, 0); SECONDS as usize] }
    }
}

impl Meter {
    fn count(&mut self, events: u64) {
        let second = self.zero.elapsed().as_secs();
        let place = &mut self.seconds[usize::try_from(second % SECONDS).unwrap_or(0)];
        if place.0 != second {
            *place = (second, 0);
        }
        place.1 += events;
    }

    /// `None` during the first second.
    fn rate(&self) -> Option<f64> {
        let elapsed = self.zero.elapsed();
        if elapsed < Duration::from_secs(1) {
            return None;
        }
        let second = elapsed.as_secs();
        let recent = self.seconds.iter().filter(|(at, _)| at + SECONDS > second);
        let events: u64 = recent.map(|(_, events)| events).sum();
        let over = elapsed.as_secs_f64().min(SECONDS as f64 - 1.0 + elapsed.as_secs_f64().fract());
        Some(events as f64 / over)
    }
}
