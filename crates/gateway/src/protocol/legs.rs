//! The connections that serve Engine.IO sessions which poll.

use std::collections::HashMap;

use noroshi_auth::ClientNetwork;
use noroshi_protocol::engine_io::Sid;

use super::requests::At;
use crate::rate::Bucket;

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
