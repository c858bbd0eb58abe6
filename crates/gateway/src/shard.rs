//! One event loop: the connections of one core, from their first byte to their last.
//!
//! A turn looks at every source of work and does a bounded slice of each, so none can starve another:
//! socket events, sockets that had more to read, arrivals, answers of the store, mail, frames to be
//! written, log-ins to be sent, timers, drain. Nothing in a turn waits.
//!
//! The files beside this one are parts of the same machine, each for one subject: [`crate::shard::input`]
//! (bytes to requests), [`crate::protocol::native`] and [`crate::protocol::sse`] (the conversation), [`crate::session::login`],
//! [`crate::shard::backlog`] (from the store's answer to live), [`crate::fanout::overtake`] (which mail comes next),
//! [`crate::fanout::marks`] (mail to frames to sockets), [`crate::shard::close`] (every way out), [`crate::shard::timers`]
//! (what time brings), [`crate::lifecycle::drain`].
//!
//! Invariants: a slot is freed only in [`Shard::bury`], after the handler that decided it; a panic
//! ends the connection it happened on and the loop goes on.

mod admission;
pub(crate) mod backlog;
mod close;
pub(crate) mod connection;
pub(crate) mod conversations;
mod delivery;
mod input;
pub(crate) mod login;
pub(crate) mod mailbox;
mod output;
pub(crate) mod route;
mod rules;
pub(crate) mod shared;
mod timers;
#[cfg(feature = "io-uring")]
mod uring;

use crate::io::timer::Now;
use crate::shard::mailbox::Reply;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Interest, Poll, Token};
use noroshi_auth::ClientNetwork;
use noroshi_delivery::Delivery;
use noroshi_protocol::ws::Inflater;
use noroshi_supervision::Pulse;
use noroshi_types::CloseReason;
use slab::Slab;

use crate::fanout::marks::Fanout;
use crate::fanout::recent::Recent;
use crate::io::bridge::Peers;
use crate::io::timer::{Precise, TICK_MS, Wheel};
use crate::io::tls::TlsSession;
use crate::lifecycle::drain::Round;
use crate::lifecycle::strangers::Strangers;
use crate::session::gate::{Asking, Gate};
use crate::session::login::{LogIns, Succession};
use crate::session::outcome::Outcomes;
use crate::session::reads::Reads;
use crate::session::recheck::Recheck;
use crate::session::renewal::Renewals;
use crate::session::topic_index::TopicIndex;
use crate::session::wildcard::Wildcards;
use crate::protocol::mqtt;
use crate::rate::jitter;
use crate::shard::connection::Connection;
use crate::shard::conversations::Conversations;
use crate::shard::mailbox::{Close, Inlet, Mailbox};
use crate::shard::shared::Shared;
use crate::shard::timers::PARKED_EVERY_MS;
use crate::wire::Protocol;
use crate::wire::deflate::Saving;
use crate::wire::gzip::Trailer;

pub(crate) const WAKER: Token = Token(usize::MAX);

/// Socket events of one turn.
const EVENTS: usize = 1_024;

/// How long the loop sleeps at most while there are connections.
const IDLE_TICKS: u32 = 9;
/// What the TLS handshakes of one turn may cost before the others wait for the next: a storm of them
/// leaves room for deliveries between. Time and not a number, since the signature in one step costs
/// 0.1 ms with a key of P-256, 1.5 ms with RSA-2048 and 12 ms with RSA-4096.
const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_millis(2);

/// Counted for a turn and added to the metrics at its end.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) frames_in: u64,
    pub(crate) messages_out: [u64; Protocol::ALL.len()],
    pub(crate) bytes_out: u64,
    pub(crate) deflate: Saving,
    pub(crate) slow_drops: u64,
}

/// Gives the mailbox up when the shard panics outside the handlers that are guarded.
struct Ends {
    shared: Arc<Shared>,
    index: usize,
}

impl Drop for Ends {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.mailboxes[self.index].give_up();
        }
    }
}

