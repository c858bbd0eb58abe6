//! Every way to the end of a connection.
//!
//! [`Shard::begin_close`] sends the protocol's close and waits for the peer's; [`Shard::abort`] ends a connection at
//! once; [`Shard::remove_ended`] removes connections that ended and records one reason for each. A drain closes
//! connections at its rate.
//!
//! Invariant: a connection that is not alive has no session, no subscription and no entry in a map: a device is offline
//! from the moment at which the end is decided.

use std::collections::HashMap;

use bytes::Bytes;
use noroshi_events::Event;
use noroshi_protocol::ws;
use noroshi_types::{CloseReason, SessionId};

use crate::io::timer::Jitter;
use crate::protocol::registry::AnyAdapter;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::wire::{Framing, Protocol};

/// Slots that are kept however few are in use: 25 KiB.
const PLACES_KEPT: usize = 128;

impl Shard {
    /// Sends the close with its reason, and waits a moment for the peer's end. The first reason stands.
    pub(crate) fn begin_close(&mut self, slot: u32, reason: CloseReason) {
        if !self.is_alive(slot) {
            return;
        }
        self.flush(slot);
        if !self.is_alive(slot) {
            return;
        }
        let (retry_after_s, spread_ms) = (self.retry_after_s(slot), self.shared.drain.spread_ms());
        let after_ms = reconnect_after_ms(reason, retry_after_s, spread_ms, &mut self.jitter);
        let deadline = self.now.tick_after(self.shared.config.close_linger);
        let leaves_unsaid = self.adapter(slot).is_some_and(AnyAdapter::misses_close_frames);
        let begun =
            self.connections.get(slot as usize).is_some_and(|connection| connection.phase == Phase::Open);
        if !begun && self.connections[slot as usize].is_event_stream() {
            self.set_protocol(slot, Protocol::Http, Framing::Stream);
            return self.answer_instead(slot, reason);
        }
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        // Not alive from here on, so sending cannot close it a second time.
        connection.phase = Phase::Closing;
        connection.close_reason = Some(reason);
        connection.deadline_tick = deadline;
        if reason == CloseReason::SlowConsumer {
            connection.socket.discard_unsent();
        }
        let framing = connection.framing;
        if reason == CloseReason::SlowConsumer {
            // The trailer counts discarded bytes, so none can be sent.
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
            self.send_raw(slot, Bytes::copy_from_slice(&trailer));
        }
        self.detach(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        match connection.socket.has_unsent() {
            _ if connection.phase == Phase::Dead => {}
            false => self.end_writing(slot),
            true => self.flush_unsent(slot),
        }
        self.arm(slot);
    }

    /// Answers in HTTP where an event stream cannot begin.
    fn answer_instead(&mut self, slot: u32, reason: CloseReason) {
        let status = match reason {
            CloseReason::Replaced => 409,
            _ => return self.refuse(slot),
        };
        self.answer_problem(slot, status, reason.as_str(), reason.explain(), &[], reason);
    }

    /// How long a client has to wait whose log-in is refused for earlier failures; 0 for all others.
    pub(crate) fn retry_after_s(&self, slot: u32) -> u32 {
        let connection = self.connections.get(slot as usize);
        connection
            .and_then(|connection| connection.opening.as_ref())
            .map_or(0, |opening| opening.retry_after_s)
    }

    /// Removes a connection from everything but the slab.
    pub(crate) fn detach(&mut self, slot: u32) {
        self.sessions.successions.remove(&slot);
        self.end_adapter(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.opening = None;
        connection.attachment.permit = None;
        self.end_session_of(slot);
    }

    /// Ends the session of a connection, which may continue. What waits for a webhook ends with it, also a log-in.
    pub(crate) fn end_session_of(&mut self, slot: u32) {
        self.sessions.end(slot);
        self.adapters.jobs.publishing.remove(&slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        connection.attachment.catch_up = None;
        connection.attachment.following = None;
        let topics = std::mem::take(&mut connection.attachment.topics);
        if let Some(session) = connection.attachment.session.take() {
            tracing::debug!(
                app = session.app.0,
                device = session.device.as_str(),
                session = %SessionId(session.address.generation),
                protocol = connection.protocol.as_str(),
                reason = connection.close_reason.map(CloseReason::as_str),
                "a session ended"
            );
            let (app, device) = (session.app, session.num);
            let session_id = SessionId(session.address.generation);
            let reason = connection.close_reason.unwrap_or(CloseReason::PeerReset);
            self.delivery.context.outcomes.events().emit(self.now.wall, || Event::Closed {
                app,
                device,
                session: session_id,
                reason,
            });
            self.fanout.forget(&mut connection.marks, session.num);
            self.shared.registry.detach(&session);
            // The device may have acknowledged messages before it received the close.
            let moves = matches!(
                connection.close_reason,
                Some(CloseReason::Drain | CloseReason::Replaced | CloseReason::RulesChanged)
            );
            connection.attachment.leaving = moves.then_some(session);
        }
        for subscription in topics {
            self.sessions.topics.unsubscribe(&self.shared.registry, subscription.index(), slot);
        }
    }

    /// Ends a connection at once: it is removed when the current handler returns.
    pub(crate) fn abort(&mut self, slot: u32, reason: CloseReason) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase != Phase::Dead {
            connection.phase = Phase::Dead;
            connection.close_reason.get_or_insert(reason);
            self.lifecycle.ended.push(slot);
        }
    }

    /// Removes connections that ended.
    pub(crate) fn remove_ended(&mut self) {
        while let Some(slot) = self.lifecycle.ended.pop() {
            let Some(mut connection) = self.take_connection(slot) else { continue };
            let reason = connection.close_reason.unwrap_or(CloseReason::PeerReset);
            let mut counts = true;
            match connection.socket.stream() {
                // Fails only if it was not registered.
                Some(stream) => drop(self.io.deregister(stream)),
                // Its socket moved to another slot, or it was a session that polled.
                None => counts = connection.protocol != Protocol::Http,
            }
            if counts {
                self.shared.metrics.count_closed(connection.protocol, reason);
            }
            drop(connection);
            self.mailbox().left();
        }
    }

    /// Takes a connection out of the shard. It counts until the caller has recorded its end
    /// ([`crate::shard::mailbox::Mailbox::left`]), so a thread that reads the lower count also sees that record.
    pub(crate) fn take_connection(&mut self, slot: u32) -> Option<Connection> {
        self.connections.get(slot as usize)?;
        self.detach(slot);
        self.end_unauthenticated(slot);
        self.lifecycle.seats.free(slot, &self.shared.clients);
        self.trailers.end(slot);
        self.io.forget(slot);
        self.io.precise.remove(slot);
        let connection = self.connections.remove(slot as usize);
        if self.connections.is_empty() {
            self.shrink();
        }
        self.shared.metrics.connections(connection.protocol, connection.framing).dec();
        Some(connection)
    }

    /// Gives memory back after a mass disconnect: the slots behind the last one in use.
    pub(crate) fn shrink(&mut self) {
        let capacity = self.connections.capacity();
        if capacity > PLACES_KEPT && self.connections.len() * 8 < capacity {
            self.connections.shrink_to_fit();
            self.lifecycle.seats.shrink(self.connections.capacity());
        }
        shrink_map(&mut self.io.peers);
        shrink_map(&mut self.trailers.0);
    }

    /// The gateway stops: closes all connections without waiting for their peers.
    pub(crate) fn close_all(&mut self) {
        let slots: Vec<usize> = self.connections.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            let slot = u32::try_from(slot).unwrap_or(u32::MAX);
            self.guard(Some(slot), |shard| {
                shard.begin_close(slot, CloseReason::Drain);
                shard.abort(slot, CloseReason::Drain);
            });
        }
        self.sessions.outcomes.report(&self.delivery, self.now.wall);
    }

    /// Closes as many connections as a drain allows now.
    pub(crate) fn continue_drain(&mut self) {
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
                    // The client has not requested anything yet, so there is no device to notify.
                    Some(Protocol::Http) => shard.drain_http(slot),
                    _ => shard.begin_close(slot, CloseReason::Drain),
                }
            });
        }
        self.lifecycle.round = Some(round);
    }
}

