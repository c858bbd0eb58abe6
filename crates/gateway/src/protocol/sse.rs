//! Server-sent events: the same session as on a WebSocket, heard only. Acks, presence and
//! subscriptions go through the consumer API.

use std::time::Duration;

use noroshi_auth::Refused;
use noroshi_delivery::OverQuota;
use noroshi_protocol::{sse, ws};
use noroshi_types::CloseReason;

use crate::shard::Shard;
use crate::shard::route::{Credentials, Stream};
use crate::wire::gzip::{self, Trailer};
use crate::wire::{Framing, Protocol};

/// When a client shall come back by itself; each is told another delay.
const RETRY: Duration = Duration::from_secs(2);

impl Shard {
    pub(crate) fn open_stream(&mut self, slot: u32, stream: Stream, credentials: Credentials) {
        self.set_protocol(slot, Protocol::Native, Framing::Events);
        let app = credentials.app;
        if let Some(connection) = self.connection(slot) {
            connection.opening().asks_gzip = stream.asks_gzip;
        }
        self.identify(slot, credentials.token.as_deref(), app.as_deref(), move |shard, slot, answer| {
            match answer {
                Ok(identity) => shard.start_log_in(slot, identity, stream.topics, stream.resume),
                Err(refused) => shard.refuse_log_in_of_stream(slot, refused),
            }
        });
    }

    fn refuse_log_in_of_stream(&mut self, slot: u32, refused: Refused) {
        match refused {
            Refused::Missing => self.refuse_stream(slot, 401, "unauthorized", "a token is needed"),
            Refused::Expired => self.refuse_stream(slot, 401, "expired", CloseReason::Expired.explain()),
            Refused::TooManyFailures { .. } => {
                self.refuse_stream(slot, 429, "too_many_requests", &refused.to_string());
            }
            Refused::Busy => {
                self.set_protocol(slot, Protocol::Http, Framing::Stream);
                self.refuse(slot);
            }
            refused => self.refuse_stream(slot, 401, "unauthorized", &refused.to_string()),
        }
    }

    /// An HTTP answer instead of a stream.
    pub(crate) fn refuse_stream(&mut self, slot: u32, status: u16, code: &str, detail: &str) {
        let retry_after_s = self.retry_after_s(slot).max(1).to_string();
        let headers: &[_] = match status {
            401 => &[("WWW-Authenticate", "Bearer realm=\"noroshi\"")], // RFC 9110 §11.6.1
            429 => &[("Retry-After", &retry_after_s)],
            _ => &[],
        };
        let reason = match code {
            "expired" => CloseReason::Expired,
            "revoked" => CloseReason::Revoked,
            "unauthorized" => CloseReason::Unauthorized,
            "too_many_requests" => CloseReason::RateLimited,
            _ => CloseReason::BadMessage,
        };
        self.set_protocol(slot, Protocol::Http, Framing::Stream);
        self.answer_problem(slot, status, code, detail, headers, reason);
    }

    /// The app has used up its quota.
    pub(crate) fn refuse_stream_over_quota(&mut self, slot: u32, over: &OverQuota) {
        let after_s = over.after_s().to_string();
        self.set_protocol(slot, Protocol::Http, Framing::Stream);
        let (headers, reason) = ([("Retry-After", after_s.as_str())], CloseReason::QuotaExceeded);
        self.answer_problem(slot, 429, "quota_exceeded", &over.to_string(), &headers, reason);
    }

    /// The log-in succeeded: the stream begins.
    pub(crate) fn begin_stream(&mut self, slot: u32, gzip: bool) {
        let retry_ms = u64::try_from(RETRY.as_millis()).unwrap_or_default() + self.jitter(1_000);
        let (mut head, mut retry) = (Vec::with_capacity(288), Vec::with_capacity(16));
        sse::push_response_head(&mut head, gzip);
        sse::push_retry(&mut retry, retry_ms);
        if gzip {
            head.extend_from_slice(&gzip::HEAD);
            self.send(slot, head.into());
            self.set_protocol(slot, Protocol::Native, Framing::GzipEvents);
            self.trailers.insert(slot, Trailer::default());
            self.send(slot, retry.into());
        } else {
            head.extend_from_slice(&retry);
            self.send(slot, head.into());
        }
        if let Some(connection) = self.connection(slot) {
            // A peer that vanished is found by the transport: nothing is ever heard from it.
            if let Some(stream) = connection.transport.stream() {
                let _ = socket2::SockRef::from(&*stream).set_tcp_user_timeout(Some(Duration::from_secs(60)));
            }
        }
    }

    /// A JSON object in the connection's own way: a text frame, or an event named by its type.
    pub(crate) fn send_json(&mut self, slot: u32, event: &str, json: &[u8]) {
        let Some(connection) = self.connections.get(slot as usize) else { return };
        if connection.protocol != Protocol::Native {
            return;
        }
        match connection.framing {
            Framing::WebSocket | Framing::Deflated(_) => self.send(slot, ws::text_frame(json)),
            Framing::Events | Framing::GzipEvents => {
                let mut bytes = Vec::with_capacity(json.len() + 32);
                sse::named(event, json, &mut bytes);
                self.send(slot, bytes.into());
            }
            Framing::Stream | Framing::Polling => {}
        }
    }
}
