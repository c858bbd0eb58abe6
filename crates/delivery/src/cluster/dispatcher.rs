//! From the outbox to the bus: everything that waits is looked up at once and leaves as one frame for each
//! node, in the order in which it was queued.
//!
//! One task. While it hands a round over the next gathers, so the busier the node the larger the rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Epoch, Error, SessionKey};
use noroshi_store::Place;
use noroshi_types::{Message, Request, When};

use crate::cluster::outbox::{Item, Round, To};
use crate::cluster::route::{self, Holders, OwnPart};
use crate::cluster::wire::{self, Frame, Record};
use crate::cluster::{Peers, place};
use crate::delivery::Delivery;

/// A frame that is larger is followed by another.
const FRAME_BYTES: usize = 1 << 20;
/// Handed to the bus at once: well below what it lets wait, however many nodes a round is for.
const SEND_BYTES: usize = 16 << 20;
/// The engine answers in milliseconds or counts as gone.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often it is looked whether the engine is back, where nothing else is to be told.
const LOOK: Duration = Duration::from_millis(250);

/// Runs until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        tokio::select! {
            round = peers.outbox.next() => hand_over(delivery, peers, &round).await,
            () = tokio::time::sleep(LOOK) => drop(peers.metrics.waiting.set(0)),
        }
        tell_of_outage(peers);
    }
}

/// Once the engine may be asked again, others are told where to look from; if it is still gone, later.
fn tell_of_outage(peers: &Peers) {
    if peers.cluster.members.epoch().is_some()
        && let Some(since) = peers.outage.due(Instant::now())
    {
        peers.tell(To::Gateways, Record::Sweep { since: since.0 });
    }
}

async fn hand_over(delivery: &Delivery, peers: &Peers, round: &Round) {
    let started = Instant::now();
    peers.metrics.waiting.set(i64::try_from(peers.outbox.waiting()).unwrap_or(i64::MAX));
    let plan = match locate(peers, round, started).await {
        Some(located) => Plan::of(peers, round, located),
        None => Plan::alone(delivery, peers, round),
    };
    peers.turns.room().await;
    plan.carry_out(delivery, peers).await;
    peers.metrics.dispatched.inc_by(round.items.len() as u64);
    peers.metrics.dispatch_seconds.observe(started.elapsed());
    peers.outbox.finish(round.done());
}

/// Who holds the targets of a round, in their order. None: there is no engine to be asked.
async fn locate(peers: &Peers, round: &Round, now: Instant) -> Option<Vec<Holders>> {
    if peers.cluster.members.epoch().is_none() || !peers.outage.may_ask(now) {
        return None;
    }
    let keys = keys(peers, round);
    if keys.is_empty() {
        return Some(Vec::new());
    }
    let asked = keys.len();
    let answer = tokio::time::timeout(PATIENCE, peers.cluster.directory.locate(keys)).await;
    match answer.unwrap_or(Err(Error::Unavailable("no answer in time".into()))) {
        Ok(located) if located.len() == asked => Some(located),
        Ok(_) => None,
        Err(error) => {
            peers.failed(&error);
            None
        }
    }
}

fn keys(peers: &Peers, round: &Round) -> Vec<SessionKey> {
    let mut keys = Vec::new();
    for item in &round.items {
        match item {
            Item::Deliver { message, request } => {
                route::keys(&peers.cluster.keys, message.app, &request.target, &mut keys);
            }
            Item::Tell { to: To::Holders(key), .. } => keys.push(*key),
            Item::Tell { .. } => {}
        }
    }
    keys
}

/// What a round comes to.
#[derive(Default)]
struct Plan {
    own: Vec<OwnPart>,
    /// For each node, at least one frame.
    frames: Vec<(Epoch, Vec<Frame>)>,
    /// In front of the first that is kept and for others: where they look from if it does not reach them.
    kept: Option<Place>,
    /// Changes of sessions for others, which these find as well if they look.
    changes: u64,
    /// This node has devices, and there are others whose messages for them may come between.
    is_among_others: bool,
}

