//! Why a node could not start.

use std::net::SocketAddr;

use noroshi_gateway::{Speaks, tls};

use crate::{cluster, console, data, development, store};

/// Each message is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("tls: {0}")]
    Tls(#[from] tls::Error),
    #[error("{key}: cannot listen on {address}: {reason}")]
    Address { key: &'static str, address: SocketAddr, reason: String },
    #[error(transparent)]
    Gateway(noroshi_gateway::Error),
    #[error("push credentials: {0}")]
    Push(#[from] noroshi_delivery::Error),
    #[error("egress: {0}")]
    Egress(#[from] noroshi_egress::ConfigError),
    #[error(transparent)]
    Data(#[from] data::Error),
    #[error(transparent)]
    Console(#[from] console::Error),
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    #[error("front: {0}")]
    Front(#[from] noroshi_cells::Error),
    #[error("events: {0}")]
    Events(#[from] noroshi_events::Error),
    #[error("sqs: {0}")]
    Sqs(noroshi_cluster::Error),
    #[error(transparent)]
    Development(#[from] development::Error),
    #[error("the database query failed: {0}")]
    Query(#[from] noroshi_store::Error),
    #[error(transparent)]
    Log(#[from] noroshi_telemetry::log::Error),
    #[error("the operating system returned an error: {0}")]
    System(#[from] std::io::Error),
}

impl From<noroshi_gateway::Error> for Error {
    fn from(error: noroshi_gateway::Error) -> Self {
        match error {
            noroshi_gateway::Error::Listen { speaks, address, source } => {
                let key = match speaks {
                    Speaks::Http => "server.http",
                    Speaks::Mqtt => "mqtt.listen",
                    Speaks::Xmpp => "xmpp.listen",
                };
                Error::address(key, address, &source)
            }
            error @ noroshi_gateway::Error::Start(_) => Error::Gateway(error),
        }
    }
}

impl Error {
    /// An address of the configuration key `key` is not usable.
    pub(crate) fn address(key: &'static str, address: SocketAddr, error: &std::io::Error) -> Self {
        let reason = match error.kind() {
            std::io::ErrorKind::AddrInUse => "another process listens there".to_owned(),
            std::io::ErrorKind::AddrNotAvailable => "this machine does not have the address".to_owned(),
            std::io::ErrorKind::PermissionDenied => {
                "permission denied; ports below 1024 require a privilege".to_owned()
            }
            _ => error.to_string(),
        };
        Self::Address { key, address, reason }
    }
}
