//! The sending half of the bus: one task, one round trip at a time. Messages that arrive during a round go with the
//! next one, all messages of one receiver in as few frames as possible. This keeps the order whatever a server does,
//! and many small requests need few commands.
//!
//! ```text
//!   round ─► frames ─┬─ the receiver has a link, and has everything before ─► link ── not confirmed ─┐
//!                    ├─ this node itself ─► its own task                                             │
//!                    └─ otherwise ─► Redis ◄────────────── the same frames, with the same numbers ◄──┘
//! ```
//!
//! A round ends when Redis has its frames, and each receiver with links has confirmed receipt, whichever way the frames
//! took: then no later message of any node can overtake them there. A frame takes one way at a time. It takes a link
//! only after the receiver has confirmed everything before, and Redis again after its link failed; the receiver drops
//! the numbers that it has.
//!
//! Invariant: every frame that was tried uses up its number. A failed frame leaves a gap, which a later frame or a
//! heartbeat reveals to the receiver.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::Value;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};

use super::confirmed::{self, Entered, Outgoing};
use super::connections::Connections;
use super::frame::{self, Packer};
use super::members::{Life, State};
use super::slot::{Command, slot};
use crate::bus::MESSAGE_BYTES_MAX;
use crate::links::{Arrivals, Links};
use crate::metrics::{Kind, Metrics};
use crate::{Bus, Epoch, Error, Members as _, NodeView};

/// Queued calls.
pub(crate) const SENDS_MAX: usize = 4_096;
/// Queued bytes.
const BYTES_MAX: usize = 64 << 20;
/// The minimum size of a call: its messages' slots, its channel.
const CALL_BYTES: usize = 256;
/// Bytes written per round: what Redis accepts well within the response timeout.
const ROUND_BYTES: usize = 4 << 20;
/// When a heartbeat follows the last message to a node.
const HEARTBEAT_AFTER: Duration = Duration::from_secs(1);
/// Receipts that wait for Redis; further ones are asked for again.
pub(crate) const RECEIPTS_MAX: usize = 1_024;
/// How long an unlisted receiver is remembered, because a list may be outdated.
const FORGET_AFTER: Duration = Duration::from_secs(600);

/// The handle.
pub(crate) struct Outbox {
    sends: mpsc::Sender<Send>,
    bytes: Arc<Semaphore>,
    state: Arc<State>,
}

pub(crate) struct Send {
    from: Epoch,
    messages: Vec<(Epoch, Bytes)>,
    done: oneshot::Sender<Result<(), Error>>,
    _bytes: OwnedSemaphorePermit,
}

pub(crate) fn outbox(state: Arc<State>) -> (Outbox, mpsc::Receiver<Send>) {
    let (sends, receiver) = mpsc::channel(SENDS_MAX);
    (Outbox { sends, bytes: Arc::new(Semaphore::new(BYTES_MAX)), state }, receiver)
}

#[async_trait]
impl Bus for Outbox {
    async fn send(&self, messages: Vec<(Epoch, Bytes)>) -> Result<(), Error> {
        if messages.is_empty() {
            return Ok(());
        }
        if let Some((_, large)) = messages.iter().find(|(_, message)| message.len() > MESSAGE_BYTES_MAX) {
            return Err(Error::TooLarge { bytes: large.len(), bytes_max: MESSAGE_BYTES_MAX });
        }
        let from = self.state.epoch().ok_or(Error::Lost)?;
        let bytes = CALL_BYTES + messages.iter().map(|(_, message)| message.len()).sum::<usize>();
        let bytes = u32::try_from(bytes).map_err(|_| Error::Overloaded)?;
        let permit = self.bytes.clone().try_acquire_many_owned(bytes).map_err(|_| Error::Overloaded)?;
        let (done, answer) = oneshot::channel();
        let send = Send { from, messages, done, _bytes: permit };
        self.sends.try_send(send).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Error::Overloaded,
            mpsc::error::TrySendError::Closed(_) => Error::Lost,
        })?;
        answer.await.unwrap_or(Err(Error::Lost))
    }
}

/// The task.
pub(crate) struct Outbound {
    pub(crate) connections: Connections,
    pub(crate) state: Arc<State>,
    pub(crate) metrics: Metrics,
    pub(crate) prefix: String,
    /// The epoch of the numbers in `peers`.
    from: Epoch,
    peers: HashMap<Epoch, Peer>,
    /// `None`: this node uses Redis only.
    direct: Option<Direct>,
}

