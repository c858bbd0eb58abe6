//! The sending half of the bus: one task, one round trip at a time. Messages that arrive during a round go with the
//! next one, all messages of one receiver in as few frames as possible. This keeps the order whatever a server does,
//! and many small requests need few commands.
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

use super::connections::Connections;
use super::frame::{self, Packer};
use super::members::{Life, State};
use super::slot::{Command, slot};
use crate::bus::MESSAGE_BYTES_MAX;
use crate::metrics::{Kind, Metrics};
use crate::{Bus, Epoch, Error, Members as _};

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
}

/// A receiver.
struct Peer {
    /// The number of the last frame.
    last: u64,
    sent_at: Instant,
    heartbeat_due: bool,
}

impl Outbound {
    pub(crate) fn new(connections: Connections, state: Arc<State>, metrics: Metrics, prefix: String) -> Self {
        Self { connections, state, metrics, prefix, from: Epoch(0), peers: HashMap::new() }
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
                _ = beat.tick() => self.heartbeats().await,
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
        let mut commands = Vec::new();
        let mut receivers = Vec::new();
        for (to, packer) in packers {
            let last = self.peers.get(&to).map_or(0, |peer| peer.last);
            for frame in packer.finish(self.from, last + 1) {
                commands.push(self.publish(to, &frame));
                receivers.push(to);
            }
        }
        let answers = self.connections.run_all(Kind::Publish, commands).await;
        let failed = self.note(&receivers, answers, true);
        let is_up_in_part = self.connections.is_up_in_part();
        for send in sends {
            let _ = send.done.send(result_of(&send.messages, &failed, is_up_in_part));
        }
    }

    /// Counts the numbers, and returns the receivers whose frames failed.
    fn note(
        &mut self,
        receivers: &[Epoch],
        answers: Vec<Result<Value, Error>>,
        is_message: bool,
    ) -> HashMap<Epoch, Error> {
        let mut failed = HashMap::new();
        let now = Instant::now();
        for (to, answer) in receivers.iter().zip(answers) {
            let fresh = Peer { last: 0, sent_at: now, heartbeat_due: false };
            let peer = self.peers.entry(*to).or_insert(fresh);
            peer.last += u64::from(is_message);
            peer.sent_at = now;
            peer.heartbeat_due = is_message || answer.is_err();
            match answer {
                Ok(Value::Int(0)) if is_message => {
                    self.metrics.unheard.inc();
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
        let channel = channel(&self.prefix, to);
        let mut cmd = ::redis::cmd(if self.connections.is_cluster() { "SPUBLISH" } else { "PUBLISH" });
        cmd.arg(channel.as_slice()).arg(frame.as_ref());
        Command { slot: slot(&channel), cmd }
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
            .filter(|(to, _)| self.state.life(**to) != Life::Dead)
            .map(|(to, peer)| (*to, peer.last))
            .collect();
        if due.is_empty() {
            return;
        }
        let beat = |(to, last): &(Epoch, u64)| self.publish(*to, &frame::heartbeat(self.from, *last));
        let commands: Vec<Command> = due.iter().map(beat).collect();
        let answers = self.connections.run_all(Kind::Publish, commands).await;
        let receivers: Vec<Epoch> = due.iter().map(|(to, _)| *to).collect();
        self.note(&receivers, answers, false);
    }
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
