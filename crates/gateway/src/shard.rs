//! One event loop: the connections of one core, from their first byte to their last.
//!
//! A [`Shard`] owns one value of each layer and passes down what an operation needs. A turn looks at every source of
//! work and does a bounded part of each, so none can starve another: socket events, sockets that had more to read,
//! arrivals, replies of the store, mail, marked messages, log-ins, timers, drain. Nothing in a turn waits.
//!
//! What has to coordinate several layers is a method of `Shard`, one subject a file: `admission` (sockets that arrive),
//! `input` (bytes to requests), [`route`] (what a request is for), [`adapters`] (protocols), [`login`], `rules`
//! (topic rules), [`backlog`] (reads for connections that catch up), `delivery` (mail to sockets), `output` (bytes to
//! sockets), `timers`, `close`. [`mailbox`] is how other threads reach a shard, [`connection`] what one connection
//! consists of.
//!
//! Invariants: a slot is freed only in [`Shard::remove_ended`], after the handler that ended its connection; a panic
//! ends the connection it happened on, and the loop continues.

pub(crate) mod adapters;
mod admission;
pub(crate) mod backlog;
mod close;
pub(crate) mod connection;
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

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mio::{Events, Poll, Token};
use noroshi_delivery::Delivery;
use noroshi_protocol::ws::Inflater;
use noroshi_supervision::Heartbeat;
use noroshi_types::CloseReason;
use slab::Slab;

use crate::fanout::Fanout;
use crate::fanout::history::OfferHistory;
use crate::fanout::load::Meter;
use crate::io::Io;
use crate::io::timer::{Jitter, Now, TICK_MS};
use crate::io::tls::TlsSession;
use crate::lifecycle::{Lifecycle, PARKED_EVERY_MS};
use crate::metrics::Tally;
use crate::protocol::mqtt;
use crate::session::Sessions;
use crate::session::registry::Session;
use crate::shard::adapters::Adapters;
use crate::shard::connection::Connection;
use crate::shard::mailbox::{Close, Mailbox, Receivers, Reply};
use crate::shard::shared::Shared;
use crate::wire::gzip::Trailers;

pub(crate) const WAKER: Token = Token(usize::MAX);

/// Socket events of one turn.
const EVENTS: usize = 1_024;

/// The longest sleep while there are connections, in ticks.
const IDLE_TICKS: u32 = 9;

/// Closes the mailbox when the shard panics outside its guarded handlers.
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
    pub(crate) receivers: Receivers,
    pub(crate) connections: Slab<Connection>,
    pub(crate) io: Io,
    pub(crate) sessions: Sessions,
    pub(crate) fanout: Fanout,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) adapters: Adapters,
    /// Checksums of event streams under gzip.
    pub(crate) trailers: Trailers,
    /// For compressed messages of all connections.
    pub(crate) inflater: Inflater,
    pub(crate) tally: Tally,
    meters: [Meter; 2],
    pub(crate) now: Now,
    started: Instant,
    jitter: Jitter,
}

impl Shard {
    pub(crate) fn new(
        index: u16,
        shared: Arc<Shared>,
        delivery: Arc<Delivery>,
        poll: Poll,
        receivers: Receivers,
        seed: u64,
    ) -> Self {
        let wall = delivery.clock().now();
        let history = OfferHistory::new(shared.registry.is_shared());
        Self {
            index,
            adapters: Adapters::new(shared.clone()),
            shared,
            delivery,
            receivers,
            connections: Slab::new(),
            io: Io::new(poll),
            sessions: Sessions::default(),
            fanout: Fanout::new(history),
            lifecycle: Lifecycle::default(),
            trailers: Trailers::default(),
            inflater: Inflater::default(),
            tally: Tally::default(),
            meters: Default::default(),
            now: Now { ms: 0, tick: 1, wall },
            started: Instant::now(),
            jitter: Jitter::new(seed),
        }
    }

    pub(crate) fn mailbox(&self) -> &Mailbox {
        &self.shared.mailboxes[usize::from(self.index)]
    }

