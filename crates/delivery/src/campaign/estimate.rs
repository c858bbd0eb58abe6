//! How many devices a campaign would reach, and how long that would take, before it starts.
//!
//! Up to [`EXACT_ROWS`] devices are counted. A larger audience is estimated: its numbers are cut into `STRATA` parts of
//! equal width, and a page at a random place of each part shows how dense the selected devices are there (stratified
//! sampling; W. G. Cochran, "Sampling Techniques", 3rd edition 1977, chapter 5). The 95 % interval comes from the
//! differences between the parts, as if the places were independent (§2.6), which makes it rather too wide than too
//! narrow. Users are estimated from the devices of users in the sample: a user with k selected devices counts 1/k for
//! each (the multiplicity estimator of Horvitz and Thompson).
//!
//! Each read is short, and there are at most [`ROWS_MAX`] rows.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use noroshi_store::{Audience, AudienceMember, AudiencePage, Error, Store};
use noroshi_types::local_time::zone;
use noroshi_types::{AppId, DeviceId, DeviceNum, PushService, Timestamp, UserId};

use crate::campaign::spec::Spec;

/// Devices of an audience that are counted.
pub const EXACT_ROWS: usize = 20_000;
/// Rows of a read: 10 ms.
const PAGE: usize = 1_000;
/// The counted part may take this long; then the rest is estimated.
const EXACT_LIMIT: Duration = Duration::from_secs(1);
const STRATA: u64 = 64;
const STRATUM_ROWS: usize = 200;
/// All rows that an estimate reads.
pub const ROWS_MAX: usize = EXACT_ROWS + STRATA as usize * STRATUM_ROWS;
/// Quantile of Student's distribution with 63 degrees of freedom, for 95 % intervals.
const T: f64 = 1.998;
/// Users whose devices are counted for the number of users.
const USERS_MAX: usize = 100;
pub const SAMPLE_MAX: usize = 20;
/// Languages that are reported; the others count together.
const LOCALES_MAX: usize = 30;
const STEPS_MAX: usize = 64;

/// A number, with the 95 % interval if it is estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Size {
    pub value: u64,
    pub low: u64,
    pub high: u64,
}

impl Size {
    fn exact(value: u64) -> Self {
        Self { value, low: value, high: value }
    }
}

/// A device of the audience.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Example {
    pub device: DeviceId,
    pub user: Option<UserId>,
    pub platform: Option<String>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub service: Option<PushService>,
}

/// Where a rate comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateFrom {
    /// The campaign's own limit.
    Limit,
    /// The last campaigns of the app.
    Measured,
    Unknown,
}

impl RateFrom {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Limit => "limit",
            Self::Measured => "measured",
            Self::Unknown => "unknown",
        }
    }
}

/// The rate of earlier campaigns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measured {
    pub per_second: f64,
    pub campaigns: usize,
}

/// When the devices would get it, if the campaign started now.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    pub starts_at: Timestamp,
    pub rate_per_second: Option<f64>,
    pub rate_from: RateFrom,
    /// How many earlier campaigns the measured rate comes from.
    pub measured_campaigns: usize,
    /// The devices by the time that they are due, earliest first.
    pub steps: Vec<(Timestamp, u64)>,
    /// `None`: the rate is unknown.
    pub ends_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Estimated {
    /// Everything was counted. Otherwise the sizes are estimates from a sample.
    pub is_exact: bool,
    /// Devices of the audience that were read.
    pub examined: u64,
    pub devices: Size,
    /// Users with at least one of these devices.
    pub users: Size,
    pub by_service: Vec<(PushService, Size)>,
    pub no_push_token: Size,
    pub suspect: Size,
    /// By language tag, largest first; empty for devices without one. Beyond 30 the rest is in `other_locales`.
    pub by_locale: Vec<(String, Size)>,
    pub other_locales: Size,
    pub sample: Vec<Example>,
    pub forecast: Forecast,
}

/// The devices of an audience, page by page.
pub(crate) struct Population<'a> {
    pub store: &'a dyn Store,
    pub app: AppId,
    pub audience: Audience,
    pub spec: &'a Spec,
    /// The number of lines, if the audience is uploaded.
    pub uploaded: Option<u64>,
}

