//! Passes connections between gateway and API: an ordinary HTTP connection goes to the API, and one whose next request is a
//! WebSocket or event stream goes back. An HTTP/2 connection stays with the API, which bridges single streams to the gateway.
//! Neither crate knows the other.
//!
//! A pool (`noroshi_api::Pool`) limits the API's share of the descriptors. It evicts idle connections without credentials first,
//! so these displace neither devices nor providers. Rejected connections get 503.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use noroshi_api::{
    BridgeFn, GatewayStream, Handoff, Peer, Place, Pool, Rejection, Serving, no_capacity_router,
    serve_connection,
};
use noroshi_auth::ClientNetwork;
use noroshi_gateway::{Gateway, Handover, HandoverFn};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::tasks::Tasks;

/// Concurrent connections that get 503. A further one is closed without a response, since a response needs one of the reserved
/// descriptors.
pub(crate) const REFUSED_MAX: usize = 32;

/// Short, since the request has arrived (except on the admin address) and the response is small.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Serves the API's connections.
#[derive(Clone)]
pub(crate) struct ApiConnections {
    serving: Serving,
    pool: Pool,
    refusals: Refusals,
    /// Set after the API was built.
    gateway: Arc<OnceLock<Arc<Gateway>>>,
    connections: TaskTracker,
    end: CancellationToken,
    runtime: Handle,
}

impl ApiConnections {
    pub(crate) fn new(
        serving: Serving,
        pool: Pool,
        gateway: Arc<OnceLock<Arc<Gateway>>>,
        tasks: &Tasks,
    ) -> Self {
        let (connections, end) = (tasks.connections.clone(), tasks.connections_end().clone());
        let refusals = Refusals::new(&serving);
        Self { serving, pool, refusals, gateway, connections, end, runtime: Handle::current() }
    }

    /// The function that the gateway calls on its shards.
    pub(crate) fn handover(self) -> HandoverFn {
        Arc::new(move |handover| self.take(handover))
    }

    fn take(&self, handover: Handover) {
        let address = handover.peer.ip();
        // The connection of a proxy carries requests of many clients.
        let client = (!self.serving.proxies.trusts(address)).then(|| ClientNetwork::of(address));
        let tracked = match self.pool.enter(client) {
            Ok(place) => {
                self.runtime.spawn(self.connections.track_future(self.clone().serve(handover, place)))
            }
            Err(rejection) => match self.refusals.refuse(handover, rejection) {
                Some(refusal) => self.runtime.spawn(self.connections.track_future(refusal)),
                None => return,
            },
        };
        drop(tracked); // the tracker holds it
    }

    async fn serve(self, handover: Handover, place: Place) {
        let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
        let io = match handover.into_io() {
            Ok(io) => io,
            Err(error) => {
                tracing::debug!(%error, peer = %peer.address, "a connection could not be passed to the API");
                return;
            }
        };
        let ended = self.end.clone().cancelled_owned();
        let handoff = serve_connection(io, self.serving, peer, Some(place), ended).await;
        let (Some(Handoff { io, bytes }), Some(gateway)) = (handoff, self.gateway.get()) else { return };
        if let Err(handover) = gateway.take_back(io, bytes)
            && let Some(refusal) = self.refusals.refuse(handover, Rejection::PoolFull)
        {
            refusal.await;
        }
    }
}

/// Passes HTTP/2 streams to the gateway, which is set after the API was built.
pub(crate) fn bridge(gateway: Arc<OnceLock<Arc<Gateway>>>) -> BridgeFn {
    Arc::new(move |peer, head| {
        let (stream, held) = gateway.get()?.bridge(peer, head)?;
        Some(GatewayStream { stream, held: Box::new(held) })
    })
}

/// Responds 503 to connections that the pool rejected.
#[derive(Clone)]
pub(crate) struct Refusals {
    serving: Serving,
    permits: Arc<Semaphore>,
}

impl Refusals {
    pub(crate) fn new(serving: &Serving) -> Self {
        let serving = Serving { router: no_capacity_router(), hands_off: false, ..serving.clone() };
        Self { serving, permits: Arc::new(Semaphore::new(REFUSED_MAX)) }
    }

    /// None if too many are being rejected: the connection is closed.
    pub(crate) fn refuse(
        &self,
        handover: Handover,
        why: Rejection,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
        tracing::debug!(peer = %peer.address, ?why, "an HTTP connection was rejected");
        let permit = self.permits.clone().try_acquire_owned().ok()?;
        let serving = self.serving.clone();
        Some(async move {
            let _permit = permit;
            let Ok(io) = handover.into_io() else { return };
            let refused = serve_connection(io, serving, peer, None, std::future::pending());
            // A client without a request gets no response.
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refused).await;
        })
    }
}
