//! What this crate has to know of the other nodes of a cluster: the node puts what it knows behind
//! [`Nodes`].

use std::time::Duration;

use noroshi_types::Timestamp;

pub trait Nodes: Send + Sync {
    /// Those that are there, this one among them, by name.
    fn nodes(&self) -> Vec<Node>;

    /// Where a device that registers now is to connect, as a URL without a path; none: to the node that it
    /// asks. Of a node that holds devices, lets them in, and has few.
    fn gateway(&self) -> Option<String>;

    /// As [`Nodes::gateway`], for a device that was told `before`: the same again, as long as it lets devices in.
    fn gateway_again(&self, before: &str) -> Option<String>;
}

/// A node, as it described itself some seconds ago at most.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub name: String,
    /// Names its lease; none: it is alone and needs none.
    pub epoch: Option<String>,
    pub roles: Vec<&'static str>,
    pub http: String,
    pub admin: String,
    pub version: String,
    pub started_at: Timestamp,
    /// The others take it for gone if they hear nothing for so long.
    pub lease: Option<Duration>,
    /// Of devices.
    pub connections: u64,
    /// Messages written to devices a second, over the last seconds.
    pub deliveries_per_second: f64,
    /// Cores in use.
    pub cpu: Option<f64>,
    /// `serving`, `draining`, `drained` or `stopping`.
    pub drain: String,
    /// The one that was asked.
    pub this: bool,
}
