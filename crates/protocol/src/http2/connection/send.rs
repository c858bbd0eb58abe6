//! Outgoing requests: HEADERS, and as much of the body as the peer's windows allow (RFC 9113 §5.2, §6.9).

use bytes::{Buf, Bytes};

use super::{Closed, Connection, Head, Key};
use crate::http2::error::ConnectionError;
use crate::http2::frame::{self, HEADER_BYTES, Header, PAYLOAD_BYTES_MAX, flag, kind};
use crate::http2::stream::Stream;

/// Indexes in HPACK's static table (RFC 7541 appendix A).
const METHOD_GET: usize = 2;
const METHOD_POST: usize = 3;
const SCHEME_HTTPS: usize = 7;

impl Connection {
    /// Opens a stream. The part of the body that exceeds the peer's windows waits here.
    pub fn request(&mut self, key: Key, head: &Head<'_>, body: Bytes) -> Result<(), Closed> {
        if self.room() == 0 {
            return Err(Closed);
        }
        let id = self.next_id;
        self.next_id += 2;
        self.idle_frames = 0;
        self.push_head(id, head, body.is_empty());
        let mut stream = Stream {
            key,
            send_window: self.peer_window,
            receive_window: self.config.stream_window as i32,
            unsent: body,
            queued: false,
            response: None,
        };
        if !stream.unsent.is_empty() {
            send_body(&mut self.output, &mut self.send_window, id, &mut stream);
            stream.queued = waits_for_connection(&stream);
            if stream.queued {
                self.queue.push_back(id);
            }
        }
        self.streams.insert(id, stream);
        Ok(())
    }

    fn push_head(&mut self, id: u32, head: &Head<'_>, end_stream: bool) {
        let start = self.output.len();
        frame::push_header(&mut self.output, kind::HEADERS, 0, id, 0);
        let out = &mut self.output;
        let encoder = &mut self.encoder;
        encoder.begin(out);
        match head.method {
            "POST" => encoder.static_field(METHOD_POST, out),
            "GET" => encoder.static_field(METHOD_GET, out),
            method => encoder.field(b":method", method.as_bytes(), true, out),
        }
        encoder.static_field(SCHEME_HTTPS, out);
        encoder.field(b":authority", head.authority.as_bytes(), true, out);
        // A path that differs each time names a device; one that occurs twice in a row will repeat.
        let repeats = self.path == head.path;
        encoder.field(b":path", head.path.as_bytes(), repeats, out);
        if !repeats {
            self.path.clear();
            self.path.push_str(head.path);
        }
        for field in head.headers {
            encoder.field(field.name.as_bytes(), field.value, field.indexed, out);
        }
        self.frame_head(start, id, if end_stream { flag::END_STREAM } else { 0 });
    }

    /// Writes the frame header into its reserved place, and CONTINUATION headers between the pieces of a
    /// block longer than a frame (§6.10).
    fn frame_head(&mut self, start: usize, stream: u32, end_stream: u8) {
        let block = start + HEADER_BYTES;
        let len = self.output.len() - block;
        let (first, flags) = match len <= PAYLOAD_BYTES_MAX {
            true => (len, end_stream | flag::END_HEADERS),
            false => (PAYLOAD_BYTES_MAX, end_stream),
        };
        let header = Header { len: first, kind: kind::HEADERS, flags, stream };
        self.output[start..block].copy_from_slice(&header.bytes());
        if len <= PAYLOAD_BYTES_MAX {
            return;
        }
        let rest = self.output.split_off(block + first);
        let mut pieces = rest.chunks(PAYLOAD_BYTES_MAX).peekable();
        while let Some(piece) = pieces.next() {
            let flags = if pieces.peek().is_none() { flag::END_HEADERS } else { 0 };
            frame::push_header(&mut self.output, kind::CONTINUATION, flags, stream, piece.len());
            self.output.extend_from_slice(piece);
        }
    }

    /// Applies a WINDOW_UPDATE for the connection: the stream that has waited longest sends first.
    pub(super) fn widen_connection(&mut self, increment: i32) -> Result<(), ConnectionError> {
        // §6.9.1
        let window = self.send_window.checked_add(increment);
        self.send_window =
            window.ok_or(ConnectionError::flow_control("the connection window exceeds 2^31-1"))?;
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        while self.send_window > 0 {
            let Some(id) = self.queue.pop_front() else { return };
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            send_body(&mut self.output, &mut self.send_window, id, stream);
            stream.queued = waits_for_connection(stream);
            if stream.queued {
                self.queue.push_front(id);
            }
        }
    }

    /// Changes a stream's window; returns false if it would exceed 2^31-1. A lowered initial window may make
    /// it negative (§6.9.2).
    pub(super) fn widen_stream(&mut self, id: u32, change: i32) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return true };
        let Some(window) = stream.send_window.checked_add(change) else { return false };
        stream.send_window = window;
        if stream.queued || stream.unsent.is_empty() || window <= 0 {
            return true;
        }
        send_body(&mut self.output, &mut self.send_window, id, stream);
        stream.queued = waits_for_connection(stream);
        if stream.queued {
            self.queue.push_back(id);
        }
        true
    }

    /// SETTINGS_INITIAL_WINDOW_SIZE also applies to open streams (§6.9.2).
    pub(super) fn change_peer_window(&mut self, bytes: i32) -> Result<(), ConnectionError> {
        if bytes == self.peer_window {
            return Ok(());
        }
        // Both are 31-bit numbers.
        let change = bytes - self.peer_window;
        self.peer_window = bytes;
        let mut open: Vec<u32> = self.streams.keys().copied().collect();
        open.sort_unstable();
        match open.into_iter().all(|id| self.widen_stream(id, change)) {
            true => Ok(()),
            false => {
                Err(ConnectionError::flow_control("SETTINGS_INITIAL_WINDOW_SIZE overflows a stream window"))
            }
        }
    }

    /// Removes a stream, also from the queue.
    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        let stream = self.streams.remove(&id)?;
        if stream.queued {
            self.queue.retain(|other| *other != id);
        }
        Some(stream)
    }
}

fn waits_for_connection(stream: &Stream) -> bool {
    !stream.unsent.is_empty() && stream.send_window > 0
}

/// Writes as much of the body as both windows allow, with END_STREAM at its end.
fn send_body(out: &mut Vec<u8>, connection_window: &mut i32, id: u32, stream: &mut Stream) {
    loop {
        let window = (*connection_window).min(stream.send_window).max(0) as usize;
        let len = stream.unsent.len().min(window).min(PAYLOAD_BYTES_MAX);
        if len == 0 {
            return;
        }
        let flags = if len == stream.unsent.len() { flag::END_STREAM } else { 0 };
        frame::push_header(out, kind::DATA, flags, id, len);
        out.extend_from_slice(&stream.unsent[..len]);
        stream.unsent.advance(len);
        *connection_window -= len as i32;
        stream.send_window -= len as i32;
    }
}
