//! Payloads of HTTP long polling (EIO "HTTP long-polling"): packets joined by the record separator, with
//! bytes encoded as `b` and base64.
//!
//! [`Decoder`] accepts a body in arbitrary pieces and reports complete packets, borrowed from the caller's
//! buffer if a packet arrived in one piece. It buffers only an incomplete packet, and rejects a body above
//! the payload limit before buffering it. [`Payload`] is the queue for the next poll; packets sent to several
//! sessions share their text.

use std::ops::ControlFlow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::packet::{Outgoing, Packet, PacketError};

/// The ASCII record separator. It is not part of any UTF-8 sequence, so a body can be split before it is
/// decoded.
pub const SEPARATOR: u8 = 0x1e;
const BINARY: u8 = b'b';

/// A body that is being received.
#[derive(Debug, Default)]
pub struct Decoder {
    partial: Vec<u8>,
    received_bytes: usize,
}

// Each POST in progress holds one.
const _: () = assert!(size_of::<Decoder>() <= 32);

impl Decoder {
    pub const fn new() -> Self {
        Self { partial: Vec::new(), received_bytes: 0 }
    }

    /// Consumes the next bytes of the body and calls `on` for every packet whose separator has arrived. A
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

    /// Ends the body and decodes the last packet.
    pub fn finish(
        &mut self,
        on: &mut impl FnMut(Packet<'_>) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>, PacketError> {
        self.received_bytes = 0;
        decode(&std::mem::take(&mut self.partial), on)
    }

    /// Heap bytes held for an incomplete packet.
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

/// The packets queued for a poll, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payload {
    packets: Vec<Outgoing>,
    /// Size of the packets as written, without separators.
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
                    encoded.expect("the buffer has the length that RFC 4648 §4 requires");
                }
            }
        }
    }

    /// Moves the packets to another transport.
    pub fn into_packets(self) -> impl Iterator<Item = Outgoing> {
        self.packets.into_iter()
    }
}

#[cfg(test)]
mod tests;
