//! Socket.IO on a connection: packets to the conversation, what it asks for to the session core, and
//! messages and answers back. What Socket.IO and Engine.IO are stands in `protocol::{socket_io, engine_io}`.
//!
//! An Engine.IO session is a slot of its own. It has the socket of its WebSocket; while it polls it has
//! none, and is reached by other connections ([`crate::protocol::polling`]), one of whose sockets it takes when the
//! client moves to a WebSocket. So a session keeps its place in the registry whatever it travels by.
//!
//! The device's conversation is [`App::Device`]; the others are what the public conformance suites talk to
//! (`Config::conformance`), on the same way in and out.

use std::time::Duration;

use bytes::Bytes;
use noroshi_auth::{Identity, Refused};
use noroshi_protocol::engine_io::{self, Data, Outgoing, Packet, PacketError, Session, Sid};
use noroshi_protocol::socket_io::{Action, Conversation, Echo, LogIn, Variant};
use noroshi_protocol::ws::{self, Input, Opcode, Upgrade};
use noroshi_types::{CloseReason, NotificationId, SessionId, Timestamp};
use ring::rand::{SecureRandom, SystemRandom};

use crate::config;
use crate::lifecycle::phase::Phase;
use crate::protocol::conversation::{Cause, Context, Offered, Talk};
use crate::protocol::polling::Legs;
use crate::session::login::Begun;
use crate::session::operation::Op;
use crate::session::verification::{LogInRequest, RenewalRequest, close_reason};
use crate::shard::Shard;
use crate::shard::route::{Credentials, Mount, Opener};
use crate::wire::dispatch::Dispatch;
use crate::wire::{Framing, Protocol};

/// Pings of sessions that began together are spread where the interval is long enough for a storm. Shorter intervals
/// are kept to the millisecond ([`crate::io::timer::Precise`]), longer ones to a tick of the shard's wheel.
const SPREAD_FROM_MS: u64 = 5_000;

pub(crate) struct SocketIo {
    pub(crate) engine: Session,
    app: App,
    /// Of a session that began with polling.
    pub(crate) legs: Option<Box<Legs>>,
    /// Until a log-in succeeds.
    fresh: Option<Box<Fresh>>,
    /// [`Opener::misses_close_frames`].
    misses_close_frames: bool,
}

enum App {
    Device(Conversation),
    Namespaces(Echo),
    Raw,
}

/// What a log-in may need.
#[derive(Default)]
struct Fresh {
    /// Of the request that the session began with.
    credentials: Credentials,
    /// What the client came back with, if it can be recovered.
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
    pub(crate) fn offer(
        &mut self,
        context: &Context<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        let conversation = match &mut self.app {
            App::Device(conversation) if conversation.is_open() => conversation,
            _ => return Offered::Pass { confirmed: false },
        };
        let variant = conversation.variant();
        // A client that came back after the offset of a retained one would miss what lies between, so it
        // gets none.
        let (notification, ack_id) = match (cause, variant) {
            (Cause::Retained, Variant::Offsets) => (dispatch.socket_io(Variant::Acks), None),
            _ => {
                let notification = dispatch.socket_io(variant);
                (notification, conversation.deliver(notification))
            }
        };
        let shared = match (context.framing, ack_id) {
            (Framing::Polling, ack_id) => match notification.packet(ack_id) {
                Outgoing::Text(bytes) | Outgoing::Binary(bytes) => bytes,
            },
            (_, None) => notification.frame().clone(),
            (_, Some(ack_id)) => {
                notification.push_head(ack_id, head);
                notification.tail()
            }
        };
        Offered::Send { shared, confirmed: false }
    }

    pub(crate) fn queued_bytes(&self) -> usize {
        self.engine.queued_bytes()
    }

    /// The core has its own bound (`Shard::check_tail`).
    pub(crate) fn queue(&mut self, packet: Bytes) {
        self.engine.push_unbounded(Outgoing::Text(packet), &mut Vec::new());
    }
}

