//! How long messages wait on the gateways of the cluster, so that every node slows its publishers down.
//!
//! While messages wait on a gateway, it tells the other nodes for how long, several times a second. A node takes the
//! median of all gateways, since a request's recipients are spread over them: one slow gateway delays only its own
//! devices. A report that is not repeated expires, so a node that ended holds nobody back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use noroshi_cluster::Epoch;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Peers;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::edge::Fan;

/// How often a gateway reports. Longer with more nodes, since each tells all others.
const INTERVAL: Duration = Duration::from_millis(100);
const INTERVAL_PER_NODE: Duration = Duration::from_millis(5);
/// Shorter waits are not reported: they are a shard's usual turns.
const REPORTED_FROM: Duration = Duration::from_millis(10);
/// Several intervals of a large cluster, and the time of a message between nodes under load.
const EXPIRES_AFTER: Duration = Duration::from_secs(2);
/// What a gateway reports that takes nothing.
const DELAY_MAX: Duration = Duration::from_secs(60);

/// In the order of [`Fan`], in microseconds.
type Delays = [u64; 2];

#[derive(Default)]
pub(crate) struct Loads {
    /// Of the gateways for which messages wait.
    reports: Mutex<HashMap<Epoch, (Instant, Delays)>>,
    /// All gateways of the cluster.
    gateways: AtomicUsize,
    median_us: [AtomicU64; 2],
    changed: Notify,
}

impl Loads {
    /// How long a message waits on a gateway.
    pub(crate) fn delay(&self, fan: Fan) -> Duration {
        Duration::from_micros(self.median_us[fan as usize].load(Ordering::Relaxed))
    }

    /// Resolves after the delays changed.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// A gateway reported.
    pub(crate) fn heard(&self, from: Epoch, delays: Delays, now: Instant) {
        self.reports.lock().insert(from, (now, delays));
        self.settle(now);
    }

    fn settle(&self, now: Instant) {
        let mut reports = self.reports.lock();
        reports.retain(|_, (at, delays)| {
            delays.iter().any(|us| *us > 0) && now.saturating_duration_since(*at) < EXPIRES_AFTER
        });
        // The list of nodes may be older than a report.
        let gateways = self.gateways.load(Ordering::Relaxed).max(reports.len());
        for (fan, median) in self.median_us.iter().enumerate() {
            let mut waits: Vec<u64> = reports.values().map(|(_, delays)| delays[fan]).collect();
            waits.resize(gateways, 0);
            waits.sort_unstable();
            // Of two, the shorter wait.
            let middle = waits.get(gateways.saturating_sub(1) / 2).copied().unwrap_or_default();
            median.store(middle, Ordering::Relaxed);
        }
        drop(reports);
        self.changed.notify_one();
    }

    fn is_idle(&self) -> bool {
        self.reports.lock().is_empty() && self.median_us.iter().all(|us| us.load(Ordering::Relaxed) == 0)
    }
}

/// Reports what waits here, and takes note of what waits on other gateways, until it is dropped.
pub(crate) async fn run(peers: &Peers) {
    let (mut interval, mut has_reported) = (INTERVAL, false);
    loop {
        tokio::time::sleep(interval).await;
        let delays = own_delays(peers);
        let waits = delays.iter().any(|us| *us > 0);
        if !waits && !has_reported && peers.loads.is_idle() {
            continue;
        }
        let (now, nodes) = (Instant::now(), peers.cluster.members.nodes());
        interval = INTERVAL.max(INTERVAL_PER_NODE * u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        let gateways = nodes.iter().filter(|node| node.info.roles.gateway).count();
        peers.loads.gateways.store(gateways, Ordering::Relaxed);
        if waits || has_reported {
            let [named_us, topics_us] = delays;
            peers.send(To::All, Record::Load { named_us, topics_us });
            has_reported = waits;
        }
        match peers.cluster.members.epoch() {
            Some(own) => peers.loads.heard(own, delays, now),
            None => peers.loads.settle(now),
        }
    }
}

fn own_delays(peers: &Peers) -> Delays {
    let Some(edge) = peers.context.edge() else { return Delays::default() };
    [Fan::Named, Fan::Topic].map(|fan| {
        let delay = edge.delay(fan, 0).map_or(DELAY_MAX, |delay| delay.min(DELAY_MAX));
        match delay >= REPORTED_FROM {
            true => u64::try_from(delay.as_micros()).unwrap_or(u64::MAX),
            false => 0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(loads: &Loads, reports: &[(u64, Delays)]) -> [u128; 2] {
        let now = Instant::now();
        reports.iter().for_each(|(epoch, delays)| loads.heard(Epoch(*epoch), *delays, now));
        [Fan::Named, Fan::Topic].map(|fan| loads.delay(fan).as_micros())
    }

    #[test]
    fn the_median_of_all_gateways_counts() {
        let loads = Loads::default();
        assert_eq!(after(&loads, &[(1, [500, 7])]), [500, 7], "the only one that is known");
        loads.gateways.store(5, Ordering::Relaxed);
        assert_eq!(after(&loads, &[(2, [300, 0])]), [0, 0], "two of five");
        assert_eq!(after(&loads, &[(3, [900, 0])]), [300, 0], "three of five");
        assert_eq!(after(&loads, &[(2, [0, 0])]), [0, 0], "it is done");
    }

    #[test]
    fn a_report_expires() {
        let loads = Loads::default();
        let now = Instant::now();
        loads.heard(Epoch(1), [500, 500], now);
        loads.settle(now + EXPIRES_AFTER / 2);
        assert!(!loads.is_idle());
        loads.settle(now + EXPIRES_AFTER);
        assert!(loads.is_idle() && loads.delay(Fan::Named).is_zero());
    }
}
