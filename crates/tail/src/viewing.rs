//! A viewer of this node: the events of all nodes until its next frame, and which nodes take part.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_delivery::tails::Peer;
use noroshi_events::Kind;
use noroshi_types::{PersonId, Timestamp};
use tokio::sync::mpsc;

use crate::entry::Shown;
use crate::metrics::Metrics;
use crate::queue::{Counts, Gaps, Queue};
use crate::report::Report;

/// Interval of frames without events.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
pub(crate) const ASK_EVERY: Duration = Duration::from_secs(5);
/// A node that has not reported for this long is missing.
const MISSING_AFTER: Duration = Duration::from_millis(3_500);
/// Frames that wait for a slow viewer: two seconds of flushes.
const FRAMES_WAITING: usize = 8;

pub(crate) struct Viewing {
    frames: mpsc::Sender<Bytes>,
    pub(crate) person: PersonId,
    /// People with a role in one app do not see the nodes.
    sees_nodes: bool,
    opened: Instant,
    queue: Queue<Shown>,
    /// The nodes that were asked, and when.
    asked: Option<(Instant, Vec<Epoch>)>,
    /// The last report of each of them, and the sequence number of its next one.
    reports: HashMap<Epoch, (Instant, u64)>,
    /// The last frame, and the nodes that were missing then.
    sent: Option<(Instant, Vec<Epoch>)>,
    /// When the devices of the filter were read from the store.
    pub(crate) devices_read: Instant,
}

impl Viewing {
    pub(crate) fn new(person: PersonId, sees_nodes: bool, gaps: Gaps) -> (Self, mpsc::Receiver<Bytes>) {
        let (frames, receiver) = mpsc::channel(FRAMES_WAITING);
        let now = Instant::now();
        let viewing = Self {
            frames,
            person,
            sees_nodes,
            opened: now,
            queue: Queue::after(Counts::default(), gaps),
            asked: None,
            reports: HashMap::new(),
            sent: None,
            devices_read: now,
        };
        (viewing, receiver)
    }

    pub(crate) fn asked(&self) -> &[Epoch] {
        self.asked.as_ref().map_or(&[], |(_, epochs)| epochs)
    }

    /// The nodes that must get a request now: all, every few seconds and when there are others.
    pub(crate) fn ask(&mut self, peers: &[Peer]) -> &[Epoch] {
        let epochs: Vec<Epoch> = peers.iter().filter(|peer| peer.reports).map(|peer| peer.epoch).collect();
        let is_asked = |(at, of): &(Instant, Vec<Epoch>)| at.elapsed() < ASK_EVERY && *of == epochs;
        if epochs.is_empty() || self.asked.as_ref().is_some_and(is_asked) {
            return &[];
        }
        self.reports.retain(|epoch, _| epochs.contains(epoch));
        self.asked = Some((Instant::now(), epochs));
        self.asked()
    }

    pub(crate) fn add_gaps(&mut self, gaps: Gaps) {
        self.queue.gaps.add(gaps);
    }

    /// Events of this node.
    pub(crate) fn add(&mut self, events: Vec<(Kind, Shown)>, omitted: &Counts, gaps: Gaps, node: &str) {
        self.queue.omitted.add_all(omitted);
        self.queue.gaps.add(gaps);
        self.push(events, Some(node));
    }

    /// A report of another node. One that was not asked has no say.
    pub(crate) fn add_report(&mut self, by: Epoch, report: Report, peers: &[Peer]) {
        if !self.asked().contains(&by) {
            return;
        }
        let Report { sequence, queue, .. } = report;
        let before = self.reports.insert(by, (Instant::now(), sequence.saturating_add(1)));
        // A node that was not asked for a while begins again at 0.
        if before.is_some_and(|(_, next)| sequence > next) {
            self.queue.gaps.add(Gaps::LOST);
        }
        self.queue.gaps.add(queue.gaps);
        self.queue.omitted.add_all(&queue.omitted);
        let node = peers.iter().find(|peer| peer.epoch == by).map(|peer| peer.name.as_str());
        self.push(queue.into_events(), node);
    }

    fn push(&mut self, events: Vec<(Kind, Shown)>, node: Option<&str>) {
        let node = node.filter(|_| self.sees_nodes);
        for (kind, shown) in events {
            self.queue.push(kind, || with_node(shown, node));
        }
    }

    /// Sends the viewer a frame if there is something to say. False: the viewer is gone.
    pub(crate) fn send(&mut self, now: Timestamp, peers: &[Peer], metrics: &Metrics) -> bool {
        let is_missing = |peer: &&Peer| {
            let reported = self.reports.get(&peer.epoch).map(|(at, _)| *at);
            !peer.reports || reported.unwrap_or(self.opened).elapsed() >= MISSING_AFTER
        };
        let missing: Vec<&Peer> = peers.iter().filter(is_missing).collect();
        let epochs: Vec<Epoch> = missing.iter().map(|peer| peer.epoch).collect();
        let is_news =
            self.sent.as_ref().is_none_or(|(at, before)| *before != epochs || at.elapsed() >= ALIVE_EVERY);
        if self.queue.is_empty() && !is_news {
            return !self.frames.is_closed();
        }
        let queue = self.queue.take();
        let (mut lost, gaps) = (queue.held().clone(), queue.gaps);
        lost.add_all(&queue.omitted);
        let (shown, omitted) = (queue.held().sum(), queue.omitted.sum());
        let names: Option<Vec<&str>> =
            self.sees_nodes.then(|| missing.iter().map(|peer| peer.name.as_str()).collect());
        match self.frames.try_send(frame(now, queue, names.as_deref(), missing.len())) {
            Ok(()) => {
                self.sent = Some((Instant::now(), epochs));
                metrics.tail_events.inc_by(shown);
                metrics.tail_events_omitted.inc_by(omitted);
                true
            }
            // The viewer is slow: all these count as omitted.
            Err(mpsc::error::TrySendError::Full(_)) => {
                (self.queue.omitted, self.queue.gaps) = (lost, gaps);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

fn with_node(shown: Shown, node: Option<&str>) -> Shown {
    let Some(node) = node else { return shown };
    let Some(rest) = shown.json.strip_prefix('{') else { return shown };
    Shown { at: shown.at, json: format!("{{\"node\":{},{rest}", json(node)).into() }
}

/// An event of an event stream.
fn frame(now: Timestamp, queue: Queue<Shown>, missing: Option<&[&str]>, missing_count: usize) -> Bytes {
    let omitted: serde_json::Map<_, _> =
        queue.omitted.named().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let gaps: Vec<&str> = queue.gaps.names().collect();
    let mut events = queue.into_events();
    events.sort_by_key(|(_, shown)| shown.at);
    let events: Vec<&str> = events.iter().map(|(_, shown)| &*shown.json).collect();
    let missing = missing.map(|names| format!(",\"missing\":{}", json(names))).unwrap_or_default();
    Bytes::from(format!(
        "event: tail\ndata: {{\"at\":\"{now}\",\"events\":[{}],\"omitted\":{},\"gaps\":{},\"nodes_missing\":{missing_count}{missing}}}\n\n",
        events.join(","),
        json(&omitted),
        json(&gaps),
    ))
}

fn json<T: serde::Serialize + ?Sized>(value: &T) -> String {
    serde_json::to_string(value).expect("texts, numbers and lists of them have a JSON text")
}
