//! Sockets and what belongs to them: listeners, transports, TLS, io_uring, unsent bytes, timers.
//!
//! May use: [`crate::wire`], [`crate::rate`]. Knows bytes and deadlines, but no sessions and no protocols.
//!
//! A shard owns one [`Io`]; each connection owns one [`socket::Socket`].

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};

pub(crate) mod bridge;
pub(crate) mod handover;
pub(crate) mod listener;
pub(crate) mod socket;
pub(crate) mod timer;
pub mod tls;
mod unsent;
#[cfg(feature = "io-uring")]
pub(crate) mod uring;

use timer::{Precise, Wheel};

/// What the TLS handshakes of one turn may cost before the others wait for the next: a storm of them must leave time
/// for deliveries between. Time and not a number, since the signature in one step costs 0.1 ms with a key of P-256,
/// 1.5 ms with RSA-2048 and 12 ms with RSA-4096.
const HANDSHAKE_TIME_PER_TURN: Duration = Duration::from_millis(2);
const SCRATCH_BYTES: usize = 64 << 10;

/// The IO of one shard, without the sockets, which its connections own.
pub(crate) struct Io {
    poll: Poll,
    pub(crate) wheel: Wheel,
    pub(crate) precise: Precise,
    /// The peers of bridged streams, by slot: their sockets do not know them.
    pub(crate) peers: HashMap<u32, SocketAddr>,
    /// Sockets that had more to read than their share of a turn.
    unread: Vec<u32>,
    /// Sockets that are not read until their connections have processed what they sent, with the bytes that were read
    /// before: at most a read's worth each.
    paused: HashMap<u32, VecDeque<Bytes>>,
    /// Sockets whose handshake continues in a later turn, in order.
    handshakes: VecDeque<u32>,
    /// The unused part of [`HANDSHAKE_TIME_PER_TURN`].
    handshake_left: Duration,
    /// Read buffer, lent to one read at a time.
    scratch: Vec<u8>,
    /// Made on the shard's own thread: only that may submit.
    #[cfg(feature = "io-uring")]
    pub(crate) uring: Option<uring::Uring>,
}

impl Io {
    pub(crate) fn new(poll: Poll) -> Self {
        Self {
            poll,
            wheel: Wheel::new(),
            precise: Precise::default(),
            peers: HashMap::new(),
            unread: Vec::new(),
            paused: HashMap::new(),
            handshakes: VecDeque::new(),
            handshake_left: Duration::ZERO,
            scratch: Vec::new(),
            #[cfg(feature = "io-uring")]
            uring: None,
        }
    }

    /// Waits for events, at most so long.
    pub(crate) fn wait(&mut self, events: &mut Events, at_most: Option<Duration>) -> io::Result<()> {
        self.poll.poll(events, at_most)
    }

    /// Registers a socket, edge-triggered and once: no call to epoll for the rest of its life.
    pub(crate) fn register(&self, stream: &mut TcpStream, slot: u32) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(stream, Token(slot as usize), interest)
    }

    /// A socket moves to another slot.
    pub(crate) fn reregister(&self, stream: &mut TcpStream, slot: u32) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().reregister(stream, Token(slot as usize), interest)
    }

    pub(crate) fn deregister(&self, stream: &mut TcpStream) -> io::Result<()> {
        self.poll.registry().deregister(stream)
    }

    pub(crate) fn begin_turn(&mut self) {
        self.handshake_left = HANDSHAKE_TIME_PER_TURN;
    }

    /// Whether the next turn has something to do.
    pub(crate) fn has_work(&self) -> bool {
        !self.unread.is_empty() || !self.handshakes.is_empty()
    }

    /// Continues reading a socket in the next turn.
    pub(crate) fn read_later(&mut self, slot: u32) {
        self.unread.push(slot);
    }

    pub(crate) fn is_paused(&self, slot: u32) -> bool {
        self.paused.contains_key(&slot)
    }

    /// Nothing is read from the socket until [`Io::resume`]. `rest`: bytes that are not processed yet.
    pub(crate) fn pause(&mut self, slot: u32, rest: VecDeque<Bytes>) {
        self.paused.entry(slot).or_default().extend(rest);
    }

    /// Ends a pause. Returns the bytes that were kept, which come before those that are read next.
    pub(crate) fn resume(&mut self, slot: u32) -> Option<VecDeque<Bytes>> {
        self.paused.remove(&slot)
    }

    /// The socket is gone.
    pub(crate) fn forget(&mut self, slot: u32) {
        self.peers.remove(&slot);
        self.paused.remove(&slot);
    }

    pub(crate) fn take_unread(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.unread)
    }

    /// A flood reports new bytes in each turn too: its share stays one.
    pub(crate) fn dedup_unread(&mut self) {
        self.unread.sort_unstable();
        self.unread.dedup();
    }

    /// Whether a handshake may continue in this turn.
    pub(crate) fn has_handshake_time(&self) -> bool {
        !self.handshake_left.is_zero()
    }

    pub(crate) fn spend_handshake_time(&mut self, spent: Duration) {
        self.handshake_left = self.handshake_left.saturating_sub(spent);
    }

    pub(crate) fn defer_handshake(&mut self, slot: u32) {
        self.handshakes.push_back(slot);
    }

    /// The next handshake that may continue in this turn.
    pub(crate) fn next_handshake(&mut self) -> Option<u32> {
        match self.has_handshake_time() {
            true => self.handshakes.pop_front(),
            false => None,
        }
    }

    /// Lends the read buffer; [`Io::put_scratch`] gives it back.
    pub(crate) fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        // Empty at first, and after a panic.
        scratch.resize(SCRATCH_BYTES, 0);
        scratch
    }

    pub(crate) fn put_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }
}
