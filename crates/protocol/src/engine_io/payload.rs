//! Payloads of HTTP long polling (EIO "HTTP long-polling", packet encoding): packets with the record
//! separator between them, bytes as `b` and base64.
//!
//! [`Decoder`] takes a body as it arrives and reports whole packets, borrowed from the caller's buffer where
//! a packet came in one piece. Invariants: nothing is held unless a packet is incomplete; what is held is
//! part of what was received, and no more than the payload's limit is received. [`Payload`] is what waits
//! for the next poll; its text is shared with everyone else who is sent the same.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::packet::{Outgoing, Packet, PacketError};

/// The record separator of ASCII. It is no part of any UTF-8 sequence, so a body can be cut at it unread.
pub const SEPARATOR: u8 = 0x1e;
const BINARY: u8 = b'b';

/// A body under way.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: Vec<u8>,
    received_bytes: usize,
}

// One for each POST under way.
const _: () = assert!(size_of::<Decoder>() <= 32);

impl Decoder {
    pub const fn new() -> Self {
        Self { partial: Vec::new(), received_bytes: 0 }
    }

    /// Takes the next bytes of the body and calls `on` for every packet that is followed by another one. A
    /// break from `on` drops the rest.
    pub fn feed(
        &mut self,
        bytes: &[u8],
        payload_bytes_max: usize,
        on: &mut impl FnMut(Packet<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PacketError> {
        if bytes.len() > payload_bytes_max.saturating_sub(self.received_bytes) {
            self.partial = Vec::new();
            return Err(PacketError::TooBig);
        }
        self.received_bytes += bytes.len();
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == SEPARATOR) {
            let (record, after) = rest.split_at(end);
            rest = &after[1..];
            let flow = if self.partial.is_empty() {
                decode(record, on)?
            } else {
                let mut whole = std::mem::take(&mut self.partial);
                whole.extend_from_slice(record);
                decode(&whole, on)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        self.partial.extend_from_slice(rest);
        Ok(ControlFlow::Continue(()))
    }

    /// The body ended: what came last is a packet too.
    pub fn finish(
        &mut self,
        on: &mut impl FnMut(Packet<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PacketError> {
        self.received_bytes = 0;
        decode(&std::mem::take(&mut self.partial), on)
    }

    /// Heap bytes held for a packet that is not complete.
    pub fn held_bytes(&self) -> usize {
        self.partial.capacity()
    }
}

fn decode(
    record: &[u8],
    on: &mut impl FnMut(Packet<'_>) -> ControlFlow<()>,
) -> Result<ControlFlow<()>, PacketError> {
    if let Some((&BINARY, base64)) = record.split_first() {
        let bytes = STANDARD.decode(base64).map_err(|_| PacketError::Base64)?;
        return Ok(on(Packet::from_binary(&bytes)));
    }
    let text = std::str::from_utf8(record).map_err(|_| PacketError::InvalidUtf8)?;
    Ok(on(Packet::from_text(text)?))
}

/// Packets that wait for a poll, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    packets: Vec<Outgoing>,
    /// Of the packets as they will be written, without separators.
    encoded_bytes: usize,
}

impl Payload {
    pub const fn new() -> Self {
        Self { packets: Vec::new(), encoded_bytes: 0 }
    }

    pub fn of(packet: Outgoing) -> Self {
        let mut payload = Self::new();
        payload.push(packet);
        payload
    }

    pub fn push(&mut self, packet: Outgoing) {
        self.encoded_bytes += match &packet {
            Outgoing::Text(text) => text.len(),
            Outgoing::Binary(bytes) => 1 + bytes.len().div_ceil(3) * 4, // RFC 4648 §4, with padding
        };
        self.packets.push(packet);
    }

    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub fn packets(&self) -> usize {
        self.packets.len()
    }

    /// The length of the body that [`Payload::write`] appends.
    pub fn body_bytes(&self) -> usize {
        self.encoded_bytes + self.packets.len().saturating_sub(1)
    }

    /// Appends the body.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.reserve(self.body_bytes());
        for (i, packet) in self.packets.iter().enumerate() {
            if i > 0 {
                out.push(SEPARATOR);
            }
            match packet {
                Outgoing::Text(text) => out.extend_from_slice(text),
                Outgoing::Binary(bytes) => {
                    out.push(BINARY);
                    let start = out.len();
                    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
                    let encoded = STANDARD.encode_slice(bytes, &mut out[start..]);
                    encoded.expect("the room is the length of RFC 4648 §4");
                }
            }
        }
    }

    /// For another transport.
    pub fn into_packets(self) -> impl Iterator<Item = Outgoing> {
        self.packets.into_iter()
    }
}

#[cfg(test)]
mod tests;
