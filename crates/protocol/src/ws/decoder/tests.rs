//! The decoder against RFC 6455's examples, each rule, and two invariants: splits do not change the result,
//! and memory follows the bytes received. Every check feeds its bytes whole, one by one, and split in two at
//! each position.

use noroshi_types::CloseReason;
use proptest::prelude::*;

use super::*;
use crate::ws::{frame, push_close, push_frame, push_masked_frame, text_frame};

const MAX: usize = 64 << 10;
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// An [`Input`] that outlives its buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Received {
    Text(String),
    Binary(Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Deflated(Opcode, Vec<u8>),
}

impl Received {
    /// Fragments are not recorded.
    fn of(input: Input<'_>) -> Option<Self> {
        Some(match input {
            Input::Text(text) => Received::Text(text.to_owned()),
            Input::Binary(bytes) => Received::Binary(bytes.to_vec()),
            Input::Ping(bytes) => Received::Ping(bytes.to_vec()),
            Input::Pong(bytes) => Received::Pong(bytes.to_vec()),
            Input::Close { code, reason } => Received::Close(code, reason.to_owned()),
            Input::Deflated(Deflated { opcode, payload }) => Received::Deflated(opcode, payload.to_vec()),
            Input::Fragment => return None,
        })
    }
}

fn text(text: &str) -> Received {
    Received::Text(text.to_owned())
}

type Outcome = (Vec<Received>, Result<(), WsError>);

/// Feeds `pieces` in order until an error. Also returns whether the decoder is empty.
fn feed<'a>(role: Role, pieces: impl IntoIterator<Item = &'a [u8]>, max: usize) -> (Outcome, bool) {
    let mut decoder = Decoder::new();
    let mut heard = Vec::new();
    for piece in pieces {
        let mut piece = piece.to_vec();
        let result = decoder.feed(role, &mut piece, max, &mut |input| {
            heard.extend(Received::of(input));
            ControlFlow::Continue(())
        });
        if result.is_err() {
            assert!(decoder.is_idle(), "nothing is kept after an error");
            return ((heard, result), true);
        }
    }
    ((heard, Ok(())), decoder.is_idle())
}

/// Checks the result of `wire` for all splits.
#[track_caller]
fn check_with(role: Role, wire: &[u8], max: usize, expected: &[Received], result: Result<(), WsError>) {
    let expected = (expected.to_vec(), result);
    let (whole, idle) = feed(role, [wire], max);
    assert_eq!(whole, expected, "in one piece");
    assert_eq!(feed(role, wire.chunks(1), max), (expected.clone(), idle), "byte by byte");
    for at in 0..wire.len() {
        let (left, right) = wire.split_at(at);
        assert_eq!(feed(role, [left, right], max), (expected.clone(), idle), "cut at {at}");
    }
}

#[track_caller]
fn check(wire: &[u8], expected: &[Received]) {
    check_with(Role::Server, wire, MAX, expected, Ok(()));
}

#[track_caller]
fn check_error(wire: &[u8], error: WsError) {
    check_with(Role::Server, wire, MAX, &[], Err(error));
}

#[track_caller]
fn check_broken(wire: &[u8]) {
    let ((heard, result), _) = feed(Role::Server, [wire], MAX);
    let error = result.expect_err("a protocol error");
    assert!(matches!(error, WsError::Protocol(_)), "{error:?}");
    assert_eq!(error.reason(), CloseReason::ProtocolError);
    check_with(Role::Server, wire, MAX, &heard, Err(error));
}

/// A client frame with an arbitrary first byte.
fn raw(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    push_masked_frame(&mut out, Opcode::Binary, payload, KEY);
    out[0] = first;
    out
}

fn masked(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    raw(0x80 | opcode as u8, payload)
}

#[test]
fn decodes_the_examples_of_rfc_6455_section_5_7() {
    let client = |wire: &[u8], expected: Received| {
        check_with(Role::Client, wire, MAX * 2, &[expected], Ok(()));
    };
    client(&[0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f], text("Hello"));
    check(&[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58], &[text("Hello")]);
    client(&[0x01, 0x03, 0x48, 0x65, 0x6c, 0x80, 0x02, 0x6c, 0x6f], text("Hello"));
    client(&[0x89, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f], Received::Ping(b"Hello".to_vec()));
    check(
        &[0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58],
        &[Received::Pong(b"Hello".to_vec())],
    );
    let long = |header: &[u8], len: usize| {
        let wire = [header, &vec![7; len]].concat();
        let (outcome, idle) = feed(Role::Client, wire.chunks(1000), MAX);
        assert_eq!(outcome, (vec![Received::Binary(vec![7; len])], Ok(())));
        assert!(idle);
    };
    long(&[0x82, 0x7E, 0x01, 0x00], 256);
    long(&[0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0], 65_536);
}

