//! Several nodes in one process: an implementation of the cluster without an engine, for tests, with fault injection.
//!
//! ```text
//!   World ─ node(info) ─► Node ─ cluster() ─► Cluster (directory, bus, members)
//!                           └── attach(receiver): joins, and receives from then on
//! ```
//!
//! Nothing depends on time except the tail heartbeat ([`World::set_tail`]): a lease expires when the test ends it. A
//! separate task calls each node's receiver from a bounded queue, so messages overtake each other as on a network.
//! Locks: one mutex in `World` guards everything; under it no receiver is called, and it is never held across an
//! `.await`.

mod entries;
mod node;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use crate::{Epoch, Error, NodeInfo, NodeView};
use entries::Entries;
pub use node::Node;

/// Events per receiver; further ones are lost, as in an engine's output buffer.
const QUEUE_MAX: usize = 16_384;
/// The remaining time of a lease in views of nodes: leases here do not expire.
const LEASE: Duration = Duration::from_secs(10);

/// The engine that all nodes share.
#[derive(Clone)]
pub struct World(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    entries: Entries,
    nodes: Vec<Member>,
    /// Whether the engine answers.
    running: bool,
    last_epoch: u64,
    tail: Duration,
    look_ups: u64,
    messages: u64,
}

/// One node, as seen by the engine and the network.
#[derive(Default)]
struct Member {
    info: NodeInfo,
    epoch: Option<Epoch>,
    /// Whether the node and the engine reach each other.
    connected: bool,
    queue: Option<mpsc::Sender<Event>>,
    /// Whether the part of the engine where this node listens is down for others.
    cut: bool,
    /// How many of the next messages to it are lost.
    lose: usize,
    /// How many of the next messages to it are lost without any sign.
    lose_unseen: usize,
    /// Until when it was up to date; a later loss has not been reported yet.
    missed_since: Option<Instant>,
    nodes: Arc<Vec<NodeView>>,
}

enum Event {
    Message { to: Epoch, from: Epoch, message: Bytes },
    Lost(Instant),
    Joined(Epoch),
    Left,
    NodesChanged,
}

impl World {
    pub fn new() -> Self {
        let tail = Duration::from_millis(50);
        Self(Arc::new(Mutex::new(State { running: true, tail, ..State::default() })))
    }

    /// Adds a node; it joins when it is attached.
    pub fn node(&self, info: NodeInfo) -> Node {
        let mut state = self.0.lock();
        state.nodes.push(Member { info, connected: true, ..Member::default() });
        Node { world: self.clone(), index: state.nodes.len() - 1 }
    }

    /// The engine stops: every call fails at once; leases stay until [`Node::lapse`].
    pub fn stop(&self) {
        self.0.lock().running = false;
    }

    /// The engine is back with all its data. All subscriptions are new, so every node gets a possible loss reported.
    pub fn start(&self) {
        let mut state = self.0.lock();
        state.running = true;
        for index in 0..state.nodes.len() {
            state.reconnected(index);
        }
    }

    /// The engine loses all data, including leases: every node that it reaches gets a new epoch.
    pub fn wipe(&self) {
        let mut state = self.0.lock();
        state.entries = Entries::default();
        for index in 0..state.nodes.len() {
            if state.nodes[index].epoch.is_some() && state.check(index).is_ok() {
                state.leave(index);
                state.join(index);
            }
        }
    }

    /// The time until a heartbeat reveals a loss, if no message does so before.
    pub fn set_tail(&self, tail: Duration) {
        self.0.lock().tail = tail;
    }

    /// The number of `Directory::locate` calls.
    pub fn look_ups(&self) -> u64 {
        self.0.lock().look_ups
    }

    /// The number of messages that the bus accepted.
    pub fn messages(&self) -> u64 {
        self.0.lock().messages
    }
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl State {
    /// Whether the node reaches the engine.
    fn check(&self, index: usize) -> Result<(), Error> {
        match self.running && self.nodes[index].connected {
            true => Ok(()),
            false => Err(Error::Unavailable("stopped by the test".into())),
        }
    }

    fn check_epoch(&self, index: usize, epoch: Epoch) -> Result<(), Error> {
        self.check(index)?;
        match self.nodes[index].epoch == Some(epoch) {
            true => Ok(()),
            false => Err(Error::Lost),
        }
    }

    fn is_live(&self, epoch: Epoch) -> bool {
        self.nodes.iter().any(|node| node.epoch == Some(epoch))
    }

    fn join(&mut self, index: usize) {
        self.last_epoch += 1;
        let epoch = Epoch(self.last_epoch);
        let node = &mut self.nodes[index];
        node.epoch = Some(epoch);
        node.missed_since = None;
        node.notify(Event::Joined(epoch));
        self.nodes_changed();
    }

    fn leave(&mut self, index: usize) {
        if self.nodes[index].epoch.take().is_some() {
            self.nodes[index].notify(Event::Left);
            self.nodes_changed();
        }
    }

    fn reconnected(&mut self, index: usize) {
        if self.check(index).is_err() {
            return;
        }
        if self.nodes[index].epoch.is_none() && self.nodes[index].queue.is_some() {
            return self.join(index);
        }
        let since = self.nodes[index].missed_since.take().unwrap_or_else(Instant::now);
        self.nodes[index].notify(Event::Lost(since));
        self.nodes_changed();
    }

    /// Updates every reachable node's list.
    fn nodes_changed(&mut self) {
        let mut list: Vec<NodeView> = Vec::new();
        for node in &self.nodes {
            if let Some(epoch) = node.epoch {
                let info = node.info.clone();
                list.push(NodeView { epoch, info, lease_remaining: LEASE, is_self: false });
            }
        }
        list.sort_by(|a, b| (&a.info.name, a.epoch).cmp(&(&b.info.name, b.epoch)));
        for index in 0..self.nodes.len() {
            if self.check(index).is_err() {
                continue;
            }
            let mut own = list.clone();
            for view in &mut own {
                view.is_self = Some(view.epoch) == self.nodes[index].epoch;
            }
            self.nodes[index].nodes = Arc::new(own);
            self.nodes[index].notify(Event::NodesChanged);
        }
    }

    /// Delivers the message to its receiver, or loses it.
    fn pass(&mut self, from: Epoch, to: Epoch, message: Bytes) -> Option<Missed> {
        self.messages += 1;
        let index = self.nodes.iter().position(|node| node.epoch == Some(to))?;
        let reachable = self.check(index).is_ok() && !self.nodes[index].cut;
        let node = &mut self.nodes[index];
        if node.lose_unseen > 0 {
            node.lose_unseen -= 1;
            return None;
        }
        if !reachable || node.lose > 0 {
            node.lose = node.lose.saturating_sub(1);
            let first = node.missed_since.is_none();
            node.missed_since.get_or_insert_with(Instant::now);
            return (first && reachable).then_some(Missed { index, to });
        }
        if let Some(since) = node.missed_since.take() {
            node.notify(Event::Lost(since));
        }
        node.notify(Event::Message { to, from, message });
        None
    }
}

/// A loss that a heartbeat has to reveal.
struct Missed {
    index: usize,
    to: Epoch,
}

impl Member {
    fn notify(&mut self, event: Event) {
        let Some(queue) = &self.queue else { return };
        if queue.try_send(event).is_err() {
            self.missed_since.get_or_insert_with(Instant::now);
        }
    }
}

/// The node's queue, from the side of its task.
type Queue = mpsc::Receiver<Event>;
/// Entries by key.
type Map<V> = HashMap<crate::SessionKey, V>;
