//! The upgrade of a polling session to a WebSocket: a WebSocket on a separate connection probes the session and takes
//! it over when the client requests this. Its socket becomes the session's.

use std::time::Duration;

use noroshi_protocol::engine_io::{RequestError, Session, Sid};
use noroshi_protocol::ws::{self, Input, Upgrade};
use noroshi_types::CloseReason;

use crate::io::socket::Socket;
use crate::protocol::polling::{Kind, PollingRequest};
use crate::protocol::registry::Conversation;
use crate::protocol::socket_io::engine_packet;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::wire::{Framing, Protocol};

/// Time for a WebSocket to take its session over; the same as in the JavaScript server.
const UPGRADE_TIMEOUT: Duration = Duration::from_secs(10);

impl Shard {
    pub(super) fn open_probe(&mut self, slot: u32, sid: Sid, upgrade: &Upgrade) {
        let Some(session) = self.session_of(&sid) else {
            return self.refuse_request(slot, RequestError::UnknownSid, false);
        };
        let accepted = self.ask_engine(session, Session::accept_probe) == Some(true);
        let mut answer = Vec::with_capacity(192);
        ws::push_upgrade_response(&mut answer, upgrade);
        self.set_protocol(slot, Protocol::Http, Framing::agreed(upgrade));
        let deadline = self.now.tick_after(UPGRADE_TIMEOUT);
        let request = PollingRequest { sid, keeps: false, kind: Kind::Probe };
        let at = self.begin_polling_request(slot, request, deadline);
        if let Some(connection) = self.connection(slot) {
            connection.phase = Phase::AwaitToken;
            connection.opening = None;
        }
        if accepted && let Some(legs) = self.legs(session) {
            legs.probe = at;
        }
        self.send(slot, answer.into());
        match accepted {
            true => self.arm(slot),
            false => self.begin_close(slot, CloseReason::BadMessage),
        }
    }

    /// A message of a WebSocket that probes.
    pub(crate) fn feed_probe(&mut self, slot: u32, input: Input<'_>) {
        let Some(sid) = self.polling_request(slot).map(|request| request.sid) else { return };
        let (session, packet) = (self.session_of(&sid), engine_packet(input));
        match (session, packet) {
            (Some(session), Some(Ok(packet))) => {
                self.ask_engine(session, |engine, now_ms, config, out| {
                    engine.handle_probe_packet(packet, now_ms, config, out);
                });
            }
            (_, None) => {}
            (None, _) | (_, Some(Err(_))) => self.begin_close(slot, CloseReason::BadMessage),
        }
    }

    /// The WebSocket that probed becomes the session's.
    pub(super) fn take_over(&mut self, session: u32) {
        let Some((slot, generation)) = self.legs(session).and_then(|legs| legs.probe.take()) else { return };
        let Some(probe) = self.at(slot, generation) else {
            return self.abort(session, CloseReason::PeerReset);
        };
        let mut socket = std::mem::replace(&mut probe.socket, Socket::NONE);
        let framing = probe.framing;
        if let Some(Conversation::PollingRequest(request)) = probe.conversation.as_deref_mut() {
            request.kind = Kind::Moved(session);
        }
        self.lifecycle.seats.move_to(slot, session, &self.shared.clients);
        let registered = socket.stream().map(|stream| self.io.reregister(stream, session));
        let Some(connection) = self.connection(session) else { return };
        let protocol = connection.protocol;
        connection.socket = socket;
        self.set_protocol(session, protocol, framing);
        if let Some(Err(error)) = registered {
            tracing::warn!(%error, "cannot register a socket");
            return self.abort(session, CloseReason::Internal);
        }
        // Bytes behind the last packet are read already; later ones are not.
        self.io.read_later(session);
        self.advance(session);
    }

    /// The slot that has this one's socket. If it is another, this one ends.
    pub(crate) fn settle_move(&mut self, slot: u32) -> u32 {
        let to = self.moved_to(slot);
        if to != slot {
            self.abort(slot, CloseReason::PeerClosed);
        }
        to
    }

    /// The slot for which input of this one is.
    pub(crate) fn moved_to(&self, slot: u32) -> u32 {
        match self.connections.get(slot as usize).and_then(|connection| connection.conversation.as_deref()) {
            Some(Conversation::PollingRequest(PollingRequest { kind: Kind::Moved(session), .. })) => *session,
            _ => slot,
        }
    }
}