/// The other way.
pub(crate) struct Direct {
    pub(crate) links: Arc<Links>,
    pub(crate) arrivals: Arrivals,
    /// The list that the links follow, and the own lease.
    pub(crate) followed: (Option<Epoch>, Arc<Vec<NodeView>>),
}

/// A receiver.
struct Peer {
    /// The number of the last frame.
    last: u64,
    sent_at: Instant,
    heartbeat_due: bool,
    /// It did not confirm receipt in time; nothing waits for it until it does.
    silent: bool,
}

impl Outbound {
    pub(crate) fn new(
        connections: Connections,
        state: Arc<State>,
        metrics: Metrics,
        prefix: String,
        direct: Option<Direct>,
    ) -> Self {
        Self { connections, state, metrics, prefix, from: Epoch(0), peers: HashMap::new(), direct }
    }

    pub(crate) async fn run(mut self, mut sends: mpsc::Receiver<Send>) {
        let mut beat = tokio::time::interval(HEARTBEAT_AFTER / 4);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut waiting = Vec::new();
        loop {
            tokio::select! {
                count = sends.recv_many(&mut waiting, SENDS_MAX) => {
                    if count == 0 {
                        return;
                    }
                    self.send_all(std::mem::take(&mut waiting)).await;
                }
                _ = beat.tick() => {
                    self.follow_nodes();
                    self.heartbeats().await;
                }
            }
        }
    }

    /// Messages of an epoch that is no longer held fail: their numbers would restart under a dead name.
    async fn send_all(&mut self, sends: Vec<Send>) {
        let held = self.state.epoch();
        let (mut due, stale): (Vec<Send>, Vec<Send>) =
            sends.into_iter().partition(|send| Some(send.from) == held);
        for send in stale {
            let _ = send.done.send(Err(Error::Lost));
        }
        let Some(from) = held.filter(|_| !due.is_empty()) else { return };
        if from != self.from {
            self.peers.clear();
            self.from = from;
        }
        while !due.is_empty() {
            let mut bytes = 0;
            let fits = |send: &Send| {
                bytes += send.messages.iter().map(|(_, message)| message.len()).sum::<usize>();
                bytes <= ROUND_BYTES
            };
            // The first one goes in any case.
            let count = due.iter().map(fits).take_while(|fits| *fits).count().max(1);
            let rest = due.split_off(count);
            self.round(due).await;
            due = rest;
        }
    }

    async fn round(&mut self, sends: Vec<Send>) {
        let mut packers: BTreeMap<Epoch, Packer> = BTreeMap::new();
        let (mut count, mut bytes) = (0, 0);
        for (to, message) in sends.iter().flat_map(|send| &send.messages) {
            packers.entry(*to).or_default().push(message);
            count += 1;
            bytes += message.len();
        }
        self.metrics.passed("out", count, bytes);
        let mut outgoing = Vec::new();
        for (to, packer) in packers {
            let first = self.peers.get(&to).map_or(0, |peer| peer.last) + 1;
            outgoing.push(Outgoing { to, first, frames: packer.finish(self.from, first) });
        }
        let failed = self.hand_over(outgoing).await;
        let is_up_in_part = self.connections.is_up_in_part();
        for send in sends {
            let _ = send.done.send(result_of(&send.messages, &failed, is_up_in_part));
        }
    }

    /// Returns the receivers whose frames failed.
    async fn hand_over(&mut self, outgoing: Vec<Outgoing>) -> HashMap<Epoch, Error> {
        self.follow_nodes();
        let Some(direct) = &self.direct else { return self.over_redis(&outgoing).await };
        let started = Instant::now();
        let receipts = direct.links.receipts().clone();
        let expected: Vec<(Epoch, u64)> =
            outgoing.iter().map(|outgoing| (outgoing.to, outgoing.last())).collect();
        let (mut entered, mut rest) = (Vec::new(), Vec::new());
        for outgoing in outgoing {
            match self.enter(outgoing).await {
                Ok(direct) => entered.push(direct),
                Err(outgoing) => rest.push(outgoing),
            }
        }
        entered.iter().for_each(|entered| self.used_up(&entered.outgoing));
        // Written to Redis while the links are on their way: the receivers differ.
        let mut failed = HashMap::new();
        if !rest.is_empty() {
            failed = self.over_redis(&rest).await;
        }
        let back = confirmed::settle(&receipts, &self.state, self.from, entered).await;
        if !back.is_empty() {
            let behind = |entered: Entered| {
                let confirmed = receipts.confirmed(self.from, entered.outgoing.to);
                entered.outgoing.behind(confirmed)
            };
            let back: Vec<Outgoing> = back.into_iter().map(behind).collect();
            let frames = back.iter().map(|outgoing| outgoing.frames.len() as u64).sum();
            self.metrics.links.resent.inc_by(frames);
            failed.extend(self.over_redis(&back).await);
        }
        self.await_receipts(&expected, &failed).await;
        self.metrics.links.receipt.observe(started.elapsed());
        failed
    }

