//! One connection to a server: its streams, flow-control windows and settings.
//!
//! The owner calls `request` while there is `room`, passes received bytes to `receive`, polls events until
//! there are none, and writes `output` after each of these. Every request ends in exactly one `Response` or
//! `Reset`, or is returned by `into_open`, unless it was cancelled.
//!
//! Invariants: no more streams are open than the peer allows, unless it lowered the limit since; a body waits
//! only while a window of the peer is exhausted; buffers for unfinished frames, header blocks and responses
//! are bounded by the configuration and grow with received bytes, never with an announced length.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::{ConnectionError, code};
use super::frame::{self, MAX_31_BITS, PREFACE};
use super::headers::Headers;
use super::hpack::{self, TABLE_BYTES};
use super::settings::{WINDOW_BYTES, id};
pub use super::stream::Key;
use super::stream::Streams;

mod receive;
mod respond;
mod send;
#[cfg(test)]
mod tests;

/// Limits that we announce to the peer or enforce.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Window of each stream: bytes of a response body that may be in flight. At least 65,535, since the peer
    /// may send that much before it has read our SETTINGS.
    pub stream_window: u32,
    /// Window of the whole connection; also at least 65,535.
    pub connection_window: u32,
    /// A longer body is truncated and its stream cancelled, so each open response holds at most this.
    pub response_body_bytes_max: usize,
    /// Limit of the header list: names, values and 32 bytes per field (RFC 9113 §10.5.1). Fields beyond it
    /// are dropped.
    pub header_list_bytes_max: usize,
}

/// The head of a request; the scheme is `https`. The method must not be HEAD or CONNECT.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub method: &'a str,
    pub authority: &'a str,
    /// Enters the dynamic table if it equals the previous request's path.
    pub path: &'a str,
    pub headers: &'a [Field<'a>],
}

/// A header field of a request. The name is in lower case and not one of RFC 9113 §8.2.2.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    pub name: &'a str,
    pub value: &'a [u8],
    /// Whether later requests repeat the field. If so, it enters the dynamic table and then costs one or two
    /// bytes.
    pub indexed: bool,
}

/// What happened, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The final response, without trailers.
    Response {
        key: Key,
        status: u16,
        headers: Headers,
        body: Bytes,
        /// Whether headers or body exceeded the configured limits and were cut.
        truncated: bool,
    },
    /// The request gets no response: the peer reset the stream, or we did because the response was malformed.
    Reset {
        key: Key,
        /// One of [`code`].
        code: u32,
        /// False if the peer certainly did not process the request (RFC 9113 §8.7): safe to retry.
        processed: bool,
    },
    /// The peer is closing the connection; `room` is 0 from now on, open requests continue. Repeated for
    /// every GOAWAY of the peer.
    GoAway {
        code: u32,
        /// The first 1 KiB of the debug data.
        debug: Bytes,
    },
    /// The answer to the last ping.
    Pong,
    /// `room` may have changed.
    SettingsChanged,
}

impl Event {
    /// The request that this event ends.
    pub fn key(&self) -> Option<Key> {
        match self {
            Event::Response { key, .. } | Event::Reset { key, .. } => Some(*key),
            Event::GoAway { .. } | Event::Pong | Event::SettingsChanged => None,
        }
    }
}

/// The request was rejected because `room` was 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the connection cannot open another stream")]
pub struct Closed;

/// The limit of open streams, whatever the peer allows. A stream costs less than 1 KiB with its share of the
/// events, so 4 MiB per connection. Push services allow up to 1,500.
const STREAMS_MAX: usize = 4096;
/// RFC 9113 §6.5.2 recommends that servers allow no fewer; the limit until SETTINGS arrive.
const STREAMS_BEFORE_SETTINGS: usize = 100;
/// Frames without effect (pings, settings, window updates, empty data, anything for closed streams) that the
/// peer may send between two of our requests or pings: one every 10 s for a day. More is a flood (RFC 9113
/// §10.5).
const IDLE_FRAMES_MAX: u32 = 10_000;
/// Streams that the peer may reset with no response in between: enough to refuse all open streams twice.
const RESETS_IN_A_ROW_MAX: u32 = 2 * STREAMS_MAX as u32;
/// Queued replies to the peer's frames: a peer that sends without reading exceeds this (RFC 9113 §10.5).
const REPLIES_BYTES_MAX: usize = 256 * 1024;

