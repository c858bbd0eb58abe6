//! Text frames of a WebSocket client.

use noroshi_protocol::ws::{Opcode, push_masked_frame};

/// Masks protect intermediaries (RFC 6455 §10.3); there are none in between.
pub(super) const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Appends a text frame.
pub(super) fn push_text(out: &mut Vec<u8>, text: &[u8]) {
    push_masked_frame(out, Opcode::Text, text, MASK);
}
