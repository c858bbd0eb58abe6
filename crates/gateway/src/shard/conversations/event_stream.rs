//! Event streams: the request, the start, and refusals in HTTP.

use std::sync::OnceLock;
use std::time::Duration;

use bytes::Bytes;
use noroshi_protocol::sse;
use noroshi_types::CloseReason;

use crate::protocol::effect::HttpRefusal;
use crate::protocol::sse::{Events, Stream};
use crate::session::verification::Credentials;
use crate::shard::Shard;
use crate::wire::gzip::Packed;
use crate::wire::{Framing, Protocol};

/// How long a peer may leave data unacknowledged before TCP gives it up: an event stream receives nothing from it.
const USER_TIMEOUT: Duration = Duration::from_secs(60);
/// The same for all event streams under gzip.
static PACKED_KEEP_ALIVE: OnceLock<Packed> = OnceLock::new();

impl Shard {
    pub(crate) fn open_stream(&mut self, slot: u32, stream: Stream, credentials: Credentials) {
        self.set_protocol(slot, Protocol::Native, Framing::Events);
        if let Some(connection) = self.connection(slot) {
            connection.opening().asks_gzip = stream.asks_gzip;
        }
        let Credentials { token, app } = credentials;
        self.identify(slot, token.as_deref(), app.as_deref(), Events::request(stream));
    }

    /// An HTTP answer instead of a stream.
    pub(crate) fn refuse_stream(&mut self, slot: u32, refusal: &HttpRefusal) {
        let HttpRefusal { status, code, detail, after_s } = refusal;
        let after_s = after_s.unwrap_or_else(|| u64::from(self.retry_after_s(slot).max(1))).to_string();
        let headers: &[_] = match status {
            401 => &[("WWW-Authenticate", "Bearer realm=\"noroshi\"")], // RFC 9110 §11.6.1
            429 => &[("Retry-After", &after_s)],
            _ => &[],
        };
        let reason = match *code {
            "expired" => CloseReason::Expired,
            "revoked" => CloseReason::Revoked,
            "unauthorized" => CloseReason::Unauthorized,
            "too_many_requests" => CloseReason::RateLimited,
            "quota_exceeded" => CloseReason::QuotaExceeded,
            _ => CloseReason::BadMessage,
        };
        self.set_protocol(slot, Protocol::Http, Framing::Stream);
        self.answer_problem(slot, *status, code, detail, headers, reason);
    }

    pub(super) fn begin_gzip(&mut self, slot: u32) {
        self.set_protocol(slot, Protocol::Native, Framing::GzipEvents);
        self.trailers.begin(slot);
    }

    pub(super) fn detect_vanished_peer(&mut self, slot: u32) {
        let stream = self.connection(slot).and_then(|connection| connection.socket.stream());
        if let Some(stream) = stream {
            let _ = socket2::SockRef::from(&*stream).set_tcp_user_timeout(Some(USER_TIMEOUT));
        }
    }

    pub(super) fn send_keep_alive(&mut self, slot: u32) {
        match self.connection(slot).is_some_and(|connection| connection.framing == Framing::GzipEvents) {
            true => self.send_packed(slot, PACKED_KEEP_ALIVE.get_or_init(|| Packed::of(sse::keep_alive()))),
            false => self.send(slot, Bytes::from_static(sse::keep_alive())),
        }
    }
}
