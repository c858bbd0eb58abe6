//! The one interface of a protocol: bytes or WebSocket messages in, messages to the device out, timeout, close.
//!
//! An adapter is a state machine without IO. The shard calls its methods with a [`Context`]; the adapter changes its
//! own state and pushes [`super::effect::Effect`]s, which the shard carries out in order when the method has returned
//! (`crate::shard::adapters`). An effect that has an outcome names a request of the adapter
//! ([`Adapter::Request`]); the shard hands the request back with the outcome ([`Adapter::handle_reply`]).
//!
//! Order of calls: `handle_bytes` or `handle_message` until [`Effect::Attach`](super::effect::Effect::Attach), then
//! `handle_login`, then any of them and `offer`, then `close` (if the server ends the connection) and `end` (always).
//! Bytes also arrive between `Attach` and `handle_login` (`Phase::LoggingIn`): the adapter keeps at most
//! `limits::EARLY_BYTES` of them and returns them from `handle_login`. The shard takes each WebSocket message off the
//! allowance of frames; in `handle_bytes` the adapter does so for each packet (`Context::take_frame`).
//!
//! Invariant: `offer` is the hot path. It appends the connection's own bytes to a shared buffer and allocates nothing.

use std::collections::HashSet;
use std::convert::Infallible;

use bytes::Bytes;
use noroshi_protocol::mqtt::{TopicFilter, UnacknowledgedMessage};
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::{CloseReason, ItemsNotice, NotificationId, Recovered, Topic};

use super::context::{Context, Encoding};
use super::effect::{Refusal, Reply, TopicNotice};
use super::jobs::{Completed, Turn};
use super::polling::PollingRequest;
use super::services::Services;
use crate::config::Config;
use crate::rate::Rate;
use crate::session::login::OpenedSession;
use crate::session::registry::Session;
use crate::session::request::ClientRequest;
use crate::wire::dispatch::Dispatch;

/// Why a message is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was published, now or while the session was away.
    Published,
    /// Its topic retains it.
    Retained,
}

/// What an adapter does with a message.
pub(crate) enum Offered {
    /// The connection's own bytes were appended to the head; `shared` follows them. `acknowledged`: the client will send
    /// no acknowledgement, so the message counts as acknowledged once it is written.
    Send { shared: Bytes, acknowledged: bool },
    /// Not for this connection now. `acknowledged`: and never will be.
    Pass { acknowledged: bool },
    /// The client's window is full. The shard offers the message again after [`super::effect::Effect::MakeRoom`].
    Full,
}

/// Which subscriptions of a connection match a topic's message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Matched {
    pub(crate) by_wildcard: bool,
    /// The client subscribed to the topic's name after the message was accepted.
    pub(crate) before_name: bool,
}

/// A protocol on one connection.
pub(crate) trait Adapter: Sized {
    /// Requests whose outcome the adapter waits for.
    type Request: ClientRequest;
    /// Results of jobs that it runs outside the shard ([`Context::run`]).
    type Done: Completed;

    /// Whether messages marked for the connection are written before the adapter handles anything, because it counts
    /// what it sends (XEP-0198 §4).
    const WRITES_MARKED_FIRST: bool = false;

    /// Whether the client sends a packet before it ends a stream, so that an end without one is a reset.
    const ANNOUNCES_END: bool = false;

    /// Whether binary messages of a WebSocket carry a stream of bytes, so that they go to `handle_bytes`.
    const STREAMS_IN_MESSAGES: bool = false;

