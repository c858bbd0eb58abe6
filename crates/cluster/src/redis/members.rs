//! This node's knowledge of leases: its own, checked against the clock at every use, and the list of all nodes.
//!
//! All tasks read it; two write: `lease` (the own lease) and [`State::read_list`].

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use ::redis::Value;
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use smallvec::SmallVec;

use super::connections::Connections;
use super::script;
use super::slot::slot;
use crate::clock::Moment;
use crate::members::INFO_BYTES_MAX;
use crate::metrics::{Kind, Metrics};
use crate::{Epoch, Error, Members, NodeInfo, NodeView};

/// Dead epochs remembered; older ones are looked up again.
const DEAD_MAX: usize = 4_096;

pub(crate) struct State {
    keys: [Vec<u8>; 2],
    slot: u16,
    ttl: Duration,
    metrics: Metrics,
    /// 0: none. Read together with the deadline: an epoch is stored after its deadline and removed before it.
    epoch: AtomicU64,
    /// `Moment` in nanoseconds.
    deadline: AtomicU64,
    list: ArcSwap<List>,
    dead: Mutex<Dead>,
    /// Serializes reads of the list. Guards nothing else.
    reading: tokio::sync::Mutex<()>,
    /// This node's info as JSON.
    info: Mutex<String>,
    /// The announced address for links; empty: none.
    links: String,
}

/// The list that Redis returned last.
struct List {
    /// When the request for it was sent.
    asked: Moment,
    nodes: Arc<Vec<NodeView>>,
}

#[derive(Default)]
struct Dead {
    known: HashSet<Epoch>,
    order: VecDeque<Epoch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    Live,
    Dead,
    Unknown,
}

/// A request to the script for leases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Acquire,
    Renew,
    List,
}

/// The answer of the script.
pub(crate) struct Leases {
    pub(crate) asked: Moment,
    pub(crate) done: bool,
    nodes: Vec<(Epoch, Duration, NodeInfo)>,
}

impl State {
    pub(crate) fn new(prefix: &str, ttl: Duration, info: NodeInfo, metrics: Metrics) -> Self {
        let keys = ["leases", "infos"].map(|name| format!("{prefix}:{{nodes}}:{name}").into_bytes());
        Self {
            slot: slot(&keys[0]),
            keys,
            ttl,
            metrics,
            epoch: AtomicU64::new(0),
            deadline: AtomicU64::new(0),
            list: ArcSwap::from_pointee(List { asked: Moment::PAST, nodes: Arc::default() }),
            dead: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
            info: Mutex::new(json_of(&info)),
            links: info.links.clone(),
        }
    }

    pub(crate) fn slot(&self) -> u16 {
        self.slot
    }

