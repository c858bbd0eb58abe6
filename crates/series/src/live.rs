//! Live figures of the cluster, once a second while streams are open.
//!
//! ```text
//!   first viewer ─► sampling task ── own figures ─────────────┐
//!                        │ asks other nodes every 5 s         ├─► one text for each scope ─► all viewers of this node
//!   other node ─► reporting task ─ its figures, each second ──┘
//! ```
//!
//! The sampling task ends with the last viewer, the reporting task when no node has asked for a while; without them nothing
//! runs. A viewer that does not keep up misses texts. A node without a report of the last seconds is named as missing, and
//! the sums are without it.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use noroshi_delivery::Delivery;
use noroshi_delivery::figures::{ASKED_FOR, Listener, REPORT_BYTES_MAX};
use noroshi_types::{AppId, PersonId, Timestamp};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::figure::{Kind, SHOWN, STEPS, Shown};
use crate::metrics::Metrics;
use crate::row::{Row, Values, add, quantile_of};
use crate::sampler::{Sampler, since};

const INTERVAL: Duration = Duration::from_secs(1);
const ASK_EVERY: Duration = Duration::from_secs(5);
/// A report counts for this long.
const FRESH_FOR: Duration = Duration::from_millis(3_500);
/// Nodes that may ask this one. More than a cell has.
const ASKERS_MAX: usize = 256;
/// Open streams of a node. The admin address has twice as many connections, so that streams leave room for health checks.
pub const VIEWERS_MAX: usize = 64;
/// Of these, those of a person: nobody takes the places of all others.
pub const VIEWERS_OF_PERSON_MAX: usize = 16;

/// Whose figures a viewer sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Of all apps, and the names of the nodes.
    All,
    App(AppId),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// [`VIEWERS_MAX`] streams are open.
    Full,
    /// The person has [`VIEWERS_OF_PERSON_MAX`] open.
    FullForPerson,
    /// The node stops.
    Closed,
}

/// Figures of a node since its start.
#[derive(Debug, Clone)]
struct Report {
    /// On the clock of the node, which never goes back.
    at_ms: u64,
    totals: Values,
    apps: HashMap<u32, Values>,
}

struct Reported {
    before: Option<Report>,
    last: Report,
    received: Instant,
}

#[derive(Default)]
struct State {
    viewers: HashMap<Scope, usize>,
    people: HashMap<PersonId, usize>,
    is_sampling: bool,
    /// Of other nodes, while this node samples.
    reports: HashMap<Epoch, Reported>,
    is_reporting: bool,
    /// Nodes that asked, until when, and for which apps.
    askers: HashMap<Epoch, (Instant, Vec<AppId>)>,
}

/// What viewers of each scope see now.
#[derive(Default)]
struct Texts(HashMap<Scope, Bytes>);

pub struct Live {
    sampler: Arc<Sampler>,
    delivery: Arc<Delivery>,
    node: String,
    runtime: Handle,
    metrics: Metrics,
    origin: Instant,
    /// Never locked across an await, and nothing is called under it.
    state: Mutex<State>,
    texts: watch::Sender<Arc<Texts>>,
    closed: CancellationToken,
    this: Weak<Live>,
}

/// One open stream, until it is dropped.
pub struct Viewer {
    live: Arc<Live>,
    person: PersonId,
    scope: Scope,
    texts: watch::Receiver<Arc<Texts>>,
}

impl Live {
    /// Attaches itself to `delivery`, to answer other nodes.
    pub fn new(
        sampler: Arc<Sampler>,
        delivery: Arc<Delivery>,
        node: String,
        runtime: Handle,
        metrics: Metrics,
    ) -> Arc<Self> {
        let live = Arc::new_cyclic(|this| Self {
            sampler,
            delivery,
            node,
            runtime,
            metrics,
            origin: Instant::now(),
            state: Mutex::default(),
            texts: watch::Sender::default(),
            closed: CancellationToken::new(),
            this: this.clone(),
        });
        let listener: Weak<dyn Listener> = live.this.clone();
        live.delivery.figures.attach(listener);
        live
    }

    /// Ends all streams, and refuses new ones.
    pub fn close(&self) {
        self.closed.cancel();
    }

    pub fn view(&self, person: PersonId, scope: Scope) -> Result<Viewer, Refused> {
        let live = self.this.upgrade().filter(|live| !live.closed.is_cancelled()).ok_or(Refused::Closed)?;
        let texts = self.texts.subscribe();
        let mut state = self.state.lock();
        let refused = match state.people.get(&person) {
            Some(VIEWERS_OF_PERSON_MAX..) => Some(Refused::FullForPerson),
            _ if state.viewers.values().sum::<usize>() >= VIEWERS_MAX => Some(Refused::Full),
            _ => None,
        };
        if let Some(refused) = refused {
            self.metrics.series_viewers_refused.inc();
            return Err(refused);
        }
        *state.viewers.entry(scope).or_default() += 1;
        *state.people.entry(person).or_default() += 1;
        self.metrics.series_viewers.inc();
        if !std::mem::replace(&mut state.is_sampling, true) {
            self.runtime.spawn(sample_forever(live.clone()));
        }
        drop(state);
        Ok(Viewer { live, person, scope, texts })
    }

