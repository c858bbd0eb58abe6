//! The tails of a node: opening them, the flush that runs while one is open, and the exchange with other nodes.
//!
//! The lock is never held across an await. The collector locks it once for each batch of records.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_delivery::Delivery;
use noroshi_delivery::tails::{ASKED_FOR, Listener, Peer};
use noroshi_events::{Events, Kind, Record, Tap};
use noroshi_store::DeviceFilter;
use noroshi_types::{DeviceNum, PersonId, Timestamp};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::entry::Shown;
use crate::filter::{DEVICES_MAX, Filter, Selector};
use crate::metrics::Metrics;
use crate::queue::{Counts, Gaps, Queue};
use crate::report::{Ask, Report};
use crate::state::State;

/// Between two flushes.
const FLUSH: Duration = Duration::from_millis(250);
/// The most tails that viewers of a node may have open: each encodes up to 100 events a second.
pub const TAILS_MAX: usize = 16;
pub const TAILS_OF_PERSON_MAX: usize = 4;
/// Tails of other nodes' viewers that a node reports to. 100 events a second each are 6,400.
pub const TAILS_OF_NODES_MAX: usize = 64;
/// Without events, a viewer hears so often that the tail is open.
const ALIVE_EVERY: Duration = Duration::from_secs(5);
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Without events, another node reports so often that it takes part.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// A node that has not reported for this long is missing.
const MISSING_AFTER: Duration = Duration::from_millis(3_500);
/// Texts that wait for a slow viewer: two seconds of flushes.
const TEXTS_WAITING: usize = 8;
/// A flush waits this long for the store, and its events longer.
const STORE_PATIENCE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{TAILS_MAX} live tails are open at this node, which is its limit")]
    Full,
    #[error("you have {TAILS_OF_PERSON_MAX} live tails open at this node, which is the limit of a person")]
    FullForPerson,
    #[error("the node stops, or drains")]
    Closed,
    #[error(transparent)]
    Store(#[from] noroshi_store::Error),
}

/// Who gets the events of a tail.
enum End {
    Viewer(ViewerEnd),
    Node(NodeEnd),
}

/// A viewer of this node.
struct ViewerEnd {
    texts: mpsc::Sender<Bytes>,
    person: PersonId,
    /// People with a role in one app do not see the nodes.
    sees_nodes: bool,
    opened: Instant,
    /// Events of this node and others until the next text.
    queue: Queue<Shown>,
    /// When each node reported, and the place of its next report.
    heard: HashMap<Epoch, (Instant, u64)>,
    asked: Option<(Instant, Vec<Epoch>)>,
    sent: Option<(Instant, usize)>,
}

/// A viewer of another node.
struct NodeEnd {
    epoch: Epoch,
    /// That node's number of the tail.
    number: u64,
    until: Instant,
    place: u64,
    sent: Option<Instant>,
}

#[derive(Default)]
struct Inner {
    state: State,
    ends: HashMap<u64, End>,
    /// People whose tail is being opened.
    opening: Vec<PersonId>,
    is_running: bool,
    /// The node stops or drains.
    is_closed: bool,
}

pub struct Tails {
    delivery: Arc<Delivery>,
    events: Events,
    node: String,
    runtime: Handle,
    metrics: Metrics,
    numbers: AtomicU64,
    inner: Mutex<Inner>,
    this: Weak<Tails>,
}

/// An open tail, until it is dropped.
pub struct Viewer {
    tails: Arc<Tails>,
    number: u64,
    texts: mpsc::Receiver<Bytes>,
}

/// A place among the open tails, while the store is asked for devices.
struct Place<'a> {
    tails: &'a Tails,
    person: PersonId,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let opening = &mut self.tails.inner.lock().opening;
        if let Some(index) = opening.iter().position(|person| *person == self.person) {
            opening.swap_remove(index);
        }
    }
}

impl Tails {
    /// Attaches itself to the event log, and to `delivery` to answer other nodes.
    pub fn new(
        delivery: Arc<Delivery>,
        events: Events,
        node: String,
        runtime: Handle,
        metrics: Metrics,
    ) -> Arc<Self> {
        let tails = Arc::new_cyclic(|this| Self {
            delivery,
            events,
            node,
            runtime,
            metrics,
            numbers: AtomicU64::new(1),
            inner: Mutex::default(),
            this: this.clone(),
        });
        let tap: Weak<dyn Tap> = tails.this.clone();
        tails.events.attach_tap(tap);
        let listener: Weak<dyn Listener> = tails.this.clone();
        tails.delivery.tails.attach(listener);
        tails
    }

