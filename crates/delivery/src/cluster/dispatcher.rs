//! From the outbox to the bus: one directory look-up for a whole round, and one frame for each node, in the order in
//! which items were queued.
//!
//! One task. While it hands over a round, the next one fills, so a busier node has larger rounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Epoch, Error, SessionKey};
use noroshi_store::Place;
use noroshi_types::{Message, Request, When};

use crate::cluster::outbox::{Item, Round, To};
use crate::cluster::route::{self, Holders, OwnPart};
use crate::cluster::wire::{self, Addressed, Frame, Record};
use crate::cluster::{Peers, place_history};

/// A frame that reaches this size is followed by another.
const FRAME_BYTES: usize = 1 << 20;
/// Bytes for one call of the bus: well below its limit for waiting bytes, whatever the number of nodes.
const SEND_BYTES: usize = 16 << 20;
/// How often an idle dispatcher checks whether Redis is back.
const LOOK: Duration = Duration::from_millis(250);

/// Runs until it is dropped.
pub(crate) async fn run(peers: &Peers) {
    loop {
        tokio::select! {
            round = peers.outbox.next() => hand_over(peers, &round).await,
            () = tokio::time::sleep(LOOK) => drop(peers.metrics.waiting.set(0)),
        }
        report_outage(peers);
    }
}

/// Tells other nodes where to sweep from once Redis may be asked again. If it still does not answer, tries again.
fn report_outage(peers: &Peers) {
    if peers.cluster.members.epoch().is_some()
        && let Some(since) = peers.outage.due(Instant::now())
    {
        peers.send(To::Gateways, Record::Sweep { since: since.0 });
    }
}

async fn hand_over(peers: &Peers, round: &Round) {
    let started = Instant::now();
    peers.metrics.waiting.set(i64::try_from(peers.outbox.waiting()).unwrap_or(i64::MAX));
    let plan = match locate(peers, round, started).await {
        Some(located) => Plan::of(peers, round, located),
        None => Plan::alone(peers, round),
    };
    peers.own_parts.room().await;
    plan.carry_out(peers).await;
    peers.metrics.dispatched.inc_by(round.items.len() as u64);
    peers.metrics.dispatch_seconds.observe(started.elapsed());
    peers.outbox.finish(round);
}

/// The holders of a round's targets, in their order. `None`: Redis does not answer.
async fn locate(peers: &Peers, round: &Round, now: Instant) -> Option<Vec<Holders>> {
    if peers.cluster.members.epoch().is_none() || !peers.outage.may_ask(now) {
        return None;
    }
    let keys = keys(peers, round);
    if keys.is_empty() {
        return Some(Vec::new());
    }
    let asked = keys.len();
    let answer = tokio::time::timeout(peers.config.patience, peers.cluster.directory.locate(keys)).await;
    match answer.unwrap_or(Err(Error::Unavailable("no answer in time".into()))) {
        Ok(located) if located.len() == asked => Some(located),
        Ok(_) => None,
        Err(error) => {
            failed(peers, &error);
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
            Item::Record { to: To::Holders(key), .. } => keys.push(*key),
            Item::Record { .. } => {}
        }
    }
    keys
}

/// The records that a round sends to each node.
#[derive(Default)]
struct Plan {
    own: Vec<OwnPart>,
    /// For each node, at least one frame.
    frames: Vec<(Epoch, Vec<Frame>)>,
    /// The place before the first stored message for other nodes: they sweep from there if it does not reach them.
    kept: Option<Place>,
    /// Records of session changes for other nodes, which a sweep finds as well.
    changes: u64,
    /// This node has devices, and messages of other nodes for them may arrive in between.
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
                        let addressed = Addressed { message: message.clone(), part };
                        wire::encode(&Record::Deliver(addressed), &mut record);
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
                Item::Record { to, record: sent } => {
                    plan.note_record(sent);
                    record.clear();
                    wire::encode(sent, &mut record);
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

    /// Without other nodes: serves only this node's connections, and remembers what the others missed.
    fn alone(peers: &Peers, round: &Round) -> Self {
        let mut plan = Plan::default();
        for item in &round.items {
            match item {
                Item::Deliver { message, request } => {
                    plan.note_kept(message);
                    plan.own.push(OwnPart::whole(message.clone(), request.clone()));
                }
                Item::Record { record, .. } => plan.note_record(record),
            }
        }
        plan.remember_missed(peers);
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
            self.note_place(place_history::before_id(message.id));
        }
    }

