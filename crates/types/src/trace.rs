//! W3C Trace Context, level 1 (<https://www.w3.org/TR/trace-context-1/>): the trace that a request belongs
//! to.
//!
//! Invalid headers are ignored: the request is handled as if it had no trace, never with an error. Ids are
//! generated elsewhere. `tracestate` is in [`state`].

pub mod state;

use std::fmt;

pub use state::TraceState;

/// 16 bytes, not all zero (§3.2.2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// 8 bytes, not all zero (§3.2.2.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

/// A position in a trace: subsequent work is a child of `parent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace: TraceId,
    pub parent: SpanId,
    /// Whether the caller may have recorded its part (§3.2.2.5). The only flag of level 1; others are not
    /// propagated.
    pub sampled: bool,
}

/// Stored with each notification that has a trace.
const _: () = assert!(size_of::<Option<TraceContext>>() <= 25);

/// `version-trace_id-parent_id-flags` of version 00.
const LENGTH: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;

/// The lowest bit of the flags.
const SAMPLED: u8 = 0x01;

impl TraceId {
    pub fn from_bytes(bytes: [u8; 16]) -> Option<Self> {
        (bytes != [0; 16]).then_some(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    pub fn from_bytes(bytes: [u8; 8]) -> Option<Self> {
        (bytes != [0; 8]).then_some(Self(bytes))
    }

    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl TraceContext {
    /// The stored form: trace, parent, flags.
    pub const STORED_BYTES: usize = 16 + 8 + 1;

    /// From all `traceparent` headers of a request: valid only if there is exactly one.
    pub fn of_headers<'a>(mut values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let value = values.next()?;
        match values.next() {
            None => Self::parse(value),
            Some(_) => None,
        }
    }

    /// Parses a value of `traceparent` (§3.2). For unknown versions, the first four fields are used (§3.2.4).
    pub fn parse(value: &[u8]) -> Option<Self> {
        // Optional white space around a header's value is not part of it (RFC 9110 §5.5).
        let value = value.trim_ascii();
        let (fields, rest) = value.split_at_checked(LENGTH)?;
        let [version] = hex(&fields[..2])?;
        let ends_well = match version {
            0xff => false,
            0x00 => rest.is_empty(),
            _ => rest.is_empty() || rest[0] == b'-',
        };
        let dashes = [2, 35, 52].into_iter().all(|place| fields[place] == b'-');
        if !ends_well || !dashes {
            return None;
        }
        let [flags] = hex(&fields[53..])?;
        Some(Self {
            trace: TraceId::from_bytes(hex(&fields[3..35])?)?,
            parent: SpanId::from_bytes(hex(&fields[36..52])?)?,
            sampled: flags & SAMPLED != 0,
        })
    }

    pub fn to_stored(self) -> [u8; Self::STORED_BYTES] {
        let mut bytes = [0; Self::STORED_BYTES];
        bytes[..16].copy_from_slice(&self.trace.0);
        bytes[16..24].copy_from_slice(&self.parent.0);
        bytes[24] = u8::from(self.sampled) * SAMPLED;
        bytes
    }

    /// Parses the output of [`TraceContext::to_stored`].
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; Self::STORED_BYTES] = bytes.try_into().ok()?;
        let (trace, rest) = bytes.split_first_chunk()?;
        let (parent, flags) = rest.split_first_chunk()?;
        Some(Self {
            trace: TraceId::from_bytes(*trace)?,
            parent: SpanId::from_bytes(*parent)?,
            sampled: flags[0] & SAMPLED != 0,
        })
    }
}

/// Only lower-case digits (§3.2.2.1).
fn hex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// The value of `traceparent` in version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.parent, u8::from(self.sampled) * SAMPLED)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
