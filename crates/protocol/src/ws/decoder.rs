//! The frame decoder of both ends. It accepts bytes in arbitrary pieces and reports whole messages and
//! control frames in order, borrowed from the caller's buffer where a frame arrived in one piece.
//!
//! Invariants: only an incomplete frame or fragmented message is buffered; the buffer is bounded by the
//! message limit and grows with the bytes received, not with the announced length; text is validated as it
//! arrives, so invalid UTF-8 fails at its first wrong byte. After an error or a break the decoder is empty,
//! and must not be fed again.

use std::fmt;
use std::ops::ControlFlow;

use super::error::WsError;
use super::frame::{Expected, HEADER_BYTES_MAX, Header, Opcode, Role};
use super::input::{Deflated, Input};
use super::mask;

/// Properties of the connection that the decoder needs.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub role: Role,
    /// permessage-deflate was negotiated.
    pub deflates: bool,
    /// Limit of a message as received; the inflater limits the size of a decompressed one.
    pub message_bytes_max: usize,
}

impl Terms {
    fn expected(self, mid_message: bool, room: usize) -> Expected {
        Expected { role: self.role, deflates: self.deflates, mid_message, room }
    }
}

/// The state between reads: one pointer, null while nothing is incomplete.
#[derive(Default)]
pub struct Decoder {
    partial: Option<Box<Partial>>,
}

// Each of a million idle connections holds one.
const _: () = assert!(size_of::<Decoder>() == 8);

/// The incomplete part: a header, a frame's payload, or a fragmented message between two frames.
#[derive(Default)]
struct Partial {
    header: [u8; HEADER_BYTES_MAX],
    /// Bytes of `header` received; 0 while a payload is being received.
    header_len: usize,
    /// The frame whose payload is being received.
    frame: Option<Frame>,
    /// The opcode of the open message, text or binary.
    message: Option<Opcode>,
    /// Whether the message is compressed.
    deflated: bool,
    data: Vec<u8>,
    /// Only for uncompressed text: `data[..utf8_len]` is valid UTF-8; at most 3 bytes of a split character
    /// follow.
    utf8_len: usize,
    /// The payload of an incomplete control frame, which may occur between fragments (RFC 6455 §5.4).
    control: Vec<u8>,
}

struct Frame {
    header: Header,
    /// `0 <= received <= header.payload_len`
    received: usize,
}

