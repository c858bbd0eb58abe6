//! Builds, starts and holds the gateway: the top of the crate, which its users see.
//!
//! [`Gateway::bind`] takes the ports before anything else of a node starts, so that a port in use is one clear error;
//! [`Bound::start`] starts the shards and the accepting thread (`acceptor`). `edge` is what `delivery` calls;
//! `bridge` is for HTTP/2 streams of the API.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mio::{Poll, Waker};
use noroshi_auth::Auth;
use noroshi_delivery::Delivery;
use noroshi_supervision::Kind;
use parking_lot::Mutex;

use crate::config::{Config, Listener};
use crate::gateway::acceptor::Acceptor;
use crate::io::bridge::Bridges;
use crate::io::handover::{Handover, Io};
use crate::io::listener::Listening;
use crate::lifecycle::Origin;
use crate::lifecycle::clients::Clients;
use crate::lifecycle::drain::{self, Drain, Stopping};
use crate::metrics::Metrics;
use crate::protocol::services::{Generations, Services};
use crate::protocol::{self, mqtt, xmpp};
use crate::session::parking::{self, Capacity};
use crate::session::registry::Registry;
use crate::session::stamp::Stamps;
use crate::shard::mailbox::{Arrival, ArrivalKind, Mailbox, Moved};
use crate::shard::shared::{HandoverFn, Shared};
use crate::shard::{Shard, WAKER};
use crate::wire::Speaks;

pub(crate) mod acceptor;
pub(crate) mod bridge;
mod edge;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operator has to choose another address, or end the process that has it.
    #[error("cannot listen on {address}: {source}")]
    Listen { speaks: Speaks, address: SocketAddr, source: io::Error },
    /// The host has no descriptors or threads left.
    #[error("the gateway cannot start: {0}")]
    Start(io::Error),
}

/// Ports that are taken; nothing runs yet.
pub struct Bound {
    config: Config,
    listening: Vec<Listening>,
    local_addrs: Vec<SocketAddr>,
}

impl Bound {
    /// One for each of `Config::listeners`, with the ports that the kernel chose.
    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Starts the shards and accepts connections. The caller attaches the gateway to `delivery`.
    pub fn start(
        self,
        delivery: &Arc<Delivery>,
        auth: Arc<Auth>,
        metrics: Metrics,
        handover: HandoverFn,
    ) -> Result<Arc<Gateway>, Error> {
        let mut config = self.config;
        let shards = config.shards.max(1);
        let (mut mailboxes, mut loops) = (Vec::with_capacity(shards), Vec::with_capacity(shards));
        for _ in 0..shards {
            let poll = Poll::new().map_err(Error::Start)?;
            let (mailbox, receivers) =
                Mailbox::new(&poll, WAKER, config.mailbox_items.max(1)).map_err(Error::Start)?;
            mailboxes.push(mailbox);
            loops.push((poll, receivers));
        }
        let clients = Arc::new(Clients::new(config.connections_per_client));
        let capacity =
            Capacity { entries_max: parking::ENTRIES_MAX, bytes_max: config.parked_sessions_bytes };
        let now = delivery.clock().now();
        let of_protocols = protocol::registry::services(&mut config, now, capacity);
        let (config, registry) = (Arc::new(config), Arc::new(Registry::new(delivery.nodes.session_keys())));
        let stamps = Arc::new(Stamps::new());
        let services = Arc::new(Services {
            config: config.clone(),
            auth: auth.clone(),
            metrics: metrics.clone(),
            registry: registry.clone(),
            stamps: stamps.clone(),
            generations: Generations::new(now),
            of_protocols,
        });
        let shared = Arc::new(Shared {
            config,
            auth,
            metrics,
            handover,
            registry,
            services,
            stamps,
            mailboxes,
            accepting: AtomicBool::new(true),
            drain: Drain::new(),
            refusals: Default::default(),
            clients,
            bridges: Bridges::new(),
        });
        let poll = Poll::new().map_err(Error::Start)?;
        let waker = Waker::new(poll.registry(), WAKER).map_err(Error::Start)?;
        let acceptor = Acceptor::new(shared.clone(), poll, self.listening)?;
        let gateway = Arc::new(Gateway {
            shared: shared.clone(),
            delivery: Arc::downgrade(delivery),
            local_addrs: self.local_addrs,
            acceptor_waker: waker,
            threads: Mutex::default(),
            given_up: Mutex::default(),
            acceptor: Mutex::default(),
        });
        let (random, threads) = (RandomState::new(), shared.config.threads.clone());
        for (index, (poll, receivers)) in loops.into_iter().enumerate() {
            let index = u16::try_from(index).map_err(|_| Error::Start(io::ErrorKind::InvalidInput.into()))?;
            let shard =
                Shard::new(index, shared.clone(), delivery.clone(), poll, receivers, random.hash_one(index));
            let thread = threads.spawn(Kind::Shard, shard_name(index), move |pulse| shard.run(pulse));
            gateway.threads.lock().push(thread.map_err(Error::Start)?);
        }
        let acceptor = threads.spawn(Kind::Acceptor, "acceptor", move |pulse| acceptor.run(pulse));
        *gateway.acceptor.lock() = Some(acceptor.map_err(Error::Start)?);
        Ok(gateway)
    }
}