#[test]
fn encodes_the_examples_of_rfc_6455_section_5_7() {
    assert_eq!(&text_frame(b"Hello")[..], [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f]);
    assert_eq!(
        masked(Opcode::Text, b"Hello"),
        [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]
    );
    assert_eq!(frame(Opcode::Binary, &[0; 125])[..2], [0x82, 125]);
    assert_eq!(frame(Opcode::Binary, &[0; 126])[..4], [0x82, 0x7E, 0, 126]);
    assert_eq!(frame(Opcode::Binary, &[0; 256])[..4], [0x82, 0x7E, 0x01, 0x00]);
    assert_eq!(frame(Opcode::Binary, &[0; 65_536])[..10], [0x82, 0x7F, 0, 0, 0, 0, 0, 1, 0, 0]);
}

#[test]
fn close_reason_fits_125_bytes() {
    let mut out = Vec::new();
    push_close(&mut out, 4001, "bye");
    assert_eq!(out, [0x88, 5, 0x0f, 0xa1, b'b', b'y', b'e']);
    out.clear();
    push_close(&mut out, 4001, &"é".repeat(100));
    assert_eq!(out[1], 124, "123 bytes cut at a character");
    check_with(Role::Client, &out, MAX, &[Received::Close(Some(4001), "é".repeat(61))], Ok(()));
}

#[test]
fn reserved_bits_and_opcodes_are_rejected() {
    for first in [0xC1, 0xA1, 0x91, 0xF1, 0xC9, 0xB8] {
        check_broken(&raw(first, b"x"));
    }
    for opcode in [0x3, 0x4, 0x5, 0x6, 0x7, 0xB, 0xC, 0xD, 0xE, 0xF] {
        check_broken(&raw(0x80 | opcode, b""));
    }
    // At the first byte, before the rest of the header.
    assert!(feed(Role::Server, [&[0xC1][..]], MAX).0.1.is_err());
}

#[test]
fn only_clients_mask_frames() {
    check_error(&text_frame(b"x"), WsError::Protocol("a client frame is not masked"));
    let wire = masked(Opcode::Text, b"x");
    check_with(Role::Client, &wire, MAX, &[], Err(WsError::Protocol("a server frame is masked")));
}

#[test]
fn control_frames_are_short_and_unfragmented() {
    check(&masked(Opcode::Ping, &[1; 125]), &[Received::Ping(vec![1; 125])]);
    check(&masked(Opcode::Ping, b""), &[Received::Ping(vec![])]);
    check_broken(&masked_raw_len(0x89, &[126, 0, 126]));
    for first in [0x08, 0x09, 0x0A] {
        check_broken(&raw(first, b"x"));
    }
}

/// A client header with an explicit length field, and no payload.
fn masked_raw_len(first: u8, len: &[u8]) -> Vec<u8> {
    let mut wire = vec![first, 0x80 | len[0]];
    wire.extend_from_slice(&len[1..]);
    wire.extend_from_slice(&KEY);
    wire
}

