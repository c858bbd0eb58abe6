//! Requests that wait at a gate, and who of them is next. Pure: the caller passes the time.
//!
//! Apps share evenly, an app's urgent requests come first, and campaigns come after everything else. Among an app's
//! equal requests the oldest is next, so a provider that waits for its answers is never passed by its own later
//! requests. Under lasting overload, in which more arrives than is admitted, that order would give every accepted
//! request the longest wait: then the newest is next ("adaptive LIFO", B. Maurer, "Fail at Scale", ACM Queue 13(8),
//! 2015). What has waited for longer than [`ORDERLY_WAIT`] then is never served: it waits until it is rejected, which
//! slows down providers that wait for their answers.

use std::time::{Duration, Instant};

use noroshi_types::{AppId, Urgency};

use super::fair_queue::{At, FairQueue};

/// How often it is decided whether overload lasts: after this time if enough requests were admitted for a ratio, and
/// otherwise after [`TREND_EVERY_MAX`].
const TREND_EVERY: Duration = Duration::from_millis(100);
const TREND_EVERY_MAX: Duration = Duration::from_secs(1);
const TREND_REQUESTS: u32 = 16;
/// Overload lasts if it was seen so many times more often than not: a burst, or providers that begin together, end
/// earlier. It has ended after as many times without it.
const LASTS: u8 = 3;
/// Providers that wait for their answers cause waits, too. Up to this, all are served in order. Under overload no
/// request that has waited for longer is served.
const ORDERLY_WAIT: Duration = Duration::from_millis(100);

/// Who wants to enter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entrant {
    pub(super) app: AppId,
    pub(super) urgency: Urgency,
    pub(super) is_campaign: bool,
}

/// Where a request waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    at: At,
    is_campaign: bool,
}

pub(super) struct Waiting<T> {
    requests: FairQueue<(Instant, T)>,
    campaigns: FairQueue<(Instant, T)>,
    trend: Trend,
    tickets: u64,
}

/// Whether overload lasts.
#[derive(Debug, Clone, Copy, Default)]
struct Trend {
    is_overload: bool,
    /// How many times more arrived than was admitted, less the times when it did not; 0 to [`LASTS`].
    exceeded: u8,
    since: Option<Instant>,
    /// Units since then.
    arrived: u64,
    admitted: u64,
    requests_admitted: u32,
    /// A request waited in vain.
    expired: bool,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        let (requests, campaigns) = (FairQueue::default(), FairQueue::default());
        Self { requests, campaigns, trend: Trend::default(), tickets: 0 }
    }
}

impl<T> Waiting<T> {
    pub(super) fn len(&self) -> usize {
        self.requests.len() + self.campaigns.len()
    }

    /// The units of all requests, without campaigns.
    pub(super) fn units(&self) -> usize {
        self.requests.units()
    }

    pub(super) fn push(&mut self, who: Entrant, units: usize, item: T, now: Instant) -> Place {
        self.tickets += 1;
        let at = At { app: who.app, urgency: who.urgency, ticket: self.tickets };
        if !who.is_campaign {
            self.trend.arrived += units as u64;
        }
        self.queue(who.is_campaign).push(at, units, (now, item));
        Place { at, is_campaign: who.is_campaign }
    }

    /// The next request and its units.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(T, usize)> {
        self.update_trend(now);
        let next = match self.trend.is_overload {
            true => {
                self.requests.pop_newest(|(since, _)| now.saturating_duration_since(*since) <= ORDERLY_WAIT)
            }
            false => self.requests.pop(),
        };
        let Some(((_, item), units)) = next else {
            return match self.requests.len() {
                0 => self.campaigns.pop().map(|((_, item), units)| (item, units)),
                _ => None,
            };
        };
        self.trend.admitted += units as u64;
        self.trend.requests_admitted += 1;
        Some((item, units))
    }

    /// A request leaves. `expired`: it waited in vain.
    pub(super) fn remove(&mut self, place: Place, expired: bool) -> Option<T> {
        self.trend.expired |= expired;
        self.queue(place.is_campaign).remove(place.at).map(|(_, item)| item)
    }

    /// Removes a campaign, or the last request of the app that has the most.
    pub(super) fn evict(&mut self) -> Option<T> {
        let newest = self.trend.is_overload;
        let evicted = self.campaigns.evict(false).or_else(|| self.requests.evict(newest));
        evicted.map(|(_, item)| item)
    }

    fn queue(&mut self, is_campaign: bool) -> &mut FairQueue<(Instant, T)> {
        if is_campaign { &mut self.campaigns } else { &mut self.requests }
    }

    fn update_trend(&mut self, now: Instant) {
        let Some((oldest, _)) = self.requests.oldest() else {
            return self.trend = Trend::default();
        };
        let oldest = now.saturating_duration_since(*oldest);
        let elapsed = now.saturating_duration_since(*self.trend.since.get_or_insert(now));
        let is_known = elapsed >= TREND_EVERY && self.trend.requests_admitted >= TREND_REQUESTS;
        if is_known || elapsed >= TREND_EVERY_MAX {
            self.trend = self.trend.next(now, oldest);
        }
    }
}

