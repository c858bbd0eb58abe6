//! HTTP long polling: what a shard knows of Engine.IO sessions that poll, and of the connections that serve them.
//!
//! A session that polls is a slot without a socket ([`super::socket_io`]). Its GETs and POSTs arrive on other
//! connections, and one of those may become its WebSocket. Polling is a transport rather than a protocol: it moves
//! requests and sockets between connections, so the shard does it (`crate::shard::conversations::polling`). The state of
//! it is here. [`PollingRequest`] is what such a connection has in the place of a conversation.
//!
//! Invariants: at most one GET of a session waits. Whatever ends a request informs the session, and the other way round.

use std::collections::HashMap;
use std::convert::Infallible;

use noroshi_auth::ClientNetwork;
use noroshi_protocol::engine_io::Sid;
use noroshi_protocol::engine_io::payload::Decoder;
use noroshi_protocol::ws::Input;
use noroshi_types::CloseReason;

use super::adapter::{Adapter, At, Cause, Offered};
use super::context::{Context, Encoding};
use super::effect::Reply;
use crate::config::Config;
use crate::fanout::dispatch::Dispatch;
use crate::lifecycle::admission::Bucket;
use crate::session::login::Begun;

/// Sessions of a shard that poll, or did.
#[derive(Default)]
pub(crate) struct PollingSessions {
    pub(crate) by_sid: HashMap<Sid, u32>,
    /// Sessions that may have something for the poll that waits. Answered at the end of the turn, with all of it.
    pub(crate) ready: Vec<u32>,
    /// Connections that received their next request already.
    pub(crate) pipelined: Vec<u32>,
    /// Limits new sessions, since they need no new connection.
    pub(crate) openings: Option<Bucket>,
}

impl PollingSessions {
    pub(crate) fn push(&mut self, slot: u32) {
        self.ready.push(slot);
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.ready.is_empty() || !self.pipelined.is_empty()
    }
}

/// The connections that serve a session which began with polling.
pub(crate) struct Legs {
    pub(crate) sid: Sid,
    /// The client that opened the session: its requests come on connections of their own.
    pub(crate) opener: Option<ClientNetwork>,
    /// The GET that waits.
    pub(crate) poll: Option<At>,
    /// The WebSocket that may take over.
    pub(crate) probe: Option<At>,
}

impl Legs {
    pub(crate) fn new(sid: Sid, opener: Option<ClientNetwork>) -> Self {
        Self { sid, opener, poll: None, probe: None }
    }
}

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
    /// Its socket belongs to this slot now, and so does the rest of what was read with the last packet.
    Moved(u32),
}

/// The shard serves such a connection itself, so nothing arrives here.
impl Adapter for PollingRequest {
    type Request = Infallible;
    type Job = Infallible;

    fn handle_message(&mut self, _: &mut Context<'_>, _: Input<'_>) {}

    fn handle_login(&mut self, _: &mut Context<'_>, _: &Begun) -> Vec<u8> {
        Vec::new()
    }

    fn handle_reply(&mut self, _: &mut Context<'_>, request: Infallible, _: Reply) {
        match request {}
    }

    fn offer(&mut self, _: &Encoding<'_>, _: &Dispatch, _: Cause, _: &mut Vec<u8>) -> Offered {
        Offered::Pass { confirmed: false }
    }

    fn message_bytes_max(&self, config: &Config) -> usize {
        config.socket_io.engine.payload_bytes_max
    }

    fn close(&mut self, _: &mut Context<'_>, _: CloseReason, _: u64) {}
}
