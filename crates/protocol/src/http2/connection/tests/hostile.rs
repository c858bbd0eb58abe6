//! Violations and floods, each with its error code (RFC 9113 §5.4, §10.5).

use super::*;

/// Checks that a frame ends a connection with an open request, with the expected code.
#[track_caller]
fn check(expected: u32, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let mut pair = Pair::new();
    pair.request(1, b"");
    assert_eq!(pair.refused(&frame(kind, flags, stream, payload)), expected);
    assert_eq!(pair.client.into_open(), [Key(1)]);
    // The same, byte by byte.
    let mut pair = Pair::new();
    pair.request(1, b"");
    let error =
        frame(kind, flags, stream, payload).iter().find_map(|byte| pair.client.receive(&[*byte]).err());
    assert_eq!(error.map(|error| error.code), Some(expected));
}

/// Checks that a setting ends a connection.
#[track_caller]
fn check_setting(expected: u32, id: u16, value: u32) {
    check(expected, kind::SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat());
}

/// Checks that a response resets its stream and leaves the connection open.
#[track_caller]
fn check_malformed(end: bool, fields: &[(&str, &str)]) {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.request(2, b"");
    pair.written();
    pair.headers(1, end, fields);
    assert_eq!(pair.events(), [reset(1, code::PROTOCOL_ERROR, true)]);
    assert_eq!(pair.written(), [rst_stream(1, code::PROTOCOL_ERROR)]);
    pair.headers(3, true, &[(":status", "200")]);
    assert_eq!(pair.events(), [response(2, 200, b"")]);
}

#[test]
fn server_without_http2_is_rejected() {
    for bytes in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"\x15\x03\x03\0\x02\x02\x28PADDING",
        &frame(kind::PING, 0, 0, &[0; 8]),
    ] {
        assert_eq!(Pair::silent().refused(bytes), code::PROTOCOL_ERROR);
    }
    assert_eq!(Pair::silent().refused(&frame(kind::SETTINGS, flag::ACK, 0, b"")), code::PROTOCOL_ERROR);
}

#[test]
fn sizes() {
    for kind in 0..12 {
        // Before the payload arrived.
        let mut pair = Pair::new();
        pair.request(1, b"");
        let header = Header { len: 16_385, kind, flags: 0, stream: 1 };
        assert_eq!(pair.refused(&header.bytes()), code::FRAME_SIZE_ERROR);
    }
    check(code::FRAME_SIZE_ERROR, kind::SETTINGS, 0, 0, &[0; 5]);
    check(code::FRAME_SIZE_ERROR, kind::SETTINGS, flag::ACK, 0, &[0; 6]);
    check(code::FRAME_SIZE_ERROR, kind::PING, 0, 0, &[0; 7]);
    check(code::FRAME_SIZE_ERROR, kind::PING, flag::ACK, 0, &[0; 9]);
    check(code::FRAME_SIZE_ERROR, kind::RST_STREAM, 0, 1, &[0; 3]);
    check(code::FRAME_SIZE_ERROR, kind::RST_STREAM, 0, 1, &[0; 5]);
    check(code::FRAME_SIZE_ERROR, kind::WINDOW_UPDATE, 0, 0, &[0; 5]);
    check(code::FRAME_SIZE_ERROR, kind::GOAWAY, 0, 0, &[0; 7]);
    check(code::FRAME_SIZE_ERROR, kind::DATA, flag::PADDED, 1, b"");
    check(code::FRAME_SIZE_ERROR, kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, 1, &[0; 4]);
}

#[test]
fn priority_of_wrong_size_resets_its_stream() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.send(kind::PRIORITY, 0, 1, &[0; 4]);
    assert_eq!(pair.events(), [reset(1, code::FRAME_SIZE_ERROR, true)]);
}

#[test]
fn frames_on_a_wrong_stream_are_rejected() {
    let protocol = code::PROTOCOL_ERROR;
    for stream in [0, 2, 3] {
        check(protocol, kind::DATA, 0, stream, b"x");
        check(protocol, kind::HEADERS, flag::END_HEADERS, stream, &[0x88]);
        check(protocol, kind::RST_STREAM, 0, stream, &[0; 4]);
    }
    check(protocol, kind::WINDOW_UPDATE, 0, 2, &[0, 0, 0, 1]);
    check(protocol, kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]);
    check(protocol, kind::WINDOW_UPDATE, 0, 0, &[0; 4]);
    check(protocol, kind::PRIORITY, 0, 0, &[0; 5]);
    check(protocol, kind::SETTINGS, 0, 1, b"");
    check(protocol, kind::PING, 0, 1, &[0; 8]);
    check(protocol, kind::GOAWAY, 0, 1, &[0; 8]);
    check(protocol, kind::CONTINUATION, flag::END_HEADERS, 1, b"");
    check(protocol, kind::PUSH_PROMISE, flag::END_HEADERS, 1, &[0, 0, 0, 2, 0x82]);
}

