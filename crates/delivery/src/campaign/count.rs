//! The size of an audience: for a dry run, and for the remaining time of a campaign.
//!
//! Walks the audience as the collector does, with the same filter, and writes nothing. A count for a running campaign
//! works a fifth of the time, so that it does not slow the campaign down.

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use noroshi_store::{AudienceMember, Device, DeviceFilter, Error, Store};
use noroshi_types::{AppId, CampaignId, PushService, UserId};

use crate::campaign::audience::Audience;
use crate::campaign::spec::Spec;

const PAGE: usize = 10_000;

/// Users that are counted, at 8 B and a place in a set each: 80 MB.
const USERS_MAX: usize = 5_000_000;

/// The pause between two pages of a slow count, as a multiple of the time of a page.
const REST: u32 = 4;

/// The size of an audience.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Count {
    /// Devices of the audience that match the filter.
    pub devices: u64,
    /// Distinct users among them; `None` if there are more than can be counted.
    pub users: Option<u64>,
    /// Devices with a push token, by push service.
    pub by_service: Vec<(PushService, u64)>,
    pub no_push_token: u64,
    /// Devices whose token is suspended.
    pub suspect: u64,
    /// Devices of the audience that do not match the filter.
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

/// Counts an audience. `rest` leaves most of the time to other work. Cancel-safe.
pub(crate) async fn count(
    store: &dyn Store,
    app: AppId,
    campaign: CampaignId,
    spec: &Spec,
    rest: bool,
) -> Result<Count, Error> {
    let audience = spec.audience.stored(campaign);
    let mut counter = Counter { count: Count::default(), users: HashSet::new(), too_many: false };
    let token = &spec.message.push.token;
    let mut cursor = 0;
    loop {
        let began = tokio::time::Instant::now();
        let page = store.audience(app, &audience, cursor, PAGE, token.clone()).await?;
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

/// Rows of a page of [`exceeds`]: 10 ms.
const SHORT_PAGE: usize = 1_000;

/// Whether the campaign selects more than `max` devices. Reads no further than needed. Cancel-safe.
pub(crate) async fn exceeds(
    store: &dyn Store,
    app: AppId,
    campaign: CampaignId,
    spec: &Spec,
    max: u64,
) -> Result<bool, Error> {
    let audience = spec.audience.stored(campaign);
    let token = &spec.message.push.token;
    let (mut devices, mut cursor) = (0, 0);
    loop {
        let page = store.audience(app, &audience, cursor, SHORT_PAGE, token.clone()).await?;
        devices +=
            page.members.iter().filter(|member| spec.filter.matches(&member.attributes)).count() as u64;
        if devices > max {
            return Ok(true);
        }
        let Some(next) = page.next else { return Ok(false) };
        cursor = next;
        tokio::task::yield_now().await;
    }
}

/// Devices of a user that are looked at.
const DEVICES_OF_USER_MAX: usize = 100;

/// How many of a user's devices the campaign selects.
pub(crate) async fn devices_of_user(
    store: &dyn Store,
    app: AppId,
    user: &UserId,
    spec: &Spec,
) -> Result<u64, Error> {
    let filter = DeviceFilter { user: Some(user.clone()), after: None, limit: DEVICES_OF_USER_MAX };
    let selected = |device: &&Device| match spec.audience {
        Audience::Upload => true,
        _ => spec.selects(&device.attributes, &device.topics),
    };
    Ok(store.devices(app, filter).await?.iter().filter(selected).count() as u64)
}
