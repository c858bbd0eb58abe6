//! One node of an in-process world: its implementation of the traits, and faults that affect only it.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use smallvec::SmallVec;
use tokio::sync::mpsc;

use super::{Event, Missed, QUEUE_MAX, Queue, World};
use crate::{
    Bus, Cluster, Directory, Epoch, Error, Kept, Keys, Members, NodeInfo, NodeView, Receiver, SessionKey,
    Take, Taken,
};

/// A handle; the node lives as long as the world.
#[derive(Clone, Debug)]
pub struct Node {
    pub(super) world: World,
    pub(super) index: usize,
}

impl Node {
    /// All nodes of all worlds share a secret.
    pub fn cluster(&self) -> Cluster {
        let node = Arc::new(self.clone());
        Cluster { directory: node.clone(), bus: node.clone(), members: node, keys: Keys::new(&[1; 16]) }
    }

    /// Joins: `receiver` gets `joined` first. Needs a tokio runtime. A previous receiver gets nothing more.
    pub fn attach(&self, receiver: Arc<dyn Receiver>) {
        let (queue, events) = mpsc::channel(QUEUE_MAX);
        tokio::spawn(hand_on(self.clone(), events, receiver));
        let mut state = self.world.0.lock();
        state.leave(self.index);
        state.nodes[self.index].queue = Some(queue);
        if state.check(self.index).is_ok() {
            state.join(self.index);
        }
    }

    /// Partitions the node from the engine; its lease stays until [`Node::lapse`].
    pub fn partition(&self) {
        let mut state = self.world.0.lock();
        state.nodes[self.index].connected = false;
        state.nodes[self.index].missed_since.get_or_insert_with(Instant::now);
    }

    /// The part of the engine where this node listens is down; senders to it get an error. Ended by [`Node::heal`].
    pub fn cut(&self) {
        let mut state = self.world.0.lock();
        state.nodes[self.index].cut = true;
        state.nodes[self.index].missed_since.get_or_insert_with(Instant::now);
    }

    /// Ends the partition or outage. The receiver gets `lost`, or `joined` with a new epoch if the lease expired.
    pub fn heal(&self) {
        let mut state = self.world.0.lock();
        state.nodes[self.index].connected = true;
        state.nodes[self.index].cut = false;
        state.reconnected(self.index);
    }

    /// Expires the lease now: the receiver gets `left`, and others no longer see the node. Regained by [`Node::heal`].
    pub fn lapse(&self) {
        self.world.0.lock().leave(self.index);
    }

    /// Loses the next `count` messages to this node; the next message or the heartbeat reveals it.
    pub fn lose_messages(&self, count: usize) {
        self.world.0.lock().nodes[self.index].lose = count;
    }

    /// The same for a sender that dies before its next message or heartbeat: nothing reveals the loss.
    pub fn lose_messages_unseen(&self, count: usize) {
        self.world.0.lock().nodes[self.index].lose_unseen = count;
    }

    /// SIGKILL: it receives and does nothing more, its lease ends, its entries stay.
    pub fn kill(&self) {
        let mut state = self.world.0.lock();
        state.nodes[self.index].queue = None;
        state.nodes[self.index].connected = false;
        state.leave(self.index);
    }

    fn epoch_held(&self) -> Option<Epoch> {
        self.world.0.lock().nodes[self.index].epoch
    }
}

/// The node's task: calls the receiver, one event after the other, while the epoch of the event is held.
async fn hand_on(node: Node, mut events: Queue, receiver: Arc<dyn Receiver>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Message { to, from, message } if node.epoch_held() == Some(to) => {
                receiver.receive(from, message);
            }
            Event::Message { .. } => {}
            Event::Lost(since) => receiver.lost(since),
            Event::Joined(epoch) => receiver.joined(epoch),
            Event::Left => receiver.left(),
            Event::NodesChanged => receiver.nodes_changed(),
        }
    }
}

#[async_trait]
impl Directory for Node {
    async fn take(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Taken>, Error> {
        let mut state = self.world.0.lock();
        state.check_epoch(self.index, epoch)?;
        Ok(takes.into_iter().map(|take| state.entries.take(epoch, take)).collect())
    }

    async fn keep(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Kept>, Error> {
        let mut state = self.world.0.lock();
        state.check_epoch(self.index, epoch)?;
        Ok(takes.into_iter().map(|take| state.entries.keep(epoch, take)).collect())
    }

    async fn forget(&self, epoch: Epoch, takes: Vec<Take>) -> Result<(), Error> {
        let mut state = self.world.0.lock();
        state.check_epoch(self.index, epoch)?;
        takes.into_iter().for_each(|take| state.entries.forget(epoch, take));
        Ok(())
    }

    async fn absent(&self, epoch: Epoch, keys: Vec<SessionKey>, before: u64) -> Result<(), Error> {
        let mut state = self.world.0.lock();
        state.check_epoch(self.index, epoch)?;
        keys.into_iter().for_each(|key| state.entries.absent(epoch, key, before));
        Ok(())
    }

    async fn locate(&self, keys: Vec<SessionKey>) -> Result<Vec<SmallVec<[Epoch; 2]>>, Error> {
        let mut state = self.world.0.lock();
        state.check(self.index)?;
        state.look_ups += 1;
        let state = &*state;
        Ok(keys.into_iter().map(|key| state.entries.locate(key, |epoch| state.is_live(epoch))).collect())
    }
}

#[async_trait]
impl Bus for Node {
    async fn send(&self, messages: Vec<(Epoch, Bytes)>) -> Result<(), Error> {
        for (_, message) in &messages {
            if message.len() > crate::bus::MESSAGE_BYTES_MAX {
                let bytes_max = crate::bus::MESSAGE_BYTES_MAX;
                return Err(Error::TooLarge { bytes: message.len(), bytes_max });
            }
        }
        let mut state = self.world.0.lock();
        state.check(self.index)?;
        let from = state.nodes[self.index].epoch.ok_or(Error::Lost)?;
        let mut away = Vec::new();
        for (to, message) in messages {
            if state.nodes.iter().any(|node| node.epoch == Some(to) && node.cut) {
                away.push(to);
            }
            if let Some(missed) = state.pass(from, to, message) {
                tokio::spawn(heartbeat(self.world.clone(), state.tail, missed));
            }
        }
        if away.is_empty() { Ok(()) } else { Err(Error::Partly(away)) }
    }
}

/// Reveals a loss that no later message has revealed.
async fn heartbeat(world: World, tail: std::time::Duration, missed: Missed) {
    tokio::time::sleep(tail).await;
    let mut state = world.0.lock();
    if state.nodes[missed.index].epoch != Some(missed.to) || state.check(missed.index).is_err() {
        return;
    }
    if let Some(since) = state.nodes[missed.index].missed_since.take() {
        state.nodes[missed.index].notify(Event::Lost(since));
    }
}

impl Members for Node {
    fn nodes(&self) -> Arc<Vec<NodeView>> {
        self.world.0.lock().nodes[self.index].nodes.clone()
    }

    fn epoch(&self) -> Option<Epoch> {
        self.epoch_held()
    }

    fn set_info(&self, info: NodeInfo) {
        let mut state = self.world.0.lock();
        state.nodes[self.index].info = info;
        state.nodes_changed();
    }
}
