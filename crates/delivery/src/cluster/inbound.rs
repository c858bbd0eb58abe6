//! Records that other nodes send to this one, processed in the order in which they arrived.
//!
//! The cluster's receiver calls only queue; one task processes. The queue is bounded: a frame that does not fit is
//! dropped and counts as a loss, so that a sweep finds stored messages in the store.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::{Epoch, Receiver, SessionKey};
use noroshi_store::Place;
use noroshi_types::Target;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::route::{OwnPart, OwnTarget};
use crate::cluster::wire::{self, Addressed, Answer, Part, Question, Record};
use crate::cluster::{Handler, Peers, own_part};
use crate::edge::GENERATION_BITS;

/// Frames and bytes that may wait: about a second of the traffic of one node.
const FRAMES_MAX: usize = 65_536;
const BYTES_MAX: usize = 128 << 20;
/// Directory entries that wait for removal; more are found another time.
const ABSENT_MAX: usize = 100_000;
const ABSENT_INTERVAL: Duration = Duration::from_secs(1);
/// Longer than a login takes: an entry may exist before its session does.
const LOGIN_MAX: Duration = Duration::from_secs(60);

enum Event {
    Frame { from: Epoch, frame: Bytes },
    Lost(Instant),
    Joined,
    Left(Instant),
    NodesChanged,
}

/// Filled by the cluster, emptied by one task.
#[derive(Default)]
pub(crate) struct Inbound {
    /// Guards the queue only.
    queue: Mutex<Queue>,
    filled: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    frames: usize,
    bytes: usize,
    /// When the first frame since the last take was dropped.
    dropped: Option<Instant>,
}

impl Receiver for Inbound {
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

impl Inbound {
    /// Queues an event other than a frame. These are rare, and not bounded.
    fn push(&self, event: Event) {
        self.queue.lock().events.push_back(event);
        self.filled.notify_one();
    }

