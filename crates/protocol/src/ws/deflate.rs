//! Compressed messages (RFC 7692 §7.2): inflating them within limits, and putting together those that are sent.
//!
//! Each message is a stream of its own, so one [`Inflater`] serves any number of connections, one message after the other.
//!
//! Nobody is trusted. What a message becomes is bounded like a message that comes as it is, and so is the work: a block of
//! deflate may take ten bits and still cost microseconds, since its codes are set up, so a message that has far more blocks than
//! it has contents is refused. Without that, 64 KiB would cost 0.2 s.

use std::fmt;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::{DecompressorOxide, decompress, inflate_flags};

use super::decoder::{Input, WsError};
use super::frame::Opcode;

/// §7.2.1: the end of a sync flush, which a sender leaves out and a receiver adds.
pub const FLUSH_END: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];
/// Before the bytes of a stored block.
pub const STORED_HEAD_BYTES: usize = 5;
/// A stored block's length has 16 bits (RFC 1951 §3.2.4).
pub const STORED_BYTES_MAX: usize = 0xFFFF;

/// Blocks of a message, besides those that its contents account for: compressors that flush in between make small ones.
const BLOCKS_MIN: usize = 16;
/// The least that a block is expected to become. zlib begins a new one after 127 symbols at the earliest (`memLevel` 1), and
/// a symbol is a byte at least.
const BLOCK_BYTES: usize = 127;
/// What a message is expected to become at first.
const PLAIN_BYTES: usize = 4 << 10;
/// The buffer that is kept for the next message: what a native client may send.
const KEPT_BYTES: usize = 64 << 10;

const FLAGS: u32 = inflate_flags::TINFL_FLAG_HAS_MORE_INPUT
    | inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF
    | inflate_flags::TINFL_FLAG_STOP_ON_BLOCK_BOUNDARY;

/// A message that came compressed, whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deflated<'a> {
    /// Text or binary.
    pub opcode: Opcode,
    pub payload: &'a [u8],
}

/// Inflates messages. About 11 KiB and what the longest of the last messages became, from the first message on.
#[derive(Default)]
pub struct Inflater {
    state: Option<Box<DecompressorOxide>>,
    plain: Vec<u8>,
}

impl Inflater {
    /// The message as it was before.
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

    /// How long it is, at the beginning of `plain`.
    fn expand(&mut self, payload: &[u8], bytes_max: usize) -> Result<usize, WsError> {
        let Self { state, plain } = self;
        let state = state.get_or_insert_default();
        state.init();
        // One byte more shows that there is more.
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
                    // There is room for one byte more than there may be, so this is not at the limit.
                    TINFLStatus::HasMoreOutput => {
                        let more = (2 * end).max(PLAIN_BYTES).min(room);
                        plain.reserve_exact(more - end);
                        plain.resize(more, 0);
                        continue;
                    }
                    TINFLStatus::BlockBoundary => {}
                    // §7.2.3.4: a last block, and more behind it.
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
            false => Err(WsError::Protocol("a compressed message is cut off")),
        }
    }
}

impl fmt::Debug for Inflater {
    /// Not the bytes: they may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inflater({} bytes)", self.plain.len())
    }
}

/// Appends bytes as they are, as a block that others follow: at most [`STORED_BYTES_MAX`], at the beginning of a payload or
/// behind another such block.
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