impl Plan {
    fn of(peers: &Peers, round: &Round, located: Vec<Holders>) -> Self {
        let own = peers.cluster.members.epoch();
        let others = peers.others(|_| true);
        let is_among_others = !others.is_empty() && peers.is_gateway();
        let mut plan = Plan { is_among_others, ..Plan::default() };
        let mut located = &located[..];
        let mut record = Vec::new();
        for item in &round.items {
            match item {
                Item::Deliver { message, request } => match route::fanned(&request.target) {
                    Some(part) => {
                        record.clear();
                        wire::encode(&Record::Deliver { message: message.clone(), part }, &mut record);
                        plan.add_for(&peers.other_gateways(), &record);
                        plan.note_kept(message);
                        plan.own.push(OwnPart::whole(message.clone(), request.clone()));
                    }
                    None => {
                        let count = usize::try_from(request.target.named_count().unwrap_or(0)).unwrap_or(0);
                        let (these, rest) = located.split_at(count);
                        located = rest;
                        plan.named(peers, message, request, these, own);
                    }
                },
                Item::Tell { to, record: told } => {
                    plan.note_told(told);
                    record.clear();
                    wire::encode(told, &mut record);
                    match to {
                        To::Holders(_) => {
                            let (holders, rest) = located.split_at(1);
                            located = rest;
                            let others = holders[0].iter().filter(|epoch| Some(**epoch) != own);
                            others.for_each(|epoch| plan.push(*epoch, &record));
                        }
                        To::Gateways => plan.add_for(&peers.other_gateways(), &record),
                        To::Senders => plan.add_for(&peers.others(|node| node.info.roles.sender), &record),
                        To::Apis => plan.add_for(&peers.others(|node| node.info.roles.api), &record),
                        To::All => plan.add_for(&others, &record),
                        To::One(epoch) => plan.push(*epoch, &record),
                    }
                }
            }
        }
        plan
    }

    /// Without the others: this node's connections only, and a note of what was not told.
    fn alone(delivery: &Delivery, peers: &Peers, round: &Round) -> Self {
        let mut plan = Plan::default();
        for item in &round.items {
            match item {
                Item::Deliver { message, request } => {
                    plan.note_kept(message);
                    plan.own.push(OwnPart::whole(message.clone(), request.clone()));
                }
                Item::Tell { record, .. } => plan.note_told(record),
            }
        }
        plan.remember_untold(delivery, peers);
        plan
    }

    fn named(
        &mut self,
        peers: &Peers,
        message: &Arc<Message>,
        request: &Arc<Request>,
        located: &[Holders],
        own: Option<Epoch>,
    ) {
        let split = route::split(located, own);
        let mut record = Vec::new();
        for (epoch, named) in &split.others {
            record.clear();
            route::encode_named(message, &request.target, named, &mut record);
            peers.metrics.targets.inc_by((named.sole.len() + named.shared.len()) as u64);
            self.push(*epoch, &record);
        }
        if !split.others.is_empty() {
            self.note_kept(message);
        }
        self.own.extend(OwnPart::of(message, request, &split));
    }

    fn note_kept(&mut self, message: &Message) {
        if message.when == When::Stored {
            self.note_place(place::before_id(message.id));
        }
    }

    fn note_told(&mut self, record: &Record) {
        match record {
            Record::Sweep { since } => self.note_place(Place(*since)),
            // An answer comes too late, and a wake is made good by the next look.
            Record::Answer { .. } | Record::Ask { .. } | Record::WakePush => {}
            _ => self.changes += 1,
        }
    }

    fn note_place(&mut self, place: Place) {
        self.kept = Some(self.kept.map_or(place, |kept| kept.min(place)));
    }

    /// Others are told where to look when they can be told anything.
    fn remember_untold(&self, delivery: &Delivery, peers: &Peers) {
        if self.changes > 0 {
            peers.metrics.untold.inc_by(self.changes);
            peers.outage.untold(peers.places.before(Instant::now(), delivery.clock.now()));
        }
        if let Some(place) = self.kept {
            peers.outage.untold(place);
        }
    }

    fn add_for(&mut self, epochs: &[Epoch], record: &[u8]) {
        for epoch in epochs {
            self.push(*epoch, record);
        }
    }