impl Population<'_> {
    async fn page(&self, after: u64, limit: usize) -> Result<AudiencePage, Error> {
        let token = self.spec.message.push.token.clone();
        self.store.audience(self.app, &self.audience, after, limit, token).await
    }

    /// A position at or beyond the last device, at most twice as far.
    async fn end(&self, from: u64) -> Result<u64, Error> {
        if let Some(lines) = self.uploaded {
            return Ok(lines);
        }
        let is_past = async |after: u64| {
            let page = self.page(after, 1).await?;
            Ok::<_, Error>(page.members.is_empty() && page.next.is_none())
        };
        let (mut low, mut high) = (from, from.saturating_mul(2).max(1));
        while !is_past(high).await? {
            if high >= i64::MAX as u64 / 2 {
                return Ok(i64::MAX as u64 / 2);
            }
            (low, high) = (high, high * 2);
        }
        // Between `low`, where devices follow, and `high`, where none do.
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            match is_past(middle).await? {
                true => high = middle,
                false => low = middle,
            }
        }
        Ok(high)
    }
}

/// Sums of the selected devices of a part of the audience.
#[derive(Debug, Clone, Default)]
struct Sums {
    examined: u64,
    devices: f64,
    by_service: BTreeMap<PushService, f64>,
    no_push_token: f64,
    suspect: f64,
    by_locale: BTreeMap<String, f64>,
    by_zone: BTreeMap<String, f64>,
    /// The devices that get something: those with a usable token, or all if the message is published.
    reached: f64,
}

impl Sums {
    fn add(&mut self, spec: &Spec, member: &AudienceMember, weight: f64) {
        self.devices += weight;
        let is_pushed = match member.service {
            None => {
                self.no_push_token += weight;
                false
            }
            Some(_) if member.suspect => {
                self.suspect += weight;
                false
            }
            Some(service) => {
                *self.by_service.entry(service).or_default() += weight;
                true
            }
        };
        let locale = member.attributes.locale.clone().unwrap_or_default();
        *self.by_locale.entry(locale).or_default() += weight;
        if is_pushed || spec.message.when.is_some() {
            self.reached += weight;
            let zone = member.attributes.timezone.clone().unwrap_or_default();
            *self.by_zone.entry(zone).or_default() += weight;
        }
    }
}

/// A sequence of numbers that looks random: SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound.max(1))) >> 64) as u64
    }
}

/// At most `max` of all items, each with the same probability (Vitter's algorithm R).
struct Reservoir<T> {
    kept: Vec<T>,
    seen: u64,
    max: usize,
}

impl<T> Reservoir<T> {
    fn new(max: usize) -> Self {
        Self { kept: Vec::new(), seen: 0, max }
    }

    fn offer(&mut self, item: T, random: &mut Random) {
        self.seen += 1;
        if self.kept.len() < self.max {
            return self.kept.push(item);
        }
        let place = random.below(self.seen) as usize;
        if let Some(kept) = self.kept.get_mut(place) {
            *kept = item;
        }
    }
}

pub(crate) async fn estimate(
    population: &Population<'_>,
    seed: u64,
    measured: Option<Measured>,
    now: Timestamp,
) -> Result<Estimated, Error> {
    let mut random = Random(seed);
    let mut examples = Reservoir::new(SAMPLE_MAX);
    match counted(population, &mut random, &mut examples).await? {
        (sums, Some(users)) => {
            let users = Size::exact(users);
            finish(population, true, sums.examined, vec![sums], 1.0, users, examples, measured, now).await
        }
        (partial, None) => sampled(population, &partial, random, measured, now).await,
    }
}

/// Counts the audience. The number of users is `None` if there are more devices than are counted.
async fn counted(
    population: &Population<'_>,
    random: &mut Random,
    examples: &mut Reservoir<AudienceMember>,
) -> Result<(Sums, Option<u64>), Error> {
    let began = tokio::time::Instant::now();
    let (mut sums, mut users, mut after) = (Sums::default(), HashSet::new(), 0);
    loop {
        let page = population.page(after, PAGE).await?;
        sums.examined += page.members.len() as u64;
        for member in page.members {
            if !population.spec.filter.matches(&member.attributes) {
                continue;
            }
            sums.add(population.spec, &member, 1.0);
            if let Some(user) = &member.user {
                users.insert(user.clone());
            }
            examples.offer(member, random);
        }
        match page.next {
            None => return Ok((sums, Some(users.len() as u64))),
            Some(_) if sums.examined >= EXACT_ROWS as u64 || began.elapsed() > EXACT_LIMIT => {
                return Ok((sums, None));
            }
            Some(next) => after = next,
        }
        tokio::task::yield_now().await;
    }
}

