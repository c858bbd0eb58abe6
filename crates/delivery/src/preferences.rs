//! Preferences of users and devices, as far as connected devices follow them: changes are reported to their sessions, and
//! live messages are counted for daily caps.
//!
//! ```text
//!   set ─► store ─┬─► reports ─► task: what the devices follow, from the store ─► Edge::follow
//!                 └─► Record::PreferencesChanged ─► reports of other nodes
//!   shards ─► counts ─► task: Store::count_for_caps ─► Edge::capped, if a cap was reached before
//! ```
//!
//! A report is sent after the commit, and each node reads the store after it has received the report. So the last report
//! that a session receives has the preferences after all changes. Both queues are bounded. A lost report of another node
//! is repaired by a sweep, since each change raises the revision of the devices: their sessions log in again.
//!
//! Shards count in memory and do not wait for the store. So a cap may be exceeded by what arrives live while pushes, or
//! connections of the device on another node, reach it: until the count of the first excess message was refused.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::{Counted, Preferring};
use noroshi_telemetry::metrics;
use noroshi_types::{AppId, DeviceId};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

use crate::cluster::Nodes;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::context::Context;
use crate::error::Error;
use crate::freshness::Freshness;

/// Reports that wait for the task: at 64 bytes each, 4 MiB.
const REPORTS_MAX: usize = 65_536;
/// Counts that wait for the store: at 128 bytes each, 8 MiB.
const COUNTS_MAX: usize = 65_536;
/// Devices whose preferences are read together.
const DEVICES_PER_READ: usize = 500;
/// Messages counted with one write.
const COUNTS_PER_WRITE: usize = 500;
/// The pause between two attempts while the store fails.
const PAUSE: Duration = Duration::from_secs(1);

metrics! {
    pub(crate) struct Metrics {
        preference_reports: Counter = "Preferences that changed and were handed to connected devices",
        preference_reports_dropped: Counter = "Reports of changed preferences dropped because too many waited",
        cap_counts_dropped: Counter = "Live messages not counted for daily caps because too many waited",
    }
}

/// A live message that counts for a daily cap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveCount {
    pub app: AppId,
    pub device: DeviceId,
    pub counted: Counted,
}

/// A bounded queue with one reader.
struct Queue<T> {
    max: usize,
    /// Guards the queue only; nothing is called or awaited under it.
    waiting: Mutex<VecDeque<T>>,
    filled: Notify,
}

impl<T> Queue<T> {
    fn new(max: usize) -> Self {
        Self { max, waiting: Mutex::default(), filled: Notify::new() }
    }

    /// Returns how many found no room.
    fn push(&self, items: impl IntoIterator<Item = T>) -> u64 {
        let mut dropped = 0;
        let mut waiting = self.waiting.lock();
        for item in items {
            match waiting.len() < self.max {
                true => waiting.push_back(item),
                false => dropped += 1,
            }
        }
        drop(waiting);
        self.filled.notify_one();
        dropped
    }

    /// The first ones, at most `most`, as soon as there are some. Cancel-safe.
    async fn next(&self, most: usize) -> Vec<T> {
        loop {
            {
                let mut waiting = self.waiting.lock();
                let count = waiting.len().min(most);
                if count > 0 {
                    return waiting.drain(..count).collect();
                }
            }
            self.filled.notified().await;
        }
    }
}

pub struct Preferences {
    context: Arc<Context>,
    nodes: Arc<Nodes>,
    freshness: Arc<Freshness>,
    metrics: Metrics,
    reports: Queue<(AppId, Preferring)>,
    counts: Queue<LiveCount>,
}

impl Preferences {
    pub(crate) fn new(
        context: Arc<Context>,
        nodes: Arc<Nodes>,
        freshness: Arc<Freshness>,
        metrics: Metrics,
    ) -> Self {
        let (reports, counts) = (Queue::new(REPORTS_MAX), Queue::new(COUNTS_MAX));
        Self { context, nodes, freshness, metrics, reports, counts }
    }

