//! The tails of a node: opening them, the flush that runs while one is open, and the exchange with other nodes.
//!
//! The lock is never held across an await, and no other lock is taken under it. The collector locks it once for each batch
//! of records.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_delivery::Delivery;
use noroshi_delivery::tails::{ASKED_FOR, Listener, Peer};
use noroshi_events::{Events, Kind, Record, Tap};
use noroshi_store::{Device, DeviceFilter, LookupKeys};
use noroshi_types::{AppId, PersonId};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::entry::Shown;
use crate::filter::{DEVICES_MAX, Filter, Selector};
use crate::inbox::{Inbox, Message};
use crate::metrics::Metrics;
use crate::queue::{Gaps, Queue};
use crate::report::{Ask, Report};
use crate::state::State;
use crate::viewing::{ASK_EVERY, Viewing};

/// Between two flushes.
const FLUSH: Duration = Duration::from_millis(250);
/// The most tails that viewers of a node may have open: each encodes up to 100 events a second.
pub const TAILS_MAX: usize = 16;
pub const TAILS_OF_PERSON_MAX: usize = 4;
/// Tails of other nodes' viewers that a node reports to. 100 events a second each are 6,400.
pub const TAILS_OF_NODES_MAX: usize = 64;
/// Interval of reports without events.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Deadline of the reads of a flush. Events whose topic or campaign is unknown then wait for the next flush.
const STORE_PATIENCE: Duration = Duration::from_millis(500);
/// After twice this time, the names of devices are read again.
const NAMES_AGE_EVERY: Duration = Duration::from_secs(30);

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
enum Recipient {
    Viewer(Box<Viewing>),
    Node(Reporting),
}

/// A viewer of another node.
struct Reporting {
    epoch: Epoch,
    /// That node's number of the tail.
    number: u64,
    until: Instant,
    sequence: u64,
    sent: Option<Instant>,
}

/// Requests and reports for other nodes.
struct Outgoing {
    asks: Vec<(Epoch, Bytes)>,
    reports: Vec<(Epoch, Report)>,
}

#[derive(Default)]
struct Inner {
    state: State,
    recipients: HashMap<u64, Recipient>,
    /// People whose tail is being opened.
    opening: Vec<PersonId>,
    /// Tails that have ended. The nodes that report to them do not know yet.
    ended: Vec<(u64, Vec<Epoch>)>,
    aged: Option<Instant>,
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
    inbox: Inbox,
    /// Flushes run.
    is_running: AtomicBool,
    inner: Mutex<Inner>,
    this: Weak<Tails>,
}

/// An open tail, until it is dropped.
pub struct Viewer {
    tails: Arc<Tails>,
    number: u64,
    frames: mpsc::Receiver<Bytes>,
}

/// A slot among the open tails, while the store is asked for devices.
struct Reservation<'a> {
    tails: &'a Tails,
    person: PersonId,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let opening = &mut self.tails.inner.lock().opening;
        if let Some(index) = opening.iter().position(|person| *person == self.person) {
            opening.swap_remove(index);
        }
    }
}

/// The task of the flushes. If it panics, all tails end, so that viewers open them again.
struct Flushes(Arc<Tails>);