    fn push(&mut self, to: Epoch, record: &[u8]) {
        let at = self.frames.iter().position(|(epoch, _)| *epoch == to).unwrap_or_else(|| {
            self.frames.push((to, vec![Frame::default()]));
            self.frames.len() - 1
        });
        let frames = &mut self.frames[at].1;
        match frames
            .last_mut()
            .filter(|frame| frame.is_empty() || frame.bytes() + record.len() <= FRAME_BYTES)
        {
            Some(frame) => frame.push(record),
            None => {
                let mut frame = Frame::default();
                frame.push(record);
                frames.push(frame);
            }
        }
    }

    async fn carry_out(mut self, delivery: &Delivery, peers: &Peers) {
        let turn = self.take_turn(peers);
        if turn.is_none() {
            peers.turns.pass_with(delivery, peers, &self.own);
        }
        for messages in portions(std::mem::take(&mut self.frames)) {
            let count = messages.len() as u64;
            let sent = tokio::time::timeout(PATIENCE, peers.cluster.bus.send(messages)).await;
            let away = match sent.unwrap_or(Err(Error::Unavailable("the bus took nothing in time".into()))) {
                Ok(()) => Vec::new(),
                // Those miss a number, and look by themselves.
                Err(Error::Partly(away)) => away,
                Err(error) => {
                    peers.failed(&error);
                    self.remember_untold(delivery, peers);
                    turn.into_iter().for_each(|number| peers.turns.pass(delivery, peers, number));
                    return;
                }
            };
            peers.metrics.messages.inc_by(count - (away.len() as u64).min(count));
            peers.answered();
            if peers.cluster.members.epoch().is_none_or(|own| away.contains(&own)) {
                turn.into_iter().for_each(|number| peers.turns.pass(delivery, peers, number));
            }
        }
    }

    /// Keeps this node's share back until its turn comes, where it matters.
    fn take_turn(&mut self, peers: &Peers) -> Option<u64> {
        let ordered = |part: &OwnPart| part.message.when == When::Stored || part.message.topic.is_some();
        let waits = self.own.iter().any(ordered) || !self.own.is_empty() && !peers.turns.is_empty();
        let own = peers.cluster.members.epoch()?;
        if !waits || !self.is_among_others {
            return None;
        }
        let number = peers.turns.put(std::mem::take(&mut self.own));
        let mut record = Vec::new();
        wire::encode(&Record::Turn { number }, &mut record);
        self.push(own, &record);
        Some(number)
    }
}

/// Messages in their order, as many at once as the bus takes.
fn portions(frames: Vec<(Epoch, Vec<Frame>)>) -> Vec<Vec<(Epoch, Bytes)>> {
    let mut portions: Vec<Vec<(Epoch, Bytes)>> = Vec::new();
    let mut bytes = SEND_BYTES;
    let frames = frames.into_iter().flat_map(|(to, frames)| frames.into_iter().map(move |frame| (to, frame)));
    for (to, frame) in frames {
        if bytes >= SEND_BYTES {
            portions.push(Vec::new());
            bytes = 0;
        }
        bytes += frame.bytes();
        if let Some(portion) = portions.last_mut() {
            portion.push((to, frame.into_bytes()));
        }
    }
    portions
}

impl Peers {
    fn failed(&self, error: &Error) {
        if self.outage.failed(Instant::now()) {
            self.metrics.outages.inc();
            tracing::warn!(%error, "other nodes cannot be reached; messages go to this node's connections only");
        }
    }

    fn answered(&self) {
        if self.outage.ended() {
            tracing::info!("other nodes can be reached again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_to_the_bus_at_once_is_bounded_and_in_order() {
        // A round of 8 MiB for each of twelve nodes.
        let frames = |_: u64| {
            let frame = |number: u8| {
                let mut frame = Frame::default();
                frame.push(&vec![number; FRAME_BYTES - 1]);
                frame
            };
            (0..8).map(frame).collect::<Vec<_>>()
        };
        let portions = portions((1..=12).map(|to| (Epoch(to), frames(to))).collect());
        assert_eq!(portions.len(), 6);
        for portion in &portions {
            assert_eq!(portion.iter().map(|(_, message)| message.len()).sum::<usize>(), SEND_BYTES);
        }
        let order = portions.iter().flatten().map(|(to, message)| (to.0, u64::from(message[1])));
        assert!(order.eq((1..=12).flat_map(|to| (0..8).map(move |number| (to, number)))));
    }
}
