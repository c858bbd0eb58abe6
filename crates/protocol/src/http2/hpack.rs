//! Header compression (RFC 7541) in both directions. Encoder and decoder each keep a dynamic table that must
//! match the peer's, so every header block must be processed in order, even if its stream is closed.
//!
//! Strings are decoded with Huffman codes but encoded without: here CPU time costs more than bytes, and
//! repeated fields go into the dynamic table.
//!
//! Reading order: `integer`, `huffman`, `table`, [`decoder`], [`encoder`].

pub mod decoder;
pub mod encoder;
mod error;
mod huffman;
mod integer;
mod static_table;
mod table;
#[cfg(test)]
mod tests;

pub use decoder::Decoder;
pub use encoder::Encoder;
pub use error::HpackError;

/// RFC 9113 §6.5.2: the default size of the dynamic table. We never announce another size.
pub const TABLE_BYTES: usize = 4096;