impl Shard {
    /// A session; `None` where the system has no randomness.
    pub(crate) fn new_socket_io(&mut self, opener: Opener, polls: bool) -> Option<(SocketIo, Sid)> {
        let Opener { mount, credentials, misses_close_frames } = opener;
        let mut random = [0; 13];
        SystemRandom::new().fill(&mut random).ok()?;
        let sid = Sid::new(self.index, random);
        let config = &self.shared.config.socket_io;
        let interval_ms = config.engine.ping_interval_ms;
        let app = match mount {
            Mount::Devices => App::Device(Conversation::new(self.now.ms, &config.conversation)),
            Mount::Namespaces => {
                let session = SessionId(self.shared.next_number());
                App::Namespaces(Echo::new(session, self.now.ms, &config.conversation))
            }
            Mount::Raw => App::Raw,
        };
        let early_ms = if interval_ms >= SPREAD_FROM_MS { self.jitter(interval_ms / 2) } else { 0 };
        let first_ping_at_ms = self.now.ms + interval_ms - early_ms;
        let engine = match polls {
            true => Session::polling(first_ping_at_ms),
            false => Session::websocket(first_ping_at_ms),
        };
        let fresh = (mount == Mount::Devices).then(|| Box::new(Fresh { credentials, pid: None }));
        Some((SocketIo { engine, app, legs: None, fresh, misses_close_frames }, sid))
    }

    pub(crate) fn protocol_of(mount: Mount) -> Protocol {
        match mount {
            Mount::Devices => Protocol::SocketIo,
            Mount::Namespaces | Mount::Raw => Protocol::Echo,
        }
    }

    /// A session that begins on a WebSocket.
    pub(crate) fn open_socket_io(&mut self, slot: u32, upgrade: &Upgrade, opener: Opener) {
        let (shared, mount) = (self.shared.clone(), opener.mount);
        let Some((socket_io, sid)) = self.new_socket_io(opener, false) else {
            return self.refuse(slot);
        };
        let (mut answer, mut open) = (Vec::with_capacity(320), Vec::with_capacity(128));
        ws::push_upgrade_response(&mut answer, upgrade);
        engine_io::push_open(&mut open, &sid, false, &shared.config.socket_io.engine);
        ws::push_frame(&mut answer, Opcode::Text, &open);
        self.set_protocol(slot, Self::protocol_of(mount), Framing::agreed(upgrade));
        let Some(connection) = self.connection(slot) else { return };
        connection.begin_socket_io(socket_io);
        connection.opening = None;
        self.send(slot, answer.into());
        self.await_socket_io(slot);
    }

    pub(crate) fn socket_io(&mut self, slot: u32) -> Option<&mut SocketIo> {
        match self.connection(slot)?.talk.as_deref_mut()? {
            Talk::SocketIo(socket_io) => Some(socket_io),
            _ => None,
        }
    }

    /// The client learns of the end by the end of the TCP connection alone: a close frame would hide it.
    pub(crate) fn misses_close_frames(&mut self, slot: u32) -> bool {
        self.socket_io(slot).is_some_and(|socket_io| socket_io.misses_close_frames)
    }

    /// A message of the session's WebSocket.
    pub(crate) fn feed_socket_io(&mut self, slot: u32, input: Input<'_>) {
        match engine_packet(input) {
            Some(Ok(packet)) => self.handle_engine_packet(slot, packet),
            Some(Err(error)) => {
                tracing::debug!(%error, "a message breaks the protocol");
                self.begin_close(slot, error.reason());
            }
            None => {}
        }
    }

    /// A packet of the client, however it came.
    pub(crate) fn handle_engine_packet(&mut self, slot: u32, packet: Packet<'_>) {
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let config = &shared.config.socket_io;
        let Some(SocketIo { engine, app, .. }) = self.socket_io(slot) else { return };
        let (mut outputs, mut actions) = (Vec::new(), Vec::new());
        if let Some(data) = engine.handle_packet(packet, now_ms, &config.engine, &mut outputs) {
            app.receive(data, now_ms, config, &mut actions);
        }
        self.carry_out(slot, outputs);
        self.carry_out_actions(slot, actions);
        self.await_socket_io(slot);
    }

    /// Pings, and what did not come in time.
    pub(crate) fn handle_socket_io_due(&mut self, slot: u32) {
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let Some(SocketIo { engine, app, .. }) = self.socket_io(slot) else { return };
        let (mut outputs, mut actions) = (Vec::new(), Vec::new());
        engine.handle_time(now_ms, &shared.config.socket_io.engine, &mut outputs);
        app.handle_time(now_ms, &mut actions);
        self.carry_out(slot, outputs);
        self.carry_out_actions(slot, actions);
        self.await_socket_io(slot);
    }

