//! The HTTP/2 client gives the same result for any server bytes in one piece and in many: equal events,
//! output and error. Every request ends at most once, and the count of open requests is correct. The first
//! byte chooses the size of the pieces and a greeting, so that the fuzzer need not find one: none, or one
//! after which bodies wait for stream windows or for the connection window. The rest is the wire.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use noroshi_protocol::http2::{Config, Connection, ConnectionError, Event, Field, Head, Key};

const CONFIG: Config = Config {
    stream_window: 65_535,
    connection_window: 100_000,
    response_body_bytes_max: 2000,
    header_list_bytes_max: 1000,
};
const REQUESTS: u64 = 5;

fn feed(mode: u8, bytes: &[u8], piece: usize) -> (Vec<Event>, Vec<u8>, Result<(), ConnectionError>) {
    let mut client = Connection::new(CONFIG);
    client.output().clear();
    let (greeting, step): (&[u8], usize) = match mode {
        0 => (&[], 30),
        1 => (&[0, 0, 0, 4, 0, 0, 0, 0, 0], 9000),
        // An initial window of 20 bytes.
        _ => (&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 20], 30),
    };
    client.receive(greeting).expect("a greeting");
    let headers = [Field { name: "apns-topic", value: b"app", indexed: true }];
    for key in 0..REQUESTS {
        let path = if key % 2 == 0 { "/a" } else { "/b" };
        let head = Head { method: "POST", authority: "push.example", path, headers: &headers };
        let body = Bytes::from(vec![b'b'; key as usize * step]);
        client.request(Key(key), &head, body).expect("room");
    }
    let mut result = Ok(());
    let mut events = Vec::new();
    for piece in bytes.chunks(piece) {
        result = client.receive(piece);
        events.extend(std::iter::from_fn(|| client.poll_event()));
        if result.is_err() {
            break;
        }
    }
    for event in &events {
        if let Event::Response { status, headers, body, .. } = event {
            assert!((200..1000).contains(status) && body.len() <= CONFIG.response_body_bytes_max);
            let list: usize = headers.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
            assert!(list <= CONFIG.header_list_bytes_max);
        }
    }
    let mut ended: Vec<u64> = events.iter().filter_map(|event| event.key()).map(|key| key.0).collect();
    assert_eq!(ended.len() + client.open(), REQUESTS as usize);
    assert!(!client.is_closing() || client.room() == 0);
    let output = std::mem::take(client.output());
    ended.extend(client.into_open().iter().map(|key| key.0));
    ended.sort_unstable();
    assert!(ended.into_iter().eq(0..REQUESTS));
    // A connection event may combine several changes that arrived together.
    events.retain(|event| event.key().is_some());
    (events, output, result)
}

fuzz_target!(|bytes: &[u8]| {
    let [first, bytes @ ..] = bytes else { return };
    let (mode, piece) = (first % 8, usize::from(first / 8) + 2);
    let whole = feed(mode, bytes, usize::MAX);
    assert_eq!(feed(mode, bytes, piece), whole);
    assert_eq!(feed(mode, bytes, 1), whole);
});
