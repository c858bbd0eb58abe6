//! One packet (SIO "Packet encoding"): `<type>[<attachments>-][<namespace>,][<ack id>][JSON]`. It is parsed
//! in place; the JSON is validated but not interpreted, except for the name of an event.
//!
//! Invariant: a [`Packet`] has everything that its kind requires, so later code does not check again. Errors
//! contain none of the packet's text.

use std::borrow::Cow;

use noroshi_types::CloseReason;
use serde_json::value::RawValue;

/// The namespace that is omitted on the wire.
pub const MAIN: &str = "/";
/// The largest integer that JavaScript represents exactly: 2^53 - 1.
pub const ACK_ID_MAX: u64 = (1 << 53) - 1;

/// Limits of one packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub namespace_bytes: usize,
    /// Per packet; the JavaScript parser has the same default.
    pub attachments: usize,
    /// Text and attachments of an incomplete binary packet.
    pub binary_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            namespace_bytes: 255,
            attachments: 10,
            binary_bytes: noroshi_types::limits::CLIENT_MESSAGE_BYTES,
        }
    }
}

/// SIO "Exchange protocol".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Connect = b'0',
    Disconnect = b'1',
    Event = b'2',
    Ack = b'3',
    ConnectError = b'4',
    BinaryEvent = b'5',
    BinaryAck = b'6',
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Kind::Connect,
            Kind::Disconnect,
            Kind::Event,
            Kind::Ack,
            Kind::ConnectError,
            Kind::BinaryEvent,
            Kind::BinaryAck,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    pub fn is_binary(self) -> bool {
        matches!(self, Kind::BinaryEvent | Kind::BinaryAck)
    }
}

/// A packet without its attachments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    pub kind: Kind,
    /// The number of binary messages that follow; 0 if and only if the kind is not binary.
    pub attachments: usize,
    /// Starts with `/`.
    pub namespace: &'a str,
    /// At most [`ACK_ID_MAX`].
    pub id: Option<u64>,
    /// Valid JSON: an object for `Connect`, a non-empty array for events, an array for acks.
    pub payload: Option<&'a str>,
}

/// An event's name and arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    pub name: Cow<'a, str>,
    pub args: Args<'a>,
}

/// The content of a JSON array, as text: `1,"2",{"3":[true]}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Args<'a>(&'a str);

/// Why a message is not a valid packet. Each ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PacketError {
    #[error("the packet type is unknown")]
    UnknownKind,
    #[error("the number of attachments is not a positive number")]
    BadAttachments,
    #[error("too many attachments")]
    TooManyAttachments,
    #[error("the namespace exceeds the length limit")]
    LongNamespace,
    #[error("the ack id is too large")]
    BadAckId,
    #[error("the ack id is missing or not allowed here")]
    MisplacedAckId,
    #[error("the payload is not valid JSON")]
    NotJson,
    #[error("the payload is missing or not allowed for the packet type")]
    BadPayload,
    #[error("the event has no name, or a reserved one")]
    BadEventName,
    #[error("a placeholder refers to a missing attachment")]
    BadPlaceholder,
    #[error("text arrived while attachments are expected")]
    UnexpectedText,
    #[error("bytes arrived while no attachment is expected")]
    UnexpectedBinary,
    #[error("the attachments exceed the size limit")]
    TooBig,
}

impl PacketError {
    pub fn reason(self) -> CloseReason {
        match self {
            PacketError::TooBig => CloseReason::TooBig,
            _ => CloseReason::BadMessage,
        }
    }
}

impl<'a> Packet<'a> {
    pub fn parse(text: &'a str, limits: &Limits) -> Result<Self, PacketError> {
        let kind = text.bytes().next().and_then(Kind::from_byte).ok_or(PacketError::UnknownKind)?;
        let mut rest = &text[1..];
        let mut attachments = 0;
        if kind.is_binary() {
            let (digits, after) = rest.split_once('-').ok_or(PacketError::BadAttachments)?;
            attachments = number(digits, PacketError::BadAttachments)?;
            if attachments == 0 {
                return Err(PacketError::BadAttachments); // otherwise it would not be binary
            }
            if attachments > limits.attachments as u64 {
                return Err(PacketError::TooManyAttachments);
            }
            rest = after;
        }
        let mut namespace = MAIN;
        if rest.starts_with('/') {
            // "there is no escape sequence": the namespace ends at the first comma, or at the end of the
            // packet.
            (namespace, rest) = rest.split_once(',').unwrap_or((rest, ""));
            if namespace.len() > limits.namespace_bytes {
                return Err(PacketError::LongNamespace);
            }
        }
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (id, rest) = rest.split_at(digits);
        let id = (!id.is_empty()).then(|| number(id, PacketError::BadAckId)).transpose()?;
        let payload = (!rest.is_empty()).then(|| json(rest)).transpose()?;
        let packet = Packet { kind, attachments: attachments as usize, namespace, id, payload };
        packet.check().map(|()| packet)
    }

