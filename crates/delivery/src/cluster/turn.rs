//! A node's own share of a round keeps its place among what comes from other nodes.
//!
//! Another node's message of an earlier commit may still be on its way while this node has committed the
//! next. So this node's share does not go to its connections at once: a short record is sent to oneself, and
//! where it comes back by the bus is where the share belongs. The engine has put all messages for this node
//! into one order, and commits are handed over to it one after the other: that is the order of commits.
//! Without other nodes, without the engine, or when the record does not come back, the share goes on without it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::{Outcome, When};
use parking_lot::Mutex;

use crate::cluster::Peers;
use crate::cluster::route::{self, OwnPart};
use crate::delivery::Delivery;

/// The bus takes less than a millisecond; what it lost does not come.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK: Duration = Duration::from_millis(20);
/// Shares that wait at once; more wait in the outbox.
const WAITING_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct Turns {
    /// Held while shares are handed to the shards, which takes no lock for long and waits for nothing: of
    /// two that hand over at once neither may overtake the other.
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    shares: VecDeque<Share>,
}

struct Share {
    number: u64,
    at: Instant,
    parts: Vec<OwnPart>,
}

impl Turns {
    /// Keeps a share back; its number is to come back by the bus.
    pub(crate) fn put(&self, parts: Vec<OwnPart>) -> u64 {
        let mut waiting = self.waiting.lock();
        waiting.last += 1;
        let number = waiting.last;
        waiting.shares.push_back(Share { number, at: Instant::now(), parts });
        number
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.lock().shares.is_empty()
    }

    fn is_full(&self) -> bool {
        self.waiting.lock().shares.len() >= WAITING_MAX
    }

    /// Hands over everything up to `number`.
    pub(crate) fn pass(&self, delivery: &Delivery, peers: &Peers, number: u64) {
        let mut waiting = self.waiting.lock();
        while let Some(share) = waiting.shares.pop_front_if(|share| share.number <= number) {
            share.parts.iter().for_each(|part| hand_over(delivery, peers, part));
        }
    }

    pub(crate) fn pass_all(&self, delivery: &Delivery, peers: &Peers) {
        self.pass(delivery, peers, u64::MAX);
    }

    /// What waits first, and then this, at once.
    pub(crate) fn pass_with(&self, delivery: &Delivery, peers: &Peers, parts: &[OwnPart]) {
        self.pass_all(delivery, peers);
        parts.iter().for_each(|part| hand_over(delivery, peers, part));
    }

    /// Resolves when another share may wait.
    pub(crate) async fn room(&self) {
        while self.is_full() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The last of those that have waited for too long.
    fn overdue(&self, now: Instant) -> Option<u64> {
        let waiting = self.waiting.lock();
        let overdue = |share: &&Share| now.saturating_duration_since(share.at) > PATIENCE;
        waiting.shares.iter().take_while(overdue).last().map(|share| share.number)
    }
}

/// Hands over what did not come back.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        tokio::time::sleep(LOOK).await;
        if let Some(number) = peers.turns.overdue(Instant::now()) {
            peers.metrics.turns_late.inc();
            peers.turns.pass(delivery, peers, number);
        }
    }
}

/// To this node's connections. Who is not here is offline, if no other node was named for it.
pub(crate) fn hand_over(delivery: &Delivery, peers: &Peers, part: &OwnPart) {
    let (message, target) = (&part.message, part.target.target());
    delivery.shares.passed(message, target);
    let (mut offline, mut absent) = (0, Vec::new());
    let mut missing = |index: usize| {
        offline += u64::from(part.is_offline(index));
        if part.was_here(index) {
            absent.push(index);
        }
    };
    match delivery.edge() {
        Some(edge) => edge.deliver_part(message.clone(), target, &mut missing),
        None => (0..target.named_count().unwrap_or(0)).for_each(|index| missing(index as usize)),
    }
    if !absent.is_empty() {
        let mut keys = Vec::new();
        route::keys(&peers.cluster.keys, message.app, target, &mut keys);
        peers.metrics.stale.inc_by(absent.len() as u64);
        peers.absent.add(absent.into_iter().filter_map(|index| keys.get(index).copied()));
    }
    if offline > 0 && message.when != When::Stored {
        let at = delivery.clock.now();
        let (id, outcome, devices) = (message.id, Outcome::Offline, Vec::new());
        delivery.outcomes(vec![noroshi_store::OutcomePart { id, outcome, at, devices, count: offline }]);
    }
}
