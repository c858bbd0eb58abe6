//! The WebSocket decoder gives the same result for any bytes in one piece and in many, and buffers at most
//! what arrived; the size of inflated messages is limited too. The first byte chooses the role and whether
//! messages may be compressed, the second the size of the pieces; the rest is the wire.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::ws::{Decoder, Inflater, Input, Role, Terms, WsError};

const MESSAGE_BYTES_MAX: usize = 4096;

/// Renders the inputs as text, since they do not outlive the buffer.
fn feed(terms: Terms, bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), WsError>) {
    let (mut decoder, mut inflater) = (Decoder::new(), Inflater::default());
    let mut received = Vec::new();
    let mut fed = 0;
    for piece in bytes.chunks(piece) {
        fed += piece.len();
        let result = decoder.feed_with_terms(terms, &mut piece.to_vec(), &mut |input| {
            received.push(match input {
                Input::Deflated(message) => {
                    let inflated = inflater.inflate(message, MESSAGE_BYTES_MAX);
                    if let Ok(Input::Binary(bytes)) = inflated {
                        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
                    }
                    format!("{inflated:?}")
                }
                input => format!("{input:?}"),
            });
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
            return (received, result);
        }
    }
    (received, Ok(()))
}

fuzz_target!(|bytes: &[u8]| {
    let [role_byte, piece, bytes @ ..] = bytes else { return };
    let role = if role_byte % 4 == 0 { Role::Client } else { Role::Server };
    let terms = Terms { role, deflates: role_byte & 0x80 != 0, message_bytes_max: MESSAGE_BYTES_MAX };
    let whole = feed(terms, bytes, usize::MAX);
    assert_eq!(feed(terms, bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(terms, bytes, 1), whole);
});
