//! How large an audience is: for a dry run, and for the time a campaign still takes.
//!
//! Walks the audience as the collector does, with the same filter, and writes nothing. Behind a running
//! campaign it works a fifth of the time, so that it does not slow it down.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use noroshi_store::{AudienceMember, Campaign, Error};
use noroshi_types::{AppId, CampaignId, PushService};

use crate::campaign::lifecycle::stored_audience;
use crate::campaign::spec::Spec;
use crate::delivery::Delivery;
use crate::push::Side;

const PAGE: usize = 10_000;

/// Above it users are not told apart any more: 8 B and a place in a set each, 80 MB.
const USERS_MAX: usize = 5_000_000;

/// Between two pages of a count behind a campaign, as a multiple of what the page took.
const REST: u32 = 4;

/// What a campaign would reach now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// Devices of the audience that the filter lets through.
    pub devices: u64,
    /// Different users among them; none if there are too many to tell.
    pub users: Option<u64>,
    /// Devices that a push service can be asked for.
    pub by_service: Vec<(PushService, u64)>,
    pub no_push_token: u64,
    /// Devices whose token is set aside.
    pub suspect: u64,
    /// Devices of the audience that the filter leaves out.
    pub filtered: u64,
}

struct Counter {
    count: Count,
    users: HashSet<u64>,
    too_many: bool,
}

impl Counter {
    fn add(&mut self, spec: &Spec, member: &AudienceMember) {
        if !spec.filter.matches(&member.attributes) {
            self.count.filtered += 1;
            return;
        }
        self.count.devices += 1;
        if let Some(user) = member.user.as_ref().filter(|_| !self.too_many) {
            let mut hasher = DefaultHasher::new();
            user.hash(&mut hasher);
            self.users.insert(hasher.finish());
            self.too_many = self.users.len() > USERS_MAX;
        }
        match member.service {
            None => self.count.no_push_token += 1,
            Some(_) if member.suspect => self.count.suspect += 1,
            Some(service) => self.at(service),
        }
    }

    fn at(&mut self, service: PushService) {
        match self.count.by_service.iter_mut().find(|(other, _)| *other == service) {
            Some((_, count)) => *count += 1,
            None => {
                self.count.by_service.push((service, 1));
                self.count.by_service.sort_unstable();
            }
        }
    }
}

/// Counts an audience. `rest`: leaves most of the time to others. Cancel-safe.
pub(crate) async fn count(
    delivery: &Delivery,
    app: AppId,
    campaign: CampaignId,
    spec: &Spec,
    rest: bool,
) -> Result<Count, Error> {
    let audience = stored_audience(campaign, &spec.audience);
    let mut counter = Counter { count: Count::default(), users: HashSet::new(), too_many: false };
    let mut cursor = 0;
    loop {
        let began = tokio::time::Instant::now();
        let page = delivery.store.audience(app, &audience, cursor, PAGE).await?;
        page.members.iter().for_each(|member| counter.add(spec, member));
        let Some(next) = page.next else { break };
        cursor = next;
        match rest {
            true => tokio::time::sleep(began.elapsed() * REST).await,
            false => tokio::task::yield_now().await,
        }
    }
    let users = (!counter.too_many).then_some(counter.users.len() as u64);
    Ok(Count { users, ..counter.count })
}

/// Whether a running campaign's audience is still to be counted.
pub(crate) fn is_wanted(side: &Side, campaign: &Campaign) -> bool {
    side.book.count_once(campaign.id)
}

/// Counts behind a running campaign. What it finds is only told.
pub(crate) fn spawn(delivery: Arc<Delivery>, side: Arc<Side>, campaign: &Campaign) {
    let (id, app) = (campaign.id, campaign.app);
    tokio::spawn(async move {
        let Some(plan) = side.book.plan(id) else { return };
        match count(&delivery, app, id, &plan.spec, true).await {
            Ok(count) => {
                let published = plan.spec.message.when.is_some();
                let pushed = count.by_service.iter().map(|(_, count)| count).sum();
                side.book.set_total(id, if published { count.devices } else { pushed });
            }
            Err(error) => tracing::debug!(campaign = %id, %error, "an audience could not be counted"),
        }
    });
}
