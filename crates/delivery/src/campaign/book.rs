//! What this process remembers of campaigns: their plans, how fast they go, how large they are. All of it can
//! be made again from the store.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_store::Campaign;
use noroshi_types::{CampaignId, Timestamp};
use parking_lot::Mutex;

use crate::campaign::plan::Plan;
use crate::campaign::progress::Recent;

/// A rate is that of so many seconds.
const SECONDS: u64 = 10;

#[derive(Default)]
pub(crate) struct Book {
    /// Guards only the map; nothing is awaited under it.
    pages: Mutex<HashMap<CampaignId, Page>>,
}

#[derive(Default)]
struct Page {
    plan: Option<Arc<Plan>>,
    meter: Meter,
    total: Option<u64>,
    counting: bool,
}

impl Book {
    pub(crate) fn plan(&self, id: CampaignId) -> Option<Arc<Plan>> {
        self.pages.lock().get(&id)?.plan.clone()
    }

    /// The plan of a campaign that has started; made if there is none. The first one stays: its turns are
    /// counted there. None: this version cannot read the campaign.
    pub(crate) fn plan_of(&self, campaign: &Campaign, now: Timestamp) -> Option<Arc<Plan>> {
        if let Some(plan) = self.plan(campaign.id) {
            return Some(plan);
        }
        match Plan::new(campaign, now) {
            Ok(plan) => {
                let mut pages = self.pages.lock();
                let page = pages.entry(plan.id).or_default();
                Some(page.plan.get_or_insert_with(|| Arc::new(plan)).clone())
            }
            Err(error) => {
                tracing::error!(campaign = %campaign.id, %error, "a campaign cannot be read");
                None
            }
        }
    }

    /// Plans whose rate is limited.
    pub(crate) fn limited(&self) -> Vec<(CampaignId, Duration)> {
        let pages = self.pages.lock();
        pages.iter().filter_map(|(id, page)| Some((*id, page.plan.as_ref()?.ahead()?))).collect()
    }

    /// Recipients whose fate is known.
    pub(crate) fn count(&self, id: CampaignId, recipients: u64) {
        self.pages.lock().entry(id).or_default().meter.count(recipients);
    }

    /// True for the first who asks: the audience is counted once.
    pub(crate) fn count_once(&self, id: CampaignId) -> bool {
        !std::mem::replace(&mut self.pages.lock().entry(id).or_default().counting, true)
    }

    pub(crate) fn set_total(&self, id: CampaignId, total: u64) {
        if let Some(page) = self.pages.lock().get_mut(&id) {
            page.total = Some(total);
        }
    }

    pub(crate) fn recent(&self, id: CampaignId) -> Recent {
        let mut pages = self.pages.lock();
        let Some(page) = pages.get_mut(&id) else { return Recent::default() };
        Recent { rate_per_second: page.meter.rate(), total: page.total }
    }

    /// Forgets all but these.
    pub(crate) fn retain(&self, active: &[CampaignId]) {
        self.pages.lock().retain(|id, _| active.contains(id));
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

    /// None before there is a second to measure by.
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