pub(crate) struct Shard {
    pub(crate) index: u16,
    pub(crate) shared: Arc<Shared>,
    pub(crate) delivery: Arc<Delivery>,
    poll: Poll,
    pub(crate) inlet: Inlet,
    pub(crate) connections: Slab<Connection>,
    /// By slot: whom a connection counts for.
    pub(crate) seats: Vec<ClientNetwork>,
    pub(crate) strangers: Strangers,
    /// The peers of bridged HTTP/2 streams, by slot.
    pub(crate) bridged: Peers,
    pub(crate) topics: TopicIndex,
    pub(crate) wildcards: Wildcards,
    pub(crate) wheel: Wheel,
    pub(crate) precise: Precise,
    /// Of event streams under gzip, by their slots.
    pub(crate) trailers: HashMap<u32, Trailer>,
    pub(crate) fanout: Fanout,
    pub(crate) log_ins: LogIns,
    pub(crate) reads: Reads,
    pub(crate) conversations: Conversations,
    /// Sessions that wait for what their predecessors leave, by their slots.
    pub(crate) succeeding: HashMap<u32, Succession>,
    /// Connections that wait for a webhook of topic rules, by their slots.
    pub(crate) gates: HashMap<u32, Gate>,
    pub(crate) gate_number: u64,
    pub(crate) asking: Asking,
    /// While topic rules that changed are applied.
    pub(crate) recheck: Option<Recheck>,
    pub(crate) outcomes: Outcomes,
    /// Tokens that the threads of `auth` verify.
    pub(crate) verifying: usize,
    /// Of connections whose new token is being verified, by their slots.
    pub(crate) renewals: HashMap<u32, Renewals>,
    pub(crate) tally: Tally,
    /// While a drain is under way.
    pub(crate) round: Option<Round>,
    /// Sockets that had more to read than their share of a turn.
    pub(crate) again: Vec<u32>,
    /// Connections to be removed when the handler is done.
    pub(crate) doomed: Vec<u32>,
    pub(crate) scratch: Vec<u8>,
    /// Of compressed messages, whosever they are.
    pub(crate) inflater: Inflater,
    /// Sockets whose handshake goes on in a later turn, first come first.
    pub(crate) handshakes: VecDeque<u32>,
    /// What is left of [`HANDSHAKE_TIME_PER_TURN`].
    pub(crate) handshake_left: Duration,
    /// Made on the shard's own thread, which alone may submit.
    #[cfg(feature = "io-uring")]
    pub(crate) uring: Option<crate::io::uring::Uring>,
    /// When sessions without a connection are handled next.
    pub(crate) parked_due_ms: u64,
    pub(crate) now: Now,
    started: Instant,
    random: u64,
}

impl Shard {
    pub(crate) fn new(
        index: u16,
        shared: Arc<Shared>,
        delivery: Arc<Delivery>,
        poll: Poll,
        inlet: Inlet,
        seed: u64,
    ) -> Self {
        let wall = delivery.clock().now();
        let recent = Recent::new(shared.registry.is_shared());
        Self {
            index,
            conversations: Conversations::new(shared.clone(), index),
            shared,
            delivery,
            poll,
            inlet,
            connections: Slab::new(),
            seats: Vec::new(),
            strangers: Strangers::default(),
            bridged: Peers::default(),
            topics: TopicIndex::default(),
            wildcards: Wildcards::default(),
            wheel: Wheel::new(),
            precise: Precise::default(),
            trailers: HashMap::new(),
            fanout: Fanout::new(recent),
            log_ins: LogIns::default(),
            reads: Reads::default(),
            succeeding: HashMap::new(),
            gates: HashMap::new(),
            gate_number: 0,
            asking: Asking::default(),
            recheck: None,
            outcomes: Outcomes::default(),
            verifying: 0,
            renewals: HashMap::new(),
            tally: Tally::default(),
            round: None,
            again: Vec::new(),
            doomed: Vec::new(),
            scratch: Vec::new(),
            inflater: Inflater::default(),
            handshakes: VecDeque::new(),
            handshake_left: Duration::ZERO,
            #[cfg(feature = "io-uring")]
            uring: None,
            parked_due_ms: 0,
            now: Now { ms: 0, tick: 1, wall },
            started: Instant::now(),
            random: seed,
        }
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }

