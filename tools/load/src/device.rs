//! One device as the load generator plays it: it connects, says with its [`Speech`] who it is and what it wants to
//! hear, and counts what it gets. It holds nothing while idle; what all devices of a worker need ([`Shared`])
//! exists once. [`crate::engine`] owns the sockets' readiness, [`crate::speech`] what the bytes mean.

use std::io::{self, ErrorKind};

use noroshi_protocol::ws::Inflater;

use crate::dialect::Dialect;
use crate::payload::StampFinder;
use crate::seen::Seen;
use crate::socket::{Route, Socket};
use crate::speech::{Login, Speech, Turn};

const READ_BYTES: usize = 64 << 10;

/// What every device of a worker uses while it is its turn.
pub(crate) struct Shared {
    /// Subscribed to after log-in, for as long as the connection lasts.
    pub(crate) topic: Option<String>,
    dialect: Dialect,
    pub(crate) seen: Seen,
    stamp: StampFinder,
    read: Box<[u8]>,
    /// What to send, empty between turns.
    out: Vec<u8>,
    /// Quoted ids to ack with one frame, empty between turns.
    acks: Vec<u8>,
    inflater: Inflater,
}

impl Shared {
    pub(crate) fn new(topic: Option<String>, dialect: Dialect) -> Self {
        Self {
            topic,
            stamp: if dialect.is_plain() { StampFinder::plain() } else { StampFinder::new() },
            dialect,
            seen: Seen::new(),
            read: vec![0; READ_BYTES].into(),
            out: Vec::new(),
            acks: Vec::new(),
            inflater: Inflater::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// TLS is set up, and nothing will be said inside.
    Handshaking,
    /// The first answer is awaited: of an upgrade, a stream or MQTT's CONNECT.
    Opening,
    /// It is not known yet whether the server lets the device in.
    LoggingIn,
    /// The answer to the subscription, or to what was asked behind it, is awaited.
    Subscribing,
    Ready,
}

/// Why a connection is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) reason: String,
    /// A later attempt may succeed.
    pub(crate) retry: bool,
    /// When the server said to come back.
    pub(crate) after_ms: Option<u64>,
}

/// The reason of a connection that was opened for its handshake.
pub(crate) const HANDSHAKE_DONE: &str = "handshake done";

/// What a device does with bytes that arrive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// Takes them all at once.
    Eager,
    /// Takes some when it is told to ([`Device::sip`]); its messages are not counted.
    Slow,
}

impl Ended {
    pub(crate) fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: false, after_ms: None }
    }

    pub(crate) fn passing(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: true, after_ms: None }
    }

    pub(crate) fn io(error: &io::Error) -> Self {
        Self::passing(error.kind().to_string())
    }
}

pub(crate) struct Device {
    pub(crate) socket: Socket,
    /// When it began to connect.
    pub(crate) opened_ns: u64,
    speech: Speech,
    stage: Stage,
    pub(crate) reading: Reading,
    /// Messages since it connected.
    received: u32,
    /// What the socket did not take; at first how the speech begins.
    unsent: Vec<u8>,
}

impl Device {
    /// Begins to connect.
    pub(crate) fn open(
        route: Route<'_>,
        dialect: &Dialect,
        login: Login<'_>,
        opened_ns: u64,
    ) -> io::Result<Self> {
        Self::begin(route, Speech::begin(dialect, login), opened_ns)
    }

    fn begin(route: Route<'_>, (speech, unsent): (Speech, Vec<u8>), opened_ns: u64) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::open(route)?,
            opened_ns,
            speech,
            stage: Stage::Opening,
            reading: Reading::Eager,
            received: 0,
            unsent,
        })
    }

    /// Begins to connect for the sake of the TLS handshake alone.
    pub(crate) fn open_handshake(route: Route<'_>, opened_ns: u64) -> io::Result<Self> {
        let device = Self::begin(route, (Speech::silent(), Vec::new()), opened_ns)?;
        Ok(Self { stage: Stage::Handshaking, ..device })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Publishes `text` to everybody.
    pub(crate) fn say(&mut self, text: &str, shared: &Shared) -> Result<(), Ended> {
        self.speech.say(text, &shared.dialect, shared.topic.as_deref(), &mut self.unsent);
        self.handle_writable()
    }

    /// Whether the socket has not taken everything yet.
    pub(crate) fn is_sending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// The socket takes bytes again.
    pub(crate) fn handle_writable(&mut self) -> Result<(), Ended> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::io(&error)),
            }
        }
        self.unsent = Vec::new(); // nothing is held while idle
        self.socket.flush().map(drop).map_err(|error| Ended::io(&error))
    }

    /// The socket has bytes, or its end.
    pub(crate) fn handle_readable(&mut self, peer_closed: bool, shared: &mut Shared) -> Result<(), Ended> {
        loop {
            match self.socket.read(&mut shared.read) {
                Ok(0) => return Err(Ended::passing(format!("connection closed while {}", self.doing()))),
                Ok(len) => {
                    self.handle_bytes(len, shared)?;
                    if self.socket.is_drained(len, READ_BYTES, peer_closed) {
                        return Ok(());
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return self.handle_drained(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::io(&error)),
            }
        }
    }

    /// A handshake is over for both sides once the server has said the first thing behind it, a ticket
    /// (RFC 8446 §4.6.1): it has the client's Finished by then.
    fn handle_drained(&mut self) -> Result<(), Ended> {
        if self.stage != Stage::Handshaking || !self.socket.has_ticket() {
            return Ok(());
        }
        self.stage = Stage::Ready;
        Err(Ended::passing(HANDSHAKE_DONE))
    }

    /// Reads at most `bytes`.
    pub(crate) fn sip(&mut self, bytes: usize, shared: &mut Shared) -> Result<(), Ended> {
        match self.socket.read(&mut shared.read[..bytes]) {
            Ok(0) => Err(Ended::passing(format!("connection closed while {}", self.doing()))),
            Ok(len) => self.handle_bytes(len, shared),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(Ended::io(&error)),
        }
    }

    fn doing(&self) -> &'static str {
        match self.stage {
            Stage::Handshaking => "shaking hands",
            Stage::Opening => "opening",
            Stage::LoggingIn => "logging in",
            Stage::Subscribing => "subscribing",
            Stage::Ready => "open",
        }
    }

    fn handle_bytes(&mut self, len: usize, shared: &mut Shared) -> Result<(), Ended> {
        let Shared { topic, dialect, seen, stamp, read, out, acks, inflater } = shared;
        let mut turn = Turn {
            dialect,
            topic: topic.as_deref(),
            stamp,
            seen,
            out,
            acks,
            inflater,
            stage: &mut self.stage,
            received: &mut self.received,
            reading: self.reading,
        };
        let heard = self.speech.hear(&mut read[..len], &mut turn);
        if !shared.out.is_empty() {
            self.unsent.append(&mut shared.out);
            self.handle_writable()?;
        }
        heard
    }
}
