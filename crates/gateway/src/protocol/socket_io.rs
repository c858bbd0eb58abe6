//! Socket.IO on a connection. The protocol itself is `noroshi_protocol::{socket_io, engine_io}`; this adapter connects
//! it to the session of a device.
//!
//! An Engine.IO session has its own slot. It has the socket of its WebSocket. While it polls it has no socket: other
//! connections serve it ([`super::polling`]), and it takes one of their sockets when the client upgrades to a
//! WebSocket. So a session keeps its place in the registry whatever transport it uses.
//!
//! A device's conversation is [`App::Device`]. The others are what the public conformance suites talk to
//! (`Config::conformance`), with the same input and output.

use bytes::Bytes;
use noroshi_protocol::engine_io::{Data, Outgoing, Packet, PacketError, Session, Sid};
use noroshi_protocol::socket_io::{Action, Conversation, Echo, LogIn, Reply as Callback};
use noroshi_protocol::ws::{self, Input, Opcode};
use noroshi_types::SessionId;
use ring::rand::{SecureRandom, SystemRandom};

use crate::config;
use crate::io::timer::Jitter;
use crate::protocol::polling::Legs;
use crate::protocol::services::Services;
use crate::session::verification::Credentials;
use crate::wire::Protocol;

mod adapter;
mod login;

pub(crate) type Request = super::command::Request<Box<LogIn>, Callback>;

/// What is spoken over Engine.IO.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mount {
    /// Socket.IO, by devices.
    Devices,
    /// Socket.IO as the conformance suite expects it.
    Namespaces,
    /// Messages that are sent back as they are: for the conformance suite.
    Raw,
}

/// The request that opens a session of Engine.IO.
pub(crate) struct Opener {
    pub(crate) mount: Mount,
    pub(crate) credentials: Credentials,
    /// The client's WebSocket library reads nothing behind a close frame, and does not report it to the Socket.IO
    /// library.
    pub(crate) misses_close_frames: bool,
}

/// The first pings of sessions that began together are spread where the interval is long enough for a storm of them.
/// Shorter intervals are kept to the millisecond ([`crate::io::timer::Precise`]), longer ones to a tick of the wheel.
const SPREAD_FROM_MS: u64 = 5_000;

pub(crate) struct SocketIo {
    pub(crate) engine: Session,
    app: App,
    /// Present in a session that began with polling.
    pub(crate) legs: Option<Box<Legs>>,
    /// Until a log-in succeeds.
    pending_login: Option<Box<PendingLogin>>,
    /// [`Opener::misses_close_frames`].
    misses_close_frames: bool,
}

enum App {
    Device(Conversation),
    Namespaces(Echo),
    Raw,
}

/// Input of a log-in in addition to CONNECT.
#[derive(Default)]
struct PendingLogin {
    /// The credentials of the request that opened the session.
    credentials: Credentials,
    /// The private id that the client came back with, if its session can be recovered.
    pid: Option<Box<str>>,
}

impl App {
    fn receive(&mut self, data: Data<'_>, now_ms: u64, config: &config::SocketIo, out: &mut Vec<Action>) {
        match self {
            App::Device(conversation) => conversation.receive(data, now_ms, &config.conversation, out),
            App::Namespaces(echo) => echo.receive(data, now_ms, &config.conversation, out),
            App::Raw => out.push(Action::Send(Outgoing::message(data))),
        }
    }

    fn handle_time(&mut self, now_ms: u64, out: &mut Vec<Action>) {
        match self {
            App::Device(conversation) => conversation.handle_time(now_ms, out),
            App::Namespaces(echo) => echo.handle_time(now_ms, out),
            App::Raw => {}
        }
    }

    fn deadline_ms(&self) -> Option<u64> {
        match self {
            App::Device(conversation) => conversation.deadline_ms(),
            App::Namespaces(echo) => echo.deadline_ms(),
            App::Raw => None,
        }
    }
}

impl SocketIo {
    /// A new session. `None` if the system has no randomness. `polls`: it begins with polling rather than with a
    /// WebSocket.
    pub(crate) fn new(
        opener: Opener,
        polls: bool,
        shard: u16,
        now_ms: u64,
        services: &Services,
        jitter: &mut Jitter,
    ) -> Option<(Self, Sid)> {
        let Opener { mount, credentials, misses_close_frames } = opener;
        let mut random = [0; 13];
        SystemRandom::new().fill(&mut random).ok()?;
        let sid = Sid::new(shard, random);
        let (config, number) = (&services.config.socket_io, services.generations.next_number());
        let interval_ms = config.engine.ping_interval_ms;
        let app = match mount {
            Mount::Devices => App::Device(Conversation::new(now_ms, &config.conversation)),
            Mount::Namespaces => App::Namespaces(Echo::new(SessionId(number), now_ms, &config.conversation)),
            Mount::Raw => App::Raw,
        };
        let early_ms = if interval_ms >= SPREAD_FROM_MS { jitter.draw(interval_ms / 2) } else { 0 };
        let first_ping_at_ms = now_ms + interval_ms - early_ms;
        let engine = match polls {
            true => Session::polling(first_ping_at_ms),
            false => Session::websocket(first_ping_at_ms),
        };
        let pending_login =
            (mount == Mount::Devices).then(|| Box::new(PendingLogin { credentials, pid: None }));
        Some((Self { engine, app, legs: None, pending_login, misses_close_frames }, sid))
    }

    pub(crate) fn protocol_of(mount: Mount) -> Protocol {
        match mount {
            Mount::Devices => Protocol::SocketIo,
            Mount::Namespaces | Mount::Raw => Protocol::Echo,
        }
    }
}

/// The packet of a WebSocket message.
pub(crate) fn engine_packet(input: Input<'_>) -> Option<Result<Packet<'_>, PacketError>> {
    match input {
        Input::Text(text) => Some(Packet::from_text(text)),
        Input::Binary(bytes) => Some(Ok(Packet::from_binary(bytes))),
        _ => None,
    }
}

pub(crate) fn websocket_frame(packet: &Outgoing) -> Bytes {
    match packet {
        Outgoing::Text(text) => ws::text_frame(text),
        Outgoing::Binary(bytes) => ws::frame(Opcode::Binary, bytes),
    }
}