/// The name of a shard's thread.
fn shard_name(index: impl std::fmt::Display) -> String {
    format!("shard-{index}")
}

/// The connections of this node.
pub struct Gateway {
    pub(crate) shared: Arc<Shared>,
    /// Weak: `delivery` holds this gateway as its edge.
    pub(crate) delivery: Weak<Delivery>,
    local_addrs: Vec<SocketAddr>,
    acceptor_waker: Waker,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Names of threads that failed.
    given_up: Mutex<Vec<String>>,
    acceptor: Mutex<Option<JoinHandle<()>>>,
}

impl Gateway {
    /// Takes the ports of every listener.
    pub fn bind(config: Config) -> Result<Bound, Error> {
        let mut listening = Vec::with_capacity(config.listeners.len());
        for listener in &config.listeners {
            let Listener { speaks, address, tls } = listener.clone();
            let bound = Listening::bind(address, speaks, tls, config.tcp_keepalive);
            listening.push(bound.map_err(|source| Error::Listen { speaks, address, source })?);
        }
        let local_addrs =
            listening.iter().map(Listening::local_addr).collect::<Result<_, _>>().map_err(Error::Start)?;
        Ok(Bound { config, listening, local_addrs })
    }

    pub fn local_addrs(&self) -> &[SocketAddr] {
        &self.local_addrs
    }

    /// Open sockets of the gateway, without those handed over.
    pub fn connections(&self) -> usize {
        self.shared.connections()
    }

    /// Open sockets of devices.
    pub fn device_connections(&self) -> usize {
        self.shared.metrics.device_connections()
    }

    /// Messages written to devices since the start.
    pub fn messages_out(&self) -> u64 {
        self.shared.metrics.messages_out()
    }

    /// Devices with a session.
    pub fn sessions_count(&self) -> usize {
        self.shared.registry.sessions_count()
    }

    /// Takes back a connection that the API served until now and whose next request is the gateway's (browsers and
    /// proxies reuse connections). `bytes` begin with that request. Returns the connection if there is no room.
    pub fn take_back(&self, io: Io, bytes: Vec<u8>) -> Result<(), Handover> {
        let handover = match io.into_handover(bytes) {
            Ok(handover) => handover,
            Err(error) => {
                tracing::debug!(%error, "cannot take a connection back");
                return Ok(());
            }
        };
        let (shared, address) = (&self.shared, handover.peer.ip());
        if shared.is_full() {
            return Err(handover);
        }
        let Some(seat) = shared.seat(address) else { return Err(handover) };
        let Handover { stream, tls, prefix, peer } = handover;
        let moved = Moved { tls, origin: Origin::Admitted, bytes: prefix.into(), peer: None };
        let arrival = Arrival { stream, kind: ArrivalKind::Moved(Box::new(moved)), seat };
        shared.arrive(arrival).map_err(|arrival| {
            let ArrivalKind::Moved(moved) = arrival.kind else {
                unreachable!("it is the arrival made above")
            };
            Handover { stream: arrival.stream, tls: moved.tls, prefix: moved.bytes.into(), peer }
        })?;
        shared.metrics.taken_back.inc();
        Ok(())
    }

    /// Stops accepting connections; open ones stay.
    pub fn stop_accepting(&self) {
        self.shared.accepting.store(false, Ordering::SeqCst);
        // Fails only when it is awake already.
        let _ = self.acceptor_waker.wake();
        let Some(thread) = self.acceptor.lock().take() else { return };
        if self.is_stalled(&thread) {
            tracing::error!("the accepting thread does not respond and is abandoned");
        } else if thread.join().is_err() {
            tracing::error!("the accepting thread had panicked");
        }
    }

