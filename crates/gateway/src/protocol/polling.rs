//! HTTP long polling: what a shard knows of Engine.IO sessions that poll, and of the connections that serve them.
//!
//! A session that polls is a slot without a socket ([`super::socket_io`]). Its GETs and POSTs arrive on other
//! connections, and one of those may become its WebSocket. Polling is a transport rather than a protocol: it moves
//! requests and sockets between connections, so the shard does it (`crate::shard::adapters::polling`). The state
//! of it is here. [`PollingRequest`] is what such a connection has in the place of a conversation.
//!
//! Invariants: at most one GET of a session waits. Whatever ends a request informs the session, and the other way
//! round.

use std::collections::HashMap;

use noroshi_auth::ClientNetwork;
use noroshi_protocol::engine_io::Sid;
use noroshi_protocol::engine_io::payload::Decoder;

use super::jobs::At;
use crate::rate::Bucket;

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