    /// Runs until the gateway stops.
    pub(crate) fn run(mut self, pulse: &Heartbeat) {
        // A panic drops this before the sockets close and the queues disconnect.
        let _ends = Ends { shared: self.shared.clone(), index: usize::from(self.index) };
        #[cfg(feature = "io-uring")]
        {
            self.io.uring = self.shared.config.io_uring.then(crate::io::uring::Uring::new).flatten();
        }
        let mut events = Events::with_capacity(EVENTS);
        while !self.mailbox().stopping.load(Ordering::SeqCst) {
            pulse.waiting();
            let patience = self.patience();
            if let Err(error) = self.io.wait(&mut events, patience)
                && error.kind() != io::ErrorKind::Interrupted
            {
                tracing::error!(shard = self.index, %error, "waiting for events failed");
                std::thread::sleep(Duration::from_millis(10));
            }
            pulse.working();
            self.turn(&events);
        }
        self.close_all();
    }

    fn turn(&mut self, events: &Events) {
        self.mailbox().clear_wake();
        self.refresh_now();
        self.io.begin_turn();
        self.take_mail();
        for slot in self.io.take_unread() {
            self.guard(Some(slot), |shard| shard.read(slot, true));
        }
        self.continue_handshakes();
        for event in events.iter().filter(|event| event.token() != WAKER) {
            let slot = slot_of(event.token());
            self.guard(Some(slot), |shard| {
                if event.is_writable() {
                    shard.flush_unsent(slot);
                }
                if event.is_readable() || event.is_read_closed() || event.is_error() {
                    shard.read(slot, event.is_read_closed() || event.is_error());
                }
            });
        }
        self.take_arrivals();
        for Close { address, reason, successor, previd } in self.mailbox().closes.take() {
            self.guard(Some(address.slot), |shard| {
                if shard.at(address.slot, address.generation).is_some()
                    && previd.is_none_or(|id| {
                        shard.adapter(address.slot).is_some_and(|it| it.is_resumable_as(&id))
                    })
                {
                    shard.begin_close(address.slot, reason);
                }
            });
            if let Some(successor) = successor {
                self.shared.mailbox_of(successor).report_predecessor_gone(successor);
            }
        }
        for address in self.mailbox().predecessors_gone.take() {
            self.guard(Some(address.slot), |shard| shard.handle_predecessor_gone(address));
        }
        while let Ok(reply) = self.receivers.replies.try_recv() {
            self.guard(None, |shard| shard.handle_reply(reply));
        }
        for reply in self.mailbox().overflow.take() {
            self.guard(None, |shard| shard.handle_reply(reply));
        }
        self.continue_recheck();
        self.io.dedup_unread();
        self.write_marked();
        self.guard(None, Shard::send_log_ins);
        self.guard(None, Shard::send_reads);
        self.guard(None, Shard::start_jobs);
        self.fire_timers();
        self.answer_polls();
        self.settle();
    }

    /// Ends a turn: reports outcomes and counts, and lets publishers in that wait for room.
    fn settle(&mut self) {
        let now_ns = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let (added, marked) = (self.fanout.ring.take_added(), self.fanout.ring.marked());
        let loads = &self.shared.mailboxes[usize::from(self.index)].loads;
        for (kind, meter) in self.meters.iter_mut().enumerate() {
            meter.settle(&loads[kind], marked[kind], added[kind], now_ns);
        }
        self.delivery.backpressure.advance();
        self.shared.metrics.late_drops.inc_by(std::mem::take(&mut self.fanout.late_drops));
        if !self.fanout.counts.is_empty() {
            self.delivery.preferences.count(self.fanout.counts.drain(..));
        }
        self.sessions.outcomes.report(&self.delivery, self.now.wall);
        self.tally.settle(&self.shared.metrics);
    }

    /// How long the loop may sleep; `None` without a limit.
    fn patience(&self) -> Option<Duration> {
        let at_once = self.io.has_work()
            || self.fanout.has_work()
            || self.has_next_mail()
            || self.sessions.has_work()
            || !self.receivers.arrivals.is_empty()
            || self.adapters.polled.has_work();
        if at_once {
            return Some(Duration::ZERO);
        }
        let since = self.started.elapsed().as_millis();
        let mut ms = if self.connections.is_empty() { u64::MAX } else { self.to_next_tick_ms(since) };
        if let Some(at_ms) = self.io.precise.next_ms() {
            ms = ms.min(at_ms.saturating_sub(u64::try_from(since).unwrap_or(u64::MAX)));
        }
        if self.index == 0 && !self.shared.services.of::<mqtt::Service>().sessions.is_empty() {
            ms = ms.min(PARKED_EVERY_MS);
        }
        ms = ms.min(self.sessions.patience_ms(self.now));
        if let Some(round) = self.lifecycle.round.as_ref().filter(|_| !self.connections.is_empty()) {
            ms = ms.min(round.patience_ms(u64::try_from(since).unwrap_or(u64::MAX)));
        }
        (ms != u64::MAX).then(|| Duration::from_millis(ms))
    }

