//! The node's main task: gains and renews the lease, passes messages to the receiver while the lease is valid, and
//! reports events to the receiver, one call at a time.
//!
//! ```text
//!   draw an epoch → subscribe to its channel → acquire → joined ─ renew every ttl/5 ─┐
//!        ▲                                                  left ◄─ deadline passed, or Redis lost the lease
//!        └──────────────────────────────────────────────────┘
//! ```
//!
//! Invariant: the clock is checked before every message, so a process that was stopped for longer than its lease drops
//! messages that its socket still holds for the old epoch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{BoxFuture, FutureExt};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::connections::Connections;
use super::frame::{self, Body, Frame};
use super::inbound::Inbound;
use super::members::{Act, Leases, Life, State};
use super::outbound::channel;
use super::slot::slot;
use super::subscriber::Event;
use crate::links::{Arrival, Receipts};
use crate::metrics::Metrics;
use crate::random;
use crate::{Epoch, Error, Members as _, Receiver};

/// Frames of links, or events of Redis, that are processed before the others get their turn.
const ARRIVALS_MAX: usize = 64;
/// The maximum interval between two reads of the list of nodes.
const LIST_EVERY: Duration = Duration::from_secs(1);

/// Epochs drawn to find one whose channel is on a reachable server: succeeds even if half of the servers are down.
const DRAWS_MAX: usize = 32;

pub(crate) struct LeaseTask {
    pub(crate) state: Arc<State>,
    pub(crate) connections: Connections,
    pub(crate) receiver: Arc<dyn Receiver>,
    pub(crate) metrics: Metrics,
    pub(crate) wanted: watch::Sender<Option<Epoch>>,
    prefix: String,
    standing: Standing,
    /// Since when the server of the node's channel has not answered while others did.
    deaf_since: Option<Instant>,
    inbound: Inbound,
    /// An epoch whose acquisition is unconfirmed, or that expired: the next acquisition removes it from the list.
    given_up: Option<Epoch>,
    direct: Option<Direct>,
}

/// The receiving half of the links, and of receipts.
struct Direct {
    arriving: mpsc::Receiver<Arrival>,
    /// What other nodes have confirmed.
    receipts: Arc<Receipts>,
    /// What this node has to confirm over Redis.
    due: mpsc::Sender<(Epoch, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Not subscribed yet.
    Drawn(Epoch),
    /// Subscribed to its channel; the lease is not acquired yet.
    Subscribed(Epoch),
    Held(Epoch),
    /// The system has no randomness.
    Nothing,
}

type Asking = BoxFuture<'static, (Act, Option<Epoch>, Result<Leases, Error>)>;

impl LeaseTask {
    pub(crate) fn new(
        state: Arc<State>,
        connections: Connections,
        receiver: Arc<dyn Receiver>,
        metrics: Metrics,
        wanted: watch::Sender<Option<Epoch>>,
        prefix: String,
    ) -> Self {
        Self {
            state,
            connections,
            receiver,
            metrics,
            wanted,
            prefix,
            standing: Standing::Nothing,
            deaf_since: None,
            inbound: Inbound::new(Instant::now()),
            given_up: None,
            direct: None,
        }
    }

    /// Adds what arrives by links.
    pub(crate) fn attach(
        &mut self,
        arriving: mpsc::Receiver<Arrival>,
        receipts: Arc<Receipts>,
        due: mpsc::Sender<(Epoch, u64)>,
    ) {
        self.direct = Some(Direct { arriving, receipts, due });
    }

    pub(crate) async fn run(mut self, mut events: mpsc::Receiver<Event>, stop: CancellationToken) {
        let mut forgotten = self.connections.forgotten();
        let mut tick = tokio::time::interval((self.state.ttl() / 5).min(LIST_EVERY));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut asking: Option<Asking> = None;
        let mut arrived = Vec::new();
        self.draw();
        loop {
            let lapse = self.until_lapse();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = tokio::time::sleep(lapse) => self.check_lease(),
                answer = answered(&mut asking) => self.answered(answer),
                _ = tick.tick(), if asking.is_none() => asking = Some(self.ask()),
                Ok(()) = forgotten.changed() => self.forgotten(),
                () = arrive(&mut self.direct, &mut arrived) => {
                    arrived.drain(..).for_each(|arrival| self.arrival(&arrival));
                    // A busy link does not keep Redis' messages from their turn.
                    for event in std::iter::from_fn(|| events.try_recv().ok()).take(ARRIVALS_MAX) {
                        if self.event(event) && asking.is_none() {
                            asking = Some(self.ask());
                        }
                    }
                }
                event = events.recv() => match event {
                    // While another answer is pending, the next tick acquires.
                    Some(event) => if self.event(event) && asking.is_none() {
                        asking = Some(self.ask());
                    },
                    None => break,
                },
            }
        }
        self.give_back().await;
    }

