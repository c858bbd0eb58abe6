//! Where work is done: each node and engine on its own machine, as in production, or all of them and the load
//! generator on one machine, as in benchmarks.

use crate::parameter::Parameters;
use crate::queue::{Seconds, Served, Station};

/// The component that does a piece of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Gateway(usize),
    Api(usize),
    Redis,
    Postgres,
    /// Counts only on a shared machine.
    Client,
}

#[derive(Debug, Clone)]
pub(crate) struct Layout {
    gateways: Vec<Station>,
    apis: Vec<Station>,
    redis: Station,
    postgres: Station,
    /// `Some`: everything runs on this machine.
    shared: Option<Station>,
    one_way: Seconds,
}

impl Layout {
    pub(crate) fn machines(parameters: &Parameters, gateways: usize, apis: usize, shards: usize) -> Self {
        let station = |cores: f64| Station::new(cores.round() as usize);
        Self {
            gateways: vec![station(parameters.gateway.cores); gateways.max(1)],
            apis: vec![station(parameters.api.cores); apis.max(1)],
            redis: Station::new(shards),
            postgres: station(parameters.postgres.cores),
            shared: None,
            one_way: parameters.network.one_way_ms / 1e3,
        }
    }

    pub(crate) fn one_machine(cores: usize, gateways: usize, apis: usize) -> Self {
        let idle = Station::new(1);
        Self {
            gateways: vec![idle.clone(); gateways.max(1)],
            apis: vec![idle.clone(); apis.max(1)],
            redis: idle.clone(),
            postgres: idle,
            shared: Some(Station::new(cores)),
            one_way: 0.0,
        }
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.shared.is_some()
    }

    pub(crate) fn gateways(&self) -> usize {
        self.gateways.len()
    }

    pub(crate) fn apis(&self) -> usize {
        self.apis.len()
    }

    /// Threads of a gateway that own connections: one per core.
    pub(crate) fn shards(&self) -> usize {
        self.shared.as_ref().unwrap_or(&self.gateways[0]).servers()
    }

    /// One-way network delay between two of its machines.
    pub(crate) fn one_way(&self) -> Seconds {
        self.one_way
    }

    pub(crate) fn serve(&mut self, role: Role, now: Seconds, service: Seconds) -> Served {
        if let Some(shared) = &mut self.shared {
            return shared.serve(now, service);
        }
        match role {
            Role::Gateway(number) => self.gateways[number].serve(now, service),
            Role::Api(number) => self.apis[number].serve(now, service),
            Role::Redis => self.redis.serve(now, service),
            Role::Postgres => self.postgres.serve(now, service),
            Role::Client => Served { start: now, end: now },
        }
    }

    /// Total busy time of the gateways, or of the shared machine.
    pub(crate) fn busy(&self) -> Seconds {
        match &self.shared {
            Some(shared) => shared.busy(),
            None => self.gateways.iter().map(Station::busy).sum(),
        }
    }
}