    /// Replaces the preferences of a user or a device; `None` removes them. They are durable when this returns. Connected
    /// devices follow them soon afterwards. [`noroshi_store::Error::NotFound`] if there is no such device.
    pub async fn set(
        &self,
        app: AppId,
        of: Preferring,
        preferences: Option<noroshi_types::Preferences>,
    ) -> Result<(), Error> {
        self.context.store.set_preferences(app, &of, preferences).await?;
        match &of {
            Preferring::User(user) => self.freshness.users_changed(app, [user]),
            Preferring::Device(device) => self.freshness.device_changed(app, device),
        }
        self.changed(app, of);
        Ok(())
    }

    /// Preferences changed, or the time zone of a device, which quiet hours may follow.
    pub fn changed(&self, app: AppId, of: Preferring) {
        if let Some(peers) = self.nodes.peers() {
            let (to, users, devices) = match &of {
                Preferring::User(user) => {
                    (To::Holders(peers.cluster.keys.user(app, user)), vec![user.clone()], Vec::new())
                }
                Preferring::Device(device) => (peers.holders(app, device), Vec::new(), vec![device.clone()]),
            };
            peers.send(to, Record::PreferencesChanged { app, users, devices });
        }
        self.queue(app, [of]);
    }

    /// Reports of this node or of another one, for the sessions of this node.
    pub(crate) fn queue(&self, app: AppId, changed: impl IntoIterator<Item = Preferring>) {
        if self.context.edge().is_none() {
            return;
        }
        let dropped = self.reports.push(changed.into_iter().map(|of| (app, of)));
        self.metrics.preference_reports_dropped.inc_by(dropped);
    }

    /// Messages were written to connections whose devices cap their categories. Never waits: shards call it.
    pub fn count(&self, counts: impl IntoIterator<Item = LiveCount>) {
        self.metrics.cap_counts_dropped.inc_by(self.counts.push(counts));
    }

    /// Hands changes to sessions and counts messages, until it is dropped.
    pub(crate) async fn run(&self) {
        tokio::join!(self.send_reports(), self.write_counts());
    }

    async fn send_reports(&self) {
        loop {
            for (app, of) in self.reports.next(1).await {
                while let Err(error) = self.report(app, &of).await {
                    tracing::warn!(%error, "could not read changed preferences of connected devices; retrying");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn report(&self, app: AppId, of: &Preferring) -> Result<(), Error> {
        let Some(edge) = self.context.edge() else { return Ok(()) };
        let devices = edge.preferences_changed(app, of);
        for devices in devices.chunks(DEVICES_PER_READ) {
            let followed = self.context.store.followed_preferences(app, devices.to_vec()).await?;
            for (device, followed) in devices.iter().zip(followed) {
                edge.follow(app, device, followed);
                self.metrics.preference_reports.inc();
            }
        }
        Ok(())
    }

    async fn write_counts(&self) {
        loop {
            let counts = self.counts.next(COUNTS_PER_WRITE).await;
            let counted: Vec<Counted> = counts.iter().map(|count| count.counted.clone()).collect();
            let fit = loop {
                match self.context.store.count_for_caps(counted.clone()).await {
                    Ok(fit) => break fit,
                    Err(error) => {
                        tracing::warn!(%error, "could not count live messages for daily caps; retrying");
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            };
            let Some(edge) = self.context.edge() else { continue };
            for (LiveCount { app, device, counted }, _) in counts.iter().zip(fit).filter(|(_, fits)| !fits) {
                edge.capped(*app, device, &counted.category, counted.day);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_queue_drops_what_comes_last() {
        let queue = Queue::new(3);
        assert_eq!(queue.push(0..2), 0);
        assert_eq!(queue.push(2..5), 2);
        assert_eq!(queue.next(2).await, [0, 1]);
        assert_eq!(queue.next(2).await, [2]);
    }
}
