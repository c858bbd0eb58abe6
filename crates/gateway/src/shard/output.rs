//! Bytes to sockets, behind the messages that are marked; answers in HTTP; and the limit of unsent bytes.

use std::time::Duration;

use bytes::Bytes;
use noroshi_protocol::http;
use noroshi_types::CloseReason;

use crate::io::socket::Flushed;
use crate::lifecycle::drawn_id;
use crate::session::phase::Phase;
use crate::shard::Shard;
use crate::wire::gzip::Packed;
use crate::wire::{Framing, Protocol};

/// How long a client may take to answer a close frame before the server closes the TCP connection (RFC 6455 §7.1.1).
/// Rounded up to a tick it is less than a second, so a client that ignores close frames soon writes to a closed
/// connection and notices.
const CLOSE_ANSWER_TIMEOUT: Duration = Duration::from_millis(800);

impl Shard {
    /// Sends bytes behind the marked messages.
    pub(crate) fn send(&mut self, slot: u32, bytes: Bytes) {
        self.send_unbounded(slot, bytes);
        self.limit_unsent(slot);
    }

    /// [`Shard::send`] for bytes that were compressed for an event stream under gzip.
    pub(crate) fn send_packed(&mut self, slot: u32, packed: &Packed) {
        self.send_piece(slot, packed);
        self.limit_unsent(slot);
    }

    fn send_piece(&mut self, slot: u32, packed: &Packed) {
        self.flush(slot);
        self.trailers.add(slot, packed);
        self.send_raw(slot, packed.bytes.clone());
    }

    /// [`Shard::send`] without the limit: for a page of the backlog, which is sent only when nothing is unsent, and
    /// followed by nothing until it is sent.
    pub(crate) fn send_unbounded(&mut self, slot: u32, bytes: Bytes) {
        let connection = self.connections.get(slot as usize);
        match connection.is_some_and(|connection| connection.framing == Framing::GzipEvents) {
            true => self.send_piece(slot, &Packed::of(&bytes)),
            false => self.send_raw(slot, bytes),
        }
    }

    pub(crate) fn send_raw(&mut self, slot: u32, bytes: Bytes) {
        self.flush(slot);
        let now_tick = self.now.tick;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.phase == Phase::Dead || connection.ended {
            return;
        }
        let len = bytes.len();
        let Ok(written) = connection.socket.send(bytes, now_tick) else {
            return self.abort(slot, CloseReason::PeerReset);
        };
        self.tally.bytes_out += written as u64;
        if written < len {
            self.arm(slot);
        }
    }

    /// Holds output back until [`Shard::flush_unsent`], so that it leaves with one write.
    pub(crate) fn cork(&mut self, slot: u32) {
        let now_tick = self.now.tick;
        if let Some(connection) = self.connection(slot) {
            connection.socket.cork(now_tick);
        }
    }

    /// The socket takes more.
    pub(crate) fn flush_unsent(&mut self, slot: u32) {
        let now_tick = self.now.tick;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.phase == Phase::Dead {
            return;
        }
        let Ok(flushed) = connection.socket.flush(now_tick) else {
            return self.abort(slot, CloseReason::PeerReset);
        };
        if let Flushed::Blocked(count) | Flushed::Drained(count) = flushed {
            self.tally.bytes_out += count as u64;
        }
        match (flushed, connection.phase, connection.protocol) {
            (Flushed::Blocked(_), ..) => {}
            (_, Phase::Closing, _) => self.end_writing(slot),
            (Flushed::Idle, ..) => {}
            (Flushed::Drained(_), _, Protocol::Echo) => self.io.read_later(slot),
            (Flushed::Drained(_), ..) => self.advance(slot),
        }
    }

    /// Closes a consumer that does not take its messages.
    pub(crate) fn limit_unsent(&mut self, slot: u32) {
        let limit = self.shared.config.send_queue_bytes;
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let bounded = connection.is_alive() && connection.protocol != Protocol::Echo;
        // While it catches up, a whole page may be unsent too.
        let page_bytes = connection.attachment.catch_up.as_ref().map_or(0, |catch_up| catch_up.page_bytes);
        match connection.unsent_bytes() {
            0 => {}
            bytes if bounded && bytes > limit + page_bytes => {
                self.begin_close(slot, CloseReason::SlowConsumer)
            }
            _ => self.arm(slot),
        }
    }

    pub(crate) fn set_protocol(&mut self, slot: u32, protocol: Protocol, framing: Framing) {
        let shared = self.shared.clone();
        let Some(connection) = self.connection(slot) else { return };
        shared.metrics.connections(connection.protocol, connection.framing).dec();
        shared.metrics.connections(protocol, framing).inc();
        (connection.protocol, connection.framing) = (protocol, framing);
    }

    /// Ends the write side: the close is sent, and only the peer's end is missing.
    pub(crate) fn end_writing(&mut self, slot: u32) {
        let answer_due = self.now.tick_after(CLOSE_ANSWER_TIMEOUT);
        let Some(connection) = self.connection(slot) else { return };
        if connection.ended || !connection.socket.end_writing() {
            return;
        }
        connection.ended = true;
        if connection.framing.is_websocket() {
            connection.deadline_tick = connection.deadline_tick.min(answer_due);
            self.arm(slot);
        }
    }

    /// Refuses a connection that finds no capacity, or a device during a drain. Each client gets a different time to
    /// retry.
    pub(crate) fn refuse(&mut self, slot: u32) {
        let (code, reason, spread_s) = match self.shared.drain.is_active() {
            true => {
                ("unavailable", CloseReason::Drain, u64::from(self.shared.drain.spread_ms().div_ceil(1_000)))
            }
            false => ("overloaded", CloseReason::Overloaded, 0),
        };
        let seconds = (1 + self.jitter.draw(spread_s.max(5))).to_string();
        // Counted as overload in both cases: the reason `drain` is for connections that had been admitted.
        let counted = CloseReason::Overloaded;
        self.answer_problem(slot, 503, code, reason.explain(), &[("Retry-After", &seconds)], counted);
    }

    /// Answers with a problem document and closes the connection for `reason`.
    pub(crate) fn answer_problem(
        &mut self,
        slot: u32,
        status: u16,
        code: &str,
        detail: &str,
        headers: &[(&str, &str)],
        reason: CloseReason,
    ) {
        debug_assert!(
            http::REFUSALS.iter().any(|refusal| (refusal.code, refusal.status) == (code, status)),
            "{status} {code} is in no table"
        );
        let given =
            self.connection(slot).and_then(|connection| connection.opening.as_mut()?.request_id.take());
        let id = given.map_or_else(|| drawn_id(self.shared.services.generations.next_number()), String::from);
        tracing::debug!(request = id, status, code, "a request was refused");
        let mut all = vec![("X-Request-Id", id.as_str()), ("Access-Control-Allow-Origin", "*")];
        all.push(("Access-Control-Expose-Headers", "Retry-After, WWW-Authenticate, X-Request-Id"));
        all.extend_from_slice(headers);
        let mut answer = Vec::new();
        http::push_problem(&mut answer, status, code, detail, &all);
        self.send(slot, answer.into());
        self.begin_close(slot, reason);
    }
}