impl Trend {
    /// Providers that wait for their answers send as much as is admitted, so only others can send more for long.
    fn next(self, now: Instant, oldest: Duration) -> Self {
        let grows = self.arrived > self.admitted + self.admitted / 4;
        let exceeds = self.expired || grows && oldest >= ORDERLY_WAIT;
        let exceeded = if exceeds { (self.exceeded + 1).min(LASTS) } else { self.exceeded.saturating_sub(1) };
        let is_overload = exceeded == LASTS || self.is_overload && exceeded > 0;
        Self { is_overload, exceeded, since: Some(now), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Slow providers: a few requests a second, at irregular times.
    #[test]
    fn a_few_slow_requests_are_served_in_order() {
        let mut waiting = Waiting::default();
        let begun = Instant::now();
        let who = Entrant { app: AppId(1), urgency: Urgency::Normal, is_campaign: false };
        (0..16).for_each(|number| ignore(waiting.push(who, 150, number, begun)));
        let mut order = Vec::new();
        for round in 0..200_u32 {
            // One to three are admitted together, and as many follow.
            let now = begun + round * 150 * MS;
            let count = 1 + round * 7 % 3;
            for _ in 0..count {
                order.extend(waiting.pop(now).map(|(number, _)| number));
            }
            for number in 0..count {
                ignore(waiting.push(who, 150, 16 + order.len() as u32 - count + number, now));
            }
        }
        assert!(order.is_sorted(), "{order:?}");
    }

    fn ignore(_: Place) {}

    /// Admits one request each millisecond. `arrivals` says how many arrive, from the millisecond and the number of
    /// requests that were answered in the one before. Returns the longest wait among those of the second half that were
    /// admitted, and the number of those that waited for a second in vain.
    fn run(milliseconds: u32, mut arrivals: impl FnMut(u32, usize) -> usize) -> (Duration, usize) {
        let begun = Instant::now();
        let mut waiting = Waiting::default();
        let mut places: HashMap<u64, (Instant, Place)> = HashMap::new();
        let (mut longest, mut rejected, mut answered, mut number) = (Duration::ZERO, 0, 0, 0);
        for ms in 0..milliseconds {
            let now = begun + ms * MS;
            for _ in 0..arrivals(ms, answered) {
                number += 1;
                let who = Entrant { app: AppId(1), urgency: Urgency::Normal, is_campaign: false };
                places.insert(number, (now, waiting.push(who, 1, number, now)));
            }
            answered = 0;
            if let Some((number, _)) = waiting.pop(now) {
                let (since, _) = places.remove(&number).expect("it waited");
                answered += 1;
                if since > begun + milliseconds / 2 * MS {
                    longest = longest.max(now - since);
                }
            }
            let expired = places.iter().filter(|(_, (since, _))| now - *since >= 1_000 * MS);
            let expired: Vec<u64> = expired.map(|(number, _)| *number).collect();
            for number in expired {
                let (_, place) = places.remove(&number).expect("it waits");
                assert_eq!(waiting.remove(place, true), Some(number));
                (rejected, answered) = (rejected + 1, answered + 1);
            }
        }
        (longest, rejected)
    }

    #[test]
    fn providers_that_wait_for_answers_are_never_rejected() {
        for providers in [4, 100, 300, 900] {
            let (longest, rejected) = run(4_000, |ms, answered| if ms == 0 { providers } else { answered });
            assert_eq!(rejected, 0, "{providers}");
            assert!(longest <= (providers as u32 + 100) * MS, "{providers}: {longest:?}");
        }
    }

    #[test]
    fn at_twice_the_capacity_requests_that_are_admitted_wait_briefly() {
        let (longest, rejected) = run(4_000, |_, _| 2);
        assert!((2_500..4_000).contains(&rejected), "{rejected}");
        assert!(longest <= 10 * MS, "{longest:?}");
        // With pauses, in which only requests remain that have waited for long.
        let (longest, _) = run(4_000, |ms, _| if ms % 300 < 100 { 0 } else { 3 });
        assert!(longest <= ORDERLY_WAIT, "{longest:?}");
        // From the beginning.
        let (longest, _) = run(500, |_, _| 2);
        assert!(longest <= 250 * MS, "{longest:?}");
    }

    #[test]
    fn a_burst_is_served_in_order() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        let who = Entrant { app: AppId(1), urgency: Urgency::Normal, is_campaign: false };
        for number in 0..500 {
            waiting.push(who, 1, number, now);
        }
        let order: Vec<u32> = (0..500).filter_map(|ms| Some(waiting.pop(now + ms * MS)?.0)).collect();
        assert!(order.is_sorted() && order.len() == 500, "{order:?}");
    }

    #[test]
    fn apps_share_and_campaigns_come_last() {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        let who = |app, urgency| Entrant { app: AppId(app), urgency, is_campaign: false };
        let campaign = Entrant { is_campaign: true, ..who(3, Urgency::High) };
        for (who, name) in [
            (campaign, "campaign"),
            (who(1, Urgency::Normal), "a1"),
            (who(1, Urgency::Normal), "a2"),
            (who(1, Urgency::High), "a3"),
            (who(2, Urgency::Low), "b1"),
        ] {
            waiting.push(who, 1, name, now);
        }
        assert_eq!((waiting.len(), waiting.units()), (5, 4));
        let order: Vec<_> = std::iter::from_fn(|| waiting.pop(now)).map(|(name, _)| name).collect();
        assert_eq!(order, ["a3", "b1", "a1", "a2", "campaign"]);
        waiting.push(who(1, Urgency::Normal), 1, "a", now);
        waiting.push(campaign, 1, "campaign", now);
        assert_eq!([waiting.evict(), waiting.evict(), waiting.evict()], [Some("campaign"), Some("a"), None]);
    }
}
