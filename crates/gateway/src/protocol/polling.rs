//! HTTP long polling: what a shard knows of Engine.IO sessions that poll, and of the connections that serve them.
//!
//! A session that polls is a slot without a socket ([`super::socket_io`]). Its GETs and POSTs arrive on other
//! connections, and one of those may become its WebSocket. Polling is a transport rather than a protocol: it moves
//! requests and sockets between connections, so the shard does it (`crate::shard::conversations::polling`). The state
//! of it is here. [`PollingRequest`] is what such a connection has in the place of a conversation.
//!
//! Invariants: at most one GET of a session waits. Whatever ends a request informs the session, and the other way
//! round.

use std::convert::Infallible;

use noroshi_protocol::engine_io::Sid;
use noroshi_protocol::engine_io::payload::Decoder;
use noroshi_protocol::ws::Input;
use noroshi_types::CloseReason;

use super::adapter::Adapter;
use super::context::Context;
use super::effect::Reply;
use crate::config::Config;
use crate::session::login::OpenedSession;

/// What a connection does for a session of another slot.
pub(crate) struct PollingRequest {
    pub(crate) sid: Sid,
    /// The connection may serve another request after this one.
    pub(crate) keeps: bool,
    pub(crate) kind: Kind,
}

pub(crate) enum Kind {
    Poll,
    Post {
        decoder: Decoder,
        left_bytes: usize,
        /// Some of the body has arrived.
        begun: bool,
    },
    Probe,
    /// Its socket belongs to this slot now, and so do the bytes read behind the last packet.
    Moved(u32),
}

/// The shard serves such a connection itself, so nothing arrives here.
impl Adapter for PollingRequest {
    type Request = Infallible;
    type Done = Infallible;

    fn handle_message(&mut self, _: &mut Context<'_>, _: Input<'_>) {}

    fn handle_login(&mut self, _: &mut Context<'_>, _: &OpenedSession) -> Vec<u8> {
        Vec::new()
    }

    fn handle_reply(&mut self, _: &mut Context<'_>, request: Infallible, _: Reply) {
        match request {}
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.socket_io.engine.payload_bytes_max
    }

    fn close(&mut self, _: &mut Context<'_>, _: CloseReason, _: u64) {}
}
