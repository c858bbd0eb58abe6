//! Which servers exist and which slots each of them keeps, as `discovery` found it last; and whether a server has lost
//! what this node stored on it. `connections` routes by it.

use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::address::Host;
use super::server::{Context, Server};
use crate::Error;

/// Which server keeps which slot.
#[derive(Default)]
pub(crate) struct Topology {
    pub(crate) servers: Vec<Arc<Server>>,
    /// By slot, the index of its server plus one; 0: none. Empty: the first server keeps all slots.
    pub(crate) slots: Vec<u8>,
}

impl Topology {
    pub(crate) fn server(&self, slot: u16) -> Result<&Arc<Server>, Error> {
        let index = match self.slots.get(usize::from(slot)) {
            None => Some(0),
            Some(index) => usize::from(*index).checked_sub(1),
        };
        let server = index.and_then(|index| self.servers.get(index));
        server.ok_or_else(|| Error::Unavailable("no server keeps this slot".into()))
    }
}

/// The servers and slots that discovery found.
pub(crate) struct Layout {
    pub(crate) hosts: Vec<Host>,
    pub(crate) slots: Vec<u8>,
}

/// The present topology, shared by discovery, the servers' tasks and the connections.
pub(crate) struct TopologyState {
    pub(crate) context: Arc<Context>,
    topology: ArcSwap<Topology>,
    /// A server that slots are migrating to and that keeps none yet. The lock guards only this field.
    pub(crate) importing: Mutex<Option<Host>>,
    /// One slot for each key that this node stores.
    watched: Vec<u16>,
    /// For each watched slot, the run id of its server when it was last seen. The lock guards only this field.
    run_ids: Mutex<Vec<Option<Arc<str>>>>,
    forgotten: watch::Sender<u64>,
}

impl TopologyState {
    /// `watched`: a slot of everything that must be stored again after a server lost it.
    pub(crate) fn new(context: Arc<Context>, watched: Vec<u16>) -> Self {
        Self {
            context,
            topology: ArcSwap::default(),
            importing: Mutex::default(),
            run_ids: Mutex::new(vec![None; watched.len()]),
            watched,
            forgotten: watch::channel(0).0,
        }
    }

    pub(crate) fn load(&self) -> Arc<Topology> {
        self.topology.load_full()
    }

    /// Increases when a server that keeps something of this node may have lost it.
    pub(crate) fn forgotten(&self) -> watch::Receiver<u64> {
        self.forgotten.subscribe()
    }

    /// Adopts a layout: starts a task for each new server and stops those of servers that left.
    pub(crate) fn apply(self: &Arc<Self>, stop: &CancellationToken, layout: &Layout) {
        let old = self.topology.load_full();
        let mut servers = Vec::with_capacity(layout.hosts.len());
        for host in &layout.hosts {
            let known = old.servers.iter().find(|server| server.host == *host);
            servers.push(known.cloned().unwrap_or_else(|| {
                tracing::info!(server = %host, "a redis server joined");
                let server = Arc::new(Server::new(host.clone(), stop.child_token()));
                let (state, context) = (self.clone(), self.context.clone());
                tokio::spawn(server.clone().run(context, move || state.check_run_ids()));
                server
            }));
        }
        let gone = old.servers.iter().filter(|server| !layout.hosts.contains(&server.host));
        let gone: Vec<_> = gone.cloned().collect();
        self.topology.store(Arc::new(Topology { servers, slots: layout.slots.clone() }));
        for server in gone {
            tracing::info!(server = %server.host, "a redis server left");
            server.stop.cancel();
        }
        self.check_run_ids();
    }

    /// Call it when a connection opened or closed, or slots moved: a watched slot whose server has another run id may be
    /// empty.
    fn check_run_ids(&self) {
        let topology = self.topology.load();
        let up = topology.servers.iter().filter(|server| server.run_id().is_some()).count();
        self.context.metrics.servers.set(i64::try_from(topology.servers.len()).unwrap_or(i64::MAX));
        self.context.metrics.servers_up.set(i64::try_from(up).unwrap_or(i64::MAX));
        let mut run_ids = self.run_ids.lock();
        let mut forgotten = false;
        for (slot, known) in self.watched.iter().zip(run_ids.iter_mut()) {
            let Some(now) = topology.server(*slot).ok().and_then(|server| server.run_id()) else { continue };
            forgotten |= known.as_ref().is_some_and(|known| *known != now);
            *known = Some(now);
        }
        drop(run_ids);
        if forgotten {
            self.context.metrics.forgotten.inc();
            self.forgotten.send_modify(|count| *count += 1);
        }
    }
}