#[test]
fn lengths_must_be_minimal_and_positive() {
    check_broken(&masked_raw_len(0x82, &[126, 0, 125]));
    check_broken(&masked_raw_len(0x82, &[127, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF]));
    check_broken(&masked_raw_len(0x82, &[127, 0x80, 0, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn hostile_length_is_rejected_before_buffering() {
    for len in [
        &[126, 0x04, 0x01][..],
        &[127, 0, 0, 0, 0, 0, 1, 0, 0],
        &[127, 0x7F, 255, 255, 255, 255, 255, 255, 255],
    ] {
        let wire = masked_raw_len(0x82, len);
        check_with(Role::Server, &wire, 1024, &[], Err(WsError::TooBig));
        // Fails before the masking key arrives.
        assert_eq!(feed(Role::Server, [&wire[..wire.len() - 4]], 1024).0.1, Err(WsError::TooBig));
    }
    assert_eq!(WsError::TooBig.reason(), CloseReason::TooBig);
    check_with(
        Role::Server,
        &masked(Opcode::Binary, &[5; 1024]),
        1024,
        &[Received::Binary(vec![5; 1024])],
        Ok(()),
    );
}

#[test]
fn message_limit_covers_all_fragments() {
    let fragments = [raw(0x02, &[1; 600]), raw(0x00, &[2; 400]), raw(0x80, &[3; 25])].concat();
    check_with(Role::Server, &fragments, 1024, &[], Err(WsError::TooBig));
    let whole = [vec![1; 600], vec![2; 400], vec![3; 25]].concat();
    check_with(Role::Server, &fragments, 1025, &[Received::Binary(whole)], Ok(()));
}

#[test]
fn every_fragment_is_reported_before_the_message() {
    let mut wire = [raw(0x01, b""), raw(0x00, b""), raw(0x00, b"x"), raw(0x80, b"")].concat();
    let mut told = Vec::new();
    let mut on = |input: Input<'_>| {
        told.push(Received::of(input));
        ControlFlow::Continue(())
    };
    Decoder::new().feed(Role::Server, &mut wire, MAX, &mut on).unwrap();
    assert_eq!(told, [None, None, None, Some(text("x"))]);
}

#[test]
fn buffer_grows_with_received_bytes() {
    let mut decoder = Decoder::new();
    let mut ignore = |_: Input<'_>| ControlFlow::Continue(());
    let mut header = masked_raw_len(0x82, &[127, 0, 0, 0, 0, 1, 0, 0, 0]); // announces 16 MiB
    decoder.feed(Role::Server, &mut header, 16 << 20, &mut ignore).unwrap();
    assert!(!decoder.is_idle());
    assert!(decoder.held_bytes() <= 256, "{}", decoder.held_bytes());
    for received in (1..=200).map(|i| i * 1000) {
        decoder.feed(Role::Server, &mut [0; 1000], 16 << 20, &mut ignore).unwrap();
        assert!((received..=received * 2 + 256).contains(&decoder.held_bytes()), "{}", decoder.held_bytes());
    }
    // Nothing beyond the frame's end either.
    let mut decoder = Decoder::new();
    let mut wire = masked(Opcode::Binary, &[0; 3000]);
    for piece in wire[..3007].chunks_mut(1000) {
        decoder.feed(Role::Server, piece, MAX, &mut ignore).unwrap();
    }
    assert!(decoder.held_bytes() <= 3000 + 256, "{}", decoder.held_bytes());
    decoder.feed(Role::Server, &mut wire[3007..], MAX, &mut ignore).unwrap();
    assert!(decoder.is_idle());
    assert_eq!(decoder.held_bytes(), 0);
}

#[test]
fn debug_omits_the_buffer() {
    let mut decoder = Decoder::new();
    let mut wire = raw(0x01, b"s3cret");
    decoder.feed(Role::Server, &mut wire, MAX, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(format!("{decoder:?}"), format!("Decoder({} bytes held)", decoder.held_bytes()));
}

#[test]
fn fragments_form_one_message_with_interleaved_control_frames() {
    let wire = [
        raw(0x01, b"He"),
        masked(Opcode::Ping, b"1"),
        raw(0x00, b""),
        masked(Opcode::Pong, b""),
        raw(0x00, b"l"),
        raw(0x80, b"lo"),
        masked(Opcode::Text, b"again"),
    ];
    let expected = [Received::Ping(b"1".to_vec()), Received::Pong(vec![]), text("Hello"), text("again")];
    check(&wire.concat(), &expected);
    check(&[raw(0x01, b""), raw(0x80, b"")].concat(), &[text("")]);
}

#[test]
fn misplaced_fragments_are_rejected() {
    check_broken(&raw(0x80, b"x"));
    check_broken(&raw(0x00, b"x"));
    check_broken(&[raw(0x01, b"a"), masked(Opcode::Text, b"b")].concat());
    check_broken(&[raw(0x01, b"a"), raw(0x02, b"b")].concat());
    check_broken(&[raw(0x01, b"a"), raw(0x80, b"b"), raw(0x80, b"c")].concat());
}

#[test]
fn characters_may_be_split_between_fragments() {
    let kosme = "κόσμε 日本 🔥".as_bytes();
    for at in 0..=kosme.len() {
        let wire = [raw(0x01, &kosme[..at]), raw(0x80, &kosme[at..])].concat();
        check(&wire, &[text("κόσμε 日本 🔥")]);
    }
    // But not at the end of a message.
    check_error(&masked(Opcode::Text, &kosme[..kosme.len() - 1]), WsError::InvalidUtf8);
    check_error(&[raw(0x01, b"a"), raw(0x80, &kosme[..1])].concat(), WsError::InvalidUtf8);
    check(&masked(Opcode::Binary, &kosme[..1]), &[Received::Binary(kosme[..1].to_vec())]);
}

#[test]
fn invalid_utf8_fails_at_its_first_wrong_byte() {
    // Surrogate, beyond U+10FFFF, overlong, lone continuation, bytes that never occur in UTF-8.
    for broken in [&[0xED, 0xA0][..], &[0xF4, 0x90], &[0xC0], &[0x80], &[0xFF], &[0xE0, 0x80], &[0xF0, 0x80]]
    {
        let payload = [b"ok \xce\xba", broken].concat();
        check_error(&masked(Opcode::Text, &[&payload[..], b" more"].concat()), WsError::InvalidUtf8);
        // An open fragment, and a frame that is never completed.
        assert_eq!(feed(Role::Server, [&raw(0x01, &payload)[..]], MAX).0.1, Err(WsError::InvalidUtf8));
        let endless = masked(Opcode::Text, &[&payload[..], &[b'x'; 90]].concat());
        let seen = &endless[..6 + payload.len()];
        assert_eq!(feed(Role::Server, seen.chunks(1), MAX).0.1, Err(WsError::InvalidUtf8));
    }
    assert_eq!(WsError::InvalidUtf8.reason(), CloseReason::InvalidUtf8);
}

#[test]
fn close_codes_follow_section_7_4() {
    check(&masked(Opcode::Close, b""), &[Received::Close(None, String::new())]);
    check_broken(&masked(Opcode::Close, &[3]));
    for code in [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999] {
        let payload = [&u16::to_be_bytes(code)[..], "ciao é".as_bytes()].concat();
        check(&masked(Opcode::Close, &payload), &[Received::Close(Some(code), "ciao é".to_owned())]);
    }
    for code in [0, 999, 1004, 1005, 1006, 1012, 1014, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        check_broken(&masked(Opcode::Close, &u16::to_be_bytes(code)));
    }
    check_error(&masked(Opcode::Close, &[0x03, 0xE8, 0xCE, 0xBA, 0xE1]), WsError::InvalidUtf8);
}

#[test]
fn break_drops_the_rest() {
    for cut in [None, Some(3)] {
        let mut wire =
            [masked(Opcode::Text, b"one"), masked(Opcode::Text, b"two"), raw(0x01, b"th")].concat();
        let mut decoder = Decoder::new();
        let mut heard = Vec::new();
        let mut on = |input: Input<'_>| {
            heard.extend(Received::of(input));
            ControlFlow::Break(())
        };
        let (left, right) = wire.split_at_mut(cut.unwrap_or(0));
        decoder.feed(Role::Server, left, MAX, &mut on).unwrap();
        decoder.feed(Role::Server, right, MAX, &mut on).unwrap();
        assert_eq!(heard, [text("one")]);
        assert!(decoder.is_idle());
    }
}

/// A message in fragments, with control frames before some of them.
fn any_message() -> impl Strategy<Value = (Vec<u8>, Vec<Received>)> {
    let control = proptest::option::of((any::<bool>(), proptest::collection::vec(any::<u8>(), 0..=125)));
    let fragments = proptest::collection::vec((control, "\\PC{0,40}", any::<[u8; 4]>()), 1..5);
    (any::<bool>(), fragments).prop_map(|(is_text, fragments)| {
        let (mut wire, mut heard, mut whole) = (Vec::new(), Vec::new(), String::new());
        let last = fragments.len() - 1;
        for (i, (control, part, mask)) in fragments.into_iter().enumerate() {
            if let Some((is_ping, payload)) = control {
                let opcode = if is_ping { Opcode::Ping } else { Opcode::Pong };
                push_masked_frame(&mut wire, opcode, &payload, mask);
                heard.push(if is_ping { Received::Ping(payload) } else { Received::Pong(payload) });
            }
            let opcode = match (i, is_text) {
                (0, true) => Opcode::Text,
                (0, false) => Opcode::Binary,
                _ => Opcode::Continuation,
            };
            let start = wire.len();
            push_masked_frame(&mut wire, opcode, part.as_bytes(), mask);
            if i < last {
                wire[start] &= 0x7F;
            }
            whole.push_str(&part);
        }
        heard.push(if is_text { Received::Text(whole) } else { Received::Binary(whole.into_bytes()) });
        (wire, heard)
    })
}

proptest! {
    #[test]
    fn messages_round_trip_with_every_split(
        messages in proptest::collection::vec(any_message(), 1..4),
        piece in 1usize..200,
    ) {
        let (wire, heard): (Vec<_>, Vec<_>) = messages.into_iter().unzip();
        let (wire, heard) = (wire.concat(), heard.concat());
        prop_assert_eq!(feed(Role::Server, wire.chunks(piece), MAX), ((heard, Ok(())), true));
    }

    #[test]
    fn server_frames_round_trip(payload in proptest::collection::vec(any::<u8>(), 0..70_000)) {
        let mut out = Vec::new();
        push_frame(&mut out, Opcode::Binary, &payload);
        prop_assert_eq!(&out[..], &frame(Opcode::Binary, &payload)[..]);
        prop_assert_eq!(feed(Role::Client, [&out[..]], 70_000), ((vec![Received::Binary(payload)], Ok(())), true));
    }

    #[test]
    fn splits_do_not_change_the_packets(
        mut wire in proptest::collection::vec(any::<u8>(), 0..300),
        piece in 1usize..20,
        first in prop_oneof![Just(0x81), Just(0x82), Just(0x01), Just(0x88), Just(0x89)],
    ) {
        if let [a, b, ..] = &mut wire[..] {
            *a = first; // otherwise nearly all fail at the first byte
            *b |= 0x80;
        }
        prop_assert_eq!(feed(Role::Server, wire.chunks(piece), 256).0, feed(Role::Server, [&wire[..]], 256).0);
    }
}

/// Checks the result with permessage-deflate, in one piece and byte by byte.
#[track_caller]
fn check_deflating(wire: &[u8], expected: &[Received], result: Result<(), WsError>) {
    for piece_bytes in [wire.len(), 1] {
        let (mut decoder, mut heard) = (Decoder::new(), Vec::new());
        let terms = Terms { role: Role::Server, deflates: true, message_bytes_max: 1_000 };
        let mut fed = Ok(());
        for piece in wire.chunks(piece_bytes) {
            fed = fed.and_then(|()| {
                decoder.feed_with_terms(terms, &mut piece.to_vec(), &mut |input| {
                    heard.extend(Received::of(input));
                    ControlFlow::Continue(())
                })
            });
        }
        assert_eq!((&heard[..], fed), (expected, result), "in pieces of {piece_bytes}");
        assert!(decoder.is_idle());
    }
}

/// RFC 7692 §7.2.3.1, in one frame and in two.
#[test]
fn compressed_message_is_reported_whole() {
    let hello = [0xF2, 0x48, 0xCD, 0xC9, 0xC9, 0x07, 0x00];
    let expected = [Received::Deflated(Opcode::Text, hello.to_vec())];
    check_deflating(&raw(0xC1, &hello), &expected, Ok(()));
    let two = [raw(0x41, &hello[..3]), masked(Opcode::Ping, b"p"), raw(0x80, &hello[3..])].concat();
    check_deflating(&two, &[Received::Ping(b"p".to_vec()), expected[0].clone()], Ok(()));
    // A compressed text is validated only after inflation, unlike the message that follows.
    let broken = [raw(0xC2, b"\xFF"), raw(0x41, b"\xFF"), raw(0x80, b"\xFE"), raw(0x81, b"ok")].concat();
    let told = [
        Received::Deflated(Opcode::Binary, vec![0xFF]),
        Received::Deflated(Opcode::Text, vec![0xFF, 0xFE]),
        text("ok"),
    ];
    check_deflating(&broken, &told, Ok(()));
    check_deflating(&raw(0x81, b"\xFF"), &[], Err(WsError::InvalidUtf8));
    check_deflating(&raw(0xC2, &[0; 1_001]), &[], Err(WsError::TooBig));
}

/// RFC 7692 §6.1, RFC 6455 §5.2.
#[test]
fn compression_bit_is_valid_only_in_the_first_frame() {
    let reserved = Err(WsError::Protocol("a reserved bit is set"));
    for first in [0xC8, 0xC9, 0xCA, 0xE1, 0xD1, 0xA1, 0x91] {
        check_deflating(&raw(first, b""), &[], reserved);
    }
    // The other frames of a message do not have the bit, compressed or not.
    for begin in [0x41, 0x01] {
        check_deflating(&[raw(begin, b"a"), raw(0xC0, b"b")].concat(), &[], reserved);
    }
}