    /// Hands frames to a link, or to this node's own task, if nothing before them may still be on its way by Redis.
    async fn enter(&self, outgoing: Outgoing) -> Result<Entered, Outgoing> {
        let Some(direct) = self.direct.as_ref().filter(|direct| direct.links.is_complete()) else {
            return Err(outgoing);
        };
        let receipts = direct.links.receipts();
        if receipts.confirmed(self.from, outgoing.to) + 1 < outgoing.first {
            return Err(outgoing);
        }
        if outgoing.to == self.from {
            for frame in &outgoing.frames {
                if direct.arrivals.own(outgoing.to, frame.clone(), receipts.clone()).await.is_err() {
                    return Err(outgoing);
                }
            }
            return Ok(Entered::new(outgoing, None));
        }
        let link = direct.links.link(outgoing.to);
        match link.and_then(|link| link.push(outgoing.frames.iter().cloned())) {
            Some(connection) => Ok(Entered::new(outgoing, Some(connection))),
            None => Err(outgoing),
        }
    }

    fn used_up(&mut self, outgoing: &Outgoing) {
        let last = outgoing.last();
        self.peer(outgoing.to).last = last;
    }

    fn peer(&mut self, to: Epoch) -> &mut Peer {
        let fresh = Peer { last: 0, sent_at: Instant::now(), heartbeat_due: false, silent: false };
        self.peers.entry(to).or_insert(fresh)
    }

    /// Publishes frames. Receivers with links are asked for a receipt.
    async fn over_redis(&mut self, outgoing: &[Outgoing]) -> HashMap<Epoch, Error> {
        let (mut commands, mut receivers) = (Vec::new(), Vec::new());
        for outgoing in outgoing {
            for frame in &outgoing.frames {
                commands.push(self.publish(outgoing.to, frame));
                receivers.push(outgoing.to);
            }
            if self.confirms(outgoing.to) {
                commands.push(self.publish(outgoing.to, &frame::probe(self.from, outgoing.last())));
                receivers.push(outgoing.to);
            }
        }
        let answers = self.connections.run_all(Kind::Publish, commands).await;
        outgoing
            .iter()
            .filter(|outgoing| !outgoing.frames.is_empty())
            .for_each(|outgoing| self.used_up(outgoing));
        self.note(&receivers, answers, true)
    }

    fn confirms(&self, to: Epoch) -> bool {
        self.direct.as_ref().is_some_and(|direct| direct.links.confirms(to))
    }

    fn is_confirmed(&self, to: Epoch, number: u64) -> bool {
        let confirmed = |direct: &Direct| direct.links.receipts().confirmed(self.from, to) >= number;
        self.direct.as_ref().is_some_and(confirmed)
    }

    /// Waits, for a bounded time, until receivers with links have confirmed messages that went over Redis.
    async fn await_receipts(&mut self, expected: &[(Epoch, u64)], failed: &HashMap<Epoch, Error>) {
        let Some(direct) = &self.direct else { return };
        let receipts = direct.links.receipts().clone();
        let mut pending = Vec::new();
        for (to, number) in expected.iter().copied() {
            if !self.confirms(to) || failed.contains_key(&to) {
                continue;
            }
            let is_confirmed = self.is_confirmed(to, number);
            let peer = self.peer(to);
            peer.silent &= !is_confirmed;
            if !is_confirmed && !peer.silent {
                pending.push((to, number));
            }
        }
        for to in confirmed::missing(&receipts, self.from, pending).await {
            self.metrics.links.unconfirmed.inc();
            self.peer(to).silent = true;
        }
    }

    /// Opens links to new nodes and closes those to nodes that are gone.
    fn follow_nodes(&mut self) {
        let (own, nodes) = (self.state.epoch(), self.state.nodes());
        if let Some(direct) = &mut self.direct
            && (direct.followed.0 != own || !Arc::ptr_eq(&direct.followed.1, &nodes))
        {
            direct.links.update(own, &nodes);
            direct.followed = (own, nodes);
        }
    }