    /// Runs until the gateway stops.
    pub(crate) fn run(mut self, pulse: &Pulse) {
        // Before the sockets close and the queues break off: a panic drops this first.
        let _ends = Ends { shared: self.shared.clone(), index: usize::from(self.index) };
        #[cfg(feature = "io-uring")]
        {
            self.uring = self.shared.config.io_uring.then(crate::io::uring::Uring::new).flatten();
        }
        let mut events = Events::with_capacity(EVENTS);
        while !self.mailbox().stopping.load(Ordering::SeqCst) {
            pulse.waiting();
            if let Err(error) = self.poll.poll(&mut events, self.patience())
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(shard = self.index, %error, "waiting for events failed");
                std::thread::sleep(Duration::from_millis(10));
            }
            pulse.working();
            self.turn(&events);
        }
        self.end_all();
    }

    fn turn(&mut self, events: &Events) {
        self.mailbox().clear_wake();
        self.refresh_now();
        self.handshake_left = HANDSHAKE_TIME_PER_TURN;
        self.take_mail();
        for slot in std::mem::take(&mut self.again) {
            self.guard(Some(slot), |shard| shard.read(slot, true));
        }
        self.go_on_with_handshakes();
        for event in events.iter().filter(|event| event.token() != WAKER) {
            let slot = slot_of(event.token());
            self.guard(Some(slot), |shard| {
                if event.is_writable() {
                    shard.write_tail(slot);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    shard.read(slot, event.is_read_closed() || event.is_error());
                }
            });
        }
        self.take_arrivals();
        for Close { address, reason, successor, previd } in self.mailbox().take_closes() {
            self.guard(Some(address.slot), |shard| {
                if shard.at(address.slot, address.generation).is_some()
                    && previd.is_none_or(|previd| shard.is_resumed_by(address.slot, &previd))
                {
                    shard.begin_close(address.slot, reason);
                }
            });
            if let Some(successor) = successor {
                self.shared.mailboxes[usize::from(successor.shard)].succeed(successor);
            }
        }
        for address in self.mailbox().take_succeeding() {
            self.guard(Some(address.slot), |shard| shard.succeed(address));
        }
        while let Ok(reply) = self.inlet.replies.try_recv() {
            self.guard(None, |shard| shard.handle_reply(reply));
        }
        for reply in self.mailbox().take_overflow() {
            self.guard(None, |shard| shard.handle_reply(reply));
        }
        self.go_on_with_recheck();
        // A flood tells of new bytes in each turn besides: its share stays one.
        self.again.sort_unstable();
        self.again.dedup();
        self.write_marked();
        self.guard(None, Shard::send_log_ins);
        self.guard(None, Shard::send_reads);
        self.guard(None, Shard::start_jobs);
        self.pulse();
        self.answer_polls();
        self.settle();
    }

    /// Ends a turn: tells what happened.
    fn settle(&mut self) {
        self.outcomes.tell(&self.delivery, self.now.wall);
        let tally = std::mem::take(&mut self.tally);
        let metrics = &self.shared.metrics;
        for (counter, count) in [
            (&metrics.frames_in, tally.frames_in),
            (&metrics.bytes_out, tally.bytes_out),
            (&metrics.deflate_plain_bytes, tally.deflate.plain_bytes),
            (&metrics.deflate_sent_bytes, tally.deflate.sent_bytes),
            (&metrics.slow_drops, tally.slow_drops),
        ] {
            if count > 0 {
                counter.inc_by(count);
            }
        }
        for (protocol, count) in Protocol::ALL.into_iter().zip(tally.messages_out) {
            if count > 0 {
                metrics.count_messages(protocol, count);
            }
        }
    }

    /// How long there is nothing to do by itself.
    fn patience(&self) -> Option<Duration> {
        let at_once = !self.again.is_empty()
            || !self.handshakes.is_empty()
            || self.fanout.has_work()
            || self.has_next_mail()
            || self.recheck.as_ref().is_some_and(Recheck::has_work)
            || !self.inlet.arrivals.is_empty()
            || self.conversations.polled.has_work();
        if at_once {
            return Some(Duration::ZERO);
        }
        let since = self.started.elapsed().as_millis();
        let mut ms = if self.connections.is_empty() { u64::MAX } else { self.to_next_tick_ms(since) };
        if let Some(at_ms) = self.precise.next_ms() {
            ms = ms.min(at_ms.saturating_sub(u64::try_from(since).unwrap_or(u64::MAX)));
        }
        if self.index == 0 && !self.shared.services.of::<mqtt::Service>().sessions.is_empty() {
            ms = ms.min(PARKED_EVERY_MS);
        }
        if let Some(recheck) = &self.recheck {
            ms = ms.min(recheck.patience_ms(self.now.ms32()));
        }
        if let Some(linger_ms) = self.log_ins.patience_ms() {
            ms = ms.min(linger_ms);
        }
        if let Some(round) = self.round.as_ref().filter(|_| !self.connections.is_empty()) {
            ms = ms.min(round.patience_ms(u64::try_from(since).unwrap_or(u64::MAX)));
        }
        (ms != u64::MAX).then(|| Duration::from_millis(ms))
    }

    /// Until the wheel has something to look at, and a second at most.
    fn to_next_tick_ms(&self, since_ms: u128) -> u64 {
        let to_tick = TICK_MS - u64::try_from(since_ms).unwrap_or_default() % TICK_MS;
        to_tick + u64::from(self.wheel.quiet_ticks(self.now.tick, IDLE_TICKS)) * TICK_MS
    }

    fn refresh_now(&mut self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tick = u32::try_from(ms / TICK_MS + 1).unwrap_or(u32::MAX);
        self.now = Now { ms, tick, wall: self.delivery.clock().now() };
    }

    /// Runs a handler; a panic in it ends the connection it was about.
    pub(crate) fn guard(&mut self, slot: Option<u32>, handler: impl FnOnce(&mut Self)) {
        // The state a panic may leave half done is the connection's own, which is removed, and how many
        // wait for a frame, which is counted anew.
        if catch_unwind(AssertUnwindSafe(|| handler(self))).is_err() {
            self.shared.metrics.panics.inc();
            tracing::error!(shard = self.index, slot, "a handler panicked; its connection is closed");
            if let Some(slot) = slot {
                self.doom(slot, CloseReason::Internal);
            }
            self.recount_frames();
        }
        self.bury();
    }

    fn go_on_with_handshakes(&mut self) {
        while !self.handshake_left.is_zero()
            && let Some(slot) = self.handshakes.pop_front()
        {
            self.guard(Some(slot), |shard| shard.read(slot, true));
        }
    }

    /// What follows on a connection is under TLS.
    pub(crate) fn begin_tls(&mut self, slot: u32, session: TlsSession) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return Ok(()) };
        let registry = self.poll.registry();
        let Some(stream) = connection.socket.stream() else { return Ok(()) };
        registry.deregister(stream)?;
        connection.socket.begin_tls(session)?;
        let Some(stream) = connection.socket.stream() else { return Ok(()) };
        let interest = Interest::READABLE | Interest::WRITABLE;
        registry.register(stream, Token(slot as usize), interest)
    }

    /// The connection in a slot, if it is still the one that is meant.
    pub(crate) fn at(&mut self, slot: u32, generation: u64) -> Option<&mut Connection> {
        self.connections.get_mut(slot as usize).filter(|connection| connection.generation == generation)
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.connections.get_mut(slot as usize)
    }

    /// A socket goes on in another slot.
    pub(crate) fn reregister(&self, stream: &mut mio::net::TcpStream, slot: u32) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().reregister(stream, Token(slot as usize), interest)
    }

    pub(crate) fn deregister(&self, stream: &mut mio::net::TcpStream) {
        // Fails only if it was not registered.
        let _ = self.poll.registry().deregister(stream);
    }

    /// A number below `below`, for spreading things out: not for secrets (splitmix64).
    pub(crate) fn jitter(&mut self, below: u64) -> u64 {
        jitter(&mut self.random, below)
    }

    pub(crate) fn handle_reply(&mut self, reply: Reply) {
        match reply {
            Reply::LoggedIn { to, asked, result: Ok(answers) } => {
                self.log_ins.batches_out -= 1;
                for ((slot, generation), answer) in to.into_iter().zip(answers) {
                    if self.at(slot, generation).is_some() {
                        self.guard(Some(slot), |shard| shard.handle_log_in(slot, generation, asked, answer));
                    }
                }
            }
            Reply::LoggedIn { to, result: Err(error), .. } => {
                self.log_ins.batches_out -= 1;
                tracing::warn!(%error, count = to.len(), "log-ins failed");
                for (slot, generation) in to {
                    if self.at(slot, generation).is_some() {
                        self.fail_log_in(slot);
                    }
                }
            }
            Reply::Permitted { to, permitted } => self.handle_permitted(to, permitted),
            Reply::Verified { to, answer, pending } => self.handle_verified(to, answer, pending),
            Reply::Done { to, done } => self.handle_done(to, done),
            Reply::Log { to, result } => self.handle_log(to, result),
            Reply::Outstanding { to, result } => self.handle_outstanding(to, result),
            Reply::Backlog { to, result } => self.handle_read(to, None, result),
            Reply::Recovered { to, recovery, result } => self.handle_read(to, Some(recovery), result),
        }
    }
}

fn slot_of(token: Token) -> u32 {
    // Slots are indices of a slab whose entries are sockets: far fewer than 2^32.
    u32::try_from(token.0).unwrap_or(u32::MAX)
}
