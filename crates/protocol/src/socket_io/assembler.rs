//! Joins packets with their binary attachments (SIO "Packet encoding": "+ binary attachments extracted"). A
//! packet without attachments is borrowed; one with attachments is kept until the last one arrives.
//!
//! Invariants: eight bytes while nothing is incomplete; buffers are bounded by [`Limits`], which are checked
//! before anything is copied; after an error the assembler is empty, and the connection must end.

use std::fmt;

use bytes::Bytes;

use super::packet::{Kind, Limits, Packet, PacketError};
use super::placeholder;
use crate::engine_io::Data;

/// Holds an incomplete packet.
#[derive(Default)]
pub struct Assembler {
    partial: Option<Box<Partial>>,
}

const _: () = assert!(size_of::<Assembler>() == 8);

/// A binary packet with owned parts.
#[derive(PartialEq, Eq)]
pub struct Partial {
    kind: Kind,
    namespace: Box<str>,
    id: Option<u64>,
    payload: Box<str>,
    wanted: usize,
    attachments: Vec<Bytes>,
    /// Size of the payload and the attachments received.
    bytes: usize,
}

/// A complete packet with its attachments.
#[derive(Debug, PartialEq, Eq)]
pub enum Whole<'a> {
    Text(Packet<'a>),
    Binary(Box<Partial>),
}

impl Whole<'_> {
    pub fn packet(&self) -> Packet<'_> {
        match self {
            Whole::Text(packet) => *packet,
            Whole::Binary(partial) => Packet {
                kind: partial.kind,
                attachments: partial.wanted,
                namespace: &partial.namespace,
                id: partial.id,
                payload: Some(&partial.payload),
            },
        }
    }

    pub fn attachments(&self) -> &[Bytes] {
        match self {
            Whole::Text(_) => &[],
            Whole::Binary(partial) => &partial.attachments,
        }
    }
}

impl Assembler {
    pub const fn new() -> Self {
        Self { partial: None }
    }

    /// Consumes one Engine.IO message. `None`: attachments are missing.
    pub fn feed<'a>(&mut self, data: Data<'a>, limits: &Limits) -> Result<Option<Whole<'a>>, PacketError> {
        match (data, self.partial.take()) {
            (Data::Text(text), None) => self.begin(Packet::parse(text, limits)?, limits),
            (Data::Text(_), Some(_)) => Err(PacketError::UnexpectedText),
            (Data::Binary(_), None) => Err(PacketError::UnexpectedBinary),
            (Data::Binary(bytes), Some(partial)) => self.attach(partial, bytes, limits),
        }
    }

    /// Whether no packet is incomplete, so nothing is buffered.
    pub fn is_idle(&self) -> bool {
        self.partial.is_none()
    }

    /// Heap bytes held for an incomplete packet.
    pub fn held_bytes(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| {
            size_of::<Partial>() + partial.bytes + partial.attachments.capacity() * size_of::<Bytes>()
        })
    }

    fn begin<'a>(&mut self, packet: Packet<'a>, limits: &Limits) -> Result<Option<Whole<'a>>, PacketError> {
        if packet.attachments == 0 {
            return Ok(Some(Whole::Text(packet)));
        }
        let payload = packet.payload.unwrap_or_default();
        let bytes = payload.len() + packet.namespace.len();
        if bytes > limits.binary_bytes {
            return Err(PacketError::TooBig);
        }
        if !placeholder::are_valid(payload, packet.attachments) {
            return Err(PacketError::BadPlaceholder);
        }
        self.partial = Some(Box::new(Partial {
            kind: packet.kind,
            namespace: packet.namespace.into(),
            id: packet.id,
            payload: payload.into(),
            wanted: packet.attachments,
            attachments: Vec::new(),
            bytes,
        }));
        Ok(None)
    }

    fn attach<'a>(
        &mut self,
        mut partial: Box<Partial>,
        bytes: &[u8],
        limits: &Limits,
    ) -> Result<Option<Whole<'a>>, PacketError> {
        partial.bytes += bytes.len();
        if partial.bytes > limits.binary_bytes {
            return Err(PacketError::TooBig);
        }
        partial.attachments.push(Bytes::copy_from_slice(bytes));
        if partial.attachments.len() == partial.wanted {
            return Ok(Some(Whole::Binary(partial)));
        }
        self.partial = Some(partial);
        Ok(None)
    }
}

impl fmt::Debug for Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Assembler({} bytes held)", self.held_bytes())
    }
}

impl fmt::Debug for Partial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (have, wanted) = (self.attachments.len(), self.wanted);
        write!(f, "Partial({:?} with {have} of {wanted} attachments)", self.kind)
    }
}

#[cfg(test)]
mod tests;