    pub(crate) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// `Error::Lost` unless this node holds this epoch now.
    pub(crate) fn check(&self, epoch: Epoch) -> Result<(), Error> {
        match self.epoch() == Some(epoch) {
            true => Ok(()),
            false => Err(Error::Lost),
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanos(self.deadline.load(SeqCst))
    }

    /// The deadline by this node's clock, counted from before the request was sent; Redis' own deadline is later. The
    /// clocks may differ by one percent.
    pub(crate) fn hold(&self, epoch: Epoch, asked: Moment) {
        self.deadline.store(asked.after(self.ttl - self.ttl / 100).as_nanos(), SeqCst);
        self.epoch.store(epoch.0, SeqCst);
    }

    pub(crate) fn release(&self) {
        self.epoch.store(0, SeqCst);
    }

    /// One round trip.
    pub(crate) async fn ask(
        &self,
        connections: &Connections,
        act: Act,
        epoch: Option<Epoch>,
        given_up: Option<Epoch>,
    ) -> Result<Leases, Error> {
        let info = self.info.lock().clone();
        let name = |epoch: Option<Epoch>| epoch.map(|epoch| epoch.to_string()).unwrap_or_default();
        let act = match act {
            Act::Acquire => "acquire",
            Act::Renew => "renew",
            Act::List => "list",
        };
        let mut cmd = script::NODES.call(2);
        cmd.arg(self.keys[0].as_slice()).arg(self.keys[1].as_slice()).arg(act).arg(name(epoch));
        cmd.arg(u64::try_from(self.ttl.as_millis()).unwrap_or(u64::MAX)).arg(info).arg(name(given_up));
        let asked = Moment::now();
        let answer = connections.one(Kind::Lease, self.slot, cmd).await?;
        leases_of(answer, asked).ok_or_else(|| Error::Refused("invalid form of an answer".to_owned()))
    }

    /// Reads the list, unless a list that was requested after this call has arrived.
    pub(crate) async fn read_list(&self, connections: &Connections) -> Result<(), Error> {
        let wanted = Moment::now();
        let _reading = self.reading.lock().await;
        if self.list.load().asked >= wanted {
            return Ok(());
        }
        let leases = self.ask(connections, Act::List, None, None).await?;
        self.apply(leases);
        Ok(())
    }

    /// Whether anything except the remaining times changed.
    pub(crate) fn apply(&self, leases: Leases) -> bool {
        let own = self.epoch.load(SeqCst);
        let mut nodes: Vec<NodeView> = Vec::with_capacity(leases.nodes.len());
        for (epoch, lease_remaining, info) in leases.nodes {
            nodes.push(NodeView { epoch, info, lease_remaining, is_self: epoch.0 == own });
        }
        nodes.sort_by(|a, b| (&a.info.name, a.epoch).cmp(&(&b.info.name, b.epoch)));
        let nodes = Arc::new(nodes);
        let new = Arc::new(List { asked: leases.asked, nodes });
        // Drops an answer that a newer one has overtaken.
        let old = self.list.rcu(|old| if old.asked < new.asked { new.clone() } else { old.clone() });
        if old.asked >= new.asked {
            return false;
        }
        self.metrics.nodes.set(i64::try_from(new.nodes.len()).unwrap_or(i64::MAX));
        for node in old.nodes.iter().filter(|node| !new.nodes.iter().any(|other| other.epoch == node.epoch)) {
            self.remember_dead(node.epoch);
        }
        let same =
            |a: &NodeView, b: &NodeView| a.epoch == b.epoch && a.info == b.info && a.is_self == b.is_self;
        old.nodes.len() != new.nodes.len() || !old.nodes.iter().zip(new.nodes.iter()).all(|(a, b)| same(a, b))
    }

    pub(crate) fn life(&self, epoch: Epoch) -> Life {
        if self.list.load().nodes.iter().any(|node| node.epoch == epoch) {
            return Life::Live;
        }
        match self.dead.lock().known.contains(&epoch) {
            true => Life::Dead,
            false => Life::Unknown,
        }
    }

    /// Missing from a list that is newer than anything that names it: dead for good.
    pub(crate) fn remember_dead(&self, epoch: Epoch) {
        let mut dead = self.dead.lock();
        if dead.known.insert(epoch) {
            dead.order.push_back(epoch);
        }
        if dead.order.len() > DEAD_MAX
            && let Some(oldest) = dead.order.pop_front()
        {
            dead.known.remove(&oldest);
        }
    }

    pub(crate) fn gateways(&self) -> SmallVec<[Epoch; 2]> {
        let list = self.list.load();
        list.nodes.iter().filter(|node| node.info.roles.gateway).map(|node| node.epoch).collect()
    }
}

fn json_of(info: &NodeInfo) -> String {
    match serde_json::to_string(info) {
        Ok(json) if json.len() <= INFO_BYTES_MAX => json,
        _ => {
            tracing::warn!(name = info.name, "this node's info is too long; it reports only its roles");
            let short = NodeInfo {
                roles: info.roles,
                links: info.links.clone(),
                push_tokens: info.push_tokens,
                push_services: info.push_services.clone(),
                broadcasts: info.broadcasts,
                activities: info.activities,
                ..NodeInfo::default()
            };
            serde_json::to_string(&short).unwrap_or_default()
        }
    }
}

/// The answer: done, then (epoch, remaining milliseconds, info) of each.
fn leases_of(answer: Value, asked: Moment) -> Option<Leases> {
    let Value::Array(values) = answer else { return None };
    let (done, rest) = values.split_first()?;
    let mut nodes = Vec::with_capacity(rest.len() / 3);
    for node in rest.chunks_exact(3) {
        let [Value::BulkString(epoch), Value::Int(remaining), Value::BulkString(info)] = node else {
            return None;
        };
        let epoch = u64::from_str_radix(std::str::from_utf8(epoch).ok()?, 16).ok()?;
        // A node of a newer version with an unknown form of info is still a node.
        let info = serde_json::from_slice(info).unwrap_or_default();
        nodes.push((Epoch(epoch), Duration::from_millis(u64::try_from(*remaining).unwrap_or(0)), info));
    }
    Some(Leases { asked, done: *done == Value::Int(1), nodes })
}

impl Members for State {
    fn nodes(&self) -> Arc<Vec<NodeView>> {
        self.list.load().nodes.clone()
    }

    fn epoch(&self) -> Option<Epoch> {
        let epoch = self.epoch.load(SeqCst);
        let is_held = epoch != 0 && Moment::now() < self.deadline();
        // The deadline may be that of a later epoch, if this one was given up meanwhile.
        (is_held && self.epoch.load(SeqCst) == epoch).then_some(Epoch(epoch))
    }

    fn set_info(&self, mut info: NodeInfo) {
        info.links.clone_from(&self.links);
        *self.info.lock() = json_of(&info);
    }
}