    /// Asks to be woken when the session or its conversation wants it.
    pub(crate) fn await_socket_io(&mut self, slot: u32) {
        let now = self.now;
        let is_precise = self.shared.config.socket_io.engine.ping_interval_ms < SPREAD_FROM_MS;
        let Some(SocketIo { engine, app, .. }) = self.socket_io(slot) else { return };
        let deadline_ms = [engine.deadline_ms(), app.deadline_ms()].into_iter().flatten().min();
        let due = match deadline_ms {
            Some(deadline_ms) if is_precise => {
                self.io.precise.arm(slot, deadline_ms.max(now.ms + 1));
                u32::MAX
            }
            Some(deadline_ms) => now.tick_after(Duration::from_millis(deadline_ms.saturating_sub(now.ms))),
            None => u32::MAX,
        };
        if let Some(connection) = self.connection(slot) {
            connection.ping_tick = due;
        }
        self.arm(slot);
    }

    /// Sends a packet of the connection's own, behind what is marked.
    pub(crate) fn send_packet(&mut self, slot: u32, packet: Outgoing) {
        let Some(framing) = self.connection(slot).map(|connection| connection.framing) else { return };
        if framing != Framing::Polling {
            return self.send(slot, websocket_frame(&packet));
        }
        self.flush(slot);
        let shared = self.shared.clone();
        let Some(socket_io) = self.socket_io(slot) else { return };
        let mut outputs = Vec::new();
        socket_io.engine.push(packet, &shared.config.socket_io.engine, &mut outputs);
        self.polled.push(slot);
        self.carry_out(slot, outputs);
    }

    fn carry_out_actions(&mut self, slot: u32, actions: Vec<Action>) {
        for action in actions {
            if !self.is_alive(slot) {
                return;
            }
            let session = self.connection(slot).and_then(|connection| connection.session.clone());
            match (action, session) {
                (Action::Send(packet), _) => self.send_packet(slot, packet),
                (Action::Close(reason), _) => self.begin_close(slot, reason),
                (Action::LogIn(log_in), _) => self.log_in_socket_io(slot, *log_in),
                (Action::LogOut, _) => self.log_out_socket_io(slot),
                (Action::Subscribe { topics, since, reply }, Some(_)) => {
                    self.run_op(slot, Op::Subscribe { topics, since, reply: Some(reply) });
                }
                (Action::Unsubscribe { topics }, Some(_)) => self.run_op(slot, Op::Unsubscribe { topics }),
                (Action::Acknowledge { ids }, Some(_)) => self.confirm(slot, ids),
                (Action::Presence(presence), Some(session)) => {
                    if session.set_presence(presence) {
                        self.read_held_back(slot);
                    }
                }
                (Action::RenewToken { token, reply }, Some(_)) => {
                    self.renew(slot, token.as_str(), RenewalRequest::SocketIo { reply });
                }
                (_, None) => {}
            }
        }
    }

