//! Header compression (RFC 7541) in both directions. An encoder and a decoder each keep a dynamic table that
//! must stay in step with the peer's: every header block must go through, in order, also one whose stream
//! is of no more interest.
//!
//! Strings are read with Huffman codes and written without: the CPU is dearer here than the bytes, and what
//! is worth compressing goes into the dynamic table.
//!
//! Reading order: `integer`, `huffman`, `table`, [`decoder`], [`encoder`].

pub mod decoder;
pub mod encoder;
mod huffman;
mod integer;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::{Decoder, HpackError};
pub use encoder::Encoder;

/// RFC 9113 §6.5.2: the dynamic table's size before SETTINGS say otherwise. Ours is never announced to be another.
pub const TABLE_BYTES: usize = 4096;
