//! One device as the load generator plays it: it opens a WebSocket with its token, subscribes if asked
//! to, counts what it gets, answers pings and acks. It holds nothing while idle; what all devices of a
//! worker need ([`Shared`]) exists once. [`crate::engine`] owns the sockets' readiness.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use noroshi_protocol::native::{ServerFrame, parse_server_frame};
use noroshi_protocol::ws::{
    Decoder, Input, Opcode, Refusal, Role, check_upgrade_response, push_masked_frame, push_upgrade_request,
};

use crate::dialect::Dialect;
use crate::http::Response;
use crate::payload::StampFinder;
use crate::seen::Seen;
use crate::socket::{Route, Socket};

/// The example of RFC 6455 §1.3. A key keeps caches from answering; there is none in between here.
const UPGRADE_KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
/// Masks keep intermediaries from being confused (RFC 6455 §10.3); there is none in between here.
const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];
/// Data and notification of 4 KiB each, and a few fields.
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const RESPONSE_BYTES_MAX: usize = 16 << 10;
const READ_BYTES: usize = 64 << 10;

/// What every device of a worker uses while it is its turn.
pub(crate) struct Shared {
    /// Subscribed to after log-in, for as long as the connection lasts.
    pub(crate) topic: Option<String>,
    /// None: Noroshi's native protocol.
    dialect: Option<Dialect>,
    pub(crate) seen: Seen,
    stamp: StampFinder,
    read: Box<[u8]>,
    /// Frames to send, empty between turns.
    out: Vec<u8>,
    /// Quoted ids to ack with one frame, empty between turns.
    acks: Vec<u8>,
}

impl Shared {
    pub(crate) fn new(topic: Option<String>, dialect: Option<Dialect>) -> Self {
        Self {
            topic,
            stamp: if dialect.is_some() { StampFinder::plain() } else { StampFinder::new() },
            dialect,
            seen: Seen::new(),
            read: vec![0; READ_BYTES].into(),
            out: Vec::new(),
            acks: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// TLS is set up, and nothing will be said inside.
    Handshaking,
    /// The upgrade was asked for.
    Upgrading,
    /// `ready` is awaited.
    LoggingIn,
    /// The `pong` behind the subscription is awaited: frames are answered in order.
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
    fn lasting(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), retry: false, after_ms: None }
    }

    fn passing(reason: impl Into<String>) -> Self {
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
    decoder: Decoder,
    stage: Stage,
    pub(crate) reading: Reading,
    /// Messages since it connected.
    received: u32,
    /// What the socket did not take; at first the upgrade.
    unsent: Vec<u8>,
    /// An incomplete answer to the upgrade.
    held: Vec<u8>,
    /// Frames to send behind the upgrade.
    hello: Vec<u8>,
}

impl Device {
    /// Begins to connect to `host`, as the device that `token` names.
    pub(crate) fn open(route: Route<'_>, host: &str, token: &str, opened_ns: u64) -> io::Result<Self> {
        let mut unsent = Vec::with_capacity(512);
        let bearer = format!("Bearer {token}");
        push_upgrade_request(&mut unsent, host, "/v1/connect", UPGRADE_KEY, &[("Authorization", &bearer)]);
        Self::begin(route, unsent, Vec::new(), opened_ns)
    }

    /// Begins to connect to a server that other people wrote, as the device `name`.
    pub(crate) fn open_foreign(
        route: Route<'_>,
        host: &str,
        dialect: &Dialect,
        name: &str,
        opened_ns: u64,
    ) -> io::Result<Self> {
        let (mut unsent, mut hello) = (Vec::with_capacity(512), Vec::new());
        push_upgrade_request(&mut unsent, host, &dialect.path(name), UPGRADE_KEY, &[]);
        for text in dialect.hello(name) {
            push_masked_frame(&mut hello, Opcode::Text, text.as_bytes(), MASK);
        }
        Self::begin(route, unsent, hello, opened_ns)
    }