    pub(crate) fn reply(
        &mut self,
        slot: u32,
        reply: noroshi_protocol::socket_io::Reply,
        result: Result<(), (&'static str, String)>,
    ) {
        let result = result.as_ref().copied().map_err(|(code, text)| (*code, text.as_str()));
        if let Some(packet) = reply.answer(result) {
            self.send_packet(slot, packet);
        }
    }

    fn log_in_socket_io(&mut self, slot: u32, log_in: LogIn) {
        if let Some(reason) = self.turns_away(slot) {
            return self.begin_close(slot, reason);
        }
        let fresh = self.socket_io(slot).and_then(|socket_io| socket_io.fresh.as_deref());
        let (with_request, app) = fresh
            .map_or((None, None), |fresh| (fresh.credentials.token.clone(), fresh.credentials.app.clone()));
        let token = log_in.token.as_ref().map(|token| token.as_str().to_owned()).or(with_request);
        let app = log_in.app.as_deref().map(str::to_owned).or(app);
        let request = LogInRequest::SocketIo(Box::new(log_in));
        self.identify(slot, token.as_deref(), app.as_deref(), request);
    }

    pub(crate) fn identified_socket_io(
        &mut self,
        slot: u32,
        answer: Result<Identity, Refused>,
        log_in: LogIn,
    ) {
        match answer {
            Ok(identity) => self.let_in_socket_io(slot, identity, log_in),
            Err(refused) => self.begin_close(slot, close_reason(&refused)),
        }
    }

    fn let_in_socket_io(&mut self, slot: u32, identity: Identity, log_in: LogIn) {
        let recoverable = log_in.is_recoverable();
        let resume = log_in.pid.as_ref().and(log_in.offset).map(|offset| offset.id);
        if let Some(socket_io) = self.socket_io(slot) {
            let fresh = socket_io.fresh.get_or_insert_default();
            fresh.pid = log_in.pid.filter(|_| recoverable);
        }
        self.start_log_in(slot, identity, log_in.topics, resume);
    }

    /// The session is attached: the client is told its public id, and what to come back with.
    pub(crate) fn begin_socket_io(&mut self, slot: u32, begun: &Begun) {
        let public = SessionId(begun.session.address.generation).to_string();
        let mut random = [0; 16];
        let drawn = SystemRandom::new().fill(&mut random).map(|()| {
            let drawn: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
            drawn
        });
        let Some(socket_io) = self.socket_io(slot) else { return };
        let App::Device(conversation) = &mut socket_io.app else { return };
        let came_with = socket_io.fresh.take().and_then(|fresh| fresh.pid).filter(|_| begun.complete);
        let mut actions = Vec::new();
        // Nothing is let in by a `pid`: without randomness the public id will do.
        let pid = came_with.map_or_else(|| drawn.unwrap_or_else(|_| public.clone()), String::from);
        conversation.logged_in(&public, &pid, &mut actions);
        self.carry_out_actions(slot, actions);
        self.await_socket_io(slot);
    }

    /// The log-in cannot be as it was asked for. False where another protocol is spoken.
    pub(crate) fn refuse_socket_io(&mut self, slot: u32, code: &str, text: &str) -> bool {
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let Some(SocketIo { app: App::Device(conversation), .. }) = self.socket_io(slot) else {
            return false;
        };
        let mut actions = Vec::new();
        let config = &shared.config.socket_io.conversation;
        conversation.refuse(code, text, now_ms, config, &mut actions);
        self.await_connect(slot);
        self.carry_out_actions(slot, actions);
        self.await_socket_io(slot);
        true
    }

    /// The device left; who has the connection may log in again.
    fn log_out_socket_io(&mut self, slot: u32) {
        self.sessions.successions.remove(slot);
        self.part_session(slot);
        self.await_connect(slot);
    }

    /// CONNECT has to come; the conversation knows until when.
    fn await_connect(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        connection.phase = Phase::AwaitToken;
        connection.deadline_tick = u32::MAX;
        connection.opening = None;
        connection.permit = None;
        // Of the next session nothing came from the store yet, and its token is another.
        connection.watermark = NotificationId::from_bytes([0; 16]);
        connection.expires_at = Timestamp(u64::MAX);
    }

    /// `close` and DISCONNECT, or the CONNECT_ERROR of who is not let in; and what a poll still has to hear.
    pub(crate) fn end_socket_io_word(&mut self, slot: u32, reason: CloseReason, after_ms: u64) {
        let (shared, now_ms) = (self.shared.clone(), self.now.ms);
        let Some(socket_io) = self.socket_io(slot) else { return };
        let (mut actions, mut outputs) = (Vec::new(), Vec::new());
        if let App::Device(conversation) = &mut socket_io.app {
            conversation.last_words(reason, after_ms, &mut actions);
        }
        for action in actions {
            if let Action::Send(packet) = action {
                self.send_packet(slot, packet);
            }
        }
        let Some(socket_io) = self.socket_io(slot) else { return };
        socket_io.engine.close(reason, now_ms, &shared.config.socket_io.engine, &mut outputs);
        self.carry_out(slot, outputs);
    }
}

impl crate::shard::connection::Connection {
    /// It has a session of Engine.IO from here on, and waits for CONNECT.
    pub(crate) fn begin_socket_io(&mut self, socket_io: SocketIo) {
        self.phase = Phase::AwaitToken;
        self.deadline_tick = u32::MAX;
        self.talk = Some(Box::new(Talk::SocketIo(socket_io)));
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