/// When a client reconnects: later for reasons that would hurt if all clients reconnected at once. `retry_after_s`: how
/// long a client has to wait whose log-in is refused for earlier failures; 0 for all others. `spread_ms`: over which a
/// drain spreads its clients.
fn reconnect_after_ms(reason: CloseReason, retry_after_s: u32, spread_ms: u32, jitter: &mut Jitter) -> u64 {
    match reason {
        CloseReason::RateLimited if retry_after_s > 0 => {
            u64::from(retry_after_s) * 1_000 + jitter.draw(4_000)
        }
        CloseReason::Drain => jitter.draw(u64::from(spread_ms) + 1),
        // A recheck closes sessions at a steady rate ([`crate::session::recheck`]); this spreads sessions that close at
        // once.
        CloseReason::Overloaded | CloseReason::Internal | CloseReason::RulesChanged => {
            1_000 + jitter.draw(4_000)
        }
        CloseReason::QuotaExceeded => 5_000 + jitter.draw(5_000),
        reason if reason.may_reconnect() => 500 + jitter.draw(1_000),
        _ => 0,
    }
}

/// Gives memory back where most of it is unused.
fn shrink_map<V>(map: &mut HashMap<u32, V>) {
    if map.capacity() > PLACES_KEPT && map.len() * 8 < map.capacity() {
        map.shrink_to_fit();
    }
}

/// Whether a drain closes a connection now. One without a request may be about to send one for the API, so only the end
/// of the node closes it. A client of another protocol cannot be notified before it has sent something; XMPP's server
/// may open its stream only to end it (RFC 6120 §4.9.1.2), so it is refused then.
fn is_movable(connection: &Connection, ending: bool) -> bool {
    let is_told = connection.adapter.is_none()
        || connection.protocol == Protocol::Xmpp
        || connection.phase != Phase::AwaitToken;
    connection.is_alive() && (ending || connection.protocol != Protocol::Http && is_told)
}