    /// Returns the receivers whose frames failed.
    fn note(
        &mut self,
        receivers: &[Epoch],
        answers: Vec<Result<Value, Error>>,
        is_message: bool,
    ) -> HashMap<Epoch, Error> {
        let mut failed = HashMap::new();
        let now = Instant::now();
        for (to, answer) in receivers.iter().zip(answers) {
            let peer = self.peer(*to);
            peer.sent_at = now;
            peer.heartbeat_due = is_message || answer.is_err();
            match answer {
                Ok(Value::Int(0)) => {
                    // Nobody listens: nobody confirms.
                    peer.silent = true;
                    if is_message {
                        self.metrics.unheard.inc();
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    failed.insert(*to, error);
                }
            }
        }
        failed
    }

    fn publish(&self, to: Epoch, frame: &Bytes) -> Command {
        published(&self.connections, &self.prefix, to, frame)
    }

    async fn heartbeats(&mut self) {
        if self.state.epoch() != Some(self.from) {
            return;
        }
        let state = &self.state;
        self.peers.retain(|to, peer| peer.sent_at.elapsed() < FORGET_AFTER || state.life(*to) == Life::Live);
        let due = self.peers.iter();
        let due = due.filter(|(_, peer)| peer.heartbeat_due && peer.sent_at.elapsed() >= HEARTBEAT_AFTER);
        let due: Vec<(Epoch, u64)> = due
            .filter(|(to, peer)| self.state.life(**to) != Life::Dead && !self.is_confirmed(**to, peer.last))
            .map(|(to, peer)| (*to, peer.last))
            .collect();
        if due.is_empty() {
            return;
        }
        let beat = |(to, last): &(Epoch, u64)| match self.confirms(*to) {
            true => self.publish(*to, &frame::probe(self.from, *last)),
            false => self.publish(*to, &frame::heartbeat(self.from, *last)),
        };
        let commands: Vec<Command> = due.iter().map(beat).collect();
        let answers = self.connections.run_all(Kind::Publish, commands).await;
        let receivers: Vec<Epoch> = due.iter().map(|(to, _)| *to).collect();
        self.note(&receivers, answers, false);
        // Until the receiver has confirmed everything, messages to it take Redis.
        for (to, _) in due {
            let is_awaited = self.confirms(to) && self.state.life(to) == Life::Live;
            self.peer(to).heartbeat_due |= is_awaited;
        }
    }
}

/// Publishes receipts for what arrived over Redis, of which the queue holds the sender and the number.
pub(crate) async fn confirm(
    connections: Connections,
    state: Arc<State>,
    prefix: String,
    mut due: mpsc::Receiver<(Epoch, u64)>,
) {
    let mut waiting = Vec::new();
    while due.recv_many(&mut waiting, RECEIPTS_MAX).await > 0 {
        let Some(own) = state.epoch() else {
            waiting.clear();
            continue;
        };
        let mut last: BTreeMap<Epoch, u64> = BTreeMap::new();
        for (to, number) in waiting.drain(..) {
            let known = last.entry(to).or_default();
            *known = (*known).max(number);
        }
        let frames = last.into_iter().map(|(to, number)| (to, frame::receipt(own, number)));
        let commands = frames.map(|(to, frame)| published(&connections, &prefix, to, &frame)).collect();
        // A receipt that is lost is asked for again.
        let _ = connections.run_all(Kind::Publish, commands).await;
    }
}

fn published(connections: &Connections, prefix: &str, to: Epoch, frame: &Bytes) -> Command {
    let channel = channel(prefix, to);
    let mut cmd = ::redis::cmd(if connections.is_cluster() { "SPUBLISH" } else { "PUBLISH" });
    cmd.arg(channel.as_slice()).arg(frame.as_ref());
    Command { slot: slot(&channel), cmd }
}

/// The answer to one call, of whose receivers some `failed`.
fn result_of(
    messages: &[(Epoch, Bytes)],
    failed: &HashMap<Epoch, Error>,
    is_up_in_part: bool,
) -> Result<(), Error> {
    let mut away: Vec<Epoch> = Vec::new();
    for (to, error) in messages.iter().filter_map(|(to, _)| Some((to, failed.get(to)?))) {
        match error {
            Error::Unavailable(_) if is_up_in_part => away.push(*to),
            error => return Err(error.clone()),
        }
    }
    away.sort_unstable();
    away.dedup();
    if away.is_empty() { Ok(()) } else { Err(Error::Partly(away)) }
}

/// One channel per node and lease.
pub(crate) fn channel(prefix: &str, epoch: Epoch) -> Vec<u8> {
    format!("{prefix}:bus:{epoch}").into_bytes()
}