    /// Everything that waits, as soon as there is something. Cancel-safe.
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

/// Processes records until it is dropped.
pub(crate) async fn run(peers: &Peers, handler: &dyn Handler) {
    loop {
        for event in peers.inbound.next().await {
            if !matches!(event, Event::Left(_)) {
                peers.outage.seen(Instant::now());
            }
            match event {
                Event::Frame { from, frame } => {
                    handle_frame(peers, handler, from, &frame);
                    // A large frame takes a millisecond: other tasks run between two.
                    tokio::task::yield_now().await;
                }
                Event::Lost(since) => {
                    peers.metrics.losses.inc();
                    handler.all_data_changed();
                    peers.sweeps.lost(peers.place_before(since));
                }
                Event::Left(at) => peers.sweeps.left(peers.place_before(at)),
                Event::Joined => {
                    handler.all_data_changed();
                    handler.definitions_changed();
                    let present = peers.place_before(Instant::now());
                    peers.sweeps.joined(present);
                }
                Event::NodesChanged => {}
            }
        }
    }
}

fn handle_frame(peers: &Peers, handler: &dyn Handler, from: Epoch, frame: &[u8]) {
    let decoded = wire::decode(frame);
    if decoded.unknown + decoded.malformed > 0 {
        peers.metrics.unread.inc_by((decoded.unknown + decoded.malformed) as u64);
        tracing::debug!(%from, decoded.unknown, decoded.malformed, "a part of another node's message was skipped");
    }
    for record in decoded.records {
        handle(peers, handler, from, record);
    }
}

fn handle(peers: &Peers, handler: &dyn Handler, from: Epoch, record: Record) {
    match record {
        Record::Deliver(Addressed { message, part }) => {
            let (target, sole) = match part {
                Part::Users { users, sole } => (Target::Users(users), sole),
                Part::Devices { devices, sole } => (Target::Devices(devices), sole),
                Part::Topic(topic) => (Target::Topic(topic), 0),
                Part::Condition(condition) => (Target::Condition(condition), 0),
                Part::Everyone => (Target::Everyone, 0),
            };
            let target = OwnTarget::Part(target);
            let part = OwnPart { message, target, sole, shared_from: sole, known: sole };
            own_part::hand_over(peers, &part);
        }
        Record::Marker { number } if Some(from) == peers.cluster.members.epoch() => {
            peers.own_parts.pass(peers, number);
        }
        Record::Marker { .. } => {}
        // A question is ignored if there is no room for its answer: it could not be answered in time.
        Record::Question { .. } if !peers.outbox.has_room() => {}
        Record::Question { number, question } => {
            let answer = answer(peers, question);
            peers.send(To::One(from), Record::Answer { number, answer });
        }
        Record::Answer { number, answer } => peers.questions.answered(number, answer),
        Record::AppsChanged => peers.changes.apps(),
        Record::CredentialsChanged { app } => peers.changes.credentials(app),
        Record::Load { named_us, topics_us } => {
            peers.loads.heard(from, [named_us, topics_us], Instant::now());
        }
        Record::WakePush => handler.push_work_added(),
        Record::Sweep { since } => peers.sweeps.lost(Place(since)),
        Record::SharesChanged { app } => peers.feed.groups_changed(app),
        Record::Items(report) => handler.items_reported(report),
        Record::PreferencesChanged { app, users, devices } => {
            handler.preferences_changed(app, users, devices);
        }
        Record::AskFigures { apps } => handler.figures_asked(from, apps),
        Record::Figures { report } => handler.figures_reported(from, report),
        Record::AskTail { tail } => handler.tail_asked(from, tail),
        Record::Tail { report } => handler.tail_reported(from, report),
        Record::DefinitionsChanged => handler.definitions_changed(),
        Record::Stale { all: true, .. } => handler.all_data_changed(),
        Record::Stale { tags, all: false } => handler.data_changed(tags),
        Record::Replaced { .. }
        | Record::Close { .. }
        | Record::CloseApp { .. }
        | Record::Subscribe { .. }
        | Record::Unsubscribe { .. } => change_session(peers, record),
    }
}

/// Records about connections.
fn change_session(peers: &Peers, record: Record) {
    let Some(edge) = peers.context.edge() else { return };
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

fn answer(peers: &Peers, question: Question) -> Answer {
    let context = &peers.context;
    let edge = context.edge();
    match question {
        Question::Sessions { app, users } => Answer::Sessions(context.local_sessions(app, &users)),
        Question::Devices { app, devices } => {
            let session = |device| context.local_session(app, device).into_iter().collect();
            Answer::Sessions(devices.iter().map(session).collect())
        }
        Question::TopicSessions { app, topics } => {
            let count = |topic| edge.map_or(0, |edge| edge.topic_sessions(app, topic));
            Answer::Counts(topics.iter().map(count).collect())
        }
        Question::Generations { app, devices } => Answer::Counts(context.local_generations(app, &devices)),
        Question::SetPresence { app, device, presence } => {
            Answer::Done(edge.is_some_and(|edge| edge.set_presence(app, &device, presence)))
        }
    }
}

/// Devices and users that the directory names for this node, but that have no session here.
#[derive(Default)]
pub(crate) struct AbsentKeys {
    /// Guards the list only.
    keys: Mutex<Vec<SessionKey>>,
}

impl AbsentKeys {
    pub(crate) fn add(&self, keys: impl Iterator<Item = SessionKey>) {
        let mut known = self.keys.lock();
        let room = ABSENT_MAX.saturating_sub(known.len());
        known.extend(keys.take(room));
    }
}

/// Removes them from the directory, many at once, until it is dropped.
pub(crate) async fn report_absent(peers: &Peers) {
    loop {
        tokio::time::sleep(ABSENT_INTERVAL).await;
        let keys = std::mem::take(&mut *peers.absent.keys.lock());
        let Some(epoch) = peers.cluster.members.epoch().filter(|_| !keys.is_empty()) else { continue };
        // The high bits of a generation are the time of its login.
        let ago = u64::try_from(LOGIN_MAX.as_millis()).unwrap_or(u64::MAX);
        let before = peers.context.now().0.saturating_sub(ago) << GENERATION_BITS;
        if let Err(error) = peers.cluster.directory.absent(epoch, keys, before).await {
            tracing::debug!(%error, "stale entries stay in the directory");
        }
    }
}
