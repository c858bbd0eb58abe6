//! Between the gateway and the API, in both directions: a connection that speaks plain HTTP goes to the
//! API, and a later request on such a connection that wants a WebSocket or events goes back. Neither
//! crate knows the other.
//!
//! The API's share of the descriptors is bounded: idle keep-alive connections cannot crowd out devices.

use std::sync::{Arc, OnceLock};

use axum::Router;
use noroshi_api::{Peer, serve_connection};
use noroshi_gateway::{Gateway, Handover, HandoverFn};
use noroshi_telemetry::Registry;
use prometheus_client::metrics::counter::Counter;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tasks::Tasks;

/// What serves the API's connections.
pub(crate) struct ApiConnections {
    pub(crate) router: Router,
    /// How many there may be at once; one more is closed without an answer.
    pub(crate) max: usize,
    refused: Counter,
    connections: TaskTracker,
    end: CancellationToken,
    runtime: Handle,
}

impl ApiConnections {
    /// The counter has to be registered before the registry is shared, so before there is a router.
    pub(crate) fn refused(registry: &mut Registry) -> Counter {
        let refused = Counter::default();
        let help = "API connections closed at once: the API's share of the descriptors is in use";
        registry.register("api_connections_refused", help, refused.clone());
        refused
    }

    pub(crate) fn new(router: Router, max: usize, refused: Counter, tasks: &Tasks) -> Self {
        let (connections, end) = (tasks.connections.clone(), tasks.connections_end().clone());
        Self { router, max, refused, connections, end, runtime: Handle::current() }
    }

    /// For the gateway, which calls it on its shards.
    pub(crate) fn handover(self) -> HandoverFn {
        Arc::new(move |handover| self.take(handover))
    }

    fn take(&self, handover: Handover) {
        if self.connections.len() >= self.max {
            self.refused.inc();
            return;
        }
        let (router, end) = (self.router.clone(), self.end.clone());
        let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
        let served = async move {
            match handover.into_io() {
                Ok(io) => serve_connection(io, router, peer, end.cancelled_owned()).await,
                Err(error) => {
                    tracing::debug!(%error, peer = %peer.address, "a connection could not be handed over");
                }
            }
        };
        self.runtime.spawn(self.connections.track_future(served));
    }
}

/// The way back. The gateway is known later than the API that is given this.
pub(crate) fn tunnel(gateway: Arc<OnceLock<Arc<Gateway>>>) -> noroshi_api::Tunnel {
    Arc::new(move |head, _peer| match gateway.get() {
        Some(gateway) => gateway.tunnel(head),
        None => Err(std::io::ErrorKind::NotConnected.into()),
    })
}
