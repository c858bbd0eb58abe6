//! This node's own part of what it publishes, held back until its place in the order of the bus.
//!
//! A message that another node committed first may still be in transit while this node has committed the next one. So
//! the dispatcher does not hand this node's part to its connections at once: it sends itself a short marker record, and
//! hands the part over when the marker returns by the bus. Messages of a later commit enter this node's queue after
//! those of an earlier one: Redis has put them into one order, or this node has confirmed them before the later commit.
//!
//! Without other nodes, without Redis, or when the marker does not return, the part is handed over without it.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use noroshi_store::OutcomePart;
use noroshi_types::{Outcome, When};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::Peers;
use crate::cluster::route::{self, OwnPart};

/// How long a part waits for its marker. The bus takes less than a millisecond; a lost marker never returns.
const MARKER_TIMEOUT: Duration = Duration::from_millis(300);
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Parts that may wait at once; more wait in the outbox.
const HELD_MAX: usize = 64;

#[derive(Default)]
pub(crate) struct OwnParts {
    /// Held while parts are handed to the shards, which takes no lock for long and waits for nothing: of two callers
    /// that hand over at once, neither may overtake the other.
    held: Mutex<Held>,
    /// Wakes [`run`], which has nothing to check while no part waits.
    filled: Notify,
}

#[derive(Default)]
struct Held {
    last: u64,
    rounds: VecDeque<HeldRound>,
}

/// The own parts of one round of the dispatcher.
struct HeldRound {
    number: u64,
    at: Instant,
    parts: Vec<OwnPart>,
}

impl OwnParts {
    /// Holds parts back. Returns the number for the marker.
    pub(crate) fn hold(&self, parts: Vec<OwnPart>) -> u64 {
        let mut held = self.held.lock();
        held.last += 1;
        let number = held.last;
        held.rounds.push_back(HeldRound { number, at: Instant::now(), parts });
        let is_first = held.rounds.len() == 1;
        drop(held);
        if is_first {
            self.filled.notify_one();
        }
        number
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.lock().rounds.is_empty()
    }

    /// Hands over everything up to `number`.
    pub(crate) fn pass(&self, peers: &Peers, number: u64) {
        let mut held = self.held.lock();
        while let Some(round) = held.rounds.pop_front_if(|round| round.number <= number) {
            round.parts.iter().for_each(|part| hand_over(peers, part));
        }
    }

    pub(crate) fn pass_all(&self, peers: &Peers) {
        self.pass(peers, u64::MAX);
    }

    /// Hands over everything that waits, and then `parts`.
    pub(crate) fn pass_with(&self, peers: &Peers, parts: &[OwnPart]) {
        self.pass_all(peers);
        parts.iter().for_each(|part| hand_over(peers, part));
    }

    /// Resolves when there is room for another round.
    pub(crate) async fn room(&self) {
        while self.held.lock().rounds.len() >= HELD_MAX {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// The number of the last round that has waited for too long.
    fn overdue(&self, now: Instant) -> Option<u64> {
        let held = self.held.lock();
        let overdue = |round: &&HeldRound| now.saturating_duration_since(round.at) > MARKER_TIMEOUT;
        held.rounds.iter().take_while(overdue).last().map(|round| round.number)
    }
}

/// Hands over parts whose marker did not return, until it is dropped.
pub(crate) async fn run(peers: &Peers) {
    loop {
        if peers.own_parts.is_empty() {
            peers.own_parts.filled.notified().await;
        }
        tokio::time::sleep(CHECK_INTERVAL).await;
        if let Some(number) = peers.own_parts.overdue(Instant::now()) {
            peers.metrics.turns_late.inc();
            peers.own_parts.pass(peers, number);
        }
    }
}

/// Hands a part to this node's connections. A target without one is offline if no other node holds it.
pub(crate) fn hand_over(peers: &Peers, part: &OwnPart) {
    let (message, target) = (&part.message, part.target.target());
    peers.feed.message(message, target);
    let (mut offline, mut absent) = (0, Vec::new());
    let mut missing = |index: usize| {
        offline += u64::from(part.is_offline(index));
        if part.was_here(index) {
            absent.push(index);
        }
    };
    match peers.context.edge() {
        Some(edge) => edge.deliver_part(message.clone(), target, &mut missing),
        None => (0..target.named_count().unwrap_or(0)).for_each(|index| missing(index as usize)),
    }
    if !absent.is_empty() {
        let mut keys = Vec::new();
        route::keys(&peers.cluster.keys, message.app, target, &mut keys);
        peers.metrics.stale_entries.inc_by(absent.len() as u64);
        peers.absent.add(absent.into_iter().filter_map(|index| keys.get(index).copied()));
    }
    if offline > 0 && message.when != When::Stored {
        let at = peers.context.now();
        peers.context.outcomes.record(vec![OutcomePart {
            app: message.app,
            id: message.id,
            outcome: Outcome::Offline,
            at,
            devices: Vec::new(),
            count: offline,
        }]);
    }
}
