//! Which nodes there are and what they say of themselves. One lease for each node stands for all of its connections.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Epoch;

/// What a node does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Roles {
    pub api: bool,
    pub gateway: bool,
    pub sender: bool,
}

impl Roles {
    pub const ALL: Self = Self { api: true, gateway: true, sender: true };
}

/// Written beside the lease, read by every node; unknown fields of newer versions are passed over, missing ones of
/// older versions get their default, so versions can be mixed while nodes are upgraded one by one.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    pub name: String,
    pub roles: Roles,
    /// The address that consumers and providers are told.
    pub http: String,
    /// Where other nodes and `noroshi nodes` reach the admin API.
    pub admin: String,
    pub version: String,
    /// Unix time.
    pub started_at_ms: i64,
    pub connections: u64,
    pub sessions: u64,
    pub deliveries_per_second: f64,
    /// Cores in use (1.5 = one and a half), if the system tells.
    pub cpu: Option<f64>,
    /// How far a drain is, in the admin API's word; empty: none.
    pub drain: String,
}

/// The largest `NodeInfo` as JSON: each node reads that of all others once a second.
pub const INFO_BYTES_MAX: usize = 4 << 10;

/// A node with a live lease.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    pub epoch: Epoch,
    pub info: NodeInfo,
    /// As of the moment the list was read.
    pub lease_remaining: Duration,
    pub is_self: bool,
}

pub trait Members: Send + Sync {
    /// At most about a second old; in order of name, then epoch.
    fn nodes(&self) -> Arc<Vec<NodeView>>;
    /// The epoch this node holds now, by its own clock. `None`: lost, or not joined yet.
    fn epoch(&self) -> Option<Epoch>;
    /// Written with the next renewal of the lease.
    fn set_info(&self, info: NodeInfo);
}
