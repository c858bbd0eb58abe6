//! Compressed messages (RFC 7692 §7.2): inflates received messages within limits, and builds the payloads of
//! sent ones.
//!
//! Each message is an independent deflate stream, so one [`Inflater`] serves any number of connections, one
//! message at a time.
//!
//! Input is untrusted. Both the inflated size and the work are limited: a deflate block may take ten bits but
//! cost microseconds to set up its codes, so a message with far more blocks than its contents justify is
//! rejected. Otherwise 64 KiB would cost 0.2 s.

use std::fmt;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::error::WsError;
use super::frame::Opcode;
use super::input::{Deflated, Input};

/// §7.2.1: the end of a sync flush, which senders omit and receivers append.
pub const FLUSH_END: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];
/// The header of a stored block.
pub const STORED_HEAD_BYTES: usize = 5;
/// The length of a stored block has 16 bits (RFC 1951 §3.2.4).
pub const STORED_BYTES_MAX: usize = 0xFFFF;

/// Blocks that a message may have regardless of its contents: compressors that flush in between create small
/// ones.
const BLOCKS_MIN: usize = 16;
/// The minimum inflated size that a block is expected to have. zlib starts a new block after 127 symbols at
/// the earliest (`memLevel` 1), and a symbol is at least one byte.
const BLOCK_BYTES: usize = 127;
/// The initial size of the output buffer.
const PLAIN_BYTES: usize = 4 << 10;
/// The maximum size of the buffer that is kept for the next message: the limit of a native client's message.
const KEPT_BYTES: usize = 64 << 10;

const FLAGS: u32 = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT
    | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
    | inflate_flags::TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;

/// Inflates messages. After the first message it holds about 11 KiB and the output buffer.
#[derive(Default)]
pub struct Inflater {
    state: Option<Box<DecompressorOxide>>,
    plain: Vec<u8>,
}

impl Inflater {
    /// Returns the original message.
    pub fn inflate(&mut self, message: Deflated<'_>, message_bytes_max: usize) -> Result<Input<'_>, WsError> {
        if self.plain.len() > KEPT_BYTES {
            self.plain = Vec::new();
        }
        let plain_bytes = self.expand(message.payload, message_bytes_max)?;
        let plain = &self.plain[..plain_bytes];
        Ok(match message.opcode {
            Opcode::Text => Input::Text(std::str::from_utf8(plain).map_err(|_| WsError::InvalidUtf8)?),
            _ => Input::Binary(plain),
        })
    }

    /// Inflates to the start of `plain` and returns the length.
    fn expand(&mut self, payload: &[u8], bytes_max: usize) -> Result<usize, WsError> {
        let Self { state, plain } = self;
        let state = state.get_or_insert_default();
        state.init();
        // One more byte detects that the limit is exceeded.
        let room = bytes_max.saturating_add(1);
        let (mut len, mut blocks, mut ended) = (0, 0, false);
        for mut rest in [payload, &FLUSH_END] {
            loop {
                let end = plain.len().min(room);
                let (status, read, written) = decompress(state, rest, &mut plain[..end], len, FLAGS);
                rest = &rest[read..];
                len += written;
                if len > bytes_max {
                    return Err(WsError::TooBig);
                }
                ended = false;
                match status {
                    // The buffer has room for one byte beyond the limit, so the limit is not reached yet.
                    TINFLStatus::HasMoreOutput => {
                        let more = (2 * end).max(PLAIN_BYTES).min(room);
                        plain.reserve_exact(more - end);
                        plain.resize(more, 0);
                        continue;
                    }
                    TINFLStatus::BlockBoundary => {}
                    // §7.2.3.4: a final block, followed by more blocks.
                    TINFLStatus::Done => state.init(),
                    TINFLStatus::NeedsMoreInput => break,
                    _ => return Err(WsError::Protocol("a compressed message is malformed")),
                }
                blocks += 1;
                if blocks > BLOCKS_MIN + len / BLOCK_BYTES {
                    return Err(WsError::Protocol("a compressed message has too many blocks"));
                }
                ended = true;
                if rest.is_empty() {
                    break;
                }
            }
        }
        match ended {
            true => Ok(len),
            false => Err(WsError::Protocol("a compressed message is truncated")),
        }
    }
}

impl fmt::Debug for Inflater {
    /// Omits the bytes, which may contain a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inflater({} bytes)", self.plain.len())
    }
}

/// Appends uncompressed bytes as a non-final stored block: at most [`STORED_BYTES_MAX`], at the start of a
/// payload or after another such block.
pub fn push_stored(out: &mut Vec<u8>, bytes: &[u8]) {
    debug_assert!(bytes.len() <= STORED_BYTES_MAX, "RFC 1951 §3.2.4");
    let len = bytes.len() as u16;
    out.push(0);
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(&(!len).to_le_bytes());
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests;
