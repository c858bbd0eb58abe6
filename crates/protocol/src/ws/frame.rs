//! Frames on the wire: opcodes, header validation (RFC 6455 §5.2, §5.5) and encoders. A header is validated
//! byte by byte in arrival order, so an invalid one is rejected as early as possible, with the same error for
//! every split.

use bytes::Bytes;

use super::error::WsError;
use super::mask;

/// 2 bytes, 8 of extended length, 4 of masking key.
pub(super) const HEADER_BYTES_MAX: usize = 14;
/// RFC 6455 §5.5.
pub const CONTROL_BYTES_MAX: usize = 125;
/// The space for the reason in a close frame after the code.
pub const CLOSE_REASON_BYTES_MAX: usize = CONTROL_BYTES_MAX - 2;

const FIN: u8 = 0x80;
/// RFC 7692 §6: the message is compressed.
const RSV1: u8 = 0x40;
const RESERVED: u8 = 0x70;
const MASK: u8 = 0x80;

/// The end that decodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Frames must be masked (RFC 6455 §5.1).
    Server,
    /// Frames must not be masked.
    Client,
}

/// RFC 6455 §11.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Continuation = 0x0,
    Text = 0x1,
    Binary = 0x2,
    Close = 0x8,
    Ping = 0x9,
    Pong = 0xA,
}

impl Opcode {
    fn from_bits(bits: u8) -> Option<Self> {
        Some(match bits {
            0x0 => Opcode::Continuation,
            0x1 => Opcode::Text,
            0x2 => Opcode::Binary,
            0x8 => Opcode::Close,
            0x9 => Opcode::Ping,
            0xA => Opcode::Pong,
            _ => return None,
        })
    }

    pub fn is_control(self) -> bool {
        self as u8 >= 0x8
    }
}

/// A validated frame header. `mask` is zero if the peer does not mask, so applying it has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) fin: bool,
    /// The frame starts a compressed message.
    pub(super) deflated: bool,
    pub(super) opcode: Opcode,
    pub(super) payload_len: usize,
    pub(super) mask: [u8; 4],
}

/// The decoder's state that a header is validated against.
#[derive(Debug, Clone, Copy)]
pub(super) struct Expected {
    pub(super) role: Role,
    /// Messages may be compressed.
    pub(super) deflates: bool,
    /// A fragmented message is open.
    pub(super) mid_message: bool,
    /// The number of bytes that the current message may still grow by.
    pub(super) room: usize,
}

impl Header {
    /// Parses the header at the start of `bytes`. Returns it with its length, or `None` if it is incomplete.
    pub(super) fn parse(bytes: &[u8], expected: Expected) -> Result<Option<(Header, usize)>, WsError> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let (fin, deflated, opcode) = Self::first_byte(first, expected)?;
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let short_len = Self::second_byte(second, opcode, expected.role)?;
        let Some((payload_len, len)) = Self::payload_len(short_len, &bytes[2..])? else { return Ok(None) };
        // Checked before anything is reserved. A length above `usize` also exceeds every limit.
        let payload_len = usize::try_from(payload_len).map_err(|_| WsError::TooBig)?;
        if !opcode.is_control() && payload_len > expected.room {
            return Err(WsError::TooBig);
        }
        Ok(match expected.role {
            Role::Client => Some((Header { fin, deflated, opcode, payload_len, mask: [0; 4] }, 2 + len)),
            Role::Server => bytes[2 + len..]
                .first_chunk::<4>()
                .map(|mask| (Header { fin, deflated, opcode, payload_len, mask: *mask }, 2 + len + 4)),
        })
    }

    fn first_byte(byte: u8, expected: Expected) -> Result<(bool, bool, Opcode), WsError> {
        let (fin, reserved) = (byte & FIN != 0, byte & RESERVED);
        // §5.2: no extension defines the bit.
        if reserved != 0 && !(reserved == RSV1 && expected.deflates) {
            return Err(WsError::Protocol("a reserved bit is set"));
        }
        let deflated = reserved != 0;
        let opcode = Opcode::from_bits(byte & 0x0F).ok_or(WsError::Protocol("the opcode is reserved"))?;
        match opcode {
            // RFC 7692 §6.1: only on the first frame of a message, never on control frames.
            Opcode::Continuation | Opcode::Close | Opcode::Ping | Opcode::Pong if deflated => {
                Err(WsError::Protocol("a reserved bit is set"))
            }
            Opcode::Continuation if !expected.mid_message => {
                Err(WsError::Protocol("a continuation frame without a message")) // §5.4
            }
            Opcode::Text | Opcode::Binary if expected.mid_message => {
                Err(WsError::Protocol("a new message within a fragmented one")) // §5.4
            }
            Opcode::Close | Opcode::Ping | Opcode::Pong if !fin => {
                Err(WsError::Protocol("a fragmented control frame")) // §5.5
            }
            _ => Ok((fin, deflated, opcode)),
        }
    }

    fn second_byte(byte: u8, opcode: Opcode, role: Role) -> Result<u8, WsError> {
        match (role, byte & MASK != 0) {
            (Role::Server, false) => return Err(WsError::Protocol("a client frame is not masked")), // §5.1
            (Role::Client, true) => return Err(WsError::Protocol("a server frame is masked")),      // §5.1
            (Role::Server, true) | (Role::Client, false) => {}
        }
        let short_len = byte & !MASK;
        if opcode.is_control() && usize::from(short_len) > CONTROL_BYTES_MAX {
            return Err(WsError::Protocol("a control frame exceeds 125 bytes")); // §5.5
        }
        Ok(short_len)
    }

    /// The payload's length and the number of extended length bytes.
    fn payload_len(short_len: u8, rest: &[u8]) -> Result<Option<(u64, usize)>, WsError> {
        // §5.2: the length must have its shortest encoding.
        let not_minimal = WsError::Protocol("the payload length is not minimal");
        match short_len {
            126 => match rest.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes)) {
                Some(len) if len < 126 => Err(not_minimal),
                len => Ok(len.map(|len| (u64::from(len), 2))),
            },
            127 => match rest.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)) {
                Some(len) if len <= u64::from(u16::MAX) => Err(not_minimal),
                Some(len) if len >> 63 != 0 => {
                    Err(WsError::Protocol("the payload length has its highest bit set"))
                }
                len => Ok(len.map(|len| (len, 8))),
            },
            len => Ok(Some((u64::from(len), 0))),
        }
    }
}