impl Decoder {
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// Consumes all of `bytes`, unmasking in place, and calls `on` for every complete message and control
    /// frame. A break from `on` drops the rest.
    pub fn feed(
        &mut self,
        role: Role,
        bytes: &mut [u8],
        message_bytes_max: usize,
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<(), WsError> {
        self.feed_with_terms(Terms { role, deflates: false, message_bytes_max }, bytes, on)
    }

    /// [`Decoder::feed`] for a connection that may use an extension.
    pub fn feed_with_terms(
        &mut self,
        terms: Terms,
        bytes: &mut [u8],
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<(), WsError> {
        let result = self.advance(terms, bytes, on);
        if !matches!(result, Ok(ControlFlow::Continue(()))) {
            self.partial = None;
        }
        result.map(drop)
    }

    /// Whether nothing is incomplete, so nothing is buffered.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Heap bytes held for an incomplete part.
    pub fn held_bytes(&self) -> usize {
        self.partial
            .as_ref()
            .map_or(0, |partial| size_of::<Partial>() + partial.data.capacity() + partial.control.capacity())
    }

    fn advance(
        &mut self,
        terms: Terms,
        mut rest: &mut [u8],
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, WsError> {
        while !rest.is_empty() {
            let flow = match &mut self.partial {
                None => match whole_frame(terms, &mut rest)? {
                    Some((header, payload)) => deliver(header.opcode, header.deflated, payload, on)?,
                    None => {
                        self.partial = Some(Box::default());
                        continue;
                    }
                },
                Some(partial) => {
                    let flow = partial.advance(terms, &mut rest, on)?;
                    if partial.is_spent() {
                        self.partial = None;
                    }
                    flow
                }
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl fmt::Debug for Decoder {
    /// Omits the bytes, which may contain a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({} bytes held)", self.held_bytes())
    }
}

/// Removes a complete, unfragmented frame from the front of `rest`: the usual case, which copies nothing.
fn whole_frame<'a>(terms: Terms, rest: &mut &'a mut [u8]) -> Result<Option<(Header, &'a [u8])>, WsError> {
    let expected = terms.expected(false, terms.message_bytes_max);
    let Some((header, header_len)) = Header::parse(rest, expected)? else { return Ok(None) };
    if !header.fin || rest.len() - header_len < header.payload_len {
        return Ok(None);
    }
    let (frame, after) = std::mem::take(rest).split_at_mut(header_len + header.payload_len);
    *rest = after;
    let payload = &mut frame[header_len..];
    mask::apply(header.mask, 0, payload);
    Ok(Some((header, payload)))
}

impl Partial {
    fn is_spent(&self) -> bool {
        self.header_len == 0 && self.frame.is_none() && self.message.is_none()
    }

    /// Consumes as much of the header or payload as `rest` contains.
    fn advance(
        &mut self,
        terms: Terms,
        rest: &mut &mut [u8],
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, WsError> {
        let mut frame = match self.frame.take() {
            Some(frame) => frame,
            None => match self.header(terms, rest)? {
                Some(header) => Frame { header, received: 0 },
                None => return Ok(ControlFlow::Continue(())),
            },
        };
        let chunk_len = rest.len().min(frame.header.payload_len - frame.received);
        let (chunk, after) = std::mem::take(rest).split_at_mut(chunk_len);
        *rest = after;
        mask::apply(frame.header.mask, frame.received, chunk);
        self.keep(&frame, chunk)?;
        frame.received += chunk_len;
        if frame.received < frame.header.payload_len {
            self.frame = Some(frame);
            return Ok(ControlFlow::Continue(()));
        }
        self.finish(frame.header, on)
    }

    /// Completes the header from the front of `rest`; `None` if it is still incomplete.
    fn header(&mut self, terms: Terms, rest: &mut &mut [u8]) -> Result<Option<Header>, WsError> {
        let had = self.header_len;
        let more = rest.len().min(HEADER_BYTES_MAX - had);
        self.header[had..had + more].copy_from_slice(&rest[..more]);
        let room = terms.message_bytes_max.saturating_sub(self.data.len());
        let expected = terms.expected(self.message.is_some(), room);
        let parsed = Header::parse(&self.header[..had + more], expected)?;
        // Incomplete only if it consumed all of `rest`: no header is longer than HEADER_BYTES_MAX.
        self.header_len = if parsed.is_some() { 0 } else { had + more };
        let taken = parsed.map_or(more, |(_, len)| len - had);
        *rest = &mut std::mem::take(rest)[taken..];
        if let Some((Header { opcode: opcode @ (Opcode::Text | Opcode::Binary), deflated, .. }, _)) = parsed {
            (self.message, self.deflated) = (Some(opcode), deflated);
        }
        Ok(parsed.map(|(header, _)| header))
    }

    /// Appends unmasked payload bytes and validates text as far as possible.
    fn keep(&mut self, frame: &Frame, chunk: &[u8]) -> Result<(), WsError> {
        if frame.header.opcode.is_control() {
            self.control.extend_from_slice(chunk);
            return Ok(());
        }
        let missing = frame.header.payload_len - frame.received;
        reserve(&mut self.data, chunk.len(), missing);
        self.data.extend_from_slice(chunk);
        if self.message == Some(Opcode::Text) && !self.deflated {
            match std::str::from_utf8(&self.data[self.utf8_len..]) {
                Ok(_) => self.utf8_len = self.data.len(),
                // The data ends within a character; the rest may follow.
                Err(error) if error.error_len().is_none() => self.utf8_len += error.valid_up_to(),
                Err(_) => return Err(WsError::InvalidUtf8),
            }
        }
        Ok(())
    }

    /// Completes a frame: delivers a control frame, or the open message if this was its last frame.
    fn finish(
        &mut self,
        header: Header,
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, WsError> {
        if header.opcode.is_control() {
            return deliver(header.opcode, false, &std::mem::take(&mut self.control), on);
        }
        match self.message {
            Some(opcode) if header.fin => {
                self.message = None;
                self.utf8_len = 0;
                deliver(opcode, self.deflated, &std::mem::take(&mut self.data), on)
            }
            _ => Ok(on(Input::Fragment)),
        }
    }
}

/// Reserves space for `more` bytes of a frame that lacks `missing`: doubles, so that a long message is copied
/// a bounded number of times, but never beyond the frame's end.
fn reserve(data: &mut Vec<u8>, more: usize, missing: usize) {
    if data.capacity() - data.len() < more {
        data.reserve_exact(more.max(data.len()).min(missing));
    }
}

fn deliver(
    opcode: Opcode,
    deflated: bool,
    payload: &[u8],
    on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, WsError> {
    let input = match opcode {
        _ if deflated => Input::Deflated(Deflated { opcode, payload }),
        Opcode::Text => Input::Text(std::str::from_utf8(payload).map_err(|_| WsError::InvalidUtf8)?),
        // A continuation never gets here: it is delivered with the opcode of its message.
        Opcode::Binary | Opcode::Continuation => Input::Binary(payload),
        Opcode::Ping => Input::Ping(payload),
        Opcode::Pong => Input::Pong(payload),
        Opcode::Close => close(payload)?,
    };
    Ok(on(input))
}

/// RFC 6455 §5.5.1: empty, or a code and a reason.
fn close(payload: &[u8]) -> Result<Input<'_>, WsError> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload.is_empty() {
            true => Ok(Input::Close { code: None, reason: "" }),
            false => Err(WsError::Protocol("the payload of a close frame is one byte long")),
        };
    };
    let code = u16::from_be_bytes(*code);
    // §7.4: the codes registered for the wire, and 3000 to 4999 for libraries and applications. 1004 to 1006
    // and 1015 must never be sent.
    if !matches!(code, 1000..=1003 | 1007..=1011 | 3000..=4999) {
        return Err(WsError::Protocol("the close code is invalid"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| WsError::InvalidUtf8)?;
    Ok(Input::Close { code: Some(code), reason })
}

#[cfg(test)]
mod tests;
