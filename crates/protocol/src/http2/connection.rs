//! One connection to a server: its requests, its windows, and what it says of itself.
//!
//! The owner calls `request` while there is `room`, hands what it reads to `receive`, takes events until there
//! are none, and writes `output` after any of these. Every request ends in exactly one `Response` or
//! `Reset`, or is among `into_open`, unless it was cancelled.
//!
//! Invariants: no more streams are open than the peer allows, unless it lowered that since; a body waits
//! only where a window of the peer is used up; what an unfinished frame, header block or response holds is
//! bounded by the configuration and grows with the bytes that came, never with a length announced.

use std::collections::VecDeque;

use bytes::Bytes;

use super::error::{ConnectionError, code};
use super::frame::{self, MAX_31_BITS, PREFACE};
use super::headers::Headers;
use super::hpack::{self, TABLE_BYTES};
use super::settings::{WINDOW_BYTES, id};
use super::stream::Streams;

mod receive;
mod respond;
mod send;
#[cfg(test)]
mod tests;

/// What we allow the peer.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// Bytes of a response's body that may be under way; at least 65,535, as the peer may send those before
    /// it has read our SETTINGS.
    pub stream_window: u32,
    /// The same for all streams together; also at least 65,535.
    pub connection_window: u32,
    /// A longer body is cut there and its stream cancelled: what is open holds at most this each.
    pub response_body_bytes_max: usize,
    /// Names, values and 32 bytes for each field of a response (RFC 9113 §10.5.1); more are left out.
    pub header_list_bytes_max: usize,
}

/// The caller's name of a request; those that are open have different ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key(pub u64);

/// What a request begins with; the scheme is `https`. The method is not HEAD or CONNECT.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    pub method: &'a str,
    pub authority: &'a str,
    /// Enters the dynamic table when it is that of the request before.
    pub path: &'a str,
    pub headers: &'a [Field<'a>],
}

/// A header field of a request. The name is in lower case and none of the fields of RFC 9113 §8.2.2.
#[derive(Debug, Clone, Copy)]
pub struct Field<'a> {
    pub name: &'a str,
    pub value: &'a [u8],
    /// Whether later requests will have the same: it enters the dynamic table and costs a byte or two then.
    pub indexed: bool,
}

/// What happened, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The final response; its trailers are dropped.
    Response {
        key: Key,
        status: u16,
        headers: Headers,
        body: Bytes,
        /// Whether headers or body were longer than the configuration allows: the beginning is here.
        truncated: bool,
    },
    /// No response will come: the peer reset the stream, or we did for a response that breaks the rules.
    Reset {
        key: Key,
        /// One of [`code`].
        code: u32,
        /// False if the peer certainly did nothing with the request (RFC 9113 §8.7): safe to send again.
        processed: bool,
    },
    /// The peer wants to end the connection; `room` is 0 from now on, what is open goes on. Comes again
    /// when the peer says more.
    GoAway {
        code: u32,
        /// At most 1 KiB of it.
        debug: Bytes,
    },
    /// The answer to the last ping.
    Pong,
    /// `room` may be another.
    SettingsChanged,
}

impl Event {
    /// Of the request that this event ends.
    pub fn key(&self) -> Option<Key> {
        match self {
            Event::Response { key, .. } | Event::Reset { key, .. } => Some(*key),
            Event::GoAway { .. } | Event::Pong | Event::SettingsChanged => None,
        }
    }
}

/// The request was not taken, as `room` was 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no room for another stream")]
pub struct Closed;

/// Open streams at most, whatever the peer allows: one costs less than 1 KiB with its share of the events,
/// so 4 MiB a connection. Push services allow up to 1,500.
const STREAMS_MAX: usize = 4096;
/// RFC 9113 §6.5.2 recommends that servers allow no fewer: the bound until SETTINGS say otherwise.
const STREAMS_BEFORE_SETTINGS: usize = 100;
/// Frames that bring nothing (pings, settings, windows, empty data, anything for closed streams) which the
/// peer may send between two requests or pings of ours: one every 10 s for a day. More is a flood
/// (RFC 9113 §10.5).
const IDLE_FRAMES_MAX: u32 = 10_000;
/// Streams reset by the peer with no response between them: it may refuse a full house twice.
const RESETS_IN_A_ROW_MAX: u32 = 2 * STREAMS_MAX as u32;
/// Answers to the peer's frames that wait in the output: a peer that asks without reading (RFC 9113 §10.5).
const REPLIES_BYTES_MAX: usize = 256 * 1024;