    fn report(&self, apps: impl Iterator<Item = AppId>) -> Report {
        self.metrics.series_live_samples.inc();
        let apps = apps.filter_map(|app| Some((app.0, self.sampler.app(app)?))).collect();
        let at_ms = u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Report { at_ms, totals: self.sampler.totals(), apps }
    }

    /// False: there is no viewer any more.
    fn sample(&self, sampling: &mut Sampling) -> bool {
        let scopes: BTreeSet<Option<u32>> = {
            let mut state = self.state.lock();
            if state.viewers.is_empty() || self.closed.is_cancelled() {
                state.is_sampling = false;
                state.reports.clear();
                return false;
            }
            state.viewers.keys().map(|scope| app_of(*scope)).collect()
        };
        let apps: Vec<AppId> = scopes.iter().flatten().map(|app| AppId(*app)).collect();
        let peers = self.delivery.figures.peers();
        if sampling.asked.is_none_or(|at| at.elapsed() >= ASK_EVERY) || sampling.apps != apps {
            let known = peers.iter().filter(|peer| peer.reports).map(|peer| peer.epoch);
            self.delivery.figures.ask(known, &apps);
            (sampling.asked, sampling.apps) = (Some(Instant::now()), apps.clone());
        }
        let own = self.report(apps.into_iter());
        let before = sampling.own.replace(own.clone());
        let mut sums: HashMap<Option<u32>, Sum> = HashMap::new();
        let mut nodes = vec![(self.node.clone(), true)];
        scopes.iter().for_each(|scope| sums.entry(*scope).or_default().add(before.as_ref(), &own, *scope));
        {
            let mut state = self.state.lock();
            state.reports.retain(|epoch, _| peers.iter().any(|peer| peer.epoch == *epoch));
            for peer in &peers {
                let report = state.reports.get(&peer.epoch);
                let report = report.filter(|report| report.received.elapsed() < FRESH_FOR);
                nodes.push((peer.name.clone(), report.is_some()));
                let Some(Reported { before, last, .. }) = report else { continue };
                for scope in &scopes {
                    sums.entry(*scope).or_default().add(before.as_ref(), last, *scope);
                }
            }
        }
        nodes.sort_unstable();
        let now = self.delivery.clock().now();
        let texts = sums.iter().map(|(scope, sum)| (scope_of(*scope), text(*scope, sum, &nodes, now)));
        self.texts.send_replace(Arc::new(Texts(texts.collect())));
        true
    }

    /// Sends figures to the nodes that asked. False: none has asked for a while.
    fn report_to_askers(&self) -> bool {
        let (askers, apps) = {
            let mut state = self.state.lock();
            state.askers.retain(|_, (until, _)| Instant::now() < *until);
            if state.askers.is_empty() || self.closed.is_cancelled() {
                state.is_reporting = false;
                return false;
            }
            let apps: BTreeSet<AppId> = state.askers.values().flat_map(|(_, apps)| apps.clone()).collect();
            (state.askers.keys().copied().collect::<Vec<_>>(), apps)
        };
        let report = encode(&self.report(apps.into_iter()));
        askers.into_iter().for_each(|asker| self.delivery.figures.report(asker, report.clone()));
        true
    }
}

/// What the sampling task knows.
#[derive(Default)]
struct Sampling {
    own: Option<Report>,
    asked: Option<Instant>,
    apps: Vec<AppId>,
}

async fn sample_forever(live: Arc<Live>) {
    let mut sampling = Sampling::default();
    let mut ticks = interval();
    loop {
        ticks.tick().await;
        if !live.sample(&mut sampling) {
            return;
        }
    }
}

async fn report_forever(live: Arc<Live>) {
    let mut ticks = interval();
    loop {
        ticks.tick().await;
        if !live.report_to_askers() {
            return;
        }
    }
}

fn interval() -> tokio::time::Interval {
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    ticks
}

impl Listener for Live {
    fn asked(&self, by: Epoch, mut apps: Vec<AppId>) {
        let Some(live) = self.this.upgrade() else { return };
        apps.truncate(VIEWERS_MAX);
        let mut state = self.state.lock();
        if state.askers.len() >= ASKERS_MAX && !state.askers.contains_key(&by) {
            return;
        }
        state.askers.insert(by, (Instant::now() + ASKED_FOR, apps));
        if !std::mem::replace(&mut state.is_reporting, true) {
            self.runtime.spawn(report_forever(live));
        }
    }

    fn reported(&self, by: Epoch, report: Bytes) {
        let Some(last) = decode(&report) else { return };
        let mut state = self.state.lock();
        // Reports still come for a while after the last viewer left.
        if !state.is_sampling {
            return;
        }
        let before = state.reports.remove(&by).map(|reported| reported.last);
        state.reports.insert(by, Reported { before, last, received: Instant::now() });
    }
}

