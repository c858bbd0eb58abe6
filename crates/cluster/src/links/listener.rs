//! Accepts links of other nodes. A connection that has not authenticated costs little and not for long, and there are
//! few of them, so strangers can at most delay new links, which Redis then replaces.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::incoming::{Arrivals, Incoming};
use super::stall::Stall;
use super::stream::{Ended, Reader, write_unit};
use super::wire::{Unit, VERSION};
use crate::metrics::{LinkMetrics, LinkRejection};
use crate::{Epoch, Members};

/// From the accepted connection to the hello.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(3);
/// Connections that have not authenticated.
const STRANGERS_MAX: usize = 256;
/// The same of one address. Nodes behind one address are few, and each opens one at a time.
const STRANGERS_OF_ADDRESS_MAX: usize = 64;
/// Links that have authenticated: many times the nodes of a cell.
const LINKS_MAX: usize = 4_096;
/// The pause after the system refused to accept, for example because the process has too many files.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Listener {
    pub(super) socket: std::net::TcpListener,
    pub(super) tls: Arc<rustls::ServerConfig>,
    pub(super) members: Arc<dyn Members>,
    pub(super) arrivals: Arrivals,
    pub(super) stall: Arc<Stall>,
    pub(super) metrics: LinkMetrics,
}

/// What the tasks of all connections share.
struct Shared {
    tls: TlsAcceptor,
    members: Arc<dyn Members>,
    arrivals: Arrivals,
    stall: Arc<Stall>,
    metrics: LinkMetrics,
    /// Guards the counts only.
    strangers: Mutex<HashMap<IpAddr, usize>>,
    /// The link of each sender; a new one replaces the old one. Guards the map only.
    links: Mutex<HashMap<Epoch, Arc<Incoming>>>,
}

impl Listener {
    /// Until it is dropped, which ends all links.
    pub(super) async fn run(self) {
        let Self { socket, tls, members, arrivals, stall, metrics } = self;
        let socket = match socket.set_nonblocking(true).and_then(|()| TcpListener::from_std(socket)) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(%error, "this node accepts no direct connections of other nodes");
                return std::future::pending().await;
            }
        };
        let (strangers, links) = (Mutex::default(), Mutex::default());
        let shared =
            Arc::new(Shared { tls: tls.into(), members, arrivals, stall, metrics, strangers, links });
        let mut tasks = JoinSet::new();
        loop {
            tokio::select! {
                accepted = socket.accept() => match accepted {
                    Ok((stream, address)) => match Stranger::admit(&shared, address.ip()) {
                        Some(stranger) => drop(tasks.spawn(serve(stream, stranger))),
                        None => shared.metrics.rejected(LinkRejection::Busy),
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a direct connection of another node was not accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
                Some(_) = tasks.join_next() => {}
            }
        }
    }
}

/// A connection that has not authenticated, counted until it is dropped.
struct Stranger {
    shared: Arc<Shared>,
    address: IpAddr,
}

impl Stranger {
    fn admit(shared: &Arc<Shared>, address: IpAddr) -> Option<Self> {
        let mut strangers = shared.strangers.lock();
        let all: usize = strangers.values().sum();
        let count = strangers.get(&address).copied().unwrap_or(0);
        if all >= STRANGERS_MAX || count >= STRANGERS_OF_ADDRESS_MAX {
            return None;
        }
        strangers.insert(address, count + 1);
        Some(Self { shared: shared.clone(), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = self.shared.strangers.lock();
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

async fn serve(stream: TcpStream, stranger: Stranger) {
    let (shared, address) = (stranger.shared.clone(), stranger.address);
    let (mut stream, from, to) = match tokio::time::timeout(HANDSHAKE_TIMEOUT, greet(stream, &shared)).await {
        Ok(Ok(greeted)) => greeted,
        Ok(Err((why, ended))) => {
            shared.metrics.rejected(why);
            tracing::debug!(%address, reason = %ended, "a direct connection was rejected");
            return;
        }
        Err(_) => {
            shared.metrics.rejected(LinkRejection::Slow);
            return;
        }
    };
    drop(stranger);
    let link = Arc::new(Incoming::new(from, to, shared.stall.clone()));
    {
        let mut links = shared.links.lock();
        if links.len() >= LINKS_MAX && !links.contains_key(&from) {
            shared.metrics.rejected(LinkRejection::Busy);
            return;
        }
        if let Some(old) = links.insert(from, link.clone()) {
            old.close();
        }
    }
    shared.metrics.up("in");
    let ended = match write_unit(&mut stream, &Unit::Welcome { version: VERSION }).await {
        Ok(()) => link.run(stream, &*shared.members, &shared.arrivals, &shared.metrics).await,
        Err(ended) => ended,
    };
    shared.metrics.down("in");
    tracing::debug!(%from, %address, reason = %ended, "a direct connection of another node ended");
    let mut links = shared.links.lock();
    if links.get(&from).is_some_and(|current| Arc::ptr_eq(current, &link)) {
        links.remove(&from);
    }
}

/// The handshake and the hello: the peer knows the secret, and wants the lease that this node holds.
async fn greet(
    stream: TcpStream,
    shared: &Shared,
) -> Result<(TlsStream<TcpStream>, Epoch, Epoch), (LinkRejection, Ended)> {
    let handshake = |error: std::io::Error| (LinkRejection::Handshake, Ended::Handshake(error.to_string()));
    stream.set_nodelay(true).map_err(handshake)?;
    let mut stream = shared.tls.accept(stream).await.map_err(handshake)?;
    let hello = Reader::new(&mut stream).next().await;
    let (version, from, to) = match hello.map_err(|ended| (LinkRejection::Hello, ended))? {
        Unit::Hello { version, from, to } => (version, from, to),
        _ => return Err((LinkRejection::Hello, Ended::Malformed)),
    };
    if version < VERSION || shared.members.epoch() != Some(to) || from == to {
        let _ = write_unit(&mut stream, &Unit::Refused).await;
        return Err((LinkRejection::Lease, Ended::Refused));
    }
    Ok((stream, from, to))
}