pub struct Connection {
    config: Config,
    /// How many bytes of a header block are read (and left out beyond the list's limit) before it is a flood.
    block_bytes_max: usize,
    encoder: hpack::Encoder,
    decoder: hpack::Decoder,
    streams: Streams,
    /// Odd; over 2^31-1 when they are used up (RFC 9113 §5.1.1).
    next_id: u32,
    /// The peer's SETTINGS_MAX_CONCURRENT_STREAMS.
    peer_streams: usize,
    /// The caller's.
    limit: usize,
    /// The peer's SETTINGS_INITIAL_WINDOW_SIZE.
    peer_window: i32,
    /// What the peer lets us send on all streams together.
    send_window: i32,
    /// What we let the peer send on all streams together.
    receive_window: i32,
    /// Streams with a window of their own that wait for the connection's: 0 whenever one is here.
    queue: VecDeque<u32>,
    /// The path of the last request.
    path: String,
    output: Vec<u8>,
    /// Bytes of `output` that answer the peer's frames, at most: `0 <= replies <= output.len()` between calls.
    replies: usize,
    /// The beginning of a frame whose end is still to come.
    partial: Vec<u8>,
    /// A header block that goes on in the next frame (RFC 9113 §6.10).
    block: Option<receive::Block>,
    events: VecDeque<Event>,
    /// Whether the peer's SETTINGS came, which are its first frame (RFC 9113 §3.4).
    greeted: bool,
    /// Whether one of us sent GOAWAY.
    leaving: bool,
    /// Of the peer's GOAWAY: streams above it were not and will not be processed.
    last_id: u32,
    ping: u64,
    /// Whether the answer to `ping` is still to come.
    ping_open: bool,
    idle_frames: u32,
    resets_in_a_row: u32,
    error: Option<ConnectionError>,
}

impl Connection {
    /// The connection preface and our SETTINGS wait in the output.
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

    /// Bytes to be written, in order; the caller takes them out from the front or altogether.
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

    /// Whether `room` will never be more than 0 again: another connection is needed for what is new.
    pub fn is_closing(&self) -> bool {
        self.leaving || self.error.is_some() || self.next_id > MAX_31_BITS
    }

    /// A bound of the caller's on open streams, beside the peer's. Those open beyond it go on.
    pub fn limit(&mut self, streams: Option<usize>) {
        self.limit = streams.unwrap_or(usize::MAX);
    }

    /// The next thing that happened.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Gives a request up: no event of it comes any more, and its key is free.
    pub fn cancel(&mut self, key: Key) {
        // A search, as a map by key would cost every request for the sake of the few that time out.
        let Some(id) = self.streams.iter().find_map(|(id, stream)| (stream.key == key).then_some(*id)) else {
            return self.events.retain(|event| event.key() != Some(key));
        };
        self.remove(id);
        if self.error.is_none() {
            frame::push_rst_stream(&mut self.output, id, code::CANCEL);
        }
    }

    /// Asks whether the peer is there; `Event::Pong` is the answer to the last one asked.
    pub fn ping(&mut self) {
        if self.error.is_some() {
            return;
        }
        self.ping += 1;
        self.ping_open = true;
        self.idle_frames = 0;
        frame::push_ping(&mut self.output, 0, self.ping.to_be_bytes());
    }

    /// Tells the peer that nothing new will come. What is open goes on.
    pub fn go_away(&mut self) {
        if self.error.is_none() {
            self.leaving = true;
            frame::push_go_away(&mut self.output, code::NO_ERROR, "");
        }
    }

    /// How many requests have no response yet.
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// The connection is lost: the requests whose fate is unknown, in the order they were made.
    pub fn into_open(self) -> Vec<Key> {
        let mut open: Vec<(u32, Key)> =
            self.streams.into_iter().map(|(id, stream)| (id, stream.key)).collect();
        open.sort_unstable_by_key(|(id, _)| *id);
        open.into_iter().map(|(_, key)| key).collect()
    }
}