impl Viewer {
    /// The next text, at most once a second. `None`: the stream ends. Cancel-safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            tokio::select! {
                () = self.live.closed.cancelled() => return None,
                changed = self.texts.changed() => changed.ok()?,
            }
            if let Some(text) = self.texts.borrow_and_update().0.get(&self.scope) {
                return Some(text.clone());
            }
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        self.live.metrics.series_viewers.dec();
        let mut state = self.live.state.lock();
        release(&mut state.viewers, self.scope);
        release(&mut state.people, self.person);
    }
}

/// One less of this key.
fn release<K: Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Entry::Occupied(mut count) = counts.entry(key) {
        *count.get_mut() -= 1;
        if *count.get() == 0 {
            count.remove();
        }
    }
}

fn app_of(scope: Scope) -> Option<u32> {
    match scope {
        Scope::All => None,
        Scope::App(app) => Some(app.0),
    }
}

fn scope_of(app: Option<u32>) -> Scope {
    app.map_or(Scope::All, |app| Scope::App(AppId(app)))
}

/// Of several nodes: gauges as they are, counts per second, and times of the last second.
#[derive(Default)]
struct Sum {
    gauges: HashMap<u16, u64>,
    /// `None` until a node reported twice.
    rates: Option<HashMap<u16, f64>>,
    times: Values,
}

impl Sum {
    fn add(&mut self, before: Option<&Report>, last: &Report, app: Option<u32>) {
        let none = Values::new();
        let of = |report: &'_ Report| match app {
            None => report.totals.clone(),
            Some(app) => report.apps.get(&app).unwrap_or(&none).clone(),
        };
        let now = of(last);
        for shown in SHOWN.iter().filter(|shown| shown.kind == Kind::Gauge) {
            *self.gauges.entry(shown.number).or_default() +=
                now.get(&shown.number).copied().unwrap_or_default();
        }
        // An app that was not asked for the last time has no difference.
        let known = |report: &&Report| app.is_none_or(|app| report.apps.contains_key(&app));
        let Some(before) = before.filter(known).filter(|before| before.at_ms < last.at_ms) else { return };
        let seconds = (last.at_ms - before.at_ms) as f64 / 1_000.0;
        let rates = self.rates.get_or_insert_default();
        for (number, value) in since(&of(before), &now) {
            *rates.entry(number).or_default() += value as f64 / seconds;
            add(&mut self.times, number, value);
        }
    }

    fn shown(&self, shown: &Shown) -> Option<f64> {
        let value = match shown.kind {
            Kind::Gauge => self.gauges.get(&shown.number).copied().map(|value| value as f64),
            Kind::Count => {
                self.rates.as_ref().map(|rates| rates.get(&shown.number).copied().unwrap_or_default())
            }
            Kind::Time => quantile_of(&self.times, shown.number, shown.quantile),
        };
        let digits = if shown.kind == Kind::Time { 1e6 } else { 10.0 };
        value.map(|value| (value * digits).round() / digits)
    }
}

#[derive(Serialize)]
struct Body<'a> {
    at: String,
    /// People with a role in one app do not see the nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<Vec<NodeBody<'a>>>,
    nodes_missing: usize,
    figures: serde_json::Map<String, serde_json::Value>,
}

#[derive(Serialize)]
struct NodeBody<'a> {
    name: &'a str,
    missing: bool,
}

/// An event of an event stream.
fn text(app: Option<u32>, sum: &Sum, nodes: &[(String, bool)], now: Timestamp) -> Bytes {
    let figures = SHOWN.iter().filter(|shown| app.is_none() || shown.is_of_apps);
    let figures = figures.map(|shown| (shown.name.to_owned(), sum.shown(shown).into())).collect();
    let listed = nodes.iter().map(|(name, is_there)| NodeBody { name, missing: !is_there });
    let body = Body {
        at: now.to_string(),
        nodes: app.is_none().then(|| listed.collect()),
        nodes_missing: nodes.iter().filter(|(_, is_there)| !is_there).count(),
        figures,
    };
    // Strings and numbers always have a JSON text.
    let json = serde_json::to_string(&body).unwrap_or_default();
    Bytes::from(format!("event: figures\ndata: {json}\n\n"))
}

/// The time, and a row with totals instead of differences.
fn encode(report: &Report) -> Bytes {
    let mut row = Row { values: report.totals.clone(), ..Row::default() };
    row.values.insert(STEPS, 1);
    row.apps = report.apps.iter().map(|(app, values)| (*app, values.clone())).collect();
    let mut bytes = report.at_ms.to_le_bytes().to_vec();
    bytes.extend(row.encode_within(REPORT_BYTES_MAX - bytes.len()));
    bytes.into()
}

fn decode(bytes: &[u8]) -> Option<Report> {
    let (at_ms, row) = bytes.split_first_chunk()?;
    let mut row = Row::decode(row).ok()?;
    row.values.remove(&STEPS);
    Some(Report {
        at_ms: u64::from_le_bytes(*at_ms),
        totals: row.values,
        apps: row.apps.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests;