async fn sampled(
    population: &Population<'_>,
    counted: &Sums,
    mut random: Random,
    measured: Option<Measured>,
    now: Timestamp,
) -> Result<Estimated, Error> {
    let end = population.end(0).await?.max(STRATA);
    let width = end / STRATA;
    let (mut strata, mut examined) = (Vec::new(), counted.examined);
    let mut examples = Reservoir::new(SAMPLE_MAX);
    let mut users = Reservoir::new(USERS_MAX);
    for stratum in 0..STRATA {
        let from = stratum * width;
        let until = if stratum + 1 == STRATA { end } else { from + width };
        let after = from + random.below(until - from);
        let page = population.page(after, STRATUM_ROWS).await?;
        let last = page.next.unwrap_or(end).max(after + 1);
        // A full page ends with its last device, so that place and that device say nothing about the density (J. B. S.
        // Haldane, "On a method of estimating frequencies", Biometrika 1945).
        let is_full = page.next.is_some() && population.uploaded.is_none();
        let members = page.members.len() as f64;
        let (scale, places) = match is_full && members > 1.0 && last - after > 1 {
            true => ((members - 1.0) / members, last - after - 1),
            false => (1.0, last - after),
        };
        let weight = (until - from) as f64 / places as f64 * scale;
        let mut sums = Sums { examined: page.members.len() as u64, ..Sums::default() };
        examined += sums.examined;
        for member in page.members {
            if !population.spec.filter.matches(&member.attributes) {
                continue;
            }
            sums.add(population.spec, &member, weight);
            if let Some(user) = &member.user {
                users.offer(user.clone(), &mut random);
            }
            examples.offer(member, &mut random);
        }
        strata.push(sums);
        tokio::task::yield_now().await;
    }
    // Each part stands for its width, whatever it has; users by the devices of those in the sample.
    let devices = sized(&strata, |sums| sums.devices, counted.devices as u64);
    let mut shares = Vec::new();
    for user in &users.kept {
        let own = devices_of_user(population, user).await?;
        shares.push(1.0 / own.max(1) as f64);
    }
    let with_user = users.seen as f64 / examples.seen.max(1) as f64;
    let users = users_of(devices, with_user, &shares);
    finish(population, false, examined, strata, counted.devices, users, examples, measured, now).await
}

async fn devices_of_user(population: &Population<'_>, user: &UserId) -> Result<u64, Error> {
    crate::campaign::count::devices_of_user(population.store, population.app, user, population.spec).await
}

