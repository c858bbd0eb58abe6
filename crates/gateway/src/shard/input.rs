//! From bytes to requests: reads sockets and request heads, and hands connections over to the API.
//!
//! Called by the event loop for readable sockets. What a request head asks for is decided in [`route`]; protocols get
//! their bytes through [`crate::shard::adapters`].

use std::io;
use std::ops::ControlFlow;
use std::time::Instant;

use bytes::Bytes;
use noroshi_protocol::http;
use noroshi_protocol::http2::PREFACE;
use noroshi_protocol::ws::{Deflated, Input, Role, Terms, UpgradeError};
use noroshi_types::{CloseReason, limits};

use crate::io::handover::Handover;
use crate::io::socket::Received;
use crate::lifecycle::request_id;
use crate::protocol::registry::AnyAdapter;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::shard::connection::Connection;
use crate::shard::route::{self, Route};
use crate::wire::{Framing, Protocol};

/// Reads of one connection in one turn; the rest waits for the next turn.
const READS_PER_TURN: usize = 4;

impl Shard {
    /// Reads a socket. `to_end`: the peer has closed it, so the end of the input must be read too.
    pub(crate) fn read(&mut self, slot: u32, to_end: bool) {
        let mut scratch = self.io.take_scratch();
        for turn in 0..=READS_PER_TURN {
            let Some(connection) = self.connections.get_mut(slot as usize) else { break };
            // Not read while an echo is unsent.
            let full = connection.protocol == Protocol::Echo && connection.socket.has_unsent();
            if connection.phase == Phase::Dead || full {
                break;
            }
            // The end of a connection that closes must be read.
            if self.io.is_paused(slot) && connection.phase != Phase::Closing {
                break;
            }
            if turn == READS_PER_TURN {
                self.io.read_later(slot);
                break;
            }
            let handshaking = connection.socket.is_handshaking();
            if handshaking && !self.io.has_handshake_time() {
                if connection.socket.defer_handshake() {
                    self.io.defer_handshake(slot);
                }
                break;
            }
            let begun = handshaking.then(Instant::now);
            let received = connection.socket.read(&mut scratch);
            if let Some(begun) = begun {
                self.io.spend_handshake_time(begun.elapsed());
            }
            match received {
                Ok(Received { bytes: 0, .. }) => {
                    self.handle_eof(slot);
                    break;
                }
                Ok(Received { bytes: count, drained }) => {
                    connection.ping.receive();
                    // Messages that were sent before the client's bytes are written before their answer.
                    if !self.receivers.mail.is_empty() {
                        self.take_mail();
                    }
                    self.handle_bytes(slot, &mut scratch[..count]);
                    if drained && !to_end {
                        break;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    if connection.socket.is_handshaking() {
                        self.shared.metrics.handshake_failures.inc();
                        tracing::debug!(%error, "a TLS handshake failed");
                    }
                    self.abort(slot, CloseReason::PeerReset);
                    break;
                }
            }
        }
        self.io.put_scratch(scratch);
    }

    fn handle_eof(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        // A WebSocket sends a close frame before it ends (RFC 6455 §7.1.5), and some protocols a packet.
        let announces = connection.framing.is_websocket()
            || connection.adapter.as_ref().is_some_and(|adapter| adapter.announces_end());
        let reason = if announces { CloseReason::PeerReset } else { CloseReason::PeerClosed };
        self.abort(slot, reason);
    }

    pub(crate) fn handle_bytes(&mut self, slot: u32, bytes: &mut [u8]) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        match (connection.phase, connection.framing) {
            (Phase::Head, _) => self.handle_head(slot, bytes),
            (Phase::Dead, _) => {}
            (_, framing @ (Framing::WebSocket | Framing::Deflated(_))) => {
                let config = &self.shared.config;
                let message_bytes_max = match &connection.adapter {
                    Some(adapter) => adapter.message_bytes_max(config),
                    None => AnyAdapter::stateless(connection.protocol, framing)
                        .map_or(config.client_message_bytes, |it| it.message_bytes_max(config)),
                };
                let deflates = framing != Framing::WebSocket;
                self.feed(slot, bytes, Terms { role: Role::Server, deflates, message_bytes_max });
            }
            // After the close nothing more is processed.
            (Phase::Closing, _) => {}
            (_, Framing::Stream | Framing::Polling) if connection.adapter.is_some() => {
                self.handle_stream(slot, bytes)
            }
            // An event stream has no input after its request; input is limited like frames.
            (_, Framing::Events | Framing::GzipEvents | Framing::Stream | Framing::Polling) => {
                self.take_frame(slot);
            }
        }
    }