impl Drop for Flushes {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let tails = &self.0;
            let mut inner = tails.inner.lock();
            let numbers: Vec<u64> = inner.recipients.keys().copied().collect();
            numbers.into_iter().for_each(|number| tails.remove(&mut inner, number));
            inner.state = State::default();
            tails.set_tapped(false);
            tails.is_running.store(false, Ordering::SeqCst);
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
            inbox: Inbox::default(),
            is_running: AtomicBool::new(false),
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
            let is_viewer = |recipient: &Recipient| matches!(recipient, Recipient::Viewer(_));
            let of_viewers = inner.recipients.iter().filter(|(_, recipient)| is_viewer(recipient));
            let numbers: Vec<u64> = of_viewers.map(|(number, _)| *number).collect();
            numbers.into_iter().for_each(|number| self.remove(&mut inner, number));
        }
    }

    /// Opens a tail for a person, who may read the filter's app. `sees_nodes`: the person may read all apps.
    pub async fn open(&self, person: PersonId, sees_nodes: bool, filter: Filter) -> Result<Viewer, Refused> {
        let tails = self.this.upgrade().ok_or(Refused::Closed)?;
        let _reservation = self.reserve(person)?;
        let (devices, gaps) = self.devices(&filter).await?;
        let (viewing, frames) = Viewing::new(person, sees_nodes, gaps);
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Refused::Closed);
        }
        inner.state.name(filter.app, &devices);
        let devices = devices.iter().map(|device| device.num).collect();
        let selector = Selector { devices, ..Selector::new(filter) };
        let number = self.add(&mut inner, selector, Recipient::Viewer(Box::new(viewing)));
        self.metrics.tails.inc();
        drop(inner);
        Ok(Viewer { tails, number, frames })
    }

    fn reserve(&self, person: PersonId) -> Result<Reservation<'_>, Refused> {
        let mut inner = self.inner.lock();
        if inner.is_closed {
            return Err(Refused::Closed);
        }
        let people = inner.recipients.values().filter_map(|recipient| match recipient {
            Recipient::Viewer(viewing) => Some(viewing.person),
            Recipient::Node(_) => None,
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
        Ok(Reservation { tails: self, person })
    }

    /// The devices that a filter asks for. One that does not exist yet is learned when it appears.
    async fn devices(&self, filter: &Filter) -> Result<(Vec<Device>, Gaps), Refused> {
        let store = self.delivery.store();
        let (mut devices, mut gaps) = (Vec::new(), Gaps::default());
        if let Some(device) = &filter.device {
            let found = store.device(filter.app, device).await?;
            let is_of_user = |found: &Device| filter.user.is_none() || filter.user == found.user;
            devices.extend(found.filter(is_of_user));
        } else if let Some(user) = &filter.user {
            let of_user = DeviceFilter { user: Some(user.clone()), after: None, limit: DEVICES_MAX + 1 };
            devices = store.devices(filter.app, of_user).await?;
            if devices.len() > DEVICES_MAX {
                devices.truncate(DEVICES_MAX);
                gaps.add(Gaps::DEVICES);
            }
        }
        Ok((devices, gaps))
    }

    /// Returns the number of the tail.
    fn add(&self, inner: &mut Inner, selector: Selector, recipient: Recipient) -> u64 {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        inner.state.open(number, selector);
        inner.recipients.insert(number, recipient);
        self.events.set_wants_recipients(inner.state.selects_by_recipients());
        self.set_tapped(true);
        self.run();
        number
    }

    /// Starts the flushes unless they run.
    fn run(&self) {
        let Some(tails) = self.this.upgrade() else { return };
        if self.is_running.swap(true, Ordering::SeqCst) {
            return;
        }
        self.runtime.spawn(async move {
            let flushes = Flushes(tails);
            let mut ticks = tokio::time::interval(FLUSH);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                if !flushes.0.flush().await {
                    return;
                }
            }
        });
    }

    fn set_tapped(&self, is_tapped: bool) {
        if self.events.is_tapped() != is_tapped {
            self.events.set_tapped(is_tapped);
        }
    }

    fn remove(&self, inner: &mut Inner, number: u64) {
        inner.state.close(number);
        self.events.set_wants_recipients(inner.state.selects_by_recipients());
        match inner.recipients.remove(&number) {
            Some(Recipient::Viewer(viewing)) => {
                self.metrics.tails.dec();
                inner.ended.push((number, viewing.asked().to_vec()));
            }
            Some(Recipient::Node(_)) => {
                self.metrics.tails_of_nodes.dec();
            }
            None => {}
        }
    }

    /// False: no tail is open any more.
    async fn flush(&self) -> bool {
        let peers = self.delivery.tails.peers();
        let messages = self.inbox.take();
        let (is_over, ended, wanted, stale) = {
            let mut inner = self.inner.lock();
            messages.into_iter().for_each(|(by, message)| self.receive(&mut inner, by, message, &peers));
            let over: Vec<u64> = inner.recipients.iter().filter_map(over).collect();
            over.into_iter().for_each(|number| self.remove(&mut inner, number));
            let ended = std::mem::take(&mut inner.ended);
            let is_over = inner.recipients.is_empty();
            if is_over {
                self.set_tapped(false);
                self.is_running.store(false, Ordering::SeqCst);
            } else if inner.aged.is_none_or(|at| at.elapsed() >= NAMES_AGE_EVERY) {
                inner.aged = Some(Instant::now());
                inner.state.age();
            }
            (is_over, ended, inner.state.wanted(), stale(&mut inner))
        };
        for (number, epochs) in ended {
            let end = Ask { number, selector: None }.encode();
            epochs.into_iter().for_each(|epoch| self.delivery.tails.ask(epoch, end.clone()));
        }
        if is_over {
            // A request that came meanwhile found that flushes run.
            return !self.inbox.is_empty() && !self.is_running.swap(true, Ordering::SeqCst);
        }
        self.read(wanted, stale).await;
        let Outgoing { asks, reports } = self.send(&peers);
        asks.into_iter().for_each(|(epoch, ask)| self.delivery.tails.ask(epoch, ask));
        for (epoch, report) in reports {
            self.delivery.tails.report(epoch, report.encode());
        }
        true
    }

    /// Reads the store: topics and campaigns of notifications, names of devices, and the devices of filters.
    async fn read(&self, wanted: LookupKeys, stale: Vec<(u64, Filter)>) {
        let lookup = async {
            if wanted.devices.is_empty() && wanted.notifications.is_empty() {
                return;
            }
            self.metrics.tail_lookups.inc();
            match tokio::time::timeout(STORE_PATIENCE, self.delivery.store().lookup(wanted.clone())).await {
                Ok(Ok(found)) => self.inner.lock().state.found(&wanted, found),
                // The events wait for the next flush. After the last attempt they are left out, and the tail states that.
                Ok(Err(_)) | Err(_) => {
                    self.metrics.tail_lookup_failures.inc();
                }
            }
        };
        let devices = async {
            for (number, filter) in stale {
                self.metrics.tail_lookups.inc();
                match self.devices(&filter).await {
                    Ok((devices, gaps)) => self.set_devices(number, filter.app, devices, gaps),
                    Err(_) => {
                        self.metrics.tail_lookup_failures.inc();
                    }
                }
            }
        };
        let devices = tokio::time::timeout(STORE_PATIENCE, devices);
        if let ((), Err(_)) = tokio::join!(lookup, devices) {
            self.metrics.tail_lookup_failures.inc();
        }
    }

    fn set_devices(&self, number: u64, app: AppId, devices: Vec<Device>, gaps: Gaps) {
        let mut inner = self.inner.lock();
        inner.state.name(app, &devices);
        if let Some(tail) = inner.state.tails.get_mut(&number) {
            tail.set_devices(devices.iter().map(|device| device.num).collect());
        }
        if let Some(Recipient::Viewer(viewing)) = inner.recipients.get_mut(&number) {
            viewing.add_gaps(gaps);
        }
    }

    /// Sends viewers their frames.
    fn send(&self, peers: &[Peer]) -> Outgoing {
        let batches: Vec<_> = {
            let Inner { state, recipients, .. } = &mut *self.inner.lock();
            state.retry();
            recipients.keys().filter_map(|number| Some((*number, state.take(*number)?))).collect()
        };
        let (mut asks, mut reports) = (Vec::new(), Vec::new());
        for (number, batch) in batches {
            let shows_networks = batch.shows_networks;
            let shown = |(kind, entry, names): &(Kind, crate::entry::Entry, Vec<_>)| {
                (*kind, entry.shown(*kind, names, shows_networks))
            };
            let shown: Vec<(Kind, Shown)> = batch.events.iter().map(shown).collect();
            let mut inner = self.inner.lock();
            let Inner { state, recipients, .. } = &mut *inner;
            match recipients.get_mut(&number) {
                Some(Recipient::Viewer(viewing)) => {
                    viewing.add(shown, &batch.omitted, batch.gaps, &self.node);
                    let epochs = viewing.ask(peers);
                    if let Some(tail) = state.tails.get(&number).filter(|_| !epochs.is_empty()) {
                        let ask = Ask { number, selector: Some(tail.selector.clone()) }.encode();
                        asks.extend(epochs.iter().map(|epoch| (*epoch, ask.clone())));
                    }
                    if !viewing.send(self.delivery.clock().now(), peers, &self.metrics) {
                        self.remove(&mut inner, number);
                    }
                }
                Some(Recipient::Node(node)) => {
                    let mut queue = Queue::after(batch.omitted, batch.gaps);
                    shown.into_iter().for_each(|(kind, shown)| queue.push(kind, || shown));
                    let is_due = node.sent.is_none_or(|at| at.elapsed() >= REPORT_EVERY);
                    if is_due || !queue.is_empty() {
                        node.sent = Some(Instant::now());
                        let Reporting { epoch, number, sequence, .. } = *node;
                        node.sequence += 1;
                        reports.push((epoch, Report { number, sequence, queue }));
                    }
                }
                None => {}
            }
        }
        Outgoing { asks, reports }
    }

    fn receive(&self, inner: &mut Inner, by: Epoch, message: Message, peers: &[Peer]) {
        match message {
            Message::Ask(ask) => self.asked_by(inner, by, ask),
            Message::Report(report) => {
                if let Some(Recipient::Viewer(viewing)) = inner.recipients.get_mut(&report.number) {
                    viewing.add_report(by, *report, peers);
                }
            }
        }
    }

    fn asked_by(&self, inner: &mut Inner, by: Epoch, Ask { number, selector }: Ask) {
        let is_it = |recipient: &Recipient| matches!(recipient, Recipient::Node(node) if node.epoch == by && node.number == number);
        let known =
            inner.recipients.iter().find(|(_, recipient)| is_it(recipient)).map(|(number, _)| *number);
        let until = Instant::now() + ASKED_FOR;
        match (known, selector) {
            (Some(known), None) => self.remove(inner, known),
            (Some(known), Some(Selector { filter, devices })) => {
                if let Some(Recipient::Node(node)) = inner.recipients.get_mut(&known) {
                    node.until = until;
                }
                if let Some(tail) = inner.state.tails.get_mut(&known) {
                    tail.selector.filter = filter;
                    tail.set_devices(devices);
                }
            }
            (None, Some(selector)) => {
                let is_node = |recipient: &&Recipient| matches!(recipient, Recipient::Node(_));
                // The asking node states that this one is missing.
                if inner.recipients.values().filter(is_node).count() >= TAILS_OF_NODES_MAX {
                    self.metrics.tails_refused.inc();
                    return;
                }
                let node = Reporting { epoch: by, number, until, sequence: 0, sent: None };
                self.add(inner, selector, Recipient::Node(node));
                self.metrics.tails_of_nodes.inc();
            }
            (None, None) => {}
        }
    }
}