    /// Checks that the packet has exactly the parts that its kind requires.
    fn check(&self) -> Result<(), PacketError> {
        match self.kind {
            Kind::Connect | Kind::Disconnect | Kind::ConnectError if self.id.is_some() => {
                return Err(PacketError::MisplacedAckId);
            }
            Kind::Ack | Kind::BinaryAck if self.id.is_none() => return Err(PacketError::MisplacedAckId),
            _ => {}
        }
        let begins = |with: char| self.payload.is_some_and(|payload| payload.starts_with(with));
        let allowed = match self.kind {
            Kind::Connect => self.payload.is_none() || begins('{'),
            Kind::Disconnect => self.payload.is_none(),
            Kind::ConnectError => begins('{'),
            Kind::Event | Kind::BinaryEvent => begins('['),
            Kind::Ack | Kind::BinaryAck => begins('['),
        };
        if !allowed {
            return Err(PacketError::BadPayload);
        }
        match self.kind {
            Kind::Event | Kind::BinaryEvent => self.read_event().map(drop),
            _ => Ok(()),
        }
    }

    /// The event, binary or not.
    pub fn event(&self) -> Option<Event<'a>> {
        matches!(self.kind, Kind::Event | Kind::BinaryEvent).then(|| self.read_event().ok()).flatten()
    }

    /// The arguments of an ack; for an event, including its name.
    pub fn args(&self) -> Args<'a> {
        let array = self.payload.and_then(|payload| payload.strip_prefix('[')?.strip_suffix(']'));
        Args(array.unwrap_or_default().trim())
    }

    fn read_event(&self) -> Result<Event<'a>, PacketError> {
        let Args(inside) = self.args();
        let mut values = serde_json::Deserializer::from_str(inside).into_iter::<&'a RawValue>();
        let name = match values.next() {
            Some(Ok(name)) => name.get(),
            Some(Err(_)) => return Err(PacketError::BadEventName),
            None => return Err(PacketError::BadPayload), // "MUST be a non-empty array"
        };
        let args = inside[values.byte_offset()..].trim_start().strip_prefix(',').unwrap_or_default().trim();
        // The JavaScript parser accepts a number as name.
        let name = match name.as_bytes().first() {
            Some(b'"') => serde_json::from_str::<Name<'a>>(name).map_err(|_| PacketError::BadEventName)?.0,
            Some(b'-' | b'0'..=b'9') => Cow::Borrowed(name),
            _ => return Err(PacketError::BadEventName),
        };
        match RESERVED.contains(&&*name) {
            true => Err(PacketError::BadEventName),
            false => Ok(Event { name, args: Args(args) }),
        }
    }
}

/// Borrowed without escapes: serde always copies `Cow<str>`.
#[derive(serde::Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// Events that libraries emit themselves, reserved so that clients cannot forge them.
const RESERVED: [&str; 6] =
    ["connect", "connect_error", "disconnect", "disconnecting", "newListener", "removeListener"];

impl<'a> Args<'a> {
    pub fn as_str(self) -> &'a str {
        self.0
    }

    /// The argument, if there is exactly one.
    pub fn single(self) -> Option<&'a str> {
        let mut values = serde_json::Deserializer::from_str(self.0).into_iter::<&'a RawValue>();
        let first = values.next()?.ok()?;
        self.0[values.byte_offset()..].trim_start().is_empty().then(|| first.get())
    }
}

/// Parses decimal digits only, up to [`ACK_ID_MAX`].
fn number(digits: &str, error: PacketError) -> Result<u64, PacketError> {
    let digits_only = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = digits_only.then(|| digits.parse().ok()).flatten();
    number.filter(|number| *number <= ACK_ID_MAX).ok_or(error)
}

/// The text of one JSON value, without trailing white space. Leading white space is rejected: the JavaScript
/// parser would read it as an ack id.
fn json(text: &str) -> Result<&str, PacketError> {
    if text.starts_with([' ', '\t', '\n', '\r']) {
        return Err(PacketError::NotJson);
    }
    serde_json::from_str::<&RawValue>(text).map(RawValue::get).map_err(|_| PacketError::NotJson)
}

#[cfg(test)]
mod tests;