#[test]
fn padding() {
    check(code::PROTOCOL_ERROR, kind::DATA, flag::PADDED, 1, &[2, 0]);
    check(code::PROTOCOL_ERROR, kind::HEADERS, flag::PADDED | flag::END_HEADERS, 1, &[2, 0x88]);
}

#[test]
fn settings() {
    check_setting(code::PROTOCOL_ERROR, id::ENABLE_PUSH, 1);
    check_setting(code::PROTOCOL_ERROR, id::ENABLE_PUSH, 2);
    check_setting(code::FLOW_CONTROL_ERROR, id::INITIAL_WINDOW_SIZE, 1 << 31);
    check_setting(code::PROTOCOL_ERROR, id::MAX_FRAME_SIZE, 16_383);
    check_setting(code::PROTOCOL_ERROR, id::MAX_FRAME_SIZE, 1 << 24);
}

#[test]
fn header_blocks() {
    check(code::COMPRESSION_ERROR, kind::HEADERS, flag::END_HEADERS, 1, &[0x80]);
    check(code::COMPRESSION_ERROR, kind::HEADERS, flag::END_HEADERS, 1, &[0x88, 0x20]);
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.client.cancel(Key(1));
    // Also for a closed stream.
    assert_eq!(pair.refused(&frame(kind::HEADERS, flag::END_HEADERS, 1, &[0xff])), code::COMPRESSION_ERROR);
    // Between the frames of a block: another frame, a frame of another stream, another block.
    for (kind, stream) in [(kind::PING, 0), (kind::CONTINUATION, 3), (kind::HEADERS, 1), (0xfa, 1)] {
        let mut pair = Pair::new();
        pair.request(1, b"");
        pair.request(2, b"");
        pair.send(kind::HEADERS, 0, 1, &[0x88]);
        assert_eq!(pair.refused(&frame(kind, 0, stream, &[0; 8])), code::PROTOCOL_ERROR);
    }
}

#[test]
fn malformed_responses() {
    check_malformed(true, &[]);
    check_malformed(true, &[("server", "x")]);
    check_malformed(true, &[("server", "x"), (":status", "200")]);
    check_malformed(true, &[(":status", "200"), (":status", "200")]);
    check_malformed(true, &[(":status", "200"), (":path", "/")]);
    for status in ["", "20", "2000", "2x0", "099", "+20"] {
        check_malformed(true, &[(":status", status)]);
    }
    for field in [
        ("Server", "x"),
        ("", "x"),
        ("a b", "x"),
        ("a\0", "x"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("x", " y"),
        ("x", "y\t"),
        ("x", "y\r\nz: w"),
        ("x", "y\0"),
        ("content-length", "x"),
        ("content-length", ""),
        ("content-length", "+1"),
        ("content-length", "18446744073709551616"),
    ] {
        check_malformed(false, &[(":status", "200"), field]);
    }
    check_malformed(false, &[(":status", "200"), ("content-length", "1"), ("content-length", "2")]);
    // A missing body.
    check_malformed(true, &[(":status", "200"), ("content-length", "1")]);
    // 101, and an interim response that ends the stream.
    check_malformed(false, &[(":status", "101")]);
    check_malformed(true, &[(":status", "100")]);
}

#[test]
fn content_length_is_ignored_for_statuses_without_content() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, true, &[(":status", "304"), ("content-length", "5")]);
    assert!(matches!(pair.events()[..], [Event::Response { status: 304, .. }]));
}

#[test]
fn misplaced_bodies_and_wrong_lengths_reset_the_stream() {
    let mut pair = Pair::new();
    for key in 1..=5 {
        pair.request(key, b"");
    }
    // Before the headers.
    pair.data(1, true, b"x");
    for (stream, body) in [(3, &b"1234"[..]), (5, b"123456"), (7, b"12345")] {
        pair.headers(stream, false, &[(":status", "200"), ("content-length", "5")]);
        pair.data(stream, true, body);
    }
    // Trailers that do not end the stream, and trailers with a status.
    pair.headers(9, false, &[(":status", "200")]);
    pair.headers(9, false, &[("x", "y")]);
    let events = pair.events();
    assert!(matches!(events[3], Event::Response { key: Key(4), .. }));
    for (event, key) in [(&events[0], 1), (&events[1], 2), (&events[2], 3), (&events[4], 5)] {
        assert_eq!(*event, reset(key, code::PROTOCOL_ERROR, true));
    }
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "200")]);
    pair.headers(1, true, &[(":status", "200")]);
    assert_eq!(pair.events(), [reset(1, code::PROTOCOL_ERROR, true)]);
}