    fn begin(route: Route<'_>, unsent: Vec<u8>, hello: Vec<u8>, opened_ns: u64) -> io::Result<Self> {
        Ok(Self {
            socket: Socket::open(route)?,
            opened_ns,
            decoder: Decoder::new(),
            stage: Stage::Upgrading,
            reading: Reading::Eager,
            received: 0,
            unsent,
            held: Vec::new(),
            hello,
        })
    }

    /// Begins to connect for the sake of the TLS handshake alone.
    pub(crate) fn open_handshake(route: Route<'_>, opened_ns: u64) -> io::Result<Self> {
        let device = Self::begin(route, Vec::new(), Vec::new(), opened_ns)?;
        Ok(Self { stage: Stage::Handshaking, ..device })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.stage == Stage::Ready
    }

    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// Sends a text frame.
    pub(crate) fn say(&mut self, text: &str) -> Result<(), Ended> {
        push_masked_frame(&mut self.unsent, Opcode::Text, text.as_bytes(), MASK);
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
            Stage::Upgrading => "upgrading",
            Stage::LoggingIn => "logging in",
            Stage::Subscribing => "subscribing",
            Stage::Ready => "open",
        }
    }

    fn handle_bytes(&mut self, len: usize, shared: &mut Shared) -> Result<(), Ended> {
        let mut from = 0;
        if self.stage == Stage::Upgrading {
            self.held.extend_from_slice(&shared.read[..len]);
            let Some(head_len) = upgraded(&self.held)? else { return Ok(()) };
            // Frames may follow the head in the same read; what came before this read was head.
            from = len - (self.held.len() - head_len);
            self.held = Vec::new();
            shared.out.append(&mut self.hello);
            self.stage = match &shared.dialect {
                Some(Dialect { ready: None, .. }) => Stage::Ready,
                Some(_) | None => Stage::LoggingIn,
            };
        }
        let fed = self.feed(from..len, shared);
        if !shared.acks.is_empty() {
            let ack = [br#"{"t":"ack","ids":["#, shared.acks.as_slice(), b"]}"].concat();
            push_masked_frame(&mut shared.out, Opcode::Text, &ack, MASK);
            shared.acks.clear();
        }
        if !shared.out.is_empty() {
            self.unsent.append(&mut shared.out);
            self.handle_writable()?;
        }
        fed
    }

    fn feed(&mut self, range: std::ops::Range<usize>, shared: &mut Shared) -> Result<(), Ended> {
        let Shared { topic, dialect, seen, stamp, read, out, acks } = shared;
        let Self { decoder, stage, reading, received, .. } = self;
        let mut ended = None;
        let mut on_input = |input: Input<'_>| {
            if let (Some(dialect), Input::Text(text)) = (&dialect, &input) {
                for stamp_ns in stamp.find_all(text.as_bytes()) {
                    *received += 1;
                    seen.message(*received, Some(stamp_ns), text.len());
                }
                if *stage == Stage::LoggingIn && dialect.is_ready(text) {
                    *stage = Stage::Ready;
                }
                if let Some(reply) = dialect.answer(text) {
                    push_masked_frame(out, Opcode::Text, reply.as_bytes(), MASK);
                }
                return ControlFlow::Continue(());
            }
            match input {
                Input::Text(text) if text.starts_with(r#"{"t":"msg""#) => {
                    *received += 1;
                    let stamp_ns = stamp.find(text.as_bytes());
                    if *reading == Reading::Eager {
                        seen.message(*received, stamp_ns, text.len());
                    }
                    if push_ack(acks, text) {
                        seen.stored(stamp_ns);
                    }
                }
                Input::Text(text) => match said(text, *stage) {
                    Said::LoggedIn => *stage = subscribe(topic.as_deref(), out),
                    Said::Subscribed => *stage = Stage::Ready,
                    Said::Nothing => {}
                    Said::Over(why) => ended = Some(why),
                },
                Input::Ping(payload) => push_masked_frame(out, Opcode::Pong, payload, MASK),
                Input::Close { code, reason } => {
                    let code = code.map_or_else(|| "none".to_owned(), |code| code.to_string());
                    let reason = format!("closed by the server: {code} {reason}").trim_end().to_owned();
                    ended.get_or_insert(Ended::passing(reason));
                }
                Input::Binary(_) | Input::Pong(_) | Input::Fragment => {}
            }
            match ended {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        };
        let fed = decoder.feed(Role::Client, &mut read[range], MESSAGE_BYTES_MAX, &mut on_input);
        match (fed, ended) {
            (_, Some(ended)) => Err(ended),
            (Err(error), None) => Err(Ended::lasting(format!("broken frame: {error}"))),
            (Ok(()), None) => Ok(()),
        }
    }
}

/// What a frame that is no message changes.
enum Said {
    LoggedIn,
    Subscribed,
    Nothing,
    Over(Ended),
}

fn said(text: &str, stage: Stage) -> Said {
    match parse_server_frame(text) {
        Ok(ServerFrame::Ready { .. }) if stage == Stage::LoggingIn => Said::LoggedIn,
        Ok(ServerFrame::Pong) if stage == Stage::Subscribing => Said::Subscribed,
        Ok(ServerFrame::Error { code, message }) => {
            Said::Over(Ended::lasting(format!("error frame {code}: {message}")))
        }
        Ok(ServerFrame::Close { reason, reconnect, after_ms }) => {
            let reason = format!("close frame: {reason}");
            Said::Over(Ended { reason, retry: reconnect, after_ms: Some(after_ms) })
        }
        Ok(_) => Said::Nothing,
        Err(error) => Said::Over(Ended::lasting(format!("unexpected frame: {error}"))),
    }
}

/// Subscribes after log-in, if there is a topic; returns what is awaited next.
fn subscribe(topic: Option<&str>, out: &mut Vec<u8>) -> Stage {
    let Some(topic) = topic else { return Stage::Ready };
    let frame = serde_json::json!({"t": "sub", "topics": [topic]}).to_string();
    push_masked_frame(out, Opcode::Text, frame.as_bytes(), MASK);
    push_masked_frame(out, Opcode::Text, br#"{"t":"ping"}"#, MASK);
    Stage::Subscribing
}

/// Adds the id of a message that wants an ack; false for others. The flag stands behind `data`, near the end.
fn push_ack(acks: &mut Vec<u8>, text: &str) -> bool {
    let tail = &text.as_bytes()[text.len().saturating_sub(64)..];
    if memchr::memmem::find(tail, br#""ack":true"#).is_none() {
        return false;
    }
    if let Ok(ServerFrame::Msg(message)) = parse_server_frame(text) {
        if !acks.is_empty() {
            acks.push(b',');
        }
        acks.push(b'"');
        acks.extend_from_slice(message.id.as_bytes());
        acks.push(b'"');
    }
    true
}

/// The length of the head that opened the WebSocket; none until it is complete.
fn upgraded(bytes: &[u8]) -> Result<Option<usize>, Ended> {
    match check_upgrade_response(bytes, UPGRADE_KEY) {
        Ok(None) if bytes.len() > RESPONSE_BYTES_MAX => Err(Ended::lasting("the answer's head is too long")),
        Ok(head_len) => Ok(head_len),
        Err(Refusal::Status { status, head_len }) => match Response::parse(bytes, false) {
            Ok(None) if bytes.len() < head_len + RESPONSE_BYTES_MAX => Ok(None),
            Ok(Some(response)) => Err(refused(status, response.problem_code(), response.retry_after_s)),
            Ok(None) | Err(_) => Err(refused(status, format!("HTTP {status}"), None)),
        },
        Err(Refusal::Malformed(what)) => Err(Ended::lasting(what)),
    }
}

fn refused(status: u16, reason: String, retry_after_s: Option<u64>) -> Ended {
    let after_ms = retry_after_s.map(|seconds| seconds.saturating_mul(1_000));
    Ended { reason, retry: matches!(status, 429 | 500..), after_ms }
}
