//! Encodes the data types of a packet's body (§1.5), and the packet around a body.

use super::packet_type::PacketType;

/// The largest value of four bytes with seven bits each (§1.5.5).
pub const VAR_INT_MAX: u32 = 268_435_455;

pub(super) fn push_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(super) fn push_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

/// §1.5.5. No length written here approaches the maximum.
pub(super) fn push_var_int(out: &mut Vec<u8>, value: u32) {
    debug_assert!(value <= VAR_INT_MAX);
    let mut value = value.min(VAR_INT_MAX);
    while value >= 0x80 {
        // The low seven bits, with the continuation bit.
        out.push((value & 0x7F) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// At most 65,535 bytes; longer values cannot be encoded and are truncated.
pub(super) fn push_binary(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= usize::from(u16::MAX));
    let length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    push_u16(out, length);
    out.extend_from_slice(&bytes[..usize::from(length)]);
}

pub(super) fn push_text(out: &mut Vec<u8>, text: &str) {
    push_binary(out, &text.as_bytes()[..text.floor_char_boundary(usize::from(u16::MAX))]);
}

/// A packet with fixed flags.
pub(super) fn push_packet(out: &mut Vec<u8>, packet_type: PacketType, body: impl FnOnce(&mut Vec<u8>)) {
    push_flagged(out, packet_type, packet_type.fixed_flags().unwrap_or(0), body);
}

pub(super) fn push_flagged(
    out: &mut Vec<u8>,
    packet_type: PacketType,
    flags: u8,
    body: impl FnOnce(&mut Vec<u8>),
) {
    out.push((packet_type as u8) << 4 | flags);
    let start = out.len();
    out.push(0);
    body(out);
    close_length(out, start);
}

/// Inserts the length of everything after the byte at `start`.
pub(super) fn close_length(out: &mut Vec<u8>, start: usize) {
    let length = u32::try_from(out.len() - start - 1).unwrap_or(VAR_INT_MAX);
    match u8::try_from(length) {
        Ok(short) if short < 0x80 => out[start] = short,
        _ => {
            let mut bytes = Vec::with_capacity(4);
            push_var_int(&mut bytes, length);
            out.splice(start..=start, bytes);
        }
    }
}
