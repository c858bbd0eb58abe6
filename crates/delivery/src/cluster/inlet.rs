//! What other nodes tell this one, in the order in which it came.
//!
//! The cluster's receiver calls only queue here; one task reads and does it. The queue is bounded: what does
//! not fit is dropped and counts as lost, so that what is kept is looked for in the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Epoch, Receiver, SessionKey};
use noroshi_store::Place;
use noroshi_types::Target;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::route::{OwnPart, OwnTarget};
use crate::cluster::wire::{self, Answer, Part, Question, Record};
use crate::cluster::{Peers, turn};
use crate::delivery::Delivery;

/// Frames and bytes that may wait: about a second of what one node takes.
const FRAMES_MAX: usize = 65_536;
const BYTES_MAX: usize = 128 << 20;
/// Entries of the directory to be removed; more are found another time.
const ABSENT_MAX: usize = 100_000;
const ABSENT_INTERVAL: Duration = Duration::from_secs(1);
/// Longer than a log-in takes: an entry may be there before its session is.
const LOG_IN: Duration = Duration::from_secs(60);

enum Event {
    Frame { from: Epoch, frame: Bytes },
    Lost(Instant),
    Joined,
    Left(Instant),
    NodesChanged,
}

/// Filled by the cluster, emptied by one task.
#[derive(Default)]
pub(crate) struct Inlet {
    /// Guards the queue only.
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    frames: usize,
    bytes: usize,
    /// When the first frame was dropped since the last look.
    dropped: Option<Instant>,
}

impl Receiver for Inlet {
    fn receive(&self, from: Epoch, message: Bytes) {
        let mut queue = self.queue.lock();
        if queue.frames >= FRAMES_MAX || queue.bytes >= BYTES_MAX {
            queue.dropped.get_or_insert_with(Instant::now);
            return;
        }
        queue.frames += 1;
        queue.bytes += message.len();
        queue.events.push_back(Event::Frame { from, frame: message });
        drop(queue);
        self.filled.notify_one();
    }

    fn lost(&self, since: Instant) {
        self.push(Event::Lost(since));
    }

    fn joined(&self, _: Epoch) {
        self.push(Event::Joined);
    }

    fn left(&self) {
        self.push(Event::Left(Instant::now()));
    }

    fn nodes_changed(&self) {
        self.push(Event::NodesChanged);
    }
}

impl Inlet {
    /// What is not a frame is rare.
    fn push(&self, event: Event) {
        self.queue.lock().events.push_back(event);
        self.filled.notify_one();
    }

    /// All that waits, when there is something. Cancel-safe.
    async fn next(&self) -> VecDeque<Event> {
        loop {
            let mut taken = std::mem::take(&mut *self.queue.lock());
            if let Some(since) = taken.dropped {
                taken.events.push_back(Event::Lost(since));
            }
            if !taken.events.is_empty() {
                return taken.events;
            }
            self.filled.notified().await;
        }
    }
}

/// Does what is told, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        for event in delivery.inlet.next().await {
            if !matches!(event, Event::Left(_)) {
                peers.outage.heard_of(Instant::now());
            }
            match event {
                Event::Frame { from, frame } => {
                    handle_frame(delivery, peers, from, &frame);
                    // A large frame takes a millisecond: others take their turn between two.
                    tokio::task::yield_now().await;
                }
                Event::Lost(since) => {
                    peers.metrics.lost.inc();
                    delivery.first_calls.stamps.stamp_all();
                    peers.sweeps.lost(peers.places.before(since, delivery.clock.now()));
                }
                Event::Left(at) => peers.sweeps.left(peers.places.before(at, delivery.clock.now())),
                Event::Joined => {
                    delivery.first_calls.stamps.stamp_all();
                    delivery.first_calls.changed.notify_one();
                    let present = peers.places.before(Instant::now(), delivery.clock.now());
                    peers.sweeps.joined(present);
                }
                Event::NodesChanged => {}
            }
        }
    }
}

fn handle_frame(delivery: &Arc<Delivery>, peers: &Arc<Peers>, from: Epoch, frame: &[u8]) {
    let decoded = wire::decode(frame);
    if decoded.unknown + decoded.malformed > 0 {
        peers.metrics.unread.inc_by((decoded.unknown + decoded.malformed) as u64);
        tracing::debug!(%from, decoded.unknown, decoded.malformed, "part of another node's message was not read");
    }
    for record in decoded.records {
        handle(delivery, peers, from, record);
    }
}