#[test]
fn body_over_the_limit_is_truncated() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "503")]);
    pair.written();
    for _ in 0..7 {
        pair.data(1, false, &[b'x'; 16_000]);
    }
    let [Event::Response { status: 503, body, truncated: true, .. }] = &pair.events()[..] else {
        panic!("the beginning of the response")
    };
    assert_eq!(body.len(), CONFIG.response_body_bytes_max);
    assert!(pair.written().contains(&rst_stream(1, code::CANCEL)));
    assert_eq!(pair.client.open(), 0);
    // A body of exactly the limit is not truncated.
    pair.request(2, b"");
    pair.headers(3, false, &[(":status", "200")]);
    for _ in 0..10 {
        pair.data(3, false, &[b'x'; 10_000]);
    }
    pair.data(3, true, b"");
    assert!(matches!(&pair.events()[..], [Event::Response { truncated: false, .. }]));
}

#[test]
fn fields_over_the_limit_are_dropped() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.request(2, b"");
    pair.written();
    let long = "x".repeat(3000);
    pair.headers(
        1,
        false,
        &[(":status", "429"), ("retry-after", "7"), ("a", &long), ("b", &long), ("c", "z")],
    );
    let [Event::Response { status: 429, headers, truncated: true, .. }] = &pair.events()[..] else {
        panic!("the beginning of the response")
    };
    assert_eq!(headers.get("retry-after"), Some(&b"7"[..]));
    assert_eq!((headers.iter().count(), headers.get("c")), (2, None));
    assert_eq!(pair.written(), [rst_stream(1, code::CANCEL)]);
    // An interim response, or one whose status is beyond the limit, is not usable.
    pair.headers(3, false, &[("a", &long), ("b", &long)]);
    assert_eq!(pair.events(), [reset(2, code::PROTOCOL_ERROR, true)]);
}

/// A block of index bytes that expands to far more than its size.
#[test]
fn small_block_that_expands_to_many_fields() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    let value = "v".repeat(1900);
    let mut block = pair.block(&[(":status", "200"), ("n", &value)]);
    block.resize(16_384, 0xbe);
    pair.send(kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 1, &block);
    let [Event::Response { headers, truncated: true, .. }] = &pair.events()[..] else { panic!("a response") };
    assert_eq!(headers.iter().count(), 2);
}

#[test]
fn endless_header_block_is_rejected() {
    // Too many bytes.
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.send(kind::HEADERS, 0, 1, &[0x88; 16_384]);
    for _ in 0..3 {
        pair.send(kind::CONTINUATION, 0, 1, &[0x88; 16_384]);
    }
    assert_eq!(pair.refused(&frame(kind::CONTINUATION, 0, 1, &[0x88])), code::ENHANCE_YOUR_CALM);
    // Too many frames.
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.send(kind::HEADERS, 0, 1, b"");
    assert_eq!(pair.refused(&frame(kind::CONTINUATION, 0, 1, b"").repeat(100)), code::ENHANCE_YOUR_CALM);
}

#[test]
fn floods_of_frames_without_effect() {
    let useless = [
        frame(kind::PING, 0, 0, &[0; 8]),
        frame(kind::PING, flag::ACK, 0, &[0; 8]),
        frame(kind::SETTINGS, 0, 0, &[]),
        frame(kind::SETTINGS, flag::ACK, 0, &[]),
        frame(kind::PRIORITY, 0, 1, &[0; 5]),
        frame(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
        frame(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]),
        frame(kind::GOAWAY, 0, 0, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]),
        frame(kind::DATA, 0, 1, b""),
        frame(kind::DATA, 0, 1, &[0]),
        frame(kind::DATA, flag::PADDED, 1, &[0]),
        frame(kind::DATA, 0, 3, b"late"),
        frame(kind::RST_STREAM, 0, 3, &[0; 4]),
        frame(0x99, 0, 0, b""),
    ];
    for useless in useless {
        let mut pair = Pair::new();
        pair.request(1, b"");
        pair.request(2, b"");
        pair.headers(1, false, &[(":status", "200")]);
        pair.client.cancel(Key(2));
        let data = useless[3] == kind::DATA && useless.len() == 10 && useless[4] == 0;
        let mut count = 0;
        let error = loop {
            count += 1;
            match pair.client.receive(&useless) {
                Ok(()) => pair.client.output().clear(),
                Err(error) => break Some(error),
            }
            assert!(pair.client.events.len() <= 3);
            // A body sent byte by byte is slow but has an effect; the limit on its length ends it.
            if data && pair.client.open() == 0 {
                break None;
            }
        };
        match error {
            Some(error) => {
                assert_eq!((error.code, count), (code::ENHANCE_YOUR_CALM, IDLE_FRAMES_MAX as usize + 1))
            }
            None => assert_eq!(count, CONFIG.response_body_bytes_max + 1),
        }
    }
}