/// The number of a tail whose node asks no more.
fn over((number, recipient): (&u64, &Recipient)) -> Option<u64> {
    match recipient {
        Recipient::Node(node) if Instant::now() >= node.until => Some(*number),
        Recipient::Node(_) | Recipient::Viewer(_) => None,
    }
}

/// Viewers' tails whose devices are old: other nodes change devices too.
fn stale(inner: &mut Inner) -> Vec<(u64, Filter)> {
    let Inner { state, recipients, .. } = inner;
    let stale = recipients.iter_mut().filter_map(|(number, recipient)| {
        let Recipient::Viewer(viewing) = recipient else { return None };
        let filter = &state.tails.get(number)?.selector.filter;
        if !filter.is_of_devices() || viewing.devices_read.elapsed() < ASK_EVERY {
            return None;
        }
        viewing.devices_read = Instant::now();
        Some((*number, filter.clone()))
    });
    stale.collect()
}

impl Tap for Tails {
    fn read(&self, records: &mut Vec<Record>, lost: u64) {
        self.inner.lock().state.read(records.drain(..), lost);
    }
}

impl Listener for Tails {
    fn asked(&self, by: Epoch, tail: Bytes) {
        self.inbox.ask(by, tail);
        self.run();
    }

    fn reported(&self, by: Epoch, report: Bytes) {
        self.inbox.report(by, report);
        self.run();
    }
}

impl Viewer {
    /// The next frame, at most four times a second, and every five seconds if nothing happens. `None`: the tail has ended.
    /// Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        self.frames.recv().await
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let mut inner = self.tails.inner.lock();
        self.tails.remove(&mut inner, self.number);
    }
}
