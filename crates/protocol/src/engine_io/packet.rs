//! One packet (EIO "Packet encoding"): a type digit and its data, or bytes. A packet is a whole WebSocket
//! message, or a record of a long-polling payload, where bytes are encoded as `b` and base64.
//!
//! The data of `close`, `upgrade` and `noop` packets has no meaning in the specification and is ignored.

use bytes::Bytes;
use noroshi_types::CloseReason;

/// The payload of a message packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

/// A received packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// Sent by servers only.
    Open(&'a str),
    Close,
    Ping(&'a str),
    Pong(&'a str),
    Message(Data<'a>),
    Upgrade,
    Noop,
}

impl<'a> Packet<'a> {
    /// Parses a text message of a WebSocket.
    pub fn from_text(text: &'a str) -> Result<Self, PacketError> {
        let mut chars = text.chars();
        let kind = chars.next().ok_or(PacketError::Empty)?;
        let rest = chars.as_str();
        Ok(match kind {
            '0' => Packet::Open(rest),
            '1' => Packet::Close,
            '2' => Packet::Ping(rest),
            '3' => Packet::Pong(rest),
            '4' => Packet::Message(Data::Text(rest)),
            '5' => Packet::Upgrade,
            '6' => Packet::Noop,
            _ => return Err(PacketError::UnknownType),
        })
    }

    /// Parses a binary message of a WebSocket, which is always a message packet, "sent as is".
    pub fn from_binary(bytes: &'a [u8]) -> Self {
        Packet::Message(Data::Binary(bytes))
    }
}

/// Why bytes are not a valid packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("the packet has no type")]
    Empty,
    #[error("the packet type is unknown")]
    UnknownType,
    #[error("the binary packet is not valid base64")]
    Base64,
    #[error("the text packet is not valid UTF-8")]
    InvalidUtf8,
    #[error("the payload exceeds the size limit")]
    TooBig,
}

impl PacketError {
    pub fn reason(self) -> CloseReason {
        match self {
            PacketError::Empty | PacketError::UnknownType | PacketError::Base64 => CloseReason::BadMessage,
            PacketError::InvalidUtf8 => CloseReason::InvalidUtf8,
            PacketError::TooBig => CloseReason::TooBig,
        }
    }
}

/// A packet to send. Cloning is cheap: a message for many sessions is encoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// Starts with the type digit.
    Text(Bytes),
    /// A binary message.
    Binary(Bytes),
}

impl Outgoing {
    pub const CLOSE: Outgoing = Outgoing::Text(Bytes::from_static(b"1"));
    pub const PING: Outgoing = Outgoing::Text(Bytes::from_static(b"2"));
    pub const PROBE_ANSWER: Outgoing = Outgoing::Text(Bytes::from_static(b"3probe"));
    pub const NOOP: Outgoing = Outgoing::Text(Bytes::from_static(b"6"));

    /// A message packet that carries `data`.
    pub fn message(data: Data<'_>) -> Self {
        match data {
            Data::Text(text) => Outgoing::Text([b"4", text.as_bytes()].concat().into()),
            Data::Binary(bytes) => Outgoing::Binary(Bytes::copy_from_slice(bytes)),
        }
    }

    /// Heap bytes that the packet holds while it is queued.
    pub fn held_bytes(&self) -> usize {
        let (Outgoing::Text(bytes) | Outgoing::Binary(bytes)) = self;
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_types_are_digits() {
        let check = |text, expected| assert_eq!(Packet::from_text(text), expected, "{text:?}");
        check("0{}", Ok(Packet::Open("{}")));
        check("1", Ok(Packet::Close));
        check("2", Ok(Packet::Ping("")));
        check("2probe", Ok(Packet::Ping("probe")));
        check("3", Ok(Packet::Pong("")));
        check("3probe", Ok(Packet::Pong("probe")));
        check("4", Ok(Packet::Message(Data::Text(""))));
        check("4€", Ok(Packet::Message(Data::Text("€"))));
        check("44", Ok(Packet::Message(Data::Text("4"))));
        check("5", Ok(Packet::Upgrade));
        check("6", Ok(Packet::Noop));
        check("", Err(PacketError::Empty));
        // Base64 is used by long polling only; a WebSocket has binary frames.
        for unknown in ["7", "9", "abc", "bAQID", " 4", "-1", "\u{1e}", "４hello", "\0"] {
            check(unknown, Err(PacketError::UnknownType));
        }
        assert_eq!(Packet::from_binary(b"4"), Packet::Message(Data::Binary(b"4")));
    }

    #[test]
    fn text_messages_have_a_type_digit_and_binary_ones_have_none() {
        assert_eq!(Outgoing::message(Data::Text("hello")), Outgoing::Text("4hello".into()));
        let bytes = Outgoing::message(Data::Binary(&[1, 2]));
        assert_eq!(bytes, Outgoing::Binary(vec![1, 2].into()));
        assert_eq!(bytes.held_bytes(), 2);
    }
}