    fn feed(&mut self, slot: u32, bytes: &mut [u8], terms: Terms) {
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Closing && !awaits_close(connection.close_reason) {
            return;
        }
        let mut decoder = std::mem::take(&mut connection.decoder);
        let result = decoder.feed_with_terms(terms, bytes, &mut |input| {
            match input {
                Input::Deflated(message) => self.handle_deflated(slot, message, terms.message_bytes_max),
                input => self.handle_input(slot, input),
            }
            match self.connection(slot).is_some_and(|connection| connection.phase != Phase::Dead) {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        // The connection may have become the session's own meanwhile, with its incomplete frame.
        let slot = self.settle_move(slot);
        match result {
            Ok(()) => {
                if let Some(connection) = self.connection(slot) {
                    connection.decoder = decoder;
                }
            }
            Err(error) => {
                tracing::debug!(%error, "a frame breaks the protocol");
                self.begin_close(slot, error.reason());
            }
        }
    }

    fn handle_head(&mut self, slot: u32, bytes: &mut [u8]) {
        let Some(connection) = self.connection(slot) else { return };
        let held = connection.opening.as_mut().map(|opening| std::mem::take(&mut opening.head));
        let Some(mut head) = held.filter(|head| !head.is_empty()) else {
            return self.begin_head(slot, bytes);
        };
        let held_bytes = head.len();
        head.extend_from_slice(bytes);
        if empty_lines(&head) > 0 {
            self.begin_head(slot, &mut head); // its CR was the last byte before
        } else if is_worth_parsing(&head, held_bytes) || head.len() >= self.shared.config.head.head_bytes {
            self.parse_head(slot, &mut head);
        } else {
            self.keep_head(slot, head);
        }
    }

    fn begin_head(&mut self, slot: u32, bytes: &mut [u8]) {
        let begin = empty_lines(bytes);
        let begun = &mut bytes[begin..];
        if !begun.is_empty() {
            self.parse_head(slot, begun);
        }
    }

    fn keep_head(&mut self, slot: u32, head: Vec<u8>) {
        if let Some(connection) = self.connection(slot) {
            connection.opening().head = head;
        }
    }

    fn parse_head(&mut self, slot: u32, bytes: &mut [u8]) {
        let shared = self.shared.clone();
        if shared.config.http2 {
            // By prior knowledge, or agreed on by TLS (RFC 9113 §3.2, §3.3).
            if PREFACE.starts_with(&bytes[..bytes.len().min(PREFACE.len())]) {
                return match bytes.len() < PREFACE.len() {
                    true => self.keep_head(slot, bytes.to_vec()),
                    false => self.hand_over(slot, bytes),
                };
            }
            if self.connection(slot).is_some_and(|connection| connection.socket.speaks_http2()) {
                return self.abort(slot, CloseReason::ProtocolError); // RFC 9113 §3.4
            }
        }
        let (route, head_len, client) = match http::parse(bytes, &shared.config.head) {
            Ok(None) => return self.keep_head(slot, bytes.to_vec()),
            Ok(Some((head, head_len))) => {
                if let (Some(id), Some(connection)) = (request_id(&head), self.connection(slot)) {
                    connection.opening().request_id = Some(id.into());
                }
                let route = match shared.config.devices {
                    true => route::route(&head, &shared.config),
                    false => Route::Api,
                };
                (route, head_len, self.forwarded(slot, &head))
            }
            Err(error) => {
                let (status, code, detail) = (error.status(), error.code(), error.to_string());
                return self.answer_problem(slot, status, code, &detail, &[], CloseReason::BadMessage);
            }
        };
        // Requests of a polling session are always served; only a new session is refused.
        let is_new = match &route {
            Route::Api => false,
            Route::EngineIo(request) => request.opens(),
            _ => true,
        };
        if is_new {
            self.limit_bridged(slot);
            if self.reject_reason(slot).is_some() {
                return self.refuse(slot);
            }
        }
        if let Some(client) = client.filter(|_| !matches!(route, Route::Api))
            && !self.lifecycle.seats.reassign(slot, client, &self.shared.clients)
        {
            self.shared.metrics.refused_client.inc();
            return self.refuse(slot);
        }
        match route {
            Route::WebSocket { protocol, upgrade: Ok(upgrade), credentials } => {
                self.open_websocket(slot, protocol, &upgrade, credentials);
                self.feed_rest(slot, &mut bytes[head_len..]);
            }
            Route::WebSocket { upgrade: Err(error), .. } => self.refuse_upgrade(slot, &error),
            Route::EngineIo(request) => self.handle_engine_request(slot, *request, bytes, head_len),
            Route::Sse { wanted: Ok(stream), credentials } => self.open_stream(slot, stream, credentials),
            Route::Sse { wanted: Err(refusal), .. } => self.refuse_stream(slot, 400, &refusal),
            Route::Api => self.hand_over(slot, bytes),
        }
    }

    pub(crate) fn refuse_upgrade(&mut self, slot: u32, error: &UpgradeError) {
        let (status, code, detail) = (error.status(), error.code(), error.to_string());
        self.answer_problem(slot, status, code, &detail, error.headers(), CloseReason::BadMessage);
    }

    pub(crate) fn feed_rest(&mut self, slot: u32, rest: &mut [u8]) {
        if !rest.is_empty() {
            self.handle_bytes(slot, rest);
        }
    }

    /// Hands the socket over to the API.
    fn hand_over(&mut self, slot: u32, prefix: &[u8]) {
        let Some(connection) = self.take_connection(slot) else { return };
        let handover = connection.socket.into_parts().and_then(|(mut stream, tls)| {
            // Fails only if it was not registered.
            let _ = self.io.deregister(&mut stream);
            let peer = stream.peer_addr().ok()?;
            Some(Handover { stream: stream.into(), tls, prefix: Bytes::copy_from_slice(prefix), peer })
        });
        let Some(handover) = handover else {
            self.shared.metrics.count_closed(Protocol::Http, CloseReason::PeerReset); // gone already
            return self.mailbox().left();
        };
        self.shared.metrics.handed_over.inc();
        self.mailbox().left();
        (self.shared.handover)(handover);
    }

    /// Takes a frame off the connection's allowance. False, and the connection closes, if none is left.
    pub(crate) fn take_frame(&mut self, slot: u32) -> bool {
        self.tally.frames_in += 1;
        let (shared, now_ms) = (&self.shared, self.now.ms32());
        let Some(connection) = self.connections.get_mut(slot as usize) else { return false };
        let has_session = connection.attachment.session.is_some();
        let own_rate =
            connection.adapter.as_ref().and_then(|it| it.frame_rate(&shared.services, has_session));
        let rate = own_rate.unwrap_or_else(|| shared.services.frame_rate());
        if connection.protocol == Protocol::Echo || connection.frames.take(rate, now_ms) {
            return true;
        }
        self.begin_close(slot, CloseReason::RateLimited);
        false
    }

    /// Whether input of the client still counts.
    pub(crate) fn is_alive(&self, slot: u32) -> bool {
        self.connections.get(slot as usize).is_some_and(Connection::is_alive)
    }

    /// A compressed message. It is taken off the allowance before it is inflated, and before the log-in it may inflate
    /// only to what may be sent until then.
    pub(crate) fn handle_deflated(&mut self, slot: u32, message: Deflated<'_>, message_bytes_max: usize) {
        let slot = self.moved_to(slot);
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if !connection.is_alive() && connection.attachment.leaving.is_none() {
            return;
        }
        let is_unauthenticated =
            connection.attachment.session.is_none() && connection.protocol != Protocol::Echo;
        let most =
            if is_unauthenticated { message_bytes_max.min(limits::EARLY_BYTES) } else { message_bytes_max };
        if !self.take_frame(slot) {
            return;
        }
        let mut inflater = std::mem::take(&mut self.inflater);
        match inflater.inflate(message, most) {
            Ok(input) => self.handle_message(slot, input),
            Err(error) => {
                tracing::debug!(%error, "a compressed message cannot be inflated");
                self.begin_close(slot, error.reason());
            }
        }
        self.inflater = inflater;
    }
}

/// The length of empty lines before a request line, which are ignored (RFC 9112 §2.2). They are not kept, so they are
/// never parsed again.
fn empty_lines(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    while let Some(after) = rest.strip_prefix(b"\n").or_else(|| rest.strip_prefix(b"\r\n")) {
        rest = after;
    }
    bytes.len() - rest.len()
}

/// Whether a head that was parsed when it had `held` bytes is parsed again: an empty line may have ended it, or it has
/// doubled, so that a malformed head is reported early. Parsing at every line would cost the square of the length.
fn is_worth_parsing(head: &[u8], held: usize) -> bool {
    let new = &head[held.saturating_sub(3)..];
    let ended = new.windows(2).any(|pair| pair == b"\n\n") || new.windows(3).any(|three| three == b"\n\r\n");
    ended || head.len().ilog2() > held.ilog2()
}

/// Whether the peer still has to answer our close frame. It does not if ours answers its own, or after a broken frame
/// (RFC 6455 §7.1.7).
fn awaits_close(reason: Option<CloseReason>) -> bool {
    !matches!(
        reason,
        Some(
            CloseReason::PeerClosed
                | CloseReason::PeerReset
                | CloseReason::ProtocolError
                | CloseReason::InvalidUtf8
                | CloseReason::TooBig
        )
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often a head that arrives byte by byte is parsed.
    fn parses(head: &[u8]) -> usize {
        (1..head.len()).filter(|held| is_worth_parsing(&head[..=*held], *held)).count()
    }

    #[test]
    fn a_head_in_short_lines_is_parsed_a_few_times() {
        let head = format!("GET / HTTP/1.1\n{}\r\n", "a:\n".repeat(5_000));
        let parsed = parses(head.as_bytes());
        assert!((2..20).contains(&parsed), "{parsed} times for {} bytes", head.len());
    }

    #[test]
    fn the_end_of_a_head_is_found_at_every_cut() {
        for end in ["\r\n\r\n", "\n\n", "\n\r\n", "\r\n\n"] {
            let head = format!("GET / HTTP/1.1{end}").into_bytes();
            for cut in 1..head.len() {
                assert!(is_worth_parsing(&head, cut), "{end:?} cut at {cut}");
            }
        }
    }

    #[test]
    fn only_whole_empty_lines_are_ignored() {
        let check = |bytes: &[u8], expected: usize| assert_eq!(empty_lines(bytes), expected, "{bytes:?}");
        check(b"GET", 0);
        check(b"\n\r\n\nGET\n", 4);
        check(b"\r\n", 2);
        check(b"\r", 0);
        check(b"\r\r\nGET", 0);
    }
}