    /// While the node drains or stops, all tails end and no new one opens.
    pub fn set_closed(&self, is_closed: bool) {
        let mut inner = self.inner.lock();
        inner.is_closed = is_closed;
        if is_closed {
            let of_viewers = inner.ends.iter().filter(|(_, end)| matches!(end, End::Viewer(_)));
            let numbers: Vec<u64> = of_viewers.map(|(number, _)| *number).collect();
            numbers.into_iter().for_each(|number| self.remove(&mut inner, number));
        }
    }

    /// Opens a tail for a person, who may read the filter's app. `sees_nodes`: the person may read all apps.
    pub async fn open(&self, person: PersonId, sees_nodes: bool, filter: Filter) -> Result<Viewer, Refused> {
        let tails = self.this.upgrade().ok_or(Refused::Closed)?;
        let _place = self.place(person)?;
        let (devices, gaps) = self.devices(&filter).await?;
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let (sender, texts) = mpsc::channel(TEXTS_WAITING);
        let end = ViewerEnd {
            texts: sender,
            person,
            sees_nodes,
            opened: Instant::now(),
            queue: Queue::after(Counts::default(), gaps),
            heard: HashMap::new(),
            asked: None,
            sent: None,
        };
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Refused::Closed);
        }
        inner.state.open(number, Selector { devices, ..Selector::new(filter) });
        inner.ends.insert(number, End::Viewer(end));
        self.metrics.tails.inc();
        self.run(&mut inner);
        drop(inner);
        Ok(Viewer { tails, number, texts })
    }

    fn place(&self, person: PersonId) -> Result<Place<'_>, Refused> {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Refused::Closed);
        }
        let people = inner.ends.values().filter_map(|end| match end {
            End::Viewer(viewer) => Some(viewer.person),
            End::Node(_) => None,
        });
        let open: Vec<PersonId> = people.chain(inner.opening.iter().copied()).collect();
        let refused = match open.iter().filter(|of| **of == person).count() {
            TAILS_OF_PERSON_MAX.. => Some(Refused::FullForPerson),
            _ if open.len() >= TAILS_MAX => Some(Refused::Full),
            _ => None,
        };
        if let Some(refused) = refused {
            self.metrics.tails_refused.inc();
            return Err(refused);
        }
        inner.opening.push(person);
        Ok(Place { tails: self, person })
    }

    /// The devices that a filter asks for. One that does not exist yet is learned when it appears.
    async fn devices(&self, filter: &Filter) -> Result<(HashSet<DeviceNum>, Gaps), Refused> {
        let store = self.delivery.store();
        let (mut devices, mut gaps) = (HashSet::new(), Gaps::default());
        if let Some(device) = &filter.device {
            let found = store.device(filter.app, device).await?;
            let is_of_user =
                |found: &noroshi_store::Device| filter.user.is_none() || filter.user == found.user;
            devices.extend(found.filter(is_of_user).map(|found| found.num));
        } else if let Some(user) = &filter.user {
            let of_user = DeviceFilter { user: Some(user.clone()), after: None, limit: DEVICES_MAX + 1 };
            let found = store.devices(filter.app, of_user).await?;
            if found.len() > DEVICES_MAX {
                gaps.add(Gaps::DEVICES);
            }
            devices.extend(found.iter().take(DEVICES_MAX).map(|found| found.num));
        }
        Ok((devices, gaps))
    }

    /// Starts the flushes unless they run.
    fn run(&self, inner: &mut Inner) {
        let Some(tails) = self.this.upgrade().filter(|_| !inner.is_running) else { return };
        inner.is_running = true;
        self.events.set_tapped(true);
        self.runtime.spawn(async move {
            let mut ticks = tokio::time::interval(FLUSH);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if !tails.flush().await {
                    return;
                }
            }
        });
    }

    fn remove(&self, inner: &mut Inner, number: u64) {
        inner.state.close(number);
        match inner.ends.remove(&number) {
            Some(End::Viewer(viewer)) => {
                self.metrics.tails.dec();
                let end = Ask { number, selector: None }.encode();
                for epoch in viewer.asked.into_iter().flat_map(|(_, epochs)| epochs) {
                    self.delivery.tails.ask(epoch, end.clone());
                }
            }
            Some(End::Node(_)) => {
                self.metrics.tails_of_nodes.dec();
            }
            None => {}
        }
    }

    /// False: no tail is open any more.
    async fn flush(&self) -> bool {
        let asked = {
            let mut inner = self.inner.lock();
            let over = |(number, end): (&u64, &End)| match end {
                End::Node(node) if Instant::now() >= node.until => Some(*number),
                _ => None,
            };
            let over: Vec<u64> = inner.ends.iter().filter_map(over).collect();
            over.into_iter().for_each(|number| self.remove(&mut inner, number));
            if inner.ends.is_empty() {
                inner.is_running = false;
                self.events.set_tapped(false);
                return false;
            }
            inner.state.wanted()
        };
        if !(asked.devices.is_empty() && asked.notifications.is_empty() && asked.campaigns.is_empty()) {
            self.metrics.tail_lookups.inc();
            let read = self.delivery.store().owners(asked.clone());
            match tokio::time::timeout(STORE_PATIENCE, read).await {
                Ok(Ok(found)) => self.inner.lock().state.found(&asked, found),
                // The events wait for the next flush, and for the last time they are left out and stated.
                Ok(Err(_)) | Err(_) => {
                    self.metrics.tail_lookup_failures.inc();
                }
            }
        }
        let batches: Vec<_> = {
            let Inner { state, ends, .. } = &mut *self.inner.lock();
            state.retry();
            ends.keys().filter_map(|number| Some((*number, state.take(*number)?))).collect()
        };
        let peers = self.delivery.tails.peers();
        let mut reports = Vec::new();
        for (number, batch) in batches {
            let shown: Vec<(Kind, Shown)> =
                batch.events.iter().map(|(kind, entry, names)| (*kind, entry.shown(*kind, names))).collect();
            let mut inner = self.inner.lock();
            let Inner { state, ends, .. } = &mut *inner;
            match ends.get_mut(&number) {
                Some(End::Viewer(viewer)) => {
                    let queue = &mut viewer.queue;
                    queue.omitted.add_all(&batch.omitted);
                    queue.gaps.add(batch.gaps);
                    let node = viewer.sees_nodes.then_some(self.node.as_str());
                    shown.into_iter().for_each(|(kind, shown)| queue.push(kind, || from(shown, node)));
                    if let Some(tail) = state.tails.get(&number) {
                        self.ask(number, &tail.selector, viewer, &peers);
                    }
                    if !self.show(viewer, &peers) {
                        self.remove(&mut inner, number);
                    }
                }
                Some(End::Node(node)) => {
                    let mut queue = Queue::after(batch.omitted, batch.gaps);
                    shown.into_iter().for_each(|(kind, shown)| queue.push(kind, || shown));
                    let is_due = node.sent.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
                    if is_due || !queue.is_empty() {
                        node.sent = Some(Instant::now());
                        let NodeEnd { epoch, number, place, .. } = *node;
                        node.place += 1;
                        reports.push((epoch, Report { number, place, node: self.node.clone(), queue }));
                    }
                }
                None => {}
            }
        }
        for (epoch, report) in reports {
            self.delivery.tails.report(epoch, report.encode());
        }
        true
    }

    /// Asks the other nodes for events, again every few seconds and when there are others.
    fn ask(&self, number: u64, selector: &Selector, viewer: &mut ViewerEnd, peers: &[Peer]) {
        let epochs: Vec<Epoch> = peers.iter().filter(|peer| peer.reports).map(|peer| peer.epoch).collect();
        let is_asked = |(at, of): &(Instant, Vec<Epoch>)| at.elapsed() < ASK_EVERY && *of == epochs;
        if epochs.is_empty() || viewer.asked.as_ref().is_some_and(is_asked) {
            return;
        }
        let ask = Ask { number, selector: Some(selector.clone()) }.encode();
        epochs.iter().for_each(|epoch| self.delivery.tails.ask(*epoch, ask.clone()));
        viewer.heard.retain(|epoch, _| epochs.contains(epoch));
        viewer.asked = Some((Instant::now(), epochs));
    }

    /// Sends the viewer a text if there is something to say. False: the viewer is gone.
    fn show(&self, viewer: &mut ViewerEnd, peers: &[Peer]) -> bool {
        let is_missing = |peer: &&Peer| {
            let heard = viewer.heard.get(&peer.epoch).map(|(at, _)| *at);
            !peer.reports || heard.unwrap_or(viewer.opened).elapsed() >= MISSING_AFTER
        };
        let missing: Vec<&str> = peers.iter().filter(is_missing).map(|peer| peer.name.as_str()).collect();
        let is_news =
            viewer.sent.is_none_or(|(at, count)| count != missing.len() || at.elapsed() >= ALIVE_EVERY);
        if viewer.queue.is_empty() && !is_news {
            return !viewer.texts.is_closed();
        }
        let queue = viewer.queue.take();
        let (mut lost, gaps) = (queue.held().clone(), queue.gaps);
        lost.add_all(&queue.omitted);
        let (shown, omitted) = (queue.held().sum(), queue.omitted.sum());
        let named = viewer.sees_nodes.then_some(&*missing);
        let text = text(self.delivery.clock().now(), queue, named, missing.len());
        match viewer.texts.try_send(text) {
            Ok(()) => {
                viewer.sent = Some((Instant::now(), missing.len()));
                self.metrics.tail_events.inc_by(shown);
                self.metrics.tail_events_omitted.inc_by(omitted);
                true
            }
            // The viewer is slow: all these count as omitted.
            Err(mpsc::error::TrySendError::Full(_)) => {
                (viewer.queue.omitted, viewer.queue.gaps) = (lost, gaps);
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }
}

/// The event with the name of its node.
fn from(shown: Shown, node: Option<&str>) -> Shown {
    let Some(node) = node else { return shown };
    let Some(rest) = shown.json.strip_prefix('{') else { return shown };
    let node = serde_json::to_string(node).unwrap_or_default();
    Shown { at: shown.at, json: format!("{{\"node\":{node},{rest}").into() }
}

/// An event of an event stream.
fn text(now: Timestamp, queue: Queue<Shown>, missing: Option<&[&str]>, missing_count: usize) -> Bytes {
    let omitted: serde_json::Map<_, _> =
        queue.omitted.named().map(|(name, count)| (name.to_owned(), count.into())).collect();
    let gaps: Vec<&str> = queue.gaps.names().collect();
    let mut events = queue.into_events();
    events.sort_by_key(|(_, shown)| shown.at);
    let events: Vec<&str> = events.iter().map(|(_, shown)| &*shown.json).collect();
    let json = |value: &dyn Fn() -> serde_json::Result<String>| value().unwrap_or_default();
    let omitted = json(&|| serde_json::to_string(&omitted));
    let gaps = json(&|| serde_json::to_string(&gaps));
    let missing = missing.map(|names| json(&|| serde_json::to_string(names)));
    let missing = missing.map(|names| format!(",\"missing\":{names}")).unwrap_or_default();
    Bytes::from(format!(
        "event: tail\ndata: {{\"at\":\"{now}\",\"events\":[{}],\"omitted\":{omitted},\"gaps\":{gaps},\"nodes_missing\":{missing_count}{missing}}}\n\n",
        events.join(",")
    ))
}

impl Tap for Tails {
    fn read(&self, records: &mut Vec<Record>, lost: u64) {
        self.inner.lock().state.read(records.drain(..), lost);
    }
}

impl Listener for Tails {
    fn asked(&self, by: Epoch, tail: Bytes) {
        let Some(Ask { number, selector }) = Ask::decode(&tail) else { return };
        let mut inner = self.inner.lock();
        let is_it = |end: &End| matches!(end, End::Node(node) if node.epoch == by && node.number == number);
        let known = inner.ends.iter().find(|(_, end)| is_it(end)).map(|(number, _)| *number);
        match (known, selector) {
            (Some(known), None) => self.remove(&mut inner, known),
            (Some(known), Some(selector)) => {
                let until = Instant::now() + ASKED_FOR;
                if let Some(End::Node(node)) = inner.ends.get_mut(&known) {
                    node.until = until;
                }
                if let Some(tail) = inner.state.tails.get_mut(&known) {
                    // Devices that this node learned meanwhile stay.
                    let Selector { filter, devices } = selector;
                    tail.selector.devices.extend(devices);
                    tail.selector.filter = filter;
                }
            }
            (None, Some(selector)) => {
                let of_nodes = inner.ends.values().filter(|end| matches!(end, End::Node(_))).count();
                // The asking node states that this one is missing.
                if of_nodes >= TAILS_OF_NODES_MAX {
                    return;
                }
                let own = self.numbers.fetch_add(1, Ordering::Relaxed);
                let until = Instant::now() + ASKED_FOR;
                let end = NodeEnd { epoch: by, number, until, place: 0, sent: None };
                inner.state.open(own, selector);
                inner.ends.insert(own, End::Node(end));
                self.metrics.tails_of_nodes.inc();
                self.run(&mut inner);
            }
            (None, None) => {}
        }
    }

    fn reported(&self, by: Epoch, report: Bytes) {
        let Some(Report { number, place, node, queue }) = Report::decode(&report) else { return };
        let mut inner = self.inner.lock();
        let Some(End::Viewer(viewer)) = inner.ends.get_mut(&number) else { return };
        let before = viewer.heard.insert(by, (Instant::now(), place + 1));
        // A node that was not asked for a while begins again at 0.
        if before.is_some_and(|(_, next)| place > next) {
            viewer.queue.gaps.add(Gaps::LOST);
        }
        viewer.queue.gaps.add(queue.gaps);
        viewer.queue.omitted.add_all(&queue.omitted);
        let node = viewer.sees_nodes.then_some(node.as_str());
        for (kind, shown) in queue.into_events() {
            viewer.queue.push(kind, || from(shown, node));
        }
    }
}

impl Viewer {
    /// The next text, at most four times a second, and every few seconds if nothing happens. `None`: the tail has ended.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.texts.recv().await
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut inner = self.tails.inner.lock();
        self.tails.remove(&mut inner, self.number);
    }
}