    fn is_stalled(&self, thread: &JoinHandle<()>) -> bool {
        let name = thread.thread().name().unwrap_or_default();
        !thread.is_finished() && self.given_up.lock().iter().any(|given_up| given_up == name)
    }

    /// Moves every device away and admits none, while requests of the API continue. A call during a drain changes its
    /// order. Does not wait: see [`Gateway::drain_report`].
    pub fn drain_devices(&self, order: drain::Order) -> Result<(), Stopping> {
        tracing::info!(rate = order.rate_per_second, spread = ?order.spread, "moving devices away");
        self.shared.drain.begin(order, false)?;
        self.wake_all();
        self.drain_report();
        Ok(())
    }

    /// Admits devices again. Does nothing if they are admitted.
    pub fn cancel_drain(&self) -> Result<(), Stopping> {
        if self.shared.drain.cancel()? {
            tracing::info!("admitting devices again");
        }
        self.wake_all();
        self.drain_report();
        Ok(())
    }

    /// The progress of a drain; updates its metrics.
    pub fn drain_report(&self) -> drain::Report {
        let report = self.shared.drain.report(self.drain_remaining());
        let progress = report.progress.as_ref();
        let progress = progress.map(|progress| (progress.order.rate_per_second, progress.elapsed));
        self.shared.metrics.observe_drain(report.remaining, progress);
        if report.state == drain::State::Drained && self.shared.drain.is_news() {
            tracing::info!("every device has left; the API continues");
        }
        report
    }

    /// The end: accepts nothing any more and moves every connection away. Blocks until all are gone, or the deadline
    /// has passed and the rest is closed at once. True if all left in time.
    pub fn drain(&self, order: drain::Order) -> bool {
        let until = order.deadline.map(|deadline| Instant::now() + deadline);
        // A second call continues with the order of the first.
        let _ = self.shared.drain.begin(order, true);
        self.stop_accepting();
        self.wake_all();
        let all_gone = self.wait_until_gone(until);
        if !all_gone {
            self.wait_until_gone(Some(Instant::now() + self.shared.config.close_linger));
        }
        all_gone
    }

    fn wait_until_gone(&self, until: Option<Instant>) -> bool {
        loop {
            self.drain_report();
            if self.connections() == 0 {
                return true;
            }
            if until.is_some_and(|until| Instant::now() >= until) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// An operator's drain concerns devices; the end concerns every socket.
    fn drain_remaining(&self) -> usize {
        match self.shared.drain.is_ending() {
            true => self.connections(),
            false => self.shared.metrics.device_connections(),
        }
    }

    fn wake_all(&self) {
        for mailbox in &self.shared.mailboxes {
            mailbox.wake();
        }
    }

    /// Ends all threads and closes what is still connected. A second call does nothing.
    pub fn stop(&self) {
        self.stop_accepting();
        for mailbox in &self.shared.mailboxes {
            mailbox.stopping.store(true, Ordering::SeqCst);
            mailbox.wake();
        }
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // Joining a stalled thread would never return.
            if self.is_stalled(&thread) {
                tracing::error!(thread = thread.thread().name(), "a shard does not respond and is abandoned");
            } else if thread.join().is_err() {
                tracing::error!("a shard had panicked");
            }
        }
    }

    /// A thread of the gateway failed permanently. A shard gets nothing more, and no thread waits for it.
    pub fn give_up(&self, thread: &str) {
        for (index, mailbox) in self.shared.mailboxes.iter().enumerate() {
            if shard_name(index) == thread {
                mailbox.give_up();
            }
        }
        self.given_up.lock().push(thread.to_owned());
    }

    /// Updates the gauges that are not kept current: called before metrics are shown.
    pub fn observe(&self) {
        let waiting: usize = self.shared.mailboxes.iter().map(Mailbox::mail_len).sum();
        self.shared.metrics.mailbox_items.set(i64::try_from(waiting).unwrap_or(i64::MAX));
        self.drain_report();
        if let Some(delivery) = self.delivery.upgrade() {
            let services = &self.shared.services;
            services.of::<xmpp::Service>().observe(&services.metrics, delivery.clock().now());
            services.of::<mqtt::Service>().observe(&services.metrics);
        }
    }
}
