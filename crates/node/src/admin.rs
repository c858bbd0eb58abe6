//! The admin listener: a separate socket, so that metrics and health checks work while the public side is full or draining. Uses
//! the gateway's TLS, so both addresses handle certificates the same way.
//!
//! Its connections have their own pool, which evicts those without a request and idle ones, so clients cannot lock
//! out an operator.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use noroshi_api::{Http2, Peer, Place, Pool, PoolLimits, PoolMetrics, Serving, Timing, serve_connection};
use noroshi_gateway::{Handover, tls};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;
use crate::handover::Refusals;

/// Two thirds of them may be streams of live figures and live tails; the others are for operators, collectors and open
/// consoles.
pub(crate) const CONNECTIONS_MAX: usize = 128;
const STREAMS_MAX: usize = noroshi_series::live::VIEWERS_MAX + noroshi_tail::tails::TAILS_MAX;
const _: () = assert!(STREAMS_MAX * 3 <= CONNECTIONS_MAX * 2);

/// Pause after a failed accept: without descriptors, the next one would fail too.
const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct Admin {
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
    timing: Timing,
    http2: Option<Http2>,
}

impl Admin {
    /// Must be called inside a tokio runtime.
    pub(crate) async fn bind(
        config: &Config,
        tls: Option<tls::Acceptor>,
        http2: Option<Http2>,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(config.server.admin).await?;
        Ok(Self { listener, tls, timing: config.limits.timing, http2 })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Moves the socket to the current runtime.
    fn moved(self) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(self.listener.into_std()?)?, ..self })
    }

    /// Serves on the current runtime, which need not be the one it was bound on. Accepts until `end`, then completes current
    /// requests.
    pub(crate) async fn run(self, router: Router, metrics: PoolMetrics, end: CancellationToken) {
        let admin = match self.moved() {
            Ok(admin) => admin,
            Err(error) => return tracing::error!(%error, "the admin address cannot be served"),
        };
        let connections = TaskTracker::new();
        let limits = PoolLimits { connections_max: CONNECTIONS_MAX, per_client_max: 0 };
        let pool = Pool::new("admin", limits, metrics);
        let serving = Serving { timing: admin.timing, http2: admin.http2.clone(), ..Serving::new(router) };
        let refusals = Refusals::new(&serving);
        let next = async || {
            pool.ready().await;
            admin.listener.accept().await
        };
        while let Some(accepted) = end.run_until_cancelled(next()).await {
            let (stream, peer) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "the admin address failed to accept a connection");
                    tokio::time::sleep(RETRY).await;
                    continue;
                }
            };
            let handover = match handover(stream, peer, admin.tls.as_ref()) {
                Ok(handover) => handover,
                Err(error) => {
                    tracing::debug!(%error, %peer, "an admin connection failed at its start");
                    continue;
                }
            };
            match pool.enter_silent(None) {
                Ok(place) => drop(connections.spawn(serve(handover, serving.clone(), place, end.clone()))),
                Err(rejection) => {
                    if let Some(refusal) = refusals.refuse(handover, rejection) {
                        connections.spawn(refusal);
                    }
                }
            }
            // Lets the new connection read a pending request before later connections evict it.
            tokio::task::yield_now().await;
        }
        connections.close();
        connections.wait().await;
    }
}

async fn serve(handover: Handover, serving: Serving, place: Place, end: CancellationToken) {
    let peer = Peer { address: handover.peer, secure: handover.tls.is_some() };
    match handover.into_io() {
        Ok(io) => {
            serve_connection(io, serving, peer, Some(place), end.cancelled()).await;
        }
        Err(error) => {
            tracing::debug!(%error, peer = %peer.address, "an admin connection failed at its start")
        }
    }
}

fn handover(stream: TcpStream, peer: SocketAddr, tls: Option<&tls::Acceptor>) -> io::Result<Handover> {
    let tls = tls.map(tls::Acceptor::session).transpose().map_err(io::Error::other)?;
    Ok(Handover { stream: stream.into_std()?, tls: tls.map(Box::new), prefix: Bytes::new(), peer })
}
