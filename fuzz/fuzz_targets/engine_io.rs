//! The payload decoder gives the same result for a body in one piece and in many, and buffers at most what
//! arrived. A polling session then processes the packets, requests and time in any order: one end, and no
//! response without a pending poll. The first byte chooses the size of the pieces.

#![no_main]

use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::engine_io::payload::Decoder;
use noroshi_protocol::engine_io::{Config, Data, Outgoing, Output, Packet, PacketError, Session};
use noroshi_types::CloseReason;

const PAYLOAD_BYTES_MAX: usize = 4096;
const CONFIG: Config = Config {
    ping_interval_ms: 300,
    ping_timeout_ms: 200,
    payload_bytes_max: PAYLOAD_BYTES_MAX,
    queue_bytes_max: 1000,
    queue_packets_max: 10,
};

/// Renders the packets as text, since they do not outlive the buffer.
fn feed(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), PacketError>) {
    let mut decoder = Decoder::new();
    let mut received = Vec::new();
    let mut on = |packet: Packet<'_>| {
        received.push(format!("{packet:?}"));
        ControlFlow::Continue(())
    };
    for piece in bytes.chunks(piece) {
        let result = decoder.feed(piece, PAYLOAD_BYTES_MAX, &mut on);
        assert!(decoder.held_bytes() <= 2 * PAYLOAD_BYTES_MAX);
        if let Err(error) = result {
            return (received, Err(error));
        }
    }
    let result = decoder.finish(&mut on).map(drop);
    assert_eq!(decoder.held_bytes(), 0);
    (received, result)
}

/// Each record is an input: a number is time, a letter a request, anything else a packet from a POST, the
/// probing WebSocket, or the session's WebSocket.
fn converse(bytes: &[u8]) {
    let mut session = Session::polling(CONFIG.ping_interval_ms);
    let (mut now_ms, mut waits, mut ended) = (0, false, false);
    for record in bytes.split(|byte| *byte == b'\n') {
        let mut out = Vec::new();
        match record {
            b"G" => waits |= session.handle_poll(now_ms, &CONFIG, &mut out).is_ok(),
            b"P" => drop(session.handle_post(now_ms, &CONFIG, &mut out)),
            b"E" => drop(session.end_post(Ok(()), &mut out)),
            b"B" => drop(session.end_post(Err(PacketError::Base64), &mut out)),
            b"W" => drop(session.accept_probe(now_ms, &CONFIG, &mut out)),
            b"w" => session.handle_probe_disconnect(),
            b"g" => {
                session.handle_poll_disconnect(&mut out);
                waits = false;
            }
            b"p" => session.handle_post_disconnect(&mut out),
            b"x" => session.handle_websocket_disconnect(CloseReason::PeerReset, &mut out),
            b"c" => session.close(CloseReason::Drain, now_ms, &CONFIG, &mut out),
            [b't', ms] => {
                now_ms += u64::from(*ms);
                session.handle_time(now_ms, &CONFIG, &mut out);
            }
            [b'u', packet @ ..] => {
                if let Some(packet) =
                    std::str::from_utf8(packet).ok().and_then(|it| Packet::from_text(it).ok())
                {
                    session.handle_probe_packet(packet, now_ms, &CONFIG, &mut out);
                }
            }
            packet => {
                let Some(packet) = std::str::from_utf8(packet).ok().and_then(|it| Packet::from_text(it).ok())
                else {
                    continue;
                };
                let received = session.handle_packet(packet, now_ms, &CONFIG, &mut out);
                assert!(received.is_none() || !ended);
                if let Some(Data::Text(text)) = received {
                    session.push(Outgoing::message(Data::Text(text)), &CONFIG, &mut out);
                    session.flush(&mut out);
                }
            }
        }
        for output in &out {
            match output {
                Output::Answer(_) => assert!(std::mem::take(&mut waits), "a response without a pending poll"),
                Output::Ended(_) => assert!(!std::mem::replace(&mut ended, true), "one end"),
                Output::Frame(_) | Output::Upgraded | Output::Probe(_) => assert!(!ended),
                Output::EndProbe => {}
            }
        }
        assert!(session.queued_bytes() <= CONFIG.queue_bytes_max + 100);
        assert_eq!(session.is_polled(), waits);
    }
}

fuzz_target!(|bytes: &[u8]| {
    let [piece, bytes @ ..] = bytes else { return };
    let whole = feed(bytes, usize::MAX);
    assert_eq!(feed(bytes, usize::from(*piece).max(1)), whole);
    assert_eq!(feed(bytes, 1), whole);
    converse(bytes);
});
