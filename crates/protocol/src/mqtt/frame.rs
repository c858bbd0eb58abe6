//! The frame of every packet (§2.1): type, flags, length, body. [`Decoder`] accepts bytes in arbitrary pieces
//! and returns whole packets in order, borrowed where one arrived in one piece.
//!
//! Invariants: only an incomplete packet is buffered; the buffer grows with the bytes received, not with the
//! announced length, and stays below the limit, which is checked first. After an error or a break the decoder
//! is empty, and the connection must end.

use std::fmt;
use std::ops::ControlFlow;

use super::packet_type::PacketType;
use super::violation::Violation;

/// Type and flags, and up to four bytes of length.
const HEADER_BYTES_MAX: usize = 5;

/// A whole packet with an unparsed body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    pub packet_type: PacketType,
    /// Variable for PUBLISH, fixed for others (§2.1.3) except DUP for three of them in MQTT 3.1.
    pub flags: u8,
    pub body: &'a [u8],
    /// Whether the length has its shortest encoding: MQTT 5 requires it, 3.1.1 does not.
    pub minimal: bool,
}

/// Valid for PUBLISH, and for more packets in MQTT 3.1.
const DUP: u8 = 0b1000;

impl Frame<'_> {
    /// As MQTT 3.1.1 would send it, where only PUBLISH has DUP.
    pub(super) fn without_dup(mut self) -> Self {
        if self.packet_type.has_dup() {
            self.flags &= !DUP;
        }
        self
    }

    /// Writes the frame as it was received.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push((self.packet_type as u8) << 4 | self.flags);
        super::writer::push_var_int(
            out,
            u32::try_from(self.body.len()).unwrap_or(super::writer::VAR_INT_MAX),
        );
        out.extend_from_slice(self.body);
    }
}

impl fmt::Debug for Frame<'_> {
    /// Omits the body, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frame({}, {:04b}, {} bytes)", self.packet_type.as_str(), self.flags, self.body.len())
    }
}

struct Header {
    packet_type: PacketType,
    flags: u8,
    bytes: usize,
    body_bytes: usize,
    minimal: bool,
}

impl Header {
    /// Returns `None` if it is incomplete. Violations are rejected at the first wrong byte.
    fn parse(bytes: &[u8], packet_bytes_max: usize) -> Result<Option<Self>, Violation> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
        let number = usize::from(first >> 4).checked_sub(1).ok_or(Violation::ReservedType)?;
        let (packet_type, flags) = (PacketType::ALL[number], first & 0x0F);
        // Whether the client may set DUP is checked when its version is known.
        let looked_at = if packet_type.has_dup() { flags & !DUP } else { flags };
        if packet_type.fixed_flags().is_some_and(|fixed| fixed != looked_at) {
            return Err(Violation::ReservedFlags);
        }
        if packet_type == PacketType::Publish && flags & 0b0110 == 0b0110 {
            return Err(Violation::QosThree);
        }
        let Some((length, length_bytes)) = var_int(rest)? else { return Ok(None) };
        let (bytes, body_bytes) = (1 + length_bytes, length as usize);
        if bytes + body_bytes > packet_bytes_max {
            return Err(Violation::TooBig);
        }
        let minimal = length_bytes == var_int_bytes(length);
        Ok(Some(Self { packet_type, flags, bytes, body_bytes, minimal }))
    }

    fn frame<'a>(&self, body: &'a [u8]) -> Frame<'a> {
        Frame { packet_type: self.packet_type, flags: self.flags, body, minimal: self.minimal }
    }
}

