//! Responses: collects header blocks and data of a stream until its end, then emits an event (RFC 9113 §8.1).
//! A malformed response resets its stream; one that exceeds a limit is truncated, since its status is still
//! useful.

use bytes::Bytes;

use super::receive::Block;
use super::{Connection, Event};
use crate::http2::error::{ConnectionError, code};
use crate::http2::frame::{self, Header, flag};
use crate::http2::headers::Section;
use crate::http2::stream::Response;

/// Limit of frames per header block: 16 full frames exceed any limit on its bytes, and empty frames serve no
/// purpose (RFC 9113 §10.5).
const BLOCK_FRAMES_MAX: u32 = 64;

impl Connection {
    /// §6.2.
    pub(super) fn handle_headers(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        self.check_not_idle(header.stream)?;
        let mut fragment = frame::unpad(header, payload)?;
        if header.has(flag::PRIORITY) {
            fragment =
                fragment.get(5..).ok_or(ConnectionError::frame_size("HEADERS too short for a priority"))?;
        }
        let end_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.handle_block(header.stream, end_stream, fragment);
        }
        self.block = Some(Block { stream: header.stream, end_stream, bytes: fragment.to_vec(), frames: 1 });
        Ok(())
    }

    /// §6.10. `check_order` verified that a block of this stream is open.
    pub(super) fn handle_continuation(
        &mut self,
        header: Header,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let Some(mut block) = self.block.take() else { return Ok(()) };
        block.frames += 1;
        if block.bytes.len() + payload.len() > self.block_bytes_max || block.frames > BLOCK_FRAMES_MAX {
            return Err(ConnectionError::flood("too many CONTINUATION frames"));
        }
        block.bytes.extend_from_slice(payload);
        if header.has(flag::END_HEADERS) {
            return self.handle_block(block.stream, block.end_stream, &block.bytes);
        }
        self.block = Some(block);
        Ok(())
    }

    fn handle_block(&mut self, id: u32, end_stream: bool, block: &[u8]) -> Result<(), ConnectionError> {
        let stream = self.streams.get(&id);
        let trailers = stream.is_some_and(|stream| stream.response.is_some());
        let wanted = stream.is_some();
        let mut section = Section::new(trailers, self.config.header_list_bytes_max);
        // §4.3: decodes blocks of closed streams too, since they change the table.
        let result = self.decoder.decode(block, &mut |name, value| {
            if wanted {
                section.take(name, value);
            }
        });
        result.map_err(|error| ConnectionError::new(code::COMPRESSION_ERROR, error.0))?;
        match (wanted, trailers) {
            (false, _) => self.count_idle_frame(),
            (true, false) => self.handle_response(id, end_stream, section),
            (true, true) => self.handle_trailers(id, end_stream, &section),
        }
    }

    fn handle_response(
        &mut self,
        id: u32,
        end_stream: bool,
        section: Section,
    ) -> Result<(), ConnectionError> {
        match section.status {
            _ if section.malformed.is_some() => self.reset(id, code::PROTOCOL_ERROR),
            0 if section.truncated => self.reset(id, code::ENHANCE_YOUR_CALM),
            0 => self.reset(id, code::PROTOCOL_ERROR),
            // §8.6: 101 is invalid in HTTP/2. §8.1: an interim response must not end the stream.
            101 => self.reset(id, code::PROTOCOL_ERROR),
            100..=199 if end_stream => self.reset(id, code::PROTOCOL_ERROR),
            100..=199 => self.count_idle_frame(),
            status => {
                let truncated = section.truncated;
                let response = Response {
                    status,
                    headers: section.headers,
                    content_length: section.content_length,
                    body: Vec::new(),
                };
                if end_stream || truncated {
                    return self.finish(id, response, end_stream, truncated);
                }
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.response = Some(Box::new(response));
                }
                Ok(())
            }
        }
    }

    /// §8.1: trailers end the stream.
    fn handle_trailers(
        &mut self,
        id: u32,
        end_stream: bool,
        section: &Section,
    ) -> Result<(), ConnectionError> {
        if section.malformed.is_some() || !end_stream {
            return self.reset(id, code::PROTOCOL_ERROR);
        }
        self.finish_open(id, true, false)
    }

    /// §6.1.
    pub(super) fn handle_data(&mut self, header: Header, payload: &[u8]) -> Result<(), ConnectionError> {
        let id = header.stream;
        self.check_not_idle(id)?;
        // §6.9.1: padding counts, and so does data for a closed stream.
        let bytes = payload.len() as i32;
        if bytes > self.receive_window {
            return Err(ConnectionError::flow_control("data exceeds the connection window"));
        }
        self.receive_window -= bytes;
        self.reopen_connection()?;
        let data = frame::unpad(header, payload)?;
        let end_stream = header.has(flag::END_STREAM);
        let Some(stream) = self.streams.get_mut(&id) else { return self.count_idle_frame() };
        if bytes > stream.receive_window {
            return self.reset(id, code::FLOW_CONTROL_ERROR);
        }
        stream.receive_window -= bytes;
        // §8.1: headers come first.
        let Some(response) = &mut stream.response else { return self.reset(id, code::PROTOCOL_ERROR) };
        let room = self.config.response_body_bytes_max - response.body.len();
        let taken = data.len().min(room);
        response.body.extend_from_slice(&data[..taken]);
        if end_stream || taken < data.len() {
            return self.finish_open(id, end_stream, taken < data.len());
        }
        if data.is_empty() {
            self.count_idle_frame()?;
        }
        self.reopen_stream(id)
    }

    /// Received data is consumed at once, so the window is restored when half of it is used.
    fn reopen_connection(&mut self) -> Result<(), ConnectionError> {
        let window = self.config.connection_window as i32;
        if self.receive_window >= window / 2 {
            return Ok(());
        }
        frame::push_window_update(&mut self.output, 0, (window - self.receive_window) as u32);
        self.receive_window = window;
        self.count_reply(4)
    }

    fn reopen_stream(&mut self, id: u32) -> Result<(), ConnectionError> {
        let window = self.config.stream_window as i32;
        match self.streams.get_mut(&id) {
            Some(stream) if stream.receive_window < window / 2 => {
                frame::push_window_update(&mut self.output, id, (window - stream.receive_window) as u32);
                stream.receive_window = window;
                self.count_reply(4)
            }
            _ => Ok(()),
        }
    }

    fn finish_open(&mut self, id: u32, ended: bool, truncated: bool) -> Result<(), ConnectionError> {
        let response = self.streams.get_mut(&id).and_then(|stream| stream.response.take());
        response.map_or(Ok(()), |response| self.finish(id, *response, ended, truncated))
    }

    /// Emits the response, complete or truncated.
    fn finish(
        &mut self,
        id: u32,
        response: Response,
        ended: bool,
        truncated: bool,
    ) -> Result<(), ConnectionError> {
        if ended && !truncated && !response.has_its_length() {
            return self.reset(id, code::PROTOCOL_ERROR);
        }
        let Some(stream) = self.remove(id) else { return Ok(()) };
        self.resets_in_a_row = 0;
        let Response { status, headers, body, .. } = response;
        self.events.push_back(Event::Response {
            key: stream.key,
            status,
            headers,
            body: Bytes::from(body),
            truncated,
        });
        if ended && stream.unsent.is_empty() {
            return Ok(());
        }
        // §8.1: a peer that responded before it had our whole body does not need the rest.
        frame::push_rst_stream(&mut self.output, id, code::CANCEL);
        self.count_reply(4)
    }
}

impl Response {
    /// §8.1.1: the data must be as long as the content length, unless the status implies no content.
    fn has_its_length(&self) -> bool {
        let without_content = self.body.is_empty() && matches!(self.status, 204 | 304);
        self.content_length.is_none_or(|length| length == self.body.len() as u64) || without_content
    }
}
