//! Accepting: one thread takes sockets from all listeners and gives each to the shard with the fewest.
//!
//! Listeners shared by the kernel (`SO_REUSEPORT`) load event loops unevenly, and a connection stays where it began for
//! days; one accepting thread is never the bottleneck.
//!
//! Over the rate of connects, the request of a plaintext connection is still read: a device gets `503` with its own
//! delay, and the API serves its requests. A TLS connection waits in the kernel's queue for its turn, since an answer
//! would cost the handshake that the limit postpones; if that queue is full, TCP retries after one, three and seven
//! seconds. When all connections are in use, the oldest one without a credential is evicted; if all have one, a device
//! gets `503`.

use std::io::{self, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use noroshi_auth::ClientNetwork;
use noroshi_protocol::http;
use noroshi_supervision::Heartbeat;
use noroshi_types::CloseReason;

use crate::gateway::Error;
use crate::io::listener::Listening;
use crate::io::tls;
use crate::lifecycle::clients::Seat;
use crate::lifecycle::{Origin, drawn_id};
use crate::rate::{Bucket, Rate};
use crate::shard::mailbox::{Arrival, ArrivalKind};
use crate::shard::shared::Shared;
use crate::wire::Speaks;

/// Sockets taken from one listener before the next one's turn.
const ACCEPTS_PER_TURN: usize = 256;

/// How long accepting pauses without free descriptors: 20 attempts a second, however many clients connect.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(50);

/// The accepting thread.
pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    poll: Poll,
    listeners: Vec<(mio::net::TcpListener, Option<tls::Acceptor>, Speaks)>,
    bucket: Bucket,
    rate: Rate,
    started: Instant,
    /// No descriptor is left: logged once, not at every attempt.
    exhausted: bool,
}

impl Acceptor {
    pub(crate) fn new(shared: Arc<Shared>, poll: Poll, listening: Vec<Listening>) -> Result<Self, Error> {
        let mut listeners = Vec::with_capacity(listening.len());
        for (index, Listening { listener, tls, speaks }) in listening.into_iter().enumerate() {
            let mut listener = mio::net::TcpListener::from_std(listener);
            poll.registry()
                .register(&mut listener, Token(index), Interest::READABLE)
                .map_err(Error::Start)?;
            listeners.push((listener, tls, speaks));
        }
        let per_second = shared.config.connects_per_second;
        let rate = Rate::of_connects(per_second);
        Ok(Self {
            shared,
            poll,
            listeners,
            bucket: Bucket::full(rate, 0),
            rate,
            started: Instant::now(),
            exhausted: false,
        })
    }

    /// Runs until the gateway stops accepting.
    pub(crate) fn run(mut self, pulse: &Heartbeat) {
        let mut events = Events::with_capacity(64);
        let mut patience = None;
        while self.shared.accepting.load(Ordering::SeqCst) {
            pulse.waiting();
            if let Err(error) = self.poll.poll(&mut events, patience)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(%error, "waiting for connections failed");
                std::thread::sleep(EXHAUSTED_PAUSE);
            }
            pulse.working();
            // Edge-triggered: each listener is emptied, or tried again.
            patience = (0..self.listeners.len()).filter_map(|index| self.accept_some(index)).min();
        }
    }

    /// Accepts from one listener. Returns when to try again, if it was not emptied.
    fn accept_some(&mut self, index: usize) -> Option<Duration> {
        for _ in 0..ACCEPTS_PER_TURN {
            if self.listeners[index].1.is_some()
                && let wait_ms @ 1.. = self.bucket.wait_ms(self.rate, self.now_ms())
            {
                return Some(Duration::from_millis(wait_ms));
            }
            match self.listeners[index].0.accept() {
                Ok((stream, peer)) => {
                    self.exhausted = false;
                    self.admit(stream.into(), peer.ip(), index);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // Gone before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => {
                    if !std::mem::replace(&mut self.exhausted, true) {
                        tracing::warn!(%error, "cannot accept connections now");
                    }
                    // Sleeps, since every attempt of a client would wake a poll.
                    std::thread::sleep(EXHAUSTED_PAUSE);
                    return Some(Duration::ZERO);
                }
            }
        }
        Some(Duration::ZERO)
    }

    fn admit(&mut self, stream: TcpStream, peer: IpAddr, index: usize) {
        let shared = self.shared.clone();
        shared.metrics.accepted.inc();
        let (connections, max) = (shared.descriptors(), shared.config.connections_max);
        let seat = if shared.is_full() { None } else { shared.seat(peer) };
        let Some(seat) = seat else {
            shared.metrics.admission_refused.inc();
            return self.refuse(stream, index);
        };
        let within_rate = self.bucket.take(self.rate, self.now_ms());
        let (_, tls, speaks) = &self.listeners[index];
        let origin = if tls.is_some() || within_rate { Origin::Admitted } else { Origin::OverRate };
        let (speaks, tls) = (*speaks, tls.as_ref().map(|acceptor| acceptor.config(*speaks)));
        let kind = ArrivalKind::New { speaks, tls, origin };
        // If it is full, a connection without a credential is evicted ([`crate::lifecycle::unauthenticated`]).
        let arrival = Arrival { stream, kind, seat };
        let arrived = match shared.most_unauthenticated().filter(|_| connections >= max) {
            Some(shard) => shard.arrive(arrival),
            None => shared.arrive(arrival),
        };
        if let Err(arrival) = arrived {
            shared.metrics.admission_refused.inc();
            self.refuse(arrival.stream, index);
        }
    }

    fn now_ms(&self) -> u32 {
        // Wrapped on purpose: only differences are used.
        (self.started.elapsed().as_millis() & u128::from(u32::MAX)) as u32
    }

    fn refuse(&mut self, mut stream: TcpStream, index: usize) {
        let (_, tls, speaks) = &self.listeners[index];
        // Without a request there is nothing to answer: the end is the answer.
        if tls.is_some() || *speaks != Speaks::Http {
            return;
        }
        let seconds = (1 + self.started.elapsed().subsec_nanos() % 5).to_string();
        let mut answer = Vec::new();
        let id = drawn_id(self.shared.services.generations.next_number());
        let headers =
            [("X-Request-Id", &*id), ("Access-Control-Allow-Origin", "*"), ("Retry-After", &*seconds)];
        http::push_problem(&mut answer, 503, "overloaded", CloseReason::Overloaded.explain(), &headers);
        // It fits into an empty send buffer, unless the peer has closed.
        if stream.write_all(&answer).is_err() || stream.shutdown(std::net::Shutdown::Write).is_err() {
            return;
        }
        if self.shared.is_full() {
            return;
        }
        let seat = Seat::take_anyway(&self.shared.clients, ClientNetwork::NONE);
        // If it were closed before its request was read, the peer would see a reset instead of the answer.
        let _ = self.shared.arrive(Arrival { stream, kind: ArrivalKind::Refused, seat });
    }
}