/// The sum over all parts, with its interval. `at_least`: as many were counted.
fn sized(strata: &[Sums], of: impl Fn(&Sums) -> f64, at_least: u64) -> Size {
    let n = strata.len() as f64;
    let sum: f64 = strata.iter().map(&of).sum();
    let mean = sum / n;
    let variance = strata.iter().map(|sums| (of(sums) - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
    let half = T * (variance * n).sqrt();
    let whole = |value: f64| (value.max(0.0).round() as u64).max(at_least);
    Size { value: whole(sum), low: whole(sum - half), high: whole(sum + half) }
}

/// The number of users from the number of devices, the share of devices with a user, and 1/k of users in the sample.
fn users_of(devices: Size, with_user: f64, shares: &[f64]) -> Size {
    if shares.is_empty() {
        return Size::exact(0);
    }
    let n = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / n;
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0) / n;
    let count = devices.value as f64 * with_user;
    let spread = (devices.high - devices.low) as f64 / 2.0 * with_user;
    // The delta method for a product of independent estimates.
    let half = (count * T).powi(2).mul_add(variance, (mean * spread).powi(2)).sqrt();
    let whole = |value: f64| value.max(0.0).round() as u64;
    Size {
        value: whole(count * mean),
        low: whole(count.mul_add(mean, -half)),
        high: whole(count.mul_add(mean, half)),
    }
}

#[allow(clippy::too_many_arguments, reason = "the parts of one answer")]
async fn finish(
    population: &Population<'_>,
    is_exact: bool,
    examined: u64,
    strata: Vec<Sums>,
    at_least: f64,
    users: Size,
    examples: Reservoir<AudienceMember>,
    measured: Option<Measured>,
    now: Timestamp,
) -> Result<Estimated, Error> {
    let size = |of: &dyn Fn(&Sums) -> f64| match is_exact {
        true => Size::exact(strata.iter().map(of).sum::<f64>() as u64),
        false => sized(&strata, of, 0),
    };
    let at = |map: &BTreeMap<String, f64>, key: &str| map.get(key).copied().unwrap_or_default();
    let services: Vec<PushService> = strata.iter().flat_map(|sums| sums.by_service.keys().copied()).collect();
    let services: std::collections::BTreeSet<PushService> = services.into_iter().collect();
    let by_service = services
        .into_iter()
        .map(|service| (service, size(&|sums| sums.by_service.get(&service).copied().unwrap_or_default())))
        .collect();
    let locales: HashSet<&String> = strata.iter().flat_map(|sums| sums.by_locale.keys()).collect();
    let mut by_locale: Vec<(String, Size)> = locales
        .into_iter()
        .map(|locale| (locale.clone(), size(&|sums| at(&sums.by_locale, locale))))
        .collect();
    by_locale.sort_by(|(a, x), (b, y)| y.value.cmp(&x.value).then_with(|| a.cmp(b)));
    let kept: Vec<String> = by_locale.iter().take(LOCALES_MAX).map(|(locale, _)| locale.clone()).collect();
    let other_locales = size(&|sums| {
        sums.by_locale.iter().filter(|(locale, _)| !kept.contains(locale)).map(|(_, count)| count).sum()
    });
    by_locale.truncate(LOCALES_MAX);
    let mut zones: BTreeMap<&str, f64> = BTreeMap::new();
    for (name, count) in strata.iter().flat_map(|sums| &sums.by_zone) {
        *zones.entry(name).or_default() += count;
    }
    let devices = match is_exact {
        true => size(&|sums| sums.devices),
        false => sized(&strata, |sums| sums.devices, at_least as u64),
    };
    Ok(Estimated {
        is_exact,
        examined,
        devices,
        users,
        by_service,
        no_push_token: size(&|sums| sums.no_push_token),
        suspect: size(&|sums| sums.suspect),
        by_locale,
        other_locales,
        forecast: forecast(population.spec, &zones, measured, now),
        sample: examples_of(population, examples.kept).await?,
    })
}

async fn examples_of(
    population: &Population<'_>,
    members: Vec<AudienceMember>,
) -> Result<Vec<Example>, Error> {
    let nums = members.iter().map(|member| member.num).collect();
    let ids: BTreeMap<DeviceNum, DeviceId> =
        population.store.device_ids(population.app, nums).await?.into_iter().collect();
    let example = |member: AudienceMember| {
        let attributes = member.attributes;
        Some(Example {
            device: ids.get(&member.num)?.clone(),
            user: member.user,
            platform: attributes.platform,
            locale: attributes.locale,
            timezone: attributes.timezone,
            service: member.service.filter(|_| !member.suspect),
        })
    };
    // One that was deleted since is left out.
    Ok(members.into_iter().filter_map(example).collect())
}

fn forecast(
    spec: &Spec,
    zones: &BTreeMap<&str, f64>,
    measured: Option<Measured>,
    now: Timestamp,
) -> Forecast {
    let schedule = spec.schedule(now);
    let mut due: BTreeMap<Timestamp, f64> = BTreeMap::new();
    for (name, count) in zones {
        let zone = zone(Some(name).filter(|name| !name.is_empty()).copied());
        *due.entry(schedule.due_at(&zone)).or_default() += count;
    }
    let limit = spec.rate_per_second.map(f64::from);
    let rate = measured.map(|measured| measured.per_second);
    let (rate_per_second, rate_from) = match (limit, rate) {
        (Some(limit), Some(rate)) if rate < limit => (Some(rate), RateFrom::Measured),
        (Some(limit), _) => (Some(limit), RateFrom::Limit),
        (None, Some(rate)) => (Some(rate), RateFrom::Measured),
        (None, None) => (None, RateFrom::Unknown),
    };
    let last = |rate: f64| {
        let mut at = schedule.start.0 as f64;
        for (due_at, count) in &due {
            at = (count / rate).mul_add(1_000.0, at.max(due_at.0 as f64));
        }
        Timestamp(at.ceil() as u64)
    };
    Forecast {
        starts_at: schedule.start,
        rate_per_second,
        rate_from,
        measured_campaigns: measured.map_or(0, |measured| measured.campaigns),
        ends_at: rate_per_second.filter(|rate| *rate > 0.0).map(last),
        steps: due.into_iter().take(STEPS_MAX).map(|(at, count)| (at, count.round() as u64)).collect(),
    }
}

#[cfg(test)]
mod tests;
