//! What a decoder reports: messages, control frames and fragments, borrowed from its buffers.

use super::frame::Opcode;

/// A whole message or control frame, or a fragment of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input<'a> {
    /// A text message.
    Text(&'a str),
    /// A binary message.
    Binary(&'a [u8]),
    /// A text or binary message, for [`super::Inflater::inflate`].
    Deflated(Deflated<'a>),
    /// To be answered with a pong of the same content.
    Ping(&'a [u8]),
    /// An answer to a ping.
    Pong(&'a [u8]),
    /// `code` is `None` if the frame was empty (RFC 6455 §7.1.5).
    Close { code: Option<u16>, reason: &'a str },
    /// A frame of an incomplete message. It needs no action, but callers count it, since a message may have
    /// any number of empty frames.
    Fragment,
}

/// A complete compressed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflated<'a> {
    /// Text or binary.
    pub opcode: Opcode,
    pub payload: &'a [u8],
}