    fn note_record(&mut self, record: &Record) {
        match record {
            Record::Sweep { since } => self.note_place(Place(*since)),
            // A late answer is useless, senders look without a wake-up as well, and devices read their counts. The console
            // states which figures and events are missing.
            Record::Answer { .. }
            | Record::Question { .. }
            | Record::WakePush
            | Record::Items(_)
            | Record::AskFigures { .. }
            | Record::Figures { .. }
            | Record::AskTail { .. }
            | Record::Tail { .. } => {}
            Record::Deliver(_)
            | Record::Marker { .. }
            | Record::Replaced { .. }
            | Record::Close { .. }
            | Record::CloseApp { .. }
            | Record::Subscribe { .. }
            | Record::Unsubscribe { .. }
            | Record::AppsChanged
            | Record::CredentialsChanged { .. }
            | Record::DefinitionsChanged
            | Record::Stale { .. }
            | Record::SharesChanged { .. }
            | Record::Load { .. }
            | Record::PreferencesChanged { .. } => self.changes += 1,
        }
    }

    fn note_place(&mut self, place: Place) {
        self.kept = Some(self.kept.map_or(place, |kept| kept.min(place)));
    }

    /// Remembers where other nodes must sweep from once they can be reached.
    fn remember_missed(&self, peers: &Peers) {
        if self.changes > 0 {
            peers.metrics.untold.inc_by(self.changes);
            peers.outage.missed(peers.place_before(Instant::now()));
        }
        if let Some(place) = self.kept {
            peers.outage.missed(place);
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

    async fn carry_out(mut self, peers: &Peers) {
        let held = self.hold_own(peers);
        if held.is_none() {
            peers.own_parts.pass_with(peers, &self.own);
        }
        for messages in portions(std::mem::take(&mut self.frames)) {
            let count = messages.len() as u64;
            let sent = tokio::time::timeout(peers.config.patience, peers.cluster.bus.send(messages)).await;
            let away =
                match sent.unwrap_or(Err(Error::Unavailable("the bus accepted nothing in time".into()))) {
                    Ok(()) => Vec::new(),
                    // These nodes see a gap in the numbers, and sweep.
                    Err(Error::Partly(away)) => away,
                    Err(error) => {
                        failed(peers, &error);
                        self.remember_missed(peers);
                        held.into_iter().for_each(|number| peers.own_parts.pass(peers, number));
                        return;
                    }
                };
            peers.metrics.messages.inc_by(count - (away.len() as u64).min(count));
            answered(peers);
            if peers.cluster.members.epoch().is_none_or(|own| away.contains(&own)) {
                held.into_iter().for_each(|number| peers.own_parts.pass(peers, number));
            }
        }
    }

    /// Holds back this node's part until its marker returns by the bus, if order matters.
    fn hold_own(&mut self, peers: &Peers) -> Option<u64> {
        let ordered = |part: &OwnPart| part.message.when == When::Stored || part.message.topic.is_some();
        let waits = self.own.iter().any(ordered) || !self.own.is_empty() && !peers.own_parts.is_empty();
        let own = peers.cluster.members.epoch()?;
        if !waits || !self.is_among_others {
            return None;
        }
        let number = peers.own_parts.hold(std::mem::take(&mut self.own));
        let mut record = Vec::new();
        wire::encode(&Record::Marker { number }, &mut record);
        self.push(own, &record);
        Some(number)
    }
}

/// Splits messages, in order, into calls of at most about [`SEND_BYTES`].
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

fn failed(peers: &Peers, error: &Error) {
    if peers.outage.failed(Instant::now()) {
        peers.metrics.outages.inc();
        tracing::warn!(%error, "other nodes are unreachable; messages go to this node's connections only");
    }
}

fn answered(peers: &Peers) {
    if peers.outage.ended() {
        tracing::info!("other nodes are reachable again");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_the_bus_are_bounded_and_in_order() {
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
