//! The nodes of a cluster, on the admin listener.

use std::sync::Arc;

use axum::extract::State as Shared;
use serde::Serialize;

use crate::nodes::{Node, Nodes};
use crate::request::access::Manager;
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct NodeBody {
    name: String,
    this: bool,
    epoch: Option<String>,
    roles: Vec<&'static str>,
    http: String,
    admin: String,
    version: String,
    started_at: String,
    lease_ms: Option<u64>,
    connections: u64,
    deliveries_per_second: f64,
    cpu: Option<f64>,
    drain: String,
}

/// `GET /v1/nodes`
pub(crate) async fn list(Shared(nodes): Shared<Option<Arc<dyn Nodes>>>, _: Manager) -> Answer {
    let nodes = nodes.as_ref().map(|nodes| nodes.nodes()).unwrap_or_default();
    respond::field("nodes", nodes.into_iter().map(NodeBody::from).collect::<Vec<_>>())
}

impl From<Node> for NodeBody {
    fn from(node: Node) -> Self {
        let tenth = |value: f64| (value * 10.0).round() / 10.0;
        Self {
            name: node.name,
            this: node.this,
            epoch: node.epoch,
            roles: node.roles,
            http: node.http,
            admin: node.admin,
            version: node.version,
            started_at: node.started_at.to_string(),
            lease_ms: node.lease.map(|lease| u64::try_from(lease.as_millis()).unwrap_or(u64::MAX)),
            connections: node.connections,
            deliveries_per_second: tenth(node.deliveries_per_second),
            cpu: node.cpu.map(|cores| (cores * 1_000.0).round() / 1_000.0),
            drain: node.drain,
        }
    }
}
