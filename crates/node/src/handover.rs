//! Between the gateway and the API, in both directions: a connection that speaks plain HTTP goes to the
//! API, and one whose next request wants a WebSocket or events goes back. An HTTP/2 connection stays at the API, which passes
//! single streams of it to the gateway. Neither crate knows the other.
//!
//! The API's share of the descriptors is a pool (`noroshi_api::Pool`): idle connections of strangers make room
//! for others, so they crowd out neither devices nor providers. Who finds no room is answered 503.

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

/// Connections that are answered 503 at once; one more is closed without an answer, since an answer costs
/// a descriptor that is kept back for everything else.
pub(crate) const REFUSED_MAX: usize = 32;

/// It has its request, but for the admin address; its answer is short.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(5);

/// What serves the API's connections.
#[derive(Clone)]
pub(crate) struct ApiConnections {
    serving: Serving,
    pool: Pool,
    refusals: Refusals,
    /// Known later than the API is.
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

    /// For the gateway, which calls it on its shards.
    pub(crate) fn handover(self) -> HandoverFn {
        Arc::new(move |handover| self.take(handover))
    }

    fn take(&self, handover: Handover) {
        let address = handover.peer.ip();
        // A proxy's connection carries requests of many clients.
        let client = (!self.serving.proxies.trusts(address)).then(|| ClientNetwork::of(address));
        let tracked = match self.pool.enter(client) {
            Ok(place) => {
                self.runtime.spawn(self.connections.track_future(self.clone().serve(handover, place)))
            }
            Err(no_room) => match self.refusals.refuse(handover, no_room) {
                Some(refusal) => self.runtime.spawn(self.connections.track_future(refusal)),
                None => return,
            },
        };
        drop(tracked); // the tracker has it
    }

    async fn serve(self, handover: Handover, place: Place) {
        let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
        let io = match handover.into_io() {
            Ok(io) => io,
            Err(error) => {
                tracing::debug!(%error, peer = %peer.address, "a connection could not be handed over");
                return;
            }
        };
        let ended = self.end.clone().cancelled_owned();
        let turned = serve_connection(io, self.serving, peer, Some(place), ended).await;
        let (Some(Handoff { io, bytes }), Some(gateway)) = (turned, self.gateway.get()) else { return };
        if let Err(handover) = gateway.take_back(io, bytes)
            && let Some(refusal) = self.refusals.refuse(handover, Rejection::PoolFull)
        {
            refusal.await;
        }
    }
}

/// Passes HTTP/2 streams to the gateway, which is known later than the API is.
pub(crate) fn bridge(gateway: Arc<OnceLock<Arc<Gateway>>>) -> BridgeFn {
    Arc::new(move |peer, head| {
        let (stream, held) = gateway.get()?.bridge(peer, head)?;
        Some(GatewayStream { stream, held: Box::new(held) })
    })
}

/// Answers connections that there is no room for.
#[derive(Clone)]
pub(crate) struct Refusals {
    serving: Serving,
    room: Arc<Semaphore>,
}

impl Refusals {
    pub(crate) fn new(serving: &Serving) -> Self {
        let serving = Serving { router: no_capacity_router(), hands_off: false, ..serving.clone() };
        Self { serving, room: Arc::new(Semaphore::new(REFUSED_MAX)) }
    }

    /// None where too many are being refused: the connection is closed.
    pub(crate) fn refuse(
        &self,
        handover: Handover,
        why: Rejection,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
        tracing::debug!(peer = %peer.address, ?why, "there is no room for an HTTP connection");
        let room = self.room.clone().try_acquire_owned().ok()?;
        let serving = self.serving.clone();
        Some(async move {
            let _room = room;
            let Ok(io) = handover.into_io() else { return };
            let refused = serve_connection(io, serving, peer, None, std::future::pending());
            // A client that sends no request gets no answer.
            let _ = tokio::time::timeout(REFUSAL_TIMEOUT, refused).await;
        })
    }
}
