//! The interface to the nodes of a cluster. The node implements [`Nodes`].

use std::time::Duration;

use noroshi_types::Timestamp;

/// The nodes of a cluster.
pub trait Nodes: Send + Sync {
    /// All live nodes, including this one, sorted by name.
    fn nodes(&self) -> Vec<Node>;

    /// The base URL of a lightly loaded gateway that accepts devices, for a device that registers. None: the node that
    /// received the request.
    fn gateway(&self) -> Option<String>;

    /// As [`Nodes::gateway`], but returns `before` while that gateway accepts devices.
    fn gateway_again(&self, before: &str) -> Option<String>;
}

/// A node's description of itself, a few seconds old at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: String,
    /// Identifies its lease. None: the node has no cluster.
    pub epoch: Option<String>,
    pub roles: Vec<&'static str>,
    pub http: String,
    pub admin: String,
    pub version: String,
    pub started_at: Timestamp,
    /// The remaining time of its lease.
    pub lease: Option<Duration>,
    /// Connections of devices.
    pub connections: u64,
    /// Messages written to devices per second, over the last seconds.
    pub deliveries_per_second: f64,
    /// Cores in use.
    pub cpu: Option<f64>,
    /// `serving`, `draining`, `drained` or `stopping`.
    pub drain: String,
    /// Whether it is this node.
    pub this: bool,
}