    /// The connection begins to speak this protocol.
    fn handle_open(&mut self, _cx: &mut Context<'_>) {}

    /// Bytes of a stream. Returns how many bytes it consumed, at least one: the shard carries out the effects before it
    /// passes the rest.
    fn handle_bytes(&mut self, _cx: &mut Context<'_>, bytes: &[u8]) -> usize {
        bytes.len()
    }

    /// A text or binary message of a WebSocket.
    fn handle_message(&mut self, _cx: &mut Context<'_>, _input: Input<'_>) {}

    /// TLS protects what follows ([`super::effect::Effect::StartTls`]).
    fn handle_tls(&mut self, _cx: &mut Context<'_>) {}

    /// The session is attached. Returns bytes that the client sent before; the shard passes them to `handle_bytes`
    /// after the first page of the backlog.
    fn handle_login(&mut self, _cx: &mut Context<'_>, _begun: &OpenedSession) -> Vec<u8> {
        Vec::new()
    }

    /// The log-in is refused for a reason that the client can act on.
    fn handle_refusal(&mut self, cx: &mut Context<'_>, refusal: &Refusal) {
        cx.close(refusal.reason);
    }

    /// The outcome of a request.
    fn handle_reply(&mut self, cx: &mut Context<'_>, request: Self::Request, reply: Reply);

    /// The result of a job.
    fn handle_done(&mut self, _cx: &mut Context<'_>, _done: Self::Done) {}

    /// It is this connection's turn ([`super::jobs::Jobs`]). Returns whether its next job starts.
    fn start_job(&mut self, _cx: &mut Context<'_>, _turn: Turn) -> bool {
        false
    }

    /// The time set with [`Context::set_timeout`] has come.
    fn handle_timeout(&mut self, cx: &mut Context<'_>) {
        cx.clear_timeout();
    }

    /// The deadline of an open connection ([`Context::set_deadline`]) has come.
    fn handle_deadline(&mut self, cx: &mut Context<'_>) {
        cx.clear_deadline();
    }

    /// A stanza of another session of this protocol.
    fn handle_stanza(&mut self, _cx: &mut Context<'_>, _stanza: &Bytes) {}

    /// The requested session's previous connection has left it ([`super::effect::Effect::Resume`]).
    fn handle_predecessor_gone(&mut self, _cx: &mut Context<'_>) {}

    /// The shard finished reading the messages behind a position that the client named for a topic.
    fn handle_recovered(&mut self, _cx: &mut Context<'_>, _recovered: &Recovered) {}

    /// Items of the session's user were added or changed. The default is for protocols without a form for it.
    fn handle_items(&mut self, _cx: &mut Context<'_>, _notice: &ItemsNotice) {}

    /// Topic rules deny the client a topic.
    fn handle_topic_notice(&mut self, _cx: &mut Context<'_>, _notice: &TopicNotice<'_>) {}

    /// Appends the connection's own bytes of a message to `head`. Not called for an adapter that is made for each call:
    /// the shard writes [`Dispatch::encoded`], which all its connections share.
    fn offer(
        &mut self,
        _encoding: &Encoding<'_>,
        _dispatch: &Dispatch,
        _cause: Cause,
        _head: &mut Vec<u8>,
    ) -> Offered {
        Offered::Pass { acknowledged: false }
    }

    /// Appends what follows messages that were offered together.
    fn finish_offers(&mut self, _config: &Config, _out: &mut Vec<u8>) {}

    /// The whole backlog was written. Returns messages that the device has already.
    fn handle_caught_up(&mut self) -> Vec<NotificationId> {
        Vec::new()
    }

    /// Only these messages among those in flight still exist.
    fn handle_outstanding(&mut self, _found: &HashSet<UnacknowledgedMessage>) {}

    /// Which subscriptions match a topic's message at a place in the order of commits.
    fn matched(&self, _topic: &Topic, _at: Place) -> Matched {
        Matched::default()
    }

    /// Up to where filters with wildcards were served; `None` if there are no such filters.
    fn wildcards_since(&self) -> Option<Place> {
        None
    }

    /// Filters that the client subscribed to.
    fn client_filters(&self) -> Vec<&TopicFilter> {
        Vec::new()
    }

    /// Filters of the stored session that the client continues, without those that name a topic.
    fn stored_filters(&self, _stored: Option<&[u8]>) -> Vec<TopicFilter> {
        Vec::new()
    }

    /// Whether the session that logged in may have the topics of the one that the client asked to resume.
    fn may_resume(&self, _services: &Services, _session: &Session) -> bool {
        true
    }

    /// Whether a client resumes this connection's session with an id.
    fn is_resumable_as(&self, _id: &str) -> bool {
        false
    }

    /// The allowance of frames, if it is not that of all connections.
    fn frame_rate(&self, _services: &Services, _has_session: bool) -> Option<Rate> {
        None
    }

    /// Messages that a device acknowledges after the node asked it to reconnect elsewhere.
    fn late_acknowledgements(&self, _input: &Input<'_>) -> Vec<NotificationId> {
        Vec::new()
    }

    /// Whether a close frame of a WebSocket would hide the end from the client.
    fn misses_close_frames(&self) -> bool {
        false
    }

    /// Whether the client wants the retained messages of its topics after a log-in.
    fn wants_retained(&self) -> bool {
        true
    }

    /// Whether the client has sent more than can be processed now. The shard reads nothing from it until a job ends, so
    /// the client's TCP window fills.
    fn pauses_reading(&self) -> bool {
        false
    }

    /// Frames that the client may send for each message it receives.
    fn frames_granted(&self) -> u32 {
        1
    }

    /// The longest message of a WebSocket.
    fn message_bytes_max(&self, config: &Config) -> usize;

    /// Bytes that wait for a poll.
    fn queued_bytes(&self) -> usize {
        0
    }

    /// Queues a message for the next poll.
    fn queue(&mut self, _packet: Bytes) {}

    /// The server ends the connection or refuses the client. Sends the protocol's close packet. Not called for reasons
    /// without a WebSocket close code: the peer has ended the connection.
    fn close(&mut self, cx: &mut Context<'_>, reason: CloseReason, reconnect_after_ms: u64);

    /// The connection has ended. Returns itself if it has more to send to polls.
    fn end(self, _cx: &mut Context<'_>) -> Option<Self> {
        None
    }
}

/// The shard serves such a connection itself, so nothing arrives here.
impl Adapter for PollingRequest {
    type Request = Infallible;
    type Done = Infallible;

    fn handle_reply(&mut self, _: &mut Context<'_>, request: Infallible, _: Reply) {
        match request {}
    }

    fn close(&mut self, _: &mut Context<'_>, _: CloseReason, _: u64) {}

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.socket_io.engine.payload_bytes_max
    }
}
