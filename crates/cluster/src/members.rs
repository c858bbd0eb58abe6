//! The list of nodes and what each reports about itself. One lease per node covers all of its connections.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Epoch;

/// The jobs of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Roles {
    pub api: bool,
    pub gateway: bool,
    pub sender: bool,
}

impl Roles {
    pub const ALL: Self = Self { api: true, gateway: true, sender: true };
}

/// Stored with the lease and read by every node. Unknown fields of newer versions are ignored, and missing fields of
/// older versions get their default, so versions may be mixed during a rolling upgrade.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeInfo {
    pub name: String,
    pub roles: Roles,
    /// The address for devices and providers.
    pub http: String,
    /// The address of the admin API, for other nodes and `noroshi nodes`.
    pub admin: String,
    pub version: String,
    /// Unix time.
    pub started_at_ms: i64,
    /// `HOST:PORT` at which the node accepts links; empty: it uses Redis only.
    pub links: String,
    pub connections: u64,
    pub sessions: u64,
    pub deliveries_per_second: f64,
    /// Cores in use (1.5 = one and a half), if the system reports it.
    pub cpu: Option<f64>,
    /// The state of a drain, as in the admin API; empty: none.
    pub drain: String,
    /// It sends a push to the token that the push names. Older versions send it to the main token.
    pub push_tokens: bool,
    /// The push services that it knows. All versions know APNs, FCM and Web Push.
    pub push_services: Vec<String>,
    /// It sends broadcasts to channels of APNs, if it sends pushes. Older versions leave them in the store.
    pub broadcasts: bool,
    /// It knows Live Activities. Older versions do not let devices join.
    pub activities: bool,
    /// It reports live figures when asked. Older versions do not know the question.
    pub figures: bool,
    /// It reports events of live tails when asked. Older versions do not know the question.
    pub tails: bool,
}

/// The largest `NodeInfo` as JSON: each node reads those of all others once a second.
pub const INFO_BYTES_MAX: usize = 4 << 10;

/// A node with a live lease.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeView {
    pub epoch: Epoch,
    pub info: NodeInfo,
    /// At the time the list was read.
    pub lease_remaining: Duration,
    pub is_self: bool,
}

pub trait Members: Send + Sync {
    /// At most about a second old; sorted by name, then epoch.
    fn nodes(&self) -> Arc<Vec<NodeView>>;
    /// The epoch that this node holds now, by its own clock. `None`: expired, or not joined yet.
    fn epoch(&self) -> Option<Epoch>;
    /// Written with the next renewal of the lease.
    fn set_info(&self, info: NodeInfo);
}