    /// The time to the next tick at which the wheel has entries; at most a second.
    fn to_next_tick_ms(&self, since_ms: u128) -> u64 {
        let to_tick = TICK_MS - u64::try_from(since_ms).unwrap_or_default() % TICK_MS;
        to_tick + u64::from(self.io.wheel.quiet_ticks(self.now.tick, IDLE_TICKS)) * TICK_MS
    }

    fn refresh_now(&mut self) {
        let ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let tick = u32::try_from(ms / TICK_MS + 1).unwrap_or(u32::MAX);
        self.now = Now { ms, tick, wall: self.delivery.clock().now() };
    }

    /// Runs a handler; a panic in it ends the connection it was about.
    pub(crate) fn guard(&mut self, slot: Option<u32>, handler: impl FnOnce(&mut Self)) {
        // A panic may leave two things half done: the state of the connection, which is removed, and the counts of
        // connections that wait for a message, which are recounted.
        if catch_unwind(AssertUnwindSafe(|| handler(self))).is_err() {
            self.shared.metrics.panics.inc();
            tracing::error!(shard = self.index, slot, "a handler panicked; closing its connection");
            if let Some(slot) = slot {
                self.abort(slot, CloseReason::Internal);
            }
            self.recount_frames();
        }
        self.remove_ended();
    }

    fn continue_handshakes(&mut self) {
        while let Some(slot) = self.io.next_handshake() {
            self.guard(Some(slot), |shard| shard.read(slot, true));
        }
    }

    /// Encrypts a connection from here on.
    pub(crate) fn begin_tls(&mut self, slot: u32, session: TlsSession) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return Ok(()) };
        let Some(stream) = connection.socket.stream() else { return Ok(()) };
        self.io.deregister(stream)?;
        connection.socket.begin_tls(session)?;
        let Some(stream) = connection.socket.stream() else { return Ok(()) };
        self.io.register(stream, slot)
    }

    /// The connection in a slot, if it still has this generation.
    pub(crate) fn at(&mut self, slot: u32, generation: u64) -> Option<&mut Connection> {
        self.connections.get_mut(slot as usize).filter(|connection| connection.generation == generation)
    }

    pub(crate) fn connection(&mut self, slot: u32) -> Option<&mut Connection> {
        self.connections.get_mut(slot as usize)
    }

    pub(crate) fn session(&self, slot: u32) -> Option<&Arc<Session>> {
        self.connections.get(slot as usize)?.attachment.session.as_ref()
    }

    pub(crate) fn handle_reply(&mut self, reply: Reply) {
        match reply {
            Reply::LoggedIn { to, asked, result: Ok(answers) } => {
                self.sessions.log_ins.batches_out -= 1;
                for ((slot, generation), answer) in to.into_iter().zip(answers) {
                    if self.at(slot, generation).is_some() {
                        self.guard(Some(slot), |shard| shard.handle_log_in(slot, generation, asked, answer));
                    }
                }
            }
            Reply::LoggedIn { to, result: Err(error), .. } => {
                self.sessions.log_ins.batches_out -= 1;
                tracing::warn!(%error, count = to.len(), "log-ins failed");
                for (slot, generation) in to {
                    if self.at(slot, generation).is_some() {
                        self.begin_close(slot, CloseReason::Overloaded);
                    }
                }
            }
            Reply::Permitted { to, permitted } => self.handle_permitted(to, permitted),
            Reply::Verified { to, answer, pending } => self.handle_verified(to, answer, pending),
            Reply::Done { to, done } => self.handle_done(to, done),
            Reply::Read { to, what, result } => self.handle_read(to, what, result),
        }
    }
}

fn slot_of(token: Token) -> u32 {
    // Slots are indices of a slab whose entries are sockets: far fewer than 2^32.
    u32::try_from(token.0).unwrap_or(u32::MAX)
}
