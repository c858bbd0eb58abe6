//! One simulated device: it connects, logs in and subscribes through its [`Speech`], and counts what it
//! receives. It holds no buffers while idle; resources for all devices of a worker ([`Shared`]) exist once.
//! [`crate::engine`] handles socket readiness, [`crate::speech`] interprets the bytes.

use std::io::{self, ErrorKind};

use noroshi_protocol::ws::Inflater;

use crate::connection::{Ended, HANDSHAKE_DONE, Reading, Stage};
use crate::dialect::Dialect;
use crate::payload::StampFinder;
use crate::seen::Seen;
use crate::socket::{Route, Socket};
use crate::speech::{Login, Speech, Turn, native};

const READ_BYTES: usize = 64 << 10;

/// Resources that the devices of a worker use in turn.
pub(crate) struct Shared {
    /// Subscribed after the log-in, until the connection ends.
    pub(crate) topic: Option<String>,
    dialect: Dialect,
    pub(crate) seen: Seen,
    stamp: StampFinder,
    read: Box<[u8]>,
    /// Bytes to send, empty between turns.
    out: Vec<u8>,
    /// Quoted ids to ack with one frame, empty between turns.
    acks: Vec<u8>,
    /// Devices keep their acknowledgements.
    pub(crate) holds_acks: bool,
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
            holds_acks: false,
            inflater: Inflater::default(),
        }
    }
}

pub(crate) struct Device {
    pub(crate) socket: Socket,
    /// When it started to connect.
    pub(crate) opened_ns: u64,
    speech: Speech,
    stage: Stage,
    pub(crate) reading: Reading,
    /// Messages since it connected.
    received: u32,
    /// Bytes that the socket did not accept; initially the first bytes of the protocol.
    unsent: Vec<u8>,
    /// Quoted ids that it has not acknowledged yet, because it holds them.
    held_acks: Vec<u8>,
}

impl Device {
    /// Starts to connect.
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
            held_acks: Vec::new(),
        })
    }

    /// Starts to connect for a TLS handshake only.
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

    /// Publishes `text` to all devices.
    pub(crate) fn publish(&mut self, text: &str, shared: &Shared) -> Result<(), Ended> {
        self.speech.publish(text, &shared.dialect, shared.topic.as_deref(), &mut self.unsent);
        self.handle_writable()
    }

    /// Acknowledges the messages that it holds.
    pub(crate) fn send_acks(&mut self) -> Result<(), Ended> {
        native::push_acks(&mut self.held_acks, &mut self.unsent);
        self.handle_writable()
    }

    /// Whether unsent bytes remain.
    pub(crate) fn is_sending(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Handles a writable socket.
    pub(crate) fn handle_writable(&mut self) -> Result<(), Ended> {
        while !self.unsent.is_empty() {
            match self.socket.write(&self.unsent) {
                Ok(len) => drop(self.unsent.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Ended::io(&error)),
            }
        }
        self.unsent = Vec::new(); // releases the buffer while idle
        self.socket.flush().map(drop).map_err(|error| Ended::io(&error))
    }

    /// Handles a readable or closed socket.
    pub(crate) fn handle_readable(&mut self, peer_closed: bool, shared: &mut Shared) -> Result<(), Ended> {
        loop {
            match self.socket.read(&mut shared.read) {
                Ok(0) => return Err(Ended::temporary(format!("connection closed while {}", self.doing()))),
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

    /// A handshake is complete on both sides once the server's session ticket arrives (RFC 8446 §4.6.1),
    /// since the server has the client's Finished by then.
    fn handle_drained(&mut self) -> Result<(), Ended> {
        if self.stage != Stage::Handshaking || !self.socket.has_ticket() {
            return Ok(());
        }
        self.stage = Stage::Ready;
        Err(Ended::temporary(HANDSHAKE_DONE))
    }

    /// Reads at most `bytes`.
    pub(crate) fn read_bytes(&mut self, bytes: usize, shared: &mut Shared) -> Result<(), Ended> {
        match self.socket.read(&mut shared.read[..bytes]) {
            Ok(0) => Err(Ended::temporary(format!("connection closed while {}", self.doing()))),
            Ok(len) => self.handle_bytes(len, shared),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(()),
            Err(error) => Err(Ended::io(&error)),
        }
    }

    fn doing(&self) -> &'static str {
        match self.stage {
            Stage::Handshaking => "performing the TLS handshake",
            Stage::Opening => "opening",
            Stage::LoggingIn => "logging in",
            Stage::Subscribing => "subscribing",
            Stage::Ready => "open",
        }
    }

    fn handle_bytes(&mut self, len: usize, shared: &mut Shared) -> Result<(), Ended> {
        let Shared { topic, dialect, seen, stamp, read, out, acks, holds_acks, inflater } = shared;
        let mut turn = Turn {
            dialect,
            topic: topic.as_deref(),
            stamp,
            seen,
            out,
            acks: if *holds_acks { &mut self.held_acks } else { acks },
            holds_acks: *holds_acks,
            inflater,
            stage: &mut self.stage,
            received: &mut self.received,
            reading: self.reading,
        };
        let heard = self.speech.handle_bytes(&mut read[..len], &mut turn);
        if !shared.out.is_empty() {
            self.unsent.append(&mut shared.out);
            self.handle_writable()?;
        }
        heard
    }
}