fn handle(delivery: &Arc<Delivery>, peers: &Arc<Peers>, from: Epoch, record: Record) {
    match record {
        Record::Deliver { message, part } => {
            let (target, sole) = match part {
                Part::Users { users, sole } => (Target::Users(users), sole),
                Part::Devices { devices, sole } => (Target::Devices(devices), sole),
                Part::Topic(topic) => (Target::Topic(topic), 0),
                Part::Condition(condition) => (Target::Condition(condition), 0),
                Part::Everyone => (Target::Everyone, 0),
            };
            let target = OwnTarget::Part(target);
            let part = OwnPart { message, target, sole, shared_from: sole, known: sole };
            turn::hand_over(delivery, peers, &part);
        }
        Record::Turn { number } if Some(from) == peers.cluster.members.epoch() => {
            peers.turns.pass(delivery, peers, number);
        }
        Record::Turn { .. } => {}
        // With no room for its answer a question is none that is answered in time.
        Record::Ask { .. } if !peers.outbox.has_room() => {}
        Record::Ask { number, question } => {
            let answer = answer(delivery, question);
            peers.tell(To::One(from), Record::Answer { number, answer });
        }
        Record::Answer { number, answer } => peers.asks.answered(number, answer),
        Record::AppsChanged => peers.changes.apps(),
        Record::CredentialsChanged { app } => peers.changes.credentials(app),
        Record::WakePush => delivery.wake_push_here(),
        Record::Sweep { since } => peers.sweeps.lost(Place(since)),
        Record::SharesChanged { app } => delivery.shares.changed(app),
        Record::DefinitionsChanged => delivery.first_calls.changed.notify_one(),
        Record::Stale { all: true, .. } => delivery.first_calls.stamps.stamp_all(),
        Record::Stale { tags, all: false } => {
            tags.into_iter().for_each(|tag| delivery.first_calls.stamps.stamp(tag));
        }
        Record::Replaced { .. }
        | Record::Close { .. }
        | Record::CloseApp { .. }
        | Record::Subscribe { .. }
        | Record::Unsubscribe { .. } => change_session(delivery, record),
    }
}

/// What concerns connections alone.
fn change_session(delivery: &Delivery, record: Record) {
    let Some(edge) = delivery.edge() else { return };
    match record {
        Record::Replaced { app, device, below } => edge.replaced(app, &device, below),
        Record::Close { app, device, reason } => edge.close(app, &device, reason),
        Record::CloseApp { app, reason } => edge.close_app(app, reason),
        Record::Subscribe { app, device, topics } => edge.subscribe(app, &device, &topics),
        Record::Unsubscribe { app, device, topics } => {
            topics.iter().for_each(|topic| edge.unsubscribe(app, &device, topic));
        }
        _ => {}
    }
}

fn answer(delivery: &Delivery, question: Question) -> Answer {
    let edge = delivery.edge();
    match question {
        Question::Sessions { app, users } => Answer::Sessions(delivery.sessions_here(app, &users)),
        Question::Devices { app, devices } => {
            let session = |device| edge.and_then(|edge| edge.session(app, device)).into_iter().collect();
            Answer::Sessions(devices.iter().map(session).collect())
        }
        Question::TopicSessions { app, topics } => {
            let count = |topic| edge.map_or(0, |edge| edge.topic_sessions(app, topic));
            Answer::Counts(topics.iter().map(count).collect())
        }
        Question::Generations { app, devices } => Answer::Counts(delivery.generations_here(app, &devices)),
        Question::SetPresence { app, device, presence } => {
            Answer::Done(edge.is_some_and(|edge| edge.set_presence(app, &device, presence)))
        }
    }
}

/// Devices and users that the directory said are here, and are not.
#[derive(Default)]
pub(crate) struct Absent {
    /// Guards the list only.
    keys: Mutex<Vec<SessionKey>>,
}

impl Absent {
    pub(crate) fn add(&self, keys: impl Iterator<Item = SessionKey>) {
        let mut known = self.keys.lock();
        let room = ABSENT_MAX.saturating_sub(known.len());
        known.extend(keys.take(room));
    }
}

/// Takes them out of the directory, some at once, until it is dropped.
pub(crate) async fn report_absent(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        tokio::time::sleep(ABSENT_INTERVAL).await;
        let keys = std::mem::take(&mut *peers.absent.keys.lock());
        let Some(epoch) = peers.cluster.members.epoch().filter(|_| !keys.is_empty()) else { continue };
        // A generation begins with the time of its log-in.
        let ago = u64::try_from(LOG_IN.as_millis()).unwrap_or(u64::MAX);
        let before = delivery.clock.now().0.saturating_sub(ago) << crate::edge::GENERATION_BITS;
        if let Err(error) = peers.cluster.directory.absent(epoch, keys, before).await {
            tracing::debug!(%error, "stale entries stay in the directory");
        }
    }
}
