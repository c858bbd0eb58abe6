//! The MQTT decoder gives the same result for any bytes in one piece and in many, buffers at most what
//! arrived, and every parsed packet round-trips. The first byte chooses the version, the second the size of
//! the pieces; the rest is the wire.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::mqtt::{Connect, Decoder, Frame, Packet, Version, Violation};

const PACKET_BYTES_MAX: usize = 4096;

/// Renders the packets as text, since they do not outlive the buffer.
fn feed(version: Version, bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), Violation>) {
    let mut decoder = Decoder::new();
    let mut received = Vec::new();
    let mut fed = 0;
    for piece in bytes.chunks(piece) {
        fed += piece.len();
        let result = decoder.feed(piece, PACKET_BYTES_MAX, &mut |frame| {
            let packet = Packet::parse(version, frame);
            if let Ok(packet) = &packet {
                written(version, packet);
            }
            received.push(format!("{:?} {packet:?}", frame.body));
            ControlFlow::Continue(())
        });
        assert!(decoder.held_bytes() <= 2 * fed.min(PACKET_BYTES_MAX) + 64, "{} held", decoder.held_bytes());
        assert_eq!(decoder.is_idle(), decoder.held_bytes() == 0);
        if result.is_err() {
            assert!(decoder.is_idle());
            return (received, result);
        }
    }
    (received, Ok(()))
}

/// Encodes a packet and parses it again.
fn written(version: Version, packet: &Packet<'_>) {
    let version = match packet {
        Packet::Connect(Connect { version, .. }) => *version,
        _ => version,
    };
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes);
    let mut count = 0;
    let mut decoder = Decoder::new();
    let again = decoder.feed(&bytes, usize::MAX, &mut |frame: Frame<'_>| {
        count += 1;
        assert_eq!(Packet::parse(version, frame).as_ref(), Ok(packet));
        ControlFlow::Continue(())
    });
    assert!(again.is_ok() && decoder.is_idle() && count == 1);
}

fuzz_target!(|bytes: &[u8]| {
    let [version, piece, bytes @ ..] = bytes else { return };
    let version = if version % 2 == 0 { Version::V3 } else { Version::V5 };
    let whole = feed(version, bytes, usize::MAX);
    assert_eq!(feed(version, bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(version, bytes, 1), whole);
});
