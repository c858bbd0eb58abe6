//! What comes in: frames put together from any split, checked and taken to their stream, or applied to the
//! connection (RFC 9113 §4, §6). Everything that breaks the connection's rules is an error with its code.

use bytes::Bytes;

use super::{Connection, Event, IDLE_FRAMES_MAX, REPLIES_BYTES_MAX, RESETS_IN_A_ROW_MAX};
use crate::http2::error::{ConnectionError, code};
use crate::http2::frame::{self, HEADER_BYTES, Header, MAX_31_BITS, PAYLOAD_BYTES_MAX, flag, kind};
use crate::http2::settings::{self, Setting};

/// A header block of several frames (§6.10).
pub(super) struct Block {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) bytes: Vec<u8>,
    pub(super) frames: u32,
}

/// Of a GOAWAY: a push service says a reason there.
const DEBUG_BYTES_MAX: usize = 1024;

impl Connection {
    /// Takes bytes as they were read, in any split. After an error the connection is over: its GOAWAY waits in
    /// the output, and [`Connection::into_open`] tells whose fate is unknown.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<(), ConnectionError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        // What was written since is gone from the output.
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

    /// Takes the rest of the frame that was cut, or all there is of it. Leaves `partial` empty if the frame
    /// was completed, and `bytes` if it was not.
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

    /// What a frame's header says already, before its payload is waited for.
    fn check_order(&self, header: Header) -> Result<(), ConnectionError> {
        // §3.4. A server of HTTP/1.1 ends here too.
        if !self.greeted && (header.kind != kind::SETTINGS || header.has(flag::ACK)) {
            return Err(ConnectionError::protocol("a server that does not begin with SETTINGS"));
        }
        // §4.2
        if header.len > PAYLOAD_BYTES_MAX {
            return Err(ConnectionError::frame_size("a frame over 16,384 bytes"));
        }
        // §6.10
        match &self.block {
            Some(block) if header.kind != kind::CONTINUATION || header.stream != block.stream => {
                Err(ConnectionError::protocol("another frame within a header block"))
            }
            None if header.kind == kind::CONTINUATION => {
                Err(ConnectionError::protocol("a continuation of no header block"))
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
            kind::PUSH_PROMISE => Err(ConnectionError::protocol("a push promise")),
            // §5.3.2: priorities are ignored.
            kind::PRIORITY if header.stream == 0 => Err(ConnectionError::protocol("a priority of no stream")),
            // §6.3
            kind::PRIORITY if payload.len() != 5 => self.reset(header.stream, code::FRAME_SIZE_ERROR),
            // §4.1: what is not known is ignored.
            _ => self.count_idle_frame(),
        }
    }

    /// A frame that brought nothing: an honest peer sends few.
    pub(super) fn count_idle_frame(&mut self) -> Result<(), ConnectionError> {
        self.idle_frames += 1;
        match self.idle_frames > IDLE_FRAMES_MAX {
            true => Err(ConnectionError::flood("too many frames of no use")),
            false => Ok(()),
        }
    }

    /// An answer was added to the output.
    pub(super) fn count_reply(&mut self, payload_bytes: usize) -> Result<(), ConnectionError> {
        self.replies += HEADER_BYTES + payload_bytes;
        match self.replies > REPLIES_BYTES_MAX {
            true => Err(ConnectionError::flood("questions without reading the answers")),
            false => Ok(()),
        }
    }

    /// §5.1: a stream not opened yet. One that is closed may hear late frames, as the peer may have sent them
    /// before our RST_STREAM arrived; who closed it is not remembered.
    pub(super) fn check_not_idle(&self, id: u32) -> Result<(), ConnectionError> {
        match id {
            0 => Err(ConnectionError::protocol("a stream's frame on no stream")),
            _ if id.is_multiple_of(2) => Err(ConnectionError::protocol("a stream that only a push opens")),
            _ if id >= self.next_id => Err(ConnectionError::protocol("a stream that was not opened")),
            _ => Ok(()),
        }
    }

    /// §5.4.2: ends one stream for the peer's fault.
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
            true => Err(ConnectionError::flood("resets and no response")),
            false => Ok(()),
        }
    }

    /// §6.4.
    fn handle_rst_stream(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        self.check_not_idle(header.stream)?;
        let code = number(payload, 4, "RST_STREAM that is not of four bytes")?;
        let Some(stream) = self.remove(header.stream) else { return self.count_idle_frame() };
        // §8.7. One that answered did process.
        let processed = code != code::REFUSED_STREAM || stream.response.is_some();
        self.events.push_back(Event::Reset { key: stream.key, code, processed });
        self.count_reset()
    }

    /// §6.5.
    fn handle_settings(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS of a stream"));
        }
        if header.has(flag::ACK) {
            return match payload.is_empty() {
                true => self.count_idle_frame(),
                false => Err(ConnectionError::frame_size("an acknowledgement with settings")),
            };
        }
        // §6.5.2: no limit until it says one.
        if !self.greeted {
            self.greeted = true;
            self.peer_streams = usize::MAX;
        }
        // All apply at once (§6.5.3), so of several initial windows the last one counts: each would be a
        // walk over all streams.
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
            return Err(ConnectionError::protocol("a ping of a stream"));
        }
        let payload: [u8; 8] =
            payload.try_into().map_err(|_| ConnectionError::frame_size("PING that is not of eight bytes"))?;
        if !header.has(flag::ACK) {
            frame::push_ping(&mut self.output, flag::ACK, payload);
            self.count_reply(payload.len())?;
        } else if self.ping_open && u64::from_be_bytes(payload) == self.ping {
            self.ping_open = false;
            self.events.push_back(Event::Pong);
        }
        self.count_idle_frame()
    }

    /// §6.8. A graceful end begins with 2^31-1, to be followed by what is really the last.
    fn handle_go_away(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY of a stream"));
        }
        let (Some(last_id), Some(code)) = (frame::number(payload), payload.get(4..).and_then(frame::number))
        else {
            return Err(ConnectionError::frame_size("GOAWAY of less than eight bytes"));
        };
        self.leaving = true;
        // It must not rise; one that does changes nothing, as what was above is given back already.
        let last_id = last_id & MAX_31_BITS;
        if last_id < self.last_id {
            self.last_id = last_id;
            self.give_back(code);
        }
        let debug = &payload[8..payload.len().min(8 + DEBUG_BYTES_MAX)];
        let event = Event::GoAway { code, debug: Bytes::copy_from_slice(debug) };
        match self.events.back_mut() {
            // One that nobody heard yet is replaced: what waits stays bounded.
            Some(last @ Event::GoAway { .. }) => *last = event,
            _ => self.events.push_back(event),
        }
        self.count_idle_frame()
    }

    /// Streams above the peer's last one: it did nothing with them and will not, unless it answered already.
    fn give_back(&mut self, code: u32) {
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
        let increment = number(payload, 4, "WINDOW_UPDATE that is not of four bytes")? & MAX_31_BITS;
        self.count_idle_frame()?;
        if header.stream == 0 {
            return match increment {
                0 => Err(ConnectionError::protocol("a window update by nothing")),
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

/// The only number of a payload that has to have `len` bytes.
fn number(payload: &[u8], len: usize, reason: &'static str) -> Result<u32, ConnectionError> {
    let number = frame::number(payload).filter(|_| payload.len() == len);
    number.ok_or(ConnectionError::frame_size(reason))
}