pub(crate) fn push_header(out: &mut Vec<u8>, opcode: Opcode, payload_len: usize, mask_bit: u8) {
    debug_assert!(!opcode.is_control() || payload_len <= CONTROL_BYTES_MAX, "RFC 6455 §5.5");
    out.push(FIN | opcode as u8);
    match payload_len {
        0..=125 => out.push(mask_bit | payload_len as u8),
        126..=0xFFFF => {
            out.push(mask_bit | 126);
            out.extend_from_slice(&(payload_len as u16).to_be_bytes());
        }
        _ => {
            out.push(mask_bit | 127);
            out.extend_from_slice(&(payload_len as u64).to_be_bytes());
        }
    }
}

/// Appends the head of a server frame whose payload follows in pieces.
pub fn push_frame_head(out: &mut Vec<u8>, opcode: Opcode, payload_len: usize) {
    push_header(out, opcode, payload_len, 0);
}

/// [`push_frame_head`] for a compressed message.
pub fn push_deflated_head(out: &mut Vec<u8>, opcode: Opcode, payload_len: usize) {
    let begin = out.len();
    push_header(out, opcode, payload_len, 0);
    out[begin] |= RSV1;
}

/// Parses the head of a server frame: its opcode and length; `None` if the frame is incomplete.
pub fn frame_head(frame: &[u8]) -> Option<(Opcode, usize)> {
    let (first, second) = (frame.first()?, frame.get(1)?);
    let len = match second {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    Some((Opcode::from_bits(first & 0x0F)?, len)).filter(|_| frame.len() >= len)
}

/// A whole server frame, encoded once and shared by all its connections.
pub fn frame(opcode: Opcode, payload: &[u8]) -> Bytes {
    let mut out = Vec::with_capacity(HEADER_BYTES_MAX - 4 + payload.len());
    push_frame(&mut out, opcode, payload);
    out.into()
}

/// [`frame`] for text. `payload` must be UTF-8.
pub fn text_frame(payload: &[u8]) -> Bytes {
    frame(Opcode::Text, payload)
}

/// Appends an unfragmented server frame, unmasked (RFC 6455 §5.1). A control payload must be at most
/// [`CONTROL_BYTES_MAX`] long.
pub fn push_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8]) {
    push_header(out, opcode, payload.len(), 0);
    out.extend_from_slice(payload);
}

/// Appends a client frame. The mask should be unpredictable (RFC 6455 §5.3); the caller provides the
/// randomness.
pub fn push_masked_frame(out: &mut Vec<u8>, opcode: Opcode, payload: &[u8], mask: [u8; 4]) {
    push_header(out, opcode, payload.len(), MASK);
    out.extend_from_slice(&mask);
    let start = out.len();
    out.extend_from_slice(payload);
    mask::apply(mask, 0, &mut out[start..]);
}

/// Appends a server's close frame; a reason above 123 bytes is truncated at a character boundary.
pub fn push_close(out: &mut Vec<u8>, code: u16, reason: &str) {
    let reason = &reason[..reason.floor_char_boundary(CLOSE_REASON_BYTES_MAX)];
    push_header(out, Opcode::Close, 2 + reason.len(), 0);
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(reason.as_bytes());
}
