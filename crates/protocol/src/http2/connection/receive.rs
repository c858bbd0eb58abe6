//! Incoming frames: reassembled from any split, validated, and passed to their stream or applied to the
//! connection (RFC 9113 §4, §6). Each violation of the connection's rules is an error with its code.

use bytes::Bytes;

use super::{Connection, Event, IDLE_FRAMES_MAX, REPLIES_BYTES_MAX, RESETS_IN_A_ROW_MAX};
use crate::http2::error::{ConnectionError, code};
use crate::http2::frame::{self, HEADER_BYTES, Header, MAX_31_BITS, PAYLOAD_BYTES_MAX, flag, kind};
use crate::http2::settings::{self, Setting};

/// An unfinished header block of several frames (§6.10).
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// Limit of a GOAWAY's debug data, in which push services state a reason.
const DEBUG_BYTES_MAX: usize = 1024;

impl Connection {
    /// Consumes received bytes, in any split. After an error the connection is over: its GOAWAY is in the
    /// output, and [`Connection::into_open`] returns the requests with unknown outcome.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // Bytes written since then are no longer in the output.
        self.replies = self.replies.min(self.output.len());
        self.handle_bytes(bytes).inspect_err(|error| {
            self.error = Some(*error);
            self.partial = Vec::new();
            self.block = None;
            frame::push_go_away(&mut self.output, error.code, error.reason);
        })
    }

    fn handle_bytes(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        if !self.partial.is_empty() {
            self.complete_partial(&mut bytes)?;
        }
        while let Some((header, rest)) = bytes.split_first_chunk() {
            let header = Header::parse(header);
            self.check_order(header)?;
            let Some((payload, after)) = rest.split_at_checked(header.len) else { break };
            self.handle_frame(header, payload)?;
            bytes = after;
        }
        self.partial.extend_from_slice(bytes);
        Ok(())
    }

    /// Completes the partial frame from `bytes`, or appends all of them. Leaves `partial` empty if the frame
    /// was completed, and `bytes` empty if it was not.
    fn complete_partial(&mut self, bytes: &mut &[u8]) -> Result<(), ConnectionError> {
        loop {
            let header = self.partial.first_chunk().map(Header::parse);
            if let Some(header) = header {
                self.check_order(header)?;
            }
            let len = HEADER_BYTES + header.map_or(0, |header| header.len);
            let (more, rest) = bytes.split_at(bytes.len().min(len - self.partial.len()));
            self.partial.extend_from_slice(more);
            *bytes = rest;
            match header {
                _ if self.partial.len() < len => return Ok(()),
                None => {}
                Some(header) => {
                    let mut partial = std::mem::take(&mut self.partial);
                    self.handle_frame(header, &partial[HEADER_BYTES..])?;
                    partial.clear();
                    self.partial = partial;
                    return Ok(());
                }
            }
        }
    }

    /// Checks a frame's header before its payload arrives.
    fn check_order(&self, header: Header) -> Result<(), ConnectionError> {
        // §3.4. Also rejects a server that speaks HTTP/1.1.
        if !self.greeted && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        // §4.2
        if header.len > PAYLOAD_BYTES_MAX {
            return Err(ConnectionError::frame_size("the frame exceeds 16,384 bytes"));
        }
        // §6.10
        match &self.block {
            Some(block) if header.kind != kind::CONTINUATION || header.stream != block.stream => {
                Err(ConnectionError::protocol("another frame interrupts a header block"))
            }
            None if header.kind == kind::CONTINUATION => {
                Err(ConnectionError::protocol("CONTINUATION without a header block"))
            }
            _ => Ok(()),
        }
    }

    fn handle_frame(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        match header.kind {
            kind::DATA => self.handle_data(header, payload),
            kind::HEADERS => self.handle_headers(header, payload),
            kind::CONTINUATION => self.handle_continuation(header, payload),
            kind::RST_STREAM => self.handle_rst_stream(header, payload),
            kind::SETTINGS => self.handle_settings(header, payload),
            kind::PING => self.handle_ping(header, payload),
            kind::GOAWAY => self.handle_go_away(header, payload),
            kind::WINDOW_UPDATE => self.handle_window_update(header, payload),
            // §8.4: our SETTINGS forbid it.
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("PUSH_PROMISE is disabled")),
            // §5.3.2: priorities are ignored.
            kind::PRIORITY if header.stream == 0 => Err(ConnectionError::protocol("PRIORITY on stream 0")),
            // §6.3
            kind::PRIORITY if payload.len() != 5 => self.reset(header.stream, code::FRAME_SIZE_ERROR),
            // §4.1: unknown frames are ignored.
            _ => self.count_idle_frame(),
        }
    }

    /// Counts a frame without effect; an honest peer sends few.
    pub(super) fn count_idle_frame(&mut self) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        match self.idle_frames > IDLE_FRAMES_MAX {
            true => Err(ConnectionError::flood("too many frames without effect")),
            false => Ok(()),
        }
    }

    /// Counts a reply that was added to the output.
    pub(super) fn count_reply(&mut self, payload_bytes: usize) -> Result<(), ConnectionError> {
        self.replies += HEADER_BYTES + payload_bytes;
        match self.replies > REPLIES_BYTES_MAX {
            true => Err(ConnectionError::flood("the peer does not read the replies to its frames")),
            false => Ok(()),
        }
    }

    /// §5.1: rejects frames on a stream that was not opened yet. Late frames on a closed stream are valid,
    /// since the peer may have sent them before our RST_STREAM arrived; which side closed it is not tracked.
    pub(super) fn check_not_idle(&self, id: u32) -> Result<(), ConnectionError> {
        match id {
            0 => Err(ConnectionError::protocol("a stream frame on stream 0")),
            _ if id.is_multiple_of(2) => Err(ConnectionError::protocol("a frame on an even stream id")),
            _ if id >= self.next_id => Err(ConnectionError::protocol("a frame on an idle stream")),
            _ => Ok(()),
        }
    }

    /// §5.4.2: ends one stream because of an error of the peer.
    pub(super) fn reset(&mut self, id: u32, code: u32) -> Result<(), ConnectionError> {
        if let Some(stream) = self.remove(id) {
            frame::push_rst_stream(&mut self.output, id, code);
            self.events.push_back(Event::Reset { key: stream.key, code, processed: true });
        }
        self.count_reset()?;
        self.count_reply(4)
    }

    fn count_reset(&mut self) -> Result<(), ConnectionError> {
        self.resets_in_a_row += 1;
        match self.resets_in_a_row > RESETS_IN_A_ROW_MAX {
            true => Err(ConnectionError::flood("too many resets without a response")),
            false => Ok(()),
        }
    }

    /// §6.4.
    fn handle_rst_stream(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        self.check_not_idle(header.stream)?;
        let code = number(payload, 4, "RST_STREAM is not four bytes long")?;
        let Some(stream) = self.remove(header.stream) else { return self.count_idle_frame() };
        // §8.7. A peer that responded did process the request.
        let processed = code != code::REFUSED_STREAM || stream.response.is_some();
        self.events.push_back(Event::Reset { key: stream.key, code, processed });
        self.count_reset()
    }

    /// §6.5.
    fn handle_settings(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        if header.has(flag::ACK) {
            return match payload.is_empty() {
                true => self.count_idle_frame(),
                false => Err(ConnectionError::frame_size("a SETTINGS acknowledgement with a payload")),
            };
        }
        // §6.5.2: unlimited unless a setting limits it.
        if !self.greeted {
            self.greeted = true;
            self.peer_streams = usize::MAX;
        }
        // All settings apply at once (§6.5.3), so only the last of several initial windows counts; each would
        // walk all streams.
        let mut initial_window = None;
        for setting in settings::parse(payload)? {
            match setting? {
                Setting::HeaderTableSize(bytes) => self.encoder.set_size_max(bytes as usize),
                Setting::MaxConcurrentStreams(count) => self.peer_streams = count as usize,
                Setting::InitialWindowSize(bytes) => initial_window = Some(bytes as i32),
            }
        }
        if let Some(bytes) = initial_window {
            self.change_peer_window(bytes)?;
        }
        if self.events.back() != Some(&Event::SettingsChanged) {
            self.events.push_back(Event::SettingsChanged);
        }
        frame::push_settings_ack(&mut self.output);
        self.count_reply(0)?;
        self.count_idle_frame()
    }

    /// §6.7.
    fn handle_ping(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        let payload: [u8; 8] =
            payload.try_into().map_err(|_| ConnectionError::frame_size("PING is not eight bytes long"))?;
        if !header.has(flag::ACK) {
            frame::push_ping(&mut self.output, flag::ACK, payload);
            self.count_reply(payload.len())?;
        } else if self.ping_open && u64::from_be_bytes(payload) == self.ping {
            self.ping_open = false;
            self.events.push_back(Event::Pong);
        }
        self.count_idle_frame()
    }

    /// §6.8. A graceful shutdown starts with id 2^31-1, followed by the real last id.
    fn handle_go_away(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        let (Some(last_id), Some(code)) = (frame::number(payload), payload.get(4..).and_then(frame::number))
        else {
            return Err(ConnectionError::frame_size("GOAWAY is shorter than eight bytes"));
        };
        self.leaving = true;
        // The id must not rise; a higher one has no effect, as the streams above the first one were already
        // reset.
        let last_id = last_id & MAX_31_BITS;
        if last_id < self.last_id {
            self.last_id = last_id;
            self.reset_unprocessed(code);
        }
        let debug = &payload[8..payload.len().min(8 + DEBUG_BYTES_MAX)];
        let event = Event::GoAway { code, debug: Bytes::copy_from_slice(debug) };
        match self.events.back_mut() {
            // Replaces one that was not polled yet, so the event queue stays bounded.
            Some(last @ Event::GoAway { .. }) => *last = event,
            _ => self.events.push_back(event),
        }
        self.count_idle_frame()
    }

    /// Resets the streams above the peer's last id: it did not and will not process them, unless it responded
    /// already.
    fn reset_unprocessed(&mut self, code: u32) {
        let mut above: Vec<u32> = self.streams.keys().copied().filter(|id| *id > self.last_id).collect();
        above.sort_unstable();
        for id in above {
            if let Some(stream) = self.remove(id) {
                let processed = stream.response.is_some();
                self.events.push_back(Event::Reset { key: stream.key, code, processed });
            }
        }
    }

    /// §6.9.
    fn handle_window_update(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        let increment = number(payload, 4, "WINDOW_UPDATE is not four bytes long")? & MAX_31_BITS;
        self.count_idle_frame()?;
        if header.stream == 0 {
            return match increment {
                0 => Err(ConnectionError::protocol("WINDOW_UPDATE with an increment of 0")),
                _ => self.widen_connection(increment as i32),
            };
        }
        self.check_not_idle(header.stream)?;
        if !self.streams.contains_key(&header.stream) {
            return Ok(());
        }
        if increment == 0 {
            return self.reset(header.stream, code::PROTOCOL_ERROR);
        }
        match self.widen_stream(header.stream, increment as i32) {
            true => Ok(()),
            false => self.reset(header.stream, code::FLOW_CONTROL_ERROR),
        }
    }
}

/// Reads the number that is the first field of a payload of exactly `len` bytes.
fn number(payload: &[u8], len: usize, reason: &'static str) -> Result<u32, ConnectionError> {
    let number = frame::number(payload).filter(|_| payload.len() == len);
    number.ok_or(ConnectionError::frame_size(reason))
}
