//! Every way out of a connection.

use crate::lifecycle::reconnect;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::wire::{Framing, Protocol};
use bytes::Bytes;
use noroshi_events::Event;
use noroshi_protocol::ws;
use noroshi_types::{CloseReason, SessionId};

/// Places for connections that are kept however few are in use: 25 KiB.
const PLACES_KEPT: usize = 128;

impl Shard {
    /// Says why, and waits a moment for the peer's end. The first reason stands.
    pub(crate) fn begin_close(&mut self, slot: u32, reason: CloseReason) {
        if !self.is_alive(slot) {
            return;
        }
        self.flush(slot);
        if !self.is_alive(slot) {
            return;
        }
        let (retry_after_s, spread_ms) = (self.retry_after_s(slot), self.shared.drain.spread_ms());
        let after_ms = reconnect::after_ms(reason, retry_after_s, spread_ms, &mut self.jitter);
        let deadline = self.now.tick_after(self.shared.config.close_linger);
        let leaves_unsaid = self.misses_close_frames(slot);
        let begun =
            self.connections.get(slot as usize).is_some_and(|connection| connection.phase == Phase::Open);
        if !begun && self.connections[slot as usize].is_event_stream() {
            self.set_protocol(slot, Protocol::Http, Framing::Stream);
            return self.answer_instead(slot, reason);
        }
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        // Not alive from here on: what is sent now cannot end it once more.
        connection.phase = Phase::Closing;
        connection.close_reason = Some(reason);
        connection.deadline_tick = deadline;
        if reason == CloseReason::SlowConsumer {
            connection.socket.discard_unsent();
        }
        let framing = connection.framing;
        if reason == CloseReason::SlowConsumer {
            // What was cut is counted, so no trailer would be right.
            self.trailers.end(slot);
        }
        if let Some(code) = reason.websocket_code() {
            self.send_close(slot, reason, after_ms);
            if framing.is_websocket() && !leaves_unsaid {
                let mut frame = Vec::new();
                ws::push_close(&mut frame, code, reason.explain());
                self.send_unbounded(slot, frame.into());
            }
        }
        if let Some(trailer) = self.trailers.end(slot) {
            self.send_as_it_is(slot, Bytes::copy_from_slice(&trailer));
        }
        self.leave(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        match connection.socket.has_unsent() {
            _ if connection.phase == Phase::Dead => {}
            false => self.end_writing(slot),
            true => self.write_tail(slot),
        }
        self.arm(slot);
    }

    /// A stream that cannot begin is answered in HTTP.
    fn answer_instead(&mut self, slot: u32, reason: CloseReason) {
        let status = match reason {
            CloseReason::Replaced => 409,
            _ => return self.refuse(slot),
        };
        self.answer_problem(slot, status, reason.as_str(), reason.explain(), &[], reason);
    }

    /// What a log-in that is refused for earlier failures has to wait; 0 for all others.
    pub(crate) fn retry_after_s(&self, slot: u32) -> u32 {
        let connection = self.connections.get(slot as usize);
        connection
            .and_then(|connection| connection.opening.as_ref())
            .map_or(0, |opening| opening.retry_after_s)
    }

    /// Takes a connection out of everything but the slab.
    pub(crate) fn leave(&mut self, slot: u32) {
        self.sessions.successions.remove(slot);
        self.end_conversation(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.opening = None;
        connection.permit = None;
        self.part_session(slot);
    }

    /// The session ends, whatever becomes of its connection. What waits for a webhook ends with it, a log-in too.
    pub(crate) fn part_session(&mut self, slot: u32) {
        self.sessions.end(slot);
        self.conversations.requests.publishing.remove(&slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.catch_up = None;
        let topics = std::mem::take(&mut connection.topics);
        if let Some(session) = connection.session.take() {
            tracing::debug!(
                app = session.app.0,
                device = session.device.as_str(),
                session = %SessionId(session.address.generation),
                protocol = connection.protocol.as_str(),
                reason = connection.close_reason.map(CloseReason::as_str),
                "a session ended"
            );
            let (device, session_id) = (session.num, SessionId(session.address.generation));
            let reason = connection.close_reason.unwrap_or(CloseReason::PeerReset);
            self.delivery.events().emit(self.now.wall, || Event::Closed {
                device,
                session: session_id,
                reason,
            });
            self.fanout.forget(&mut connection.marks, session.num);
            self.shared.registry.detach(&session);
            // It got messages a moment ago, and may have confirmed them before it read that it is to go.
            let moves = matches!(
                connection.close_reason,
                Some(CloseReason::Drain | CloseReason::Replaced | CloseReason::RulesChanged)
            );
            connection.leaving = moves.then_some(session.num);
        }
        for subscription in topics {
            self.sessions.topics.unsubscribe(&self.shared.registry, subscription.index(), slot);
        }
    }

    /// The connection is over: it is removed when the handler that found out is done.
    pub(crate) fn doom(&mut self, slot: u32, reason: CloseReason) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase != Phase::Dead {
            connection.phase = Phase::Dead;
            connection.close_reason.get_or_insert(reason);
            self.lifecycle.end(slot);
        }
    }

    /// Removes what is over.
    pub(crate) fn bury(&mut self) {
        while let Some(slot) = self.lifecycle.next_ended() {
            let Some(mut connection) = self.release(slot) else { continue };
            let reason = connection.close_reason.unwrap_or(CloseReason::PeerReset);
            let mut counts = true;
            match connection.socket.stream() {
                // Fails only if it was not registered.
                Some(stream) => drop(self.io.deregister(stream)),
                // What it was went on in another place ([`crate::protocol::polling`]), or it was a session that polled.
                None => counts = connection.protocol != Protocol::Http,
            }
            if counts {
                self.shared.metrics.count_closed(connection.protocol, reason);
            }
            drop(connection);
            self.mailbox().left();
        }
    }

    /// Takes a connection out of the shard. It counts until the caller has told what became of it
    /// ([`crate::shard::mailbox::Mailbox::left`]): who sees that it is gone sees that too.
    pub(crate) fn release(&mut self, slot: u32) -> Option<Connection> {
        self.connections.get(slot as usize)?;
        self.leave(slot);
        self.end_stranger(slot);
        self.lifecycle.seats.free(slot, &self.shared.clients);
        self.trailers.end(slot);
        self.io.peers.remove(slot);
        let connection = self.connections.remove(slot as usize);
        if self.connections.is_empty() {
            self.shrink();
        }
        self.shared.metrics.connections(connection.protocol, connection.framing).dec();
        Some(connection)
    }

    /// Gives memory back after a mass disconnect: what lies behind the last place in use.
    pub(crate) fn shrink(&mut self) {
        let capacity = self.connections.capacity();
        if capacity > PLACES_KEPT && self.connections.len() * 8 < capacity {
            self.connections.shrink_to_fit();
            self.lifecycle.seats.shrink(self.connections.capacity());
        }
        self.io.peers.shrink(PLACES_KEPT);
        self.trailers.shrink(PLACES_KEPT);
    }

    /// The gateway stops: what is left is told so, and not waited for.
    pub(crate) fn end_all(&mut self) {
        let slots: Vec<usize> = self.connections.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            self.guard(Some(slot), |shard| {
                shard.begin_close(slot, CloseReason::Drain);
                shard.doom(slot, CloseReason::Drain);
            });
        }
        self.sessions.outcomes.tell(&self.delivery, self.now.wall);
    }

    /// Moves as many connections away as a drain allows by now.
    pub(crate) fn drip(&mut self) {
        if !self.shared.drain.is_active() {
            self.lifecycle.round = None;
            return;
        }
        let mut round = self.lifecycle.round.take().unwrap_or_default();
        let slots =
            round.next(&self.shared.drain, self.now.ms, self.connections.capacity(), |place, ending| {
                self.connections.get(place).is_some_and(|connection| is_movable(connection, ending))
            });
        self.shared.metrics.drain_moved.inc_by(slots.len() as u64);
        for slot in slots {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            self.guard(Some(slot), |shard| {
                match shard.connection(slot).map(|connection| connection.protocol) {
                    // It has not requested anything yet, so there is nobody to notify.
                    Some(Protocol::Http) => shard.drain_http(slot),
                    _ => shard.begin_close(slot, CloseReason::Drain),
                }
            });
        }
        self.lifecycle.round = Some(round);
    }
}

/// A connection that has not asked for anything may be about to ask the API: it is in the way only
/// where the node ends. Nor can a client of another protocol be told before it has spoken, but for XMPP, whose
/// server may open its stream only to end it (RFC 6120 §4.9.1.2): it is refused then.
fn is_movable(connection: &Connection, ending: bool) -> bool {
    let is_told = connection.talk.is_none()
        || connection.protocol == Protocol::Xmpp
        || connection.phase != Phase::AwaitToken;
    connection.is_alive() && (ending || connection.protocol != Protocol::Http && is_told)
}
