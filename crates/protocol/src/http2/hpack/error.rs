//! The error of header decompression, which ends the connection (RFC 9113 §4.3).

/// Why a header block is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HpackError(pub &'static str);
