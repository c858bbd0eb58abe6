//! The frame decoder of both ends. It takes bytes as the transport cut them and reports whole messages
//! and control frames, in order, borrowed from the caller's buffer wherever a frame arrived in one piece.
//!
//! Invariants: nothing is held unless a frame or a fragmented message is incomplete; what is held is
//! bounded by the message limit and grows with the bytes received, never with the length announced; text
//! is checked as it arrives, so broken UTF-8 fails at its first wrong byte. After an error or a break the
//! decoder is empty, and the connection is over: it must not be fed again.

use std::fmt;
use std::ops::ControlFlow;

use noroshi_types::CloseReason;

use super::deflate::Deflated;
use super::frame::{Expected, HEADER_BYTES_MAX, Header, Opcode};
use super::mask;

/// Which end decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Frames must be masked (RFC 6455 §5.1).
    Server,
    /// Frames must not be masked.
    Client,
}

/// What a decoder has to know of its connection.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    pub role: Role,
    /// permessage-deflate was agreed on.
    pub deflates: bool,
    /// Of a message as it comes; what a compressed one becomes is bounded where it is inflated.
    pub message_bytes_max: usize,
}

impl Terms {
    fn expected(self, mid_message: bool, room: usize) -> Expected {
        Expected { role: self.role, deflates: self.deflates, mid_message, room }
    }
}

/// A whole message or control frame, or that a part of a message came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
    /// A text or binary message, for [`super::Inflater::inflate`].
    Deflated(Deflated<'a>),
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    /// No code where the frame was empty (RFC 6455 §7.1.5).
    Close {
        code: Option<u16>,
        reason: &'a str,
    },
    /// A frame of a message whose end is still to come: nothing to do, but one to be counted, since a
    /// message may have any number of empty ones.
    Fragment,
}

/// Why the peer's bytes end the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WsError {
    #[error("{0}")]
    Protocol(&'static str),
    #[error("a text that is not UTF-8")]
    InvalidUtf8,
    #[error("a message over the size limit")]
    TooBig,
}

impl WsError {
    pub fn reason(&self) -> CloseReason {
        match self {
            WsError::Protocol(_) => CloseReason::ProtocolError,
            WsError::InvalidUtf8 => CloseReason::InvalidUtf8,
            WsError::TooBig => CloseReason::TooBig,
        }
    }
}

/// The state between reads: one pointer, null while nothing is incomplete.
#[derive(Default)]
pub struct Decoder {
    partial: Option<Box<Partial>>,
}

// A million idle connections carry one each.
const _: () = assert!(size_of::<Decoder>() == 8);

/// What is incomplete: a header, or a frame's payload, or a fragmented message between two frames.
#[derive(Default)]
struct Partial {
    header: [u8; HEADER_BYTES_MAX],
    /// Bytes of `header` received; 0 while a payload is being received.
    header_len: usize,
    /// The frame whose payload is being received.
    frame: Option<Frame>,
    /// Text or binary: the message that is open.
    message: Option<Opcode>,
    /// It is compressed.
    deflated: bool,
    data: Vec<u8>,
    /// Text that is not compressed only: `data[..utf8_len]` is known to be UTF-8; at most 3 bytes of a cut character follow.
    utf8_len: usize,
    /// The payload of an incomplete control frame, which may stand between fragments (RFC 6455 §5.4).
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

    /// Consumes all of `bytes`, unmasking in place, and calls `on` for every message and control frame
    /// that is complete. A break from `on` drops the rest.
    pub fn feed(
        &mut self,
        role: Role,
        bytes: &mut [u8],
        message_bytes_max: usize,
        on: &mut impl FnMut(Input<'_>) -> ControlFlow<()>,
    ) -> Result<(), WsError> {
        self.feed_by(Terms { role, deflates: false, message_bytes_max }, bytes, on)
    }

    /// [`Decoder::feed`] of a connection that may have agreed on an extension.
    pub fn feed_by(
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

    /// Whether nothing is incomplete, which is when nothing is held.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Heap bytes held for what is incomplete.
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
    /// Not the bytes: they may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({} bytes held)", self.held_bytes())
    }
}

/// Takes an unfragmented frame off the front of `rest` if all of it is there: the usual case, and the
/// one that copies nothing.
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

    /// Takes the rest of a header, or the rest of a payload, or all there is of it.
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

    /// Completes the header with the front of `rest`; `None` if it is still not complete.
    fn header(&mut self, terms: Terms, rest: &mut &mut [u8]) -> Result<Option<Header>, WsError> {
        let had = self.header_len;
        let more = rest.len().min(HEADER_BYTES_MAX - had);
        self.header[had..had + more].copy_from_slice(&rest[..more]);
        let room = terms.message_bytes_max.saturating_sub(self.data.len());
        let expected = terms.expected(self.message.is_some(), room);
        let parsed = Header::parse(&self.header[..had + more], expected)?;
        // Not complete only if all of `rest` went into it: no header is longer than HEADER_BYTES_MAX.
        self.header_len = if parsed.is_some() { 0 } else { had + more };
        let taken = parsed.map_or(more, |(_, len)| len - had);
        *rest = &mut std::mem::take(rest)[taken..];
        if let Some((Header { opcode: opcode @ (Opcode::Text | Opcode::Binary), deflated, .. }, _)) = parsed {
            (self.message, self.deflated) = (Some(opcode), deflated);
        }
        Ok(parsed.map(|(header, _)| header))
    }

    /// Keeps unmasked payload bytes, checking text as far as it goes.
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
                // A character cut by the end of what is here: the rest of it may come.
                Err(error) if error.error_len().is_none() => self.utf8_len += error.valid_up_to(),
                Err(_) => return Err(WsError::InvalidUtf8),
            }
        }
        Ok(())
    }

    /// A frame is complete: a control frame is due, and the open message too if this was its end.
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

/// Makes room for `more` bytes of a frame that has `missing` to come: doubling, so a long message is
/// copied a bounded number of times, but never past the frame's end.
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
        // A continuation never gets here: it is delivered as what its message began as.
        Opcode::Binary | Opcode::Continuation => Input::Binary(payload),
        Opcode::Ping => Input::Ping(payload),
        Opcode::Pong => Input::Pong(payload),
        Opcode::Close => close(payload)?,
    };
    Ok(on(input))
}

/// RFC 6455 §5.5.1: nothing, or a code and a reason.
fn close(payload: &[u8]) -> Result<Input<'_>, WsError> {
    let Some((code, reason)) = payload.split_first_chunk::<2>() else {
        return match payload.is_empty() {
            true => Ok(Input::Close { code: None, reason: "" }),
            false => Err(WsError::Protocol("a close frame of one byte")),
        };
    };
    let code = u16::from_be_bytes(*code);
    // §7.4: those registered for the wire, and 3000 to 4999 for libraries and applications. 1004 to 1006
    // and 1015 must never be sent.
    if !matches!(code, 1000..=1003 | 1007..=1011 | 3000..=4999) {
        return Err(WsError::Protocol("a close code that must not be sent"));
    }
    let reason = std::str::from_utf8(reason).map_err(|_| WsError::InvalidUtf8)?;
    Ok(Input::Close { code: Some(code), reason })
}

#[cfg(test)]
mod tests;