pub struct Connection {
    config: Config,
    /// Bytes of a header block that are decoded (and dropped beyond the list limit) before it counts as a
    /// flood.
    block_bytes_max: usize,
    encoder: hpack::Encoder,
    decoder: hpack::Decoder,
    streams: Streams,
    /// Odd; exceeds 2^31-1 when all ids are used up (RFC 9113 §5.1.1).
    next_id: u32,
    /// The peer's SETTINGS_MAX_CONCURRENT_STREAMS.
    peer_streams: usize,
    /// The caller's limit of open streams.
    limit: usize,
    /// The peer's SETTINGS_INITIAL_WINDOW_SIZE.
    peer_window: i32,
    /// Bytes that the peer lets us send on all streams together.
    send_window: i32,
    /// Bytes that we let the peer send on all streams together.
    receive_window: i32,
    /// Streams with stream window left that wait for the connection window; `send_window` is 0 whenever this
    /// is not empty.
    queue: VecDeque<u32>,
    /// The path of the previous request.
    path: String,
    output: Vec<u8>,
    /// Upper bound of the bytes in `output` that reply to the peer's frames: `0 <= replies <= output.len()`
    /// between calls.
    replies: usize,
    /// An incomplete frame.
    partial: Vec<u8>,
    /// A header block that continues in the next frame (RFC 9113 §6.10).
    block: Option<receive::Block>,
    events: VecDeque<Event>,
    /// Whether the peer's SETTINGS arrived, which must be its first frame (RFC 9113 §3.4).
    greeted: bool,
    /// Whether either side sent GOAWAY.
    leaving: bool,
    /// From the peer's GOAWAY: it did not and will not process streams above this id.
    last_id: u32,
    ping: u64,
    /// Whether the answer to `ping` is pending.
    ping_open: bool,
    idle_frames: u32,
    resets_in_a_row: u32,
    error: Option<ConnectionError>,
}

impl Connection {
    /// Starts with the connection preface and our SETTINGS in the output.
    pub fn new(config: Config) -> Self {
        let window = |bytes: u32| bytes.clamp(WINDOW_BYTES, MAX_31_BITS);
        let config = Config {
            stream_window: window(config.stream_window),
            connection_window: window(config.connection_window),
            ..config
        };
        let mut output = PREFACE.to_vec();
        frame::push_settings(
            &mut output,
            &[
                (id::ENABLE_PUSH, 0),
                (id::INITIAL_WINDOW_SIZE, config.stream_window),
                (id::MAX_HEADER_LIST_SIZE, u32::try_from(config.header_list_bytes_max).unwrap_or(u32::MAX)),
            ],
        );
        if config.connection_window > WINDOW_BYTES {
            frame::push_window_update(&mut output, 0, config.connection_window - WINDOW_BYTES);
        }
        Self {
            config,
            block_bytes_max: config.header_list_bytes_max.max(frame::PAYLOAD_BYTES_MAX).saturating_mul(4),
            encoder: hpack::Encoder::new(),
            decoder: hpack::Decoder::new(TABLE_BYTES),
            streams: Streams::default(),
            next_id: 1,
            peer_streams: STREAMS_BEFORE_SETTINGS,
            limit: usize::MAX,
            peer_window: WINDOW_BYTES as i32,
            send_window: WINDOW_BYTES as i32,
            receive_window: config.connection_window as i32,
            queue: VecDeque::new(),
            path: String::new(),
            output,
            replies: 0,
            partial: Vec::new(),
            block: None,
            events: VecDeque::new(),
            greeted: false,
            leaving: false,
            last_id: MAX_31_BITS,
            ping: 0,
            ping_open: false,
            idle_frames: 0,
            resets_in_a_row: 0,
            error: None,
        }
    }

    /// Bytes to write, in order; the caller drains them from the front.
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.output
    }

    /// How many streams may be opened now.
    pub fn room(&self) -> usize {
        if self.is_closing() {
            return 0;
        }
        self.peer_streams.min(STREAMS_MAX).min(self.limit).saturating_sub(self.streams.len())
    }

    /// Whether `room` stays 0 for good, so that new requests need another connection.
    pub fn is_closing(&self) -> bool {
        self.leaving || self.error.is_some() || self.next_id > MAX_31_BITS
    }

    /// Sets the caller's limit of open streams, in addition to the peer's. Open streams beyond it continue.
    pub fn limit(&mut self, streams: Option<usize>) {
        self.limit = streams.unwrap_or(usize::MAX);
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Cancels a request: it emits no more events, and its key becomes free.
    pub fn cancel(&mut self, key: Key) {
        // A search: an index by key would cost every request for the sake of the few that time out.
        let Some(id) = self.streams.iter().find_map(|(id, stream)| (stream.key == key).then_some(*id)) else {
            return self.events.retain(|event| event.key() != Some(key));
        };
        self.remove(id);
        if self.error.is_none() {
            frame::push_rst_stream(&mut self.output, id, code::CANCEL);
        }
    }

    /// Checks that the peer is alive; `Event::Pong` answers the last ping.
    pub fn ping(&mut self) {
        if self.error.is_some() {
            return;
        }
        self.ping += 1;
        self.ping_open = true;
        self.idle_frames = 0;
        frame::push_ping(&mut self.output, 0, self.ping.to_be_bytes());
    }

    /// Tells the peer that no new requests follow. Open requests continue.
    pub fn go_away(&mut self) {
        if self.error.is_none() {
            self.leaving = true;
            frame::push_go_away(&mut self.output, code::NO_ERROR, "");
        }
    }

    /// The number of requests without a response.
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// Consumes a lost connection and returns the requests with unknown outcome, in the order they were made.
    pub fn into_open(self) -> Vec<Key> {
        let mut open: Vec<(u32, Key)> =
            self.streams.into_iter().map(|(id, stream)| (id, stream.key)).collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.into_iter().map(|(_, key)| key).collect()
    }
}
