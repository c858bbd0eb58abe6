//! One packet (EIO "Packet encoding"): a digit for its type and what follows, or bytes. A packet is a whole
//! WebSocket message, or a record of a long-polling payload, where bytes travel as `b` and base64.
//!
//! What follows the digit of `close`, `upgrade` and `noop` has no meaning in the specification and is not
//! looked at.

use bytes::Bytes;
use noroshi_types::CloseReason;

/// What the layer above said or hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Data<'a> {
    Text(&'a str),
    Binary(&'a [u8]),
}

/// A packet that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packet<'a> {
    /// The server's alone.
    Open(&'a str),
    Close,
    Ping(&'a str),
    Pong(&'a str),
    Message(Data<'a>),
    Upgrade,
    Noop,
}

impl<'a> Packet<'a> {
    /// A text message of a WebSocket.
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

    /// A binary message of a WebSocket: always a message, "sent as is".
    pub fn from_binary(bytes: &'a [u8]) -> Self {
        Packet::Message(Data::Binary(bytes))
    }
}

/// Why bytes are not a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("a packet without a type")]
    Empty,
    #[error("a packet type that does not exist")]
    UnknownType,
    #[error("a binary packet that is not base64")]
    Base64,
    #[error("a text packet that is not UTF-8")]
    InvalidUtf8,
    #[error("a payload over the size limit")]
    TooBig,
}

impl PacketError {
    /// Where EIO says so.
    pub fn section(self) -> &'static str {
        match self {
            PacketError::Empty | PacketError::UnknownType => "Protocol",
            PacketError::Base64 | PacketError::InvalidUtf8 => "Packet encoding",
            PacketError::TooBig => "Handshake", // maxPayload
        }
    }

    pub fn reason(self) -> CloseReason {
        match self {
            PacketError::Empty | PacketError::UnknownType | PacketError::Base64 => CloseReason::BadMessage,
            PacketError::InvalidUtf8 => CloseReason::InvalidUtf8,
            PacketError::TooBig => CloseReason::TooBig,
        }
    }
}

/// A packet to be sent. Cloning is cheap: a message for many is encoded once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// With the digit of its type in front.
    Text(Bytes),
    /// A binary message.
    Binary(Bytes),
}

impl Outgoing {
    pub const CLOSE: Outgoing = Outgoing::Text(Bytes::from_static(b"1"));
    pub const PING: Outgoing = Outgoing::Text(Bytes::from_static(b"2"));
    pub const PROBE_ANSWER: Outgoing = Outgoing::Text(Bytes::from_static(b"3probe"));
    pub const NOOP: Outgoing = Outgoing::Text(Bytes::from_static(b"6"));

    /// The message that carries `data`.
    pub fn message(data: Data<'_>) -> Self {
        match data {
            Data::Text(text) => Outgoing::Text([b"4", text.as_bytes()].concat().into()),
            Data::Binary(bytes) => Outgoing::Binary(Bytes::copy_from_slice(bytes)),
        }
    }

    /// Bytes that it keeps in memory while it waits.
    pub fn held_bytes(&self) -> usize {
        let (Outgoing::Text(bytes) | Outgoing::Binary(bytes)) = self;
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_is_a_digit() {
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
        // Base64 is long polling's: a WebSocket has binary frames.
        for unknown in ["7", "9", "abc", "bAQID", " 4", "-1", "\u{1e}", "４hello", "\0"] {
            check(unknown, Err(PacketError::UnknownType));
        }
        assert_eq!(Packet::from_binary(b"4"), Packet::Message(Data::Binary(b"4")));
    }

    #[test]
    fn a_message_has_its_digit_and_bytes_have_none() {
        assert_eq!(Outgoing::message(Data::Text("hello")), Outgoing::Text("4hello".into()));
        let bytes = Outgoing::message(Data::Binary(&[1, 2]));
        assert_eq!(bytes, Outgoing::Binary(vec![1, 2].into()));
        assert_eq!(bytes.held_bytes(), 2);
    }
}
