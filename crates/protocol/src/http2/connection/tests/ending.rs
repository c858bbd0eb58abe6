//! Early ends of streams and connections, and which requests are known to be unprocessed.

use super::*;

#[test]
fn refused_stream_was_not_processed() {
    let mut pair = Pair::new();
    for key in 1..=4 {
        pair.request(key, b"");
    }
    pair.send(kind::RST_STREAM, 0, 1, &code::REFUSED_STREAM.to_be_bytes());
    pair.send(kind::RST_STREAM, 0, 3, &code::INTERNAL_ERROR.to_be_bytes());
    // A peer that began to respond did process the request, whatever code it sends.
    pair.headers(5, false, &[(":status", "200")]);
    pair.send(kind::RST_STREAM, 0, 5, &code::REFUSED_STREAM.to_be_bytes());
    // A complete response is valid (RFC 9113 §8.1).
    pair.headers(7, true, &[(":status", "200")]);
    pair.send(kind::RST_STREAM, 0, 7, &code::NO_ERROR.to_be_bytes());
    assert_eq!(
        pair.events(),
        [
            reset(1, code::REFUSED_STREAM, false),
            reset(2, code::INTERNAL_ERROR, true),
            reset(3, code::REFUSED_STREAM, true),
            response(4, 200, b"")
        ]
    );
    assert_eq!(pair.client.open(), 0);
}

#[test]
fn graceful_shutdown_by_the_peer() {
    let mut pair = Pair::new();
    for key in 1..=4 {
        pair.request(key, b"");
    }
    pair.go_away(MAX_31_BITS, code::NO_ERROR, "");
    assert_eq!(pair.events(), [Event::GoAway { code: 0, debug: Bytes::new() }]);
    assert_eq!((pair.client.room(), pair.client.open(), pair.client.is_closing()), (0, 4, true));
    assert_eq!(pair.client.request(Key(5), &HEAD, Bytes::new()), Err(Closed));
    pair.headers(7, false, &[(":status", "200")]);
    pair.go_away(3, code::NO_ERROR, "{\"reason\":\"Shutdown\"}");
    let debug = Bytes::from_static(b"{\"reason\":\"Shutdown\"}");
    assert_eq!(
        pair.events(),
        // A request with a partial response was processed, whatever GOAWAY says.
        [reset(3, code::NO_ERROR, false), reset(4, code::NO_ERROR, true), Event::GoAway { code: 0, debug }]
    );
    // The last id must not rise again; a higher one has no effect.
    pair.go_away(5, code::NO_ERROR, "");
    pair.headers(1, true, &[(":status", "200")]);
    pair.headers(3, true, &[(":status", "410")]);
    pair.headers(5, true, &[(":status", "200")]);
    assert_eq!(
        pair.events(),
        [Event::GoAway { code: 0, debug: Bytes::new() }, response(1, 200, b""), response(2, 410, b"")]
    );
    assert_eq!(pair.client.open(), 0);
}

#[test]
fn lost_connection_returns_requests_of_unknown_outcome() {
    let mut pair = Pair::new();
    for key in [30, 20, 10] {
        pair.request(key, b"");
    }
    pair.headers(3, true, &[(":status", "200")]);
    assert_eq!(pair.client.into_open(), [Key(30), Key(10)]);
}

#[test]
fn graceful_shutdown_by_us() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.written();
    pair.client.go_away();
    assert_eq!(pair.written(), frames(&frame(kind::GOAWAY, 0, 0, &[0; 8])));
    assert_eq!((pair.client.room(), pair.client.is_closing()), (0, true));
    pair.headers(1, true, &[(":status", "200")]);
    assert_eq!(pair.events(), [response(1, 200, b"")]);
}

#[test]
fn late_response_of_a_cancelled_request_still_updates_the_table() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.request(2, b"");
    pair.written();
    pair.client.cancel(Key(1));
    pair.client.cancel(Key(1));
    assert_eq!(pair.written(), [rst_stream(1, code::CANCEL)]);
    assert_eq!(pair.client.open(), 1);
    pair.headers(1, false, &[(":status", "200"), ("server", "x")]);
    pair.data(1, true, b"late");
    pair.headers(3, false, &[(":status", "200"), ("server", "x")]);
    pair.data(3, true, b"");
    let [Event::Response { key: Key(2), headers, .. }] = &pair.events()[..] else { panic!("one response") };
    assert_eq!(headers.get("server"), Some(&b"x"[..]));
}

#[test]
fn cancelled_request_emits_no_event() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.request(2, b"");
    pair.headers(1, true, &[(":status", "200")]);
    pair.headers(3, true, &[(":status", "200")]);
    pair.written();
    pair.client.cancel(Key(1));
    assert_eq!(pair.events(), [response(2, 200, b"")]);
    assert_eq!(pair.written(), []);
}

#[test]
fn exhausted_stream_ids_close_the_connection() {
    let mut pair = Pair::new();
    pair.client.next_id = MAX_31_BITS;
    assert!(pair.client.room() > 0);
    pair.request(1, b"");
    assert_eq!(pair.written()[0].stream, MAX_31_BITS);
    assert_eq!((pair.client.room(), pair.client.is_closing()), (0, true));
    pair.headers(MAX_31_BITS, true, &[(":status", "200")]);
    assert_eq!(pair.events(), [response(1, 200, b"")]);
}