/// Reads a variable byte integer. Returns its value and size, or `None` if it is incomplete.
pub(super) fn var_int(bytes: &[u8]) -> Result<Option<(u32, usize)>, Violation> {
    let mut value = 0;
    for (at, byte) in bytes.iter().take(4).enumerate() {
        value |= u32::from(byte & 0x7F) << (7 * at);
        if byte & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    match bytes.len() >= 4 {
        true => Err(Violation::LengthTooLong),
        false => Ok(None),
    }
}

/// The encoded size of a value: one byte for 0 to 127.
pub(super) fn var_int_bytes(value: u32) -> usize {
    match value {
        0..=0x7F => 1,
        0x80..=0x3FFF => 2,
        0x4000..=0x1F_FFFF => 3,
        _ => 4,
    }
}

/// The state between reads: one pointer, null while no packet is incomplete.
#[derive(Default)]
pub struct Decoder {
    /// The bytes of the incomplete packet. Boxed, so that a million idle connections take 8 bytes each
    /// instead of 24.
    #[expect(clippy::box_collection, reason = "the size of an idle connection")]
    partial: Option<Box<Vec<u8>>>,
}

const _: () = assert!(size_of::<Decoder>() == 8);

impl Decoder {
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// Consumes all of `bytes` and calls `on` for every complete packet. A break drops the rest.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        packet_bytes_max: usize,
        on: &mut impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<(), Violation> {
        let result = self.advance(bytes, packet_bytes_max, on);
        if !matches!(result, Ok(ControlFlow::Continue(()))) {
            self.partial = None;
        }
        result.map(drop)
    }

    /// Consumes `bytes` up to the end of one packet and calls `on` for it. Returns how many bytes it consumed: all of them
    /// if no packet is complete. `bytes` is not empty.
    pub fn feed_one(
        &mut self,
        bytes: &[u8],
        packet_bytes_max: usize,
        on: impl FnOnce(Frame<'_>),
    ) -> Result<usize, Violation> {
        let mut rest = bytes;
        if let Some(mut partial) = self.partial.take() {
            match complete(&mut partial, &mut rest, packet_bytes_max)? {
                Some(header) => on(header.frame(&partial[header.bytes..])),
                None => self.partial = Some(partial),
            }
            return Ok(bytes.len() - rest.len());
        }
        match Header::parse(bytes, packet_bytes_max)? {
            Some(header) if bytes.len() >= header.bytes + header.body_bytes => {
                let packet_bytes = header.bytes + header.body_bytes;
                on(header.frame(&bytes[header.bytes..packet_bytes]));
                Ok(packet_bytes)
            }
            _ => {
                self.partial = Some(Box::new(bytes.to_vec()));
                Ok(bytes.len())
            }
        }
    }

    /// Takes the bytes of an incomplete packet, so that they can be fed again behind others.
    pub fn take_partial(&mut self) -> Vec<u8> {
        self.partial.take().map(|partial| *partial).unwrap_or_default()
    }

    /// Whether no packet is incomplete, so nothing is buffered.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Heap bytes held for an incomplete packet.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| size_of::<Vec<u8>>() + partial.capacity())
    }

    fn advance(
        &mut self,
        mut rest: &[u8],
        packet_bytes_max: usize,
        on: &mut impl FnMut(Frame<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, Violation> {
        while !rest.is_empty() {
            let flow = match &mut self.partial {
                Some(partial) => {
                    let Some(header) = complete(partial, &mut rest, packet_bytes_max)? else { break };
                    let flow = on(header.frame(&partial[header.bytes..]));
                    self.partial = None;
                    flow
                }
                None => match Header::parse(rest, packet_bytes_max)? {
                    Some(header) if rest.len() >= header.bytes + header.body_bytes => {
                        let (packet, after) = rest.split_at(header.bytes + header.body_bytes);
                        rest = after;
                        on(header.frame(&packet[header.bytes..]))
                    }
                    _ => {
                        self.partial = Some(Box::new(rest.to_vec()));
                        break;
                    }
                },
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

impl fmt::Debug for Decoder {
    /// Omits the bytes, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decoder({} bytes held)", self.held_bytes())
    }
}

/// Moves the packet's bytes from `rest` to `partial`. Returns its header once it is complete.
fn complete(
    partial: &mut Vec<u8>,
    rest: &mut &[u8],
    packet_bytes_max: usize,
) -> Result<Option<Header>, Violation> {
    let header = loop {
        let known = partial.len().min(HEADER_BYTES_MAX);
        if let Some(header) = Header::parse(&partial[..known], packet_bytes_max)? {
            break header;
        }
        let Some((next, after)) = rest.split_first() else { return Ok(None) };
        partial.push(*next);
        *rest = after;
    };
    let packet_bytes = header.bytes + header.body_bytes;
    let (chunk, after) = rest.split_at(rest.len().min(packet_bytes - partial.len()));
    *rest = after;
    let needed = partial.len() + chunk.len();
    if needed > partial.capacity() {
        // Twice the bytes received, at most the size of the packet.
        partial.reserve_exact((2 * needed).min(packet_bytes) - partial.len());
    }
    partial.extend_from_slice(chunk);
    Ok((partial.len() == packet_bytes).then_some(header))
}