    /// The name of the epoch determines the channel's slot in Redis Cluster: an epoch on a server that is down would
    /// receive nothing although the others are up.
    fn draw(&mut self) {
        let mut drawn = random::epoch();
        for _ in 1..DRAWS_MAX {
            if drawn.as_ref().map_or(true, |epoch| !self.is_channel_dead(*epoch)) {
                break;
            }
            drawn = random::epoch();
        }
        self.deaf_since = None;
        self.standing = match drawn {
            Ok(epoch) => {
                self.wanted.send_replace(Some(epoch));
                Standing::Drawn(epoch)
            }
            Err(error) => {
                tracing::error!(%error, "failed to draw an epoch for the lease");
                Standing::Nothing
            }
        };
    }

    fn is_channel_dead(&self, epoch: Epoch) -> bool {
        self.connections.is_up_in_part() && !self.connections.is_up(slot(&channel(&self.prefix, epoch)))
    }

    /// Leaves a part of Redis Cluster that stays down for half a lease, by drawing a new epoch.
    fn leave_dead_channel(&mut self) {
        let (Standing::Drawn(epoch) | Standing::Subscribed(epoch) | Standing::Held(epoch)) = self.standing
        else {
            return;
        };
        if !self.is_channel_dead(epoch) {
            self.deaf_since = None;
            return;
        }
        if self.deaf_since.get_or_insert_with(Instant::now).elapsed() < self.state.ttl() / 2 {
            return;
        }
        tracing::warn!(
            "the redis server of this node's channel is down; the node moves to another one with a new lease"
        );
        match self.standing {
            Standing::Held(_) => self.lapsed(),
            _ => self.draw(),
        }
    }

    fn until_lapse(&self) -> Duration {
        match self.standing {
            Standing::Held(_) => self.state.deadline().remaining(),
            _ => Duration::from_secs(3_600),
        }
    }

    /// The next round trip, as the present state requires.
    fn ask(&mut self) -> Asking {
        self.leave_dead_channel();
        let (act, epoch) = match self.standing {
            Standing::Subscribed(epoch) => (Act::Acquire, Some(epoch)),
            Standing::Held(epoch) => (Act::Renew, Some(epoch)),
            Standing::Drawn(_) => (Act::List, None),
            Standing::Nothing => {
                self.draw();
                (Act::List, None)
            }
        };
        let (state, connections) = (self.state.clone(), self.connections.clone());
        let given_up = self.given_up.filter(|_| act == Act::Acquire);
        async move { (act, epoch, state.ask(&connections, act, epoch, given_up).await) }.boxed()
    }

    fn answered(&mut self, (act, epoch, answer): (Act, Option<Epoch>, Result<Leases, Error>)) {
        let leases = match answer {
            Ok(leases) => leases,
            Err(error) => {
                tracing::debug!(%error, ?act, "no answer to a lease request");
                if act == Act::Acquire {
                    // It may have taken effect: this epoch is not used again.
                    self.given_up = epoch;
                    self.draw();
                }
                return;
            }
        };
        let (asked, done) = (leases.asked, leases.done);
        match (act, self.standing) {
            (Act::Acquire, Standing::Subscribed(epoch)) if done => self.joined(epoch, leases),
            (Act::Acquire, Standing::Subscribed(_)) => self.draw(),
            (Act::Renew, Standing::Held(held)) if epoch == Some(held) && done => {
                self.state.hold(held, asked);
                self.apply(leases);
            }
            (Act::Renew, Standing::Held(held)) if epoch == Some(held) => {
                tracing::warn!("redis lost this node's lease");
                self.lapsed();
                self.apply(leases);
            }
            _ => self.apply(leases),
        }
    }

    fn joined(&mut self, epoch: Epoch, leases: Leases) {
        self.state.hold(epoch, leases.asked);
        self.standing = Standing::Held(epoch);
        self.given_up = None;
        self.inbound = Inbound::new(Instant::now());
        self.metrics.lease_held.set(1);
        self.metrics.leases_gained.inc();
        tracing::info!(%epoch, "this node gained a lease");
        self.state.apply(leases);
        self.receiver.joined(epoch);
        self.receiver.nodes_changed();
    }

    fn apply(&mut self, leases: Leases) {
        if self.state.apply(leases) {
            let state = &self.state;
            self.inbound.retain(|epoch| state.life(epoch) != Life::Dead);
            self.receiver.nodes_changed();
        }
    }

