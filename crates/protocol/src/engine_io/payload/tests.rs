//! Payloads: the specification's examples, vectors of the JavaScript parser, malformed payloads, and every
//! split.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::engine_io::Data;

const MAX: usize = 1000;

/// Records the received packets as text, since they do not outlive the buffer.
fn feed(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), PacketError>) {
    let mut decoder = Decoder::new();
    let mut heard = Vec::new();
    let mut on = |packet: Packet<'_>| {
        heard.push(format!("{packet:?}"));
        ControlFlow::Continue(())
    };
    let mut result = Ok(());
    for piece in bytes.chunks(piece.max(1)) {
        result = decoder.feed(piece, MAX, &mut on).map(drop);
        assert!(decoder.held_bytes() <= 2 * MAX);
        if result.is_err() {
            break;
        }
    }
    if result.is_ok() {
        result = decoder.finish(&mut on).map(drop);
        assert_eq!(decoder.held_bytes(), 0);
    }
    (heard, result)
}

#[track_caller]
fn check(body: &str, expected: &[Packet<'_>], result: Result<(), PacketError>) {
    let expected: Vec<_> = expected.iter().map(|packet| format!("{packet:?}")).collect();
    for piece in [usize::MAX, 1, 2, 3, 7] {
        assert_eq!(feed(body.as_bytes(), piece), (expected.clone(), result), "{body:?} by {piece}");
    }
}

#[test]
fn decodes_the_examples_of_the_specification() {
    use Data::{Binary, Text};
    use Packet::{Message, Ping};
    check("4hello", &[Message(Text("hello"))], Ok(()));
    check("4hello\x1e2\x1e4world", &[Message(Text("hello")), Ping(""), Message(Text("world"))], Ok(()));
    check("4hello\x1ebAQIDBA==", &[Message(Text("hello")), Message(Binary(&[1, 2, 3, 4]))], Ok(()));
    check("4€uro\x1e1", &[Message(Text("€uro")), Packet::Close], Ok(()));
    check("b", &[Message(Binary(&[]))], Ok(()));
}

#[test]
fn packets_before_a_malformed_one_are_delivered() {
    let hello = [Packet::Message(Data::Text("hello"))];
    check("", &[], Err(PacketError::Empty));
    check("abc", &[], Err(PacketError::UnknownType));
    check("4hello\x1e", &hello, Err(PacketError::Empty));
    check("4hello\x1e\x1e4x", &hello, Err(PacketError::Empty));
    check("4hello\x1e7", &hello, Err(PacketError::UnknownType));
    for not_base64 in ["bA", "bAQ=", "bAQIDBA", "bAQIDBA==x", "b AQ==", "bAR==", "b-_8="] {
        check(&format!("4hello\x1e{not_base64}"), &hello, Err(PacketError::Base64));
    }
    for piece in [1, 9] {
        let (heard, result) = feed(b"4hello\x1e4\xFF", piece);
        assert_eq!((heard.len(), result), (1, Err(PacketError::InvalidUtf8)));
    }
}

#[test]
fn payload_over_the_limit_is_rejected_before_it_is_buffered() {
    let mut decoder = Decoder::new();
    let mut on = |_: Packet<'_>| ControlFlow::Continue(());
    assert_eq!(decoder.feed(&[b'4'; 11], 10, &mut on), Err(PacketError::TooBig));
    assert_eq!(decoder.held_bytes(), 0);
    let mut decoder = Decoder::new();
    assert!(decoder.feed(&[b'4'; 10], 10, &mut on).is_ok());
    assert_eq!(decoder.feed(b"4", 10, &mut on), Err(PacketError::TooBig));
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn break_drops_the_rest() {
    let mut decoder = Decoder::new();
    let mut count = 0;
    let flow = decoder.feed(b"6\x1e6\x1e6\x1e6", MAX, &mut |_| {
        count += 1;
        if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!((flow, count, decoder.held_bytes()), (Ok(ControlFlow::Break(())), 2, 0));
}

fn written(payload: &Payload) -> Vec<u8> {
    let mut out = b"before".to_vec();
    payload.write(&mut out);
    assert_eq!(out.len(), 6 + payload.body_bytes());
    out.split_off(6)
}

#[test]
fn encodes_the_examples_of_the_specification() {
    assert_eq!(written(&Payload::new()), b"");
    assert_eq!(written(&Payload::of(Outgoing::NOOP)), b"6");
    let mut payload = Payload::of(Outgoing::message(Data::Text("hello")));
    payload.push(Outgoing::PING);
    payload.push(Outgoing::message(Data::Binary(&[1, 2, 3, 4])));
    assert_eq!(written(&payload), b"4hello\x1e2\x1ebAQIDBA==");
}

proptest! {
    #[test]
    fn packets_round_trip_with_every_split(
        packets in proptest::collection::vec(prop_oneof![
            "[^\\x1e]{0,20}".prop_map(|text| Outgoing::message(Data::Text(&text))),
            proptest::collection::vec(any::<u8>(), 0..20).prop_map(|bytes| Outgoing::Binary(bytes.into())),
            Just(Outgoing::NOOP),
        ], 1..6),
        piece in 1usize..12,
    ) {
        let mut payload = Payload::new();
        packets.iter().cloned().for_each(|packet| payload.push(packet));
        let body = written(&payload);
        let expected: Vec<_> = packets.iter().map(|packet| match packet {
            Outgoing::Text(text) => {
                format!("{:?}", Packet::from_text(std::str::from_utf8(text).unwrap()).unwrap())
            }
            Outgoing::Binary(bytes) => format!("{:?}", Packet::from_binary(bytes)),
        }).collect();
        prop_assert_eq!(feed(&body, piece), (expected, Ok(())));
        prop_assert!(payload.into_packets().eq(packets));
    }

    #[test]
    fn splits_do_not_change_the_result(
        bytes in proptest::collection::vec(prop_oneof![
            Just(0x1e), Just(b'4'), Just(b'b'), Just(b'A'), Just(b'='), Just(0xE2), any::<u8>(),
        ], 0..40),
        piece in 1usize..10,
    ) {
        prop_assert_eq!(feed(&bytes, piece), feed(&bytes, usize::MAX));
    }
}

#[test]
fn packets_share_their_text() {
    let text = Bytes::from(vec![b'4'; 100]);
    let payload = Payload::of(Outgoing::Text(text.clone()));
    assert!(!text.is_unique());
    drop(payload);
    assert!(text.is_unique());
}
