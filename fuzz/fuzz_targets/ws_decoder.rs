//! Any bytes mean the same to the WebSocket decoder in one piece and in many, and what it holds is bounded
//! by what arrived. The first byte chooses the role, the second the size of the pieces; the rest is the
//! wire.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::ws::{Decoder, Role, WsError};

const MESSAGE_BYTES_MAX: usize = 4096;

/// What was heard, as text: inputs do not outlive the buffer.
fn feed(role: Role, bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), WsError>) {
    let mut decoder = Decoder::new();
    let mut heard = Vec::new();
    let mut fed = 0;
    for piece in bytes.chunks(piece) {
        fed += piece.len();
        let result = decoder.feed(role, &mut piece.to_vec(), MESSAGE_BYTES_MAX, &mut |input| {
            heard.push(format!("{input:?}"));
            ControlFlow::Continue(())
        });
        // Doubling while a message grows, and the state of one frame.
        assert!(
            decoder.held_bytes() <= 2 * fed.min(MESSAGE_BYTES_MAX) + 512,
            "{} held",
            decoder.held_bytes()
        );
        assert_eq!(decoder.is_idle(), decoder.held_bytes() == 0);
        if result.is_err() {
            assert!(decoder.is_idle());
            return (heard, result);
        }
    }
    (heard, Ok(()))
}

fuzz_target!(|bytes: &[u8]| {
    let [role, piece, bytes @ ..] = bytes else { return };
    let role = if role % 4 == 0 { Role::Client } else { Role::Server };
    let whole = feed(role, bytes, usize::MAX);
    assert_eq!(feed(role, bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(role, bytes, 1), whole);
});