    /// Ends the lease if its deadline has passed.
    fn check_lease(&mut self) {
        if matches!(self.standing, Standing::Held(_)) && self.state.epoch().is_none() {
            tracing::warn!("this node's lease expired: redis did not answer in time");
            self.lapsed();
        }
    }

    fn lapsed(&mut self) {
        if let Standing::Held(epoch) = self.standing {
            self.given_up = Some(epoch);
            self.state.release();
            self.metrics.lease_held.set(0);
            self.metrics.leases_lapsed.inc();
            self.draw();
            self.receiver.left();
        }
    }

    fn forgotten(&mut self) {
        self.check_lease();
        if let Standing::Held(epoch) = self.standing {
            tracing::info!("redis restarted or failed over: registering all sessions again");
            self.receiver.joined(epoch);
        }
    }

    /// Whether to acquire the lease now.
    fn event(&mut self, event: Event) -> bool {
        match event {
            Event::Frame { epoch, frame, weight } => {
                self.frame(epoch, frame);
                drop(weight);
                false
            }
            Event::Subscribed { epoch, since } => {
                self.check_lease();
                match (self.standing, since) {
                    (Standing::Drawn(drawn), _) if drawn == epoch => {
                        self.standing = Standing::Subscribed(epoch);
                        return true;
                    }
                    (Standing::Held(held), Some(since)) if held == epoch => self.receiver.lost(since),
                    _ => {}
                }
                false
            }
        }
    }

    fn frame(&mut self, epoch: Epoch, frame: bytes::Bytes) {
        if self.state.epoch() != Some(epoch) {
            self.metrics.stale.inc();
            return self.check_lease();
        }
        let bytes = frame.len();
        let Some(frame) = frame::parse(frame) else {
            self.metrics.malformed.inc();
            return;
        };
        let from = frame.from;
        if frame.body == Body::Receipt {
            if let Some(direct) = &self.direct {
                direct.receipts.note(epoch, from, frame.number);
            }
            return;
        }
        let is_probe = frame.body == Body::Probe;
        if self.hand_over(epoch, frame, bytes)
            && is_probe
            && let Some(direct) = &self.direct
        {
            // If there is no room, the sender asks again.
            let _ = direct.due.try_send((from, self.inbound.last(from)));
        }
    }

    /// From a link, or from this node to itself.
    fn arrival(&mut self, arrival: &Arrival) {
        if self.state.epoch() != Some(arrival.to) {
            self.metrics.stale.inc();
            return self.check_lease();
        }
        if !arrival.is_fresh() {
            self.metrics.links.late.inc();
            return;
        }
        let frame = frame::parse(arrival.frame.clone()).filter(|frame| arrival.is_from(frame.from));
        let Some(frame) = frame else {
            self.metrics.malformed.inc();
            return;
        };
        let from = frame.from;
        if self.hand_over(arrival.to, frame, arrival.frame.len()) {
            arrival.confirm(self.inbound.last(from));
        }
    }

    /// Whether the lease held until the end.
    fn hand_over(&mut self, epoch: Epoch, frame: Frame, bytes: usize) -> bool {
        let from = frame.from;
        let arrived = self.inbound.receive(frame, Instant::now());
        if let Some(since) = arrived.lost {
            self.metrics.gaps.inc();
            self.receiver.lost(since);
        }
        self.metrics.passed("in", arrived.messages.len(), bytes);
        for message in arrived.messages {
            // A frame may hold many messages, and each may take time.
            if self.state.epoch() != Some(epoch) {
                self.metrics.stale.inc();
                self.check_lease();
                return false;
            }
            self.receiver.receive(from, message);
        }
        true
    }

    /// Releases the lease, so that others need not wait for its expiry.
    async fn give_back(&mut self) {
        let held = match self.standing {
            Standing::Held(epoch) => Some(epoch),
            _ => self.given_up,
        };
        self.state.release();
        self.metrics.lease_held.set(0);
        if held.is_some() {
            let _ = self.state.ask(&self.connections, Act::List, None, held).await;
        }
        self.wanted.send_replace(None);
    }
}

/// The next arrivals of links. Cancel-safe. Pending without links.
async fn arrive(direct: &mut Option<Direct>, arrived: &mut Vec<Arrival>) {
    let Some(direct) = direct else { return std::future::pending().await };
    if direct.arriving.recv_many(arrived, ARRIVALS_MAX).await == 0 {
        std::future::pending::<()>().await;
    }
}

/// Pending while no request is in flight.
async fn answered(asking: &mut Option<Asking>) -> (Act, Option<Epoch>, Result<Leases, Error>) {
    match asking {
        Some(future) => {
            let answer = future.await;
            *asking = None;
            answer
        }
        None => std::future::pending().await,
    }
}
