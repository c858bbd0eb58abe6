//! The admin listener: a socket of its own, so that metrics and health answer while the public side is
//! full or draining. TLS is the gateway's, so both addresses read certificates the same way.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use bytes::Bytes;
use noroshi_api::{Peer, serve_connection};
use noroshi_gateway::{Handover, Io, tls};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Operators and collectors are few; more than this wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;

/// After an accept that failed for want of descriptors the next would fail too.
const RETRY: std::time::Duration = std::time::Duration::from_millis(100);

pub(crate) struct Admin {
    listener: TcpListener,
    tls: Option<tls::Acceptor>,
}

impl Admin {
    /// Must be called inside a tokio runtime.
    pub(crate) async fn bind(address: SocketAddr, tls: Option<tls::Acceptor>) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind(address).await?, tls })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// The same socket on the runtime that this is called inside.
    fn moved(self) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::from_std(self.listener.into_std()?)?, tls: self.tls })
    }

    /// Serves on the calling runtime, which need not be the one it was bound on. Accepts until `end`, then lets requests at hand finish.
    pub(crate) async fn run(self, router: Router, end: CancellationToken) {
        let admin = match self.moved() {
            Ok(admin) => admin,
            Err(error) => return tracing::error!(%error, "the admin address cannot be served"),
        };
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = end.cancelled() => break,
                accepted = admin.listener.accept(), if connections.len() < CONNECTIONS_MAX => accepted,
                // Full: one of them ends, or is told to.
                () = tokio::time::sleep(RETRY) => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    connections.spawn(serve(stream, peer, admin.tls.clone(), router.clone(), end.clone()));
                }
                Err(error) => {
                    tracing::warn!(%error, "the admin address accepts nothing for a moment");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        connections.close();
        connections.wait().await;
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<tls::Acceptor>,
    router: Router,
    end: CancellationToken,
) {
    let secure = tls.is_some();
    let io = match stream.into_std().and_then(|stream| handover(stream, peer, tls)) {
        Ok(io) => io,
        Err(error) => return tracing::debug!(%error, %peer, "an admin connection broke at its start"),
    };
    serve_connection(io, router, Peer { address: peer, secure }, end.cancelled()).await;
}

fn handover(stream: std::net::TcpStream, peer: SocketAddr, tls: Option<tls::Acceptor>) -> io::Result<Io> {
    let tls = tls.map(|acceptor| acceptor.session()).transpose().map_err(io::Error::other)?;
    Handover { stream, tls: tls.map(Box::new), prefix: Bytes::new(), peer }.into_io()
}