#[test]
fn requests_and_pings_reset_the_flood_count() {
    let mut pair = Pair::new();
    for _ in 0..5 {
        pair.client.ping();
        for _ in 0..IDLE_FRAMES_MAX {
            pair.send(kind::PING, 0, 0, &[0; 8]);
            pair.client.output().clear();
        }
    }
}

#[test]
fn endless_interim_responses_are_rejected() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    let block = pair.block(&[(":status", "100")]);
    let interim = frame(kind::HEADERS, flag::END_HEADERS, 1, &block[..]);
    // The first adds to the table; the others may follow without limit.
    assert_eq!(pair.refused(&interim.repeat(IDLE_FRAMES_MAX as usize + 1)), code::ENHANCE_YOUR_CALM);
}

#[test]
fn peer_that_does_not_read_replies_is_rejected() {
    let mut pair = Pair::new();
    pair.send(kind::SETTINGS, flag::ACK, 0, b"");
    let mut answered = 0;
    let error = loop {
        // Requests do not reset the count: the output only grows.
        pair.client.ping();
        if let Err(error) = pair.client.receive(&frame(kind::PING, 0, 0, &[0; 8])) {
            break error;
        }
        answered += 1;
    };
    assert_eq!(error.code, code::ENHANCE_YOUR_CALM);
    assert_eq!(answered, REPLIES_BYTES_MAX / 17);
    // A peer that reads may continue to send, even if the output is never empty.
    let mut pair = Pair::new();
    for key in 0..2 * answered as u64 {
        pair.request(key, b"");
        pair.send(kind::PING, 0, 0, &[0; 8]);
        pair.client.output().clear();
        pair.headers(2 * key as u32 + 1, true, &[(":status", "200")]);
        pair.events();
    }
}

#[test]
fn endless_resets_are_rejected() {
    let mut pair = Pair::new();
    let refuse = |pair: &mut Pair, stream: u32| {
        pair.request(1, b"");
        pair.client.output().clear();
        let result = pair.client.receive(&frame(kind::RST_STREAM, 0, stream, &7u32.to_be_bytes()));
        pair.events();
        result
    };
    let mut streams = (1..).step_by(2);
    for stream in streams.by_ref().take(RESETS_IN_A_ROW_MAX as usize) {
        assert_eq!(refuse(&mut pair, stream), Ok(()));
    }
    // A response in between resets the count.
    let stream = streams.next().expect("endless");
    pair.request(1, b"");
    pair.headers(stream, true, &[(":status", "200")]);
    for stream in streams.by_ref().take(RESETS_IN_A_ROW_MAX as usize) {
        assert_eq!(refuse(&mut pair, stream), Ok(()));
    }
    let stream = streams.next().expect("endless");
    assert_eq!(refuse(&mut pair, stream).map_err(|error| error.code), Err(code::ENHANCE_YOUR_CALM));
}

#[test]
fn announced_lengths_reserve_no_memory() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "200"), ("content-length", "18446744073709551615")]);
    let header = Header { len: 16_384, kind: kind::DATA, flags: 0, stream: 1 };
    pair.send(kind::PING, 0, 0, &[0; 8]);
    assert_eq!(pair.client.receive(&header.bytes()), Ok(()));
    assert_eq!(pair.client.receive(b"few"), Ok(()));
    assert!(pair.client.partial.capacity() < 64);
}

#[test]
fn early_response_cancels_the_rest_of_the_body() {
    let mut pair = Pair::with_settings(&[(id::INITIAL_WINDOW_SIZE, 1)]);
    pair.request(1, b"too large a body");
    pair.written();
    pair.headers(1, true, &[(":status", "413")]);
    assert_eq!(pair.events(), [response(1, 413, b"")]);
    assert_eq!(pair.written(), [rst_stream(1, code::CANCEL)]);
    pair.send(kind::RST_STREAM, 0, 1, &code::NO_ERROR.to_be_bytes());
    pair.send(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 9]);
    assert_eq!((pair.events(), pair.written()), (vec![], vec![]));
}

proptest! {
    /// Arbitrary bytes after the greeting: no panic, and buffers stay within what was received.
    #[test]
    fn any_frames_are_handled_within_bounds(frames in proptest::collection::vec((0u8..11, any::<u8>(), 0u32..8, proptest::collection::vec(any::<u8>(), 0..40)), 0..40)) {
        let mut pair = Pair::new();
        for key in 0..3 {
            pair.request(key, b"some body");
        }
        for (kind, flags, stream, payload) in frames {
            if pair.client.receive(&frame(kind, flags, stream, &payload)).is_err() {
                break;
            }
        }
        let ended = pair.events().iter().filter(|event| event.key().is_some()).count();
        prop_assert_eq!(ended + pair.client.open(), 3);
    }
}
