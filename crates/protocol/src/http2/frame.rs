//! Frames (RFC 9113 §4, §6): header, padding, and the encoding of the frames that we send.

use super::error::ConnectionError;

pub(super) const HEADER_BYTES: usize = 9;
/// §4.2: the size that both sides may send without negotiation. We neither announce nor send larger frames.
pub(super) const PAYLOAD_BYTES_MAX: usize = 16_384;
/// §6.9.1: the largest window, also the largest stream id (§5.1.1).
pub(super) const MAX_31_BITS: u32 = (1 << 31) - 1;
/// The client's connection preface (§3.4). Since the method `PRI` is reserved (§11.6), no other request
/// shares more than its first two bytes (`PROPFIND`).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0x0;
    pub(in super::super) const HEADERS: u8 = 0x1;
    pub(in super::super) const PRIORITY: u8 = 0x2;
    pub(in super::super) const RST_STREAM: u8 = 0x3;
    pub(in super::super) const SETTINGS: u8 = 0x4;
    pub(in super::super) const PUSH_PROMISE: u8 = 0x5;
    pub(in super::super) const PING: u8 = 0x6;
    pub(in super::super) const GOAWAY: u8 = 0x7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 0x8;
    pub(in super::super) const CONTINUATION: u8 = 0x9;
}

pub(super) mod flag {
    /// DATA, HEADERS.
    pub(in super::super) const END_STREAM: u8 = 0x1;
    /// SETTINGS, PING.
    pub(in super::super) const ACK: u8 = 0x1;
    pub(in super::super) const END_HEADERS: u8 = 0x4;
    pub(in super::super) const PADDED: u8 = 0x8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Header {
    pub(super) len: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl Header {
    pub(super) fn parse(&[len0, len1, len2, kind, flags, id0, id1, id2, id3]: &[u8; HEADER_BYTES]) -> Self {
        Self {
            len: u32::from_be_bytes([0, len0, len1, len2]) as usize,
            kind,
            flags,
            // §4.1: the highest bit is reserved and ignored.
            stream: u32::from_be_bytes([id0, id1, id2, id3]) & MAX_31_BITS,
        }
    }

    pub(super) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn bytes(self) -> [u8; HEADER_BYTES] {
        let [_, len0, len1, len2] = (self.len as u32).to_be_bytes();
        let [id0, id1, id2, id3] = self.stream.to_be_bytes();
        [len0, len1, len2, self.kind, self.flags, id0, id1, id2, id3]
    }
}

/// §6.1: the payload between pad length and padding.
pub(super) fn unpad(header: Header, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) =
        payload.split_first().ok_or(ConnectionError::frame_size("a padded frame without a pad length"))?;
    let len = rest.len().checked_sub(usize::from(padding));
    len.map(|len| &rest[..len]).ok_or(ConnectionError::protocol("the padding is longer than the payload"))
}

/// The 32-bit number at the start of a payload.
pub(super) fn number(payload: &[u8]) -> Option<u32> {
    payload.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

pub(super) fn push_header(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, len: usize) {
    out.extend_from_slice(&Header { len, kind, flags, stream }.bytes());
}

pub(super) fn push_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    push_header(out, kind::SETTINGS, 0, 0, settings.len() * 6);
    for (id, value) in settings {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

pub(super) fn push_settings_ack(out: &mut Vec<u8>) {
    push_header(out, kind::SETTINGS, flag::ACK, 0, 0);
}

pub(super) fn push_ping(out: &mut Vec<u8>, flags: u8, payload: [u8; 8]) {
    push_header(out, kind::PING, flags, 0, 8);
    out.extend_from_slice(&payload);
}

pub(super) fn push_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    push_header(out, kind::WINDOW_UPDATE, 0, stream, 4);
    out.extend_from_slice(&increment.to_be_bytes());
}

pub(super) fn push_rst_stream(out: &mut Vec<u8>, stream: u32, code: u32) {
    push_header(out, kind::RST_STREAM, 0, stream, 4);
    out.extend_from_slice(&code.to_be_bytes());
}

/// The last stream id is 0: a server without push opens no streams (§6.8).
pub(super) fn push_go_away(out: &mut Vec<u8>, code: u32, debug: &str) {
    push_header(out, kind::GOAWAY, 0, 0, 8 + debug.len());
    out.extend_from_slice(&0u32.to_be_bytes());
    out.extend_from_slice(&code.to_be_bytes());
    out.extend_from_slice(debug.as_bytes());
}
