//! A scripted peer checks what the connection writes and reports. One rule per test.

use proptest::prelude::*;

use super::*;
use crate::http2::frame::{HEADER_BYTES, Header, flag, kind};

mod ending;
mod hostile;
mod split;
mod windows;

const CONFIG: Config = Config {
    stream_window: 65_535,
    connection_window: 1 << 20,
    response_body_bytes_max: 100_000,
    header_list_bytes_max: 4096,
};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Splits `bytes` into frames, with no remainder.
fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() {
        let Header { len, kind, flags, stream } = Header::parse(header);
        let (payload, rest) = rest.split_at(len);
        frames.push(Frame { kind, flags, stream, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty());
    frames
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frame::push_header(&mut out, kind, flags, stream, payload.len());
    out.extend_from_slice(payload);
    out
}

/// The connection, and the server side of its header compression.
struct Pair {
    client: Connection,
    encoder: hpack::Encoder,
    decoder: hpack::Decoder,
}

impl Pair {
    /// A server that has sent nothing and has read preface and SETTINGS.
    fn silent() -> Self {
        let mut client = Connection::new(CONFIG);
        client.output().clear();
        Self { client, encoder: hpack::Encoder::new(), decoder: hpack::Decoder::new(4096) }
    }

    fn new() -> Self {
        Self::with_settings(&[])
    }

    fn with_settings(settings: &[(u16, u32)]) -> Self {
        let mut pair = Self::silent();
        pair.settings(settings);
        assert_eq!(
            pair.written(),
            [Frame { kind: kind::SETTINGS, flags: flag::ACK, stream: 0, payload: vec![] }]
        );
        assert_eq!(pair.events(), [Event::SettingsChanged]);
        pair
    }

    #[track_caller]
    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        assert_eq!(self.client.receive(&frame(kind, flags, stream, payload)), Ok(()));
    }

    /// Feeds bytes that must fail. Checks the GOAWAY and returns its error code.
    #[track_caller]
    fn refused(&mut self, bytes: &[u8]) -> u32 {
        self.client.output().clear();
        let open = self.client.open();
        let error = self.client.receive(bytes).expect_err("an error");
        let last = self.written().pop().expect("GOAWAY");
        assert_eq!((last.kind, &last.payload[4..8]), (kind::GOAWAY, &error.code.to_be_bytes()[..]));
        assert_eq!((self.client.room(), self.client.is_closing()), (0, true));
        assert_eq!(self.client.receive(b""), Err(error));
        assert_eq!(self.client.request(Key(99), &HEAD, Bytes::new()), Err(Closed));
        assert_eq!(self.client.open(), open);
        error.code
    }

    fn settings(&mut self, settings: &[(u16, u32)]) {
        let mut out = Vec::new();
        frame::push_settings(&mut out, settings);
        assert_eq!(self.client.receive(&out), Ok(()));
    }

    fn block(&mut self, fields: &[(&str, &str)]) -> Vec<u8> {
        let mut out = Vec::new();
        self.encoder.begin(&mut out);
        for (name, value) in fields {
            self.encoder.field(name.as_bytes(), value.as_bytes(), true, &mut out);
        }
        out
    }

    #[track_caller]
    fn headers(&mut self, stream: u32, end: bool, fields: &[(&str, &str)]) {
        let block = self.block(fields);
        let flags = flag::END_HEADERS | if end { flag::END_STREAM } else { 0 };
        self.send(kind::HEADERS, flags, stream, &block);
    }

    #[track_caller]
    fn data(&mut self, stream: u32, end: bool, data: &[u8]) {
        self.send(kind::DATA, if end { flag::END_STREAM } else { 0 }, stream, data);
    }

    #[track_caller]
    fn go_away(&mut self, last: u32, code: u32, debug: &str) {
        let payload = [&last.to_be_bytes()[..], &code.to_be_bytes(), debug.as_bytes()].concat();
        self.send(kind::GOAWAY, 0, 0, &payload);
    }

    #[track_caller]
    fn request(&mut self, key: u64, body: &'static [u8]) {
        assert_eq!(self.client.request(Key(key), &HEAD, Bytes::from_static(body)), Ok(()));
    }

    fn written(&mut self) -> Vec<Frame> {
        frames(&std::mem::take(self.client.output()))
    }

    fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.client.poll_event()).collect()
    }

    /// The fields of a request's header block, as text.
    fn read_block(&mut self, block: &[u8]) -> Vec<String> {
        let mut fields = Vec::new();
        let read = self.decoder.decode(block, &mut |name, value| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
        });
        read.expect("a good block");
        fields
    }
}

const HEAD: Head<'_> = Head {
    method: "POST",
    authority: "api.push.example",
    path: "/3/device/00ff",
    headers: &[
        Field { name: "authorization", value: b"bearer abc", indexed: true },
        Field { name: "apns-id", value: b"1", indexed: false },
    ],
};

fn response(key: u64, status: u16, body: &'static [u8]) -> Event {
    let (headers, body) = (Headers::default(), Bytes::from_static(body));
    Event::Response { key: Key(key), status, headers, body, truncated: false }
}

fn reset(key: u64, code: u32, processed: bool) -> Event {
    Event::Reset { key: Key(key), code, processed }
}

fn rst_stream(stream: u32, code: u32) -> Frame {
    Frame { kind: kind::RST_STREAM, flags: 0, stream, payload: code.to_be_bytes().to_vec() }
}

#[test]
fn connection_starts_with_preface_settings_and_window_update() {
    let mut client = Connection::new(Config { stream_window: 1000, ..CONFIG });
    let output = std::mem::take(client.output());
    let rest = output.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the preface");
    let [settings, window] = &frames(rest)[..] else { panic!("two frames") };
    assert_eq!((settings.kind, settings.flags, settings.stream), (kind::SETTINGS, 0, 0));
    // No push; the smallest window we offer; 4096 bytes of fields.
    assert_eq!(settings.payload, [0, 2, 0, 0, 0, 0, 0, 4, 0, 0, 255, 255, 0, 6, 0, 0, 16, 0]);
    assert_eq!((window.kind, window.stream), (kind::WINDOW_UPDATE, 0));
    assert_eq!(window.payload, ((1u32 << 20) - 65_535).to_be_bytes());
}

#[test]
fn request_and_response() {
    let mut pair = Pair::new();
    pair.request(7, b"{}");
    let [headers, data] = &pair.written()[..] else { panic!("two frames") };
    assert_eq!((headers.kind, headers.flags, headers.stream), (kind::HEADERS, flag::END_HEADERS, 1));
    assert_eq!(
        pair.read_block(&headers.payload),
        [
            ":method: POST",
            ":scheme: https",
            ":authority: api.push.example",
            ":path: /3/device/00ff",
            "authorization: bearer abc",
            "apns-id: 1"
        ]
    );
    assert_eq!(
        *data,
        Frame { kind: kind::DATA, flags: flag::END_STREAM, stream: 1, payload: b"{}".to_vec() }
    );
    assert_eq!(pair.client.open(), 1);

    pair.headers(1, false, &[(":status", "400"), ("apns-id", "1"), ("x", "")]);
    pair.data(1, false, b"{\"reason\":");
    assert_eq!(pair.events(), []);
    pair.data(1, true, b"\"BadTopic\"}");
    let [Event::Response { key, status, headers, body, truncated: false }] = &pair.events()[..] else {
        panic!("a response")
    };
    assert_eq!((*key, *status, &body[..]), (Key(7), 400, &b"{\"reason\":\"BadTopic\"}"[..]));
    assert_eq!(headers.get("apns-id"), Some(&b"1"[..]));
    assert_eq!(headers.get("x"), Some(&b""[..]));
    assert_eq!(headers.get(":status"), None);
    assert_eq!(headers.iter().count(), 2);
    assert_eq!((pair.client.open(), pair.written()), (0, vec![]));
}

#[test]
fn repeated_fields_cost_one_byte() {
    let mut pair = Pair::new();
    for key in 0..3 {
        pair.request(key, b"");
    }
    let written = pair.written();
    assert!(written.iter().all(|frame| frame.flags == flag::END_HEADERS | flag::END_STREAM));
    // Method, scheme, authority, the path from its second occurrence, authorization, and a literal of 11
    // bytes.
    let lens: Vec<usize> = written.iter().map(|frame| frame.payload.len()).collect();
    assert_eq!(lens[2], 5 + 11);
    assert_eq!(lens[1] - lens[2], "/3/device/00ff".len() + 1);
    for frame in &written {
        assert_eq!(pair.read_block(&frame.payload).len(), 6);
    }
}

#[test]
fn response_of_one_frame() {
    let mut pair = Pair::new();
    pair.request(1, b"{}");
    pair.headers(1, true, &[(":status", "200")]);
    assert_eq!(pair.events(), [response(1, 200, b"")]);
}

#[test]
fn long_header_block_is_sent_with_continuation() {
    let mut pair = Pair::new();
    let value = vec![b'v'; 40_000];
    let headers = [Field { name: "long", value: &value, indexed: true }];
    let head = Head { headers: &headers, ..HEAD };
    pair.client.request(Key(1), &head, Bytes::from_static(b"x")).expect("room");
    let written = pair.written();
    let kinds: Vec<(u8, u8)> = written.iter().map(|frame| (frame.kind, frame.flags)).collect();
    assert_eq!(
        kinds,
        [
            (kind::HEADERS, 0),
            (kind::CONTINUATION, 0),
            (kind::CONTINUATION, flag::END_HEADERS),
            (kind::DATA, flag::END_STREAM)
        ]
    );
    let block: Vec<u8> = written[..3].iter().flat_map(|frame| frame.payload.clone()).collect();
    assert_eq!(pair.read_block(&block)[4].len(), "long: ".len() + 40_000);
}

#[test]
fn received_continuation_is_joined() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    let block = pair.block(&[(":status", "201"), ("location", "https://push.example/m/1")]);
    let (first, rest) = block.split_at(3);
    // Padded and with a priority, as any HEADERS frame may be.
    let padded = [&[2u8][..], &[0, 0, 0, 0, 9], first, &[0, 0]].concat();
    pair.send(kind::HEADERS, flag::END_STREAM | flag::PADDED | flag::PRIORITY, 1, &padded);
    pair.send(kind::CONTINUATION, 0, 1, &rest[..1]);
    pair.send(kind::CONTINUATION, flag::END_HEADERS, 1, &rest[1..]);
    let [Event::Response { status: 201, headers, .. }] = &pair.events()[..] else { panic!("a response") };
    assert_eq!(headers.get("location"), Some(&b"https://push.example/m/1"[..]));
}

#[test]
fn interim_responses_and_trailers_are_skipped() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.headers(1, false, &[(":status", "100")]);
    pair.headers(1, false, &[(":status", "103"), ("link", "</x>")]);
    pair.headers(1, false, &[(":status", "200")]);
    pair.send(kind::DATA, flag::PADDED, 1, &[3, b'o', b'k', 0, 0, 0]);
    pair.headers(1, true, &[("grpc-status", "0")]);
    assert_eq!(pair.events(), [response(1, 200, b"ok")]);
}

#[test]
fn room_respects_peer_settings_and_caller_limit() {
    let mut pair = Pair::silent();
    assert_eq!(pair.client.room(), 100);
    pair.settings(&[]);
    assert_eq!(pair.client.room(), STREAMS_MAX);
    pair.settings(&[(id::MAX_CONCURRENT_STREAMS, 3)]);
    assert_eq!(pair.client.room(), 3);
    pair.client.limit(Some(1));
    assert_eq!(pair.client.room(), 1);
    pair.request(1, b"");
    assert_eq!(pair.client.room(), 0);
    assert_eq!(pair.client.request(Key(2), &HEAD, Bytes::new()), Err(Closed));
    assert!(!pair.client.is_closing());
    pair.client.limit(None);
    pair.request(2, b"");
    pair.request(3, b"");
    // Lowered while streams are open: these continue.
    pair.settings(&[(id::MAX_CONCURRENT_STREAMS, 1)]);
    assert_eq!((pair.client.room(), pair.client.open()), (0, 3));
    for stream in [1, 3, 5] {
        assert_eq!(pair.client.room(), 0);
        pair.headers(stream, true, &[(":status", "200")]);
    }
    assert_eq!(pair.client.room(), 1);
    pair.settings(&[(id::MAX_CONCURRENT_STREAMS, 0)]);
    assert_eq!((pair.client.room(), pair.client.is_closing()), (0, false));
    pair.settings(&[(id::MAX_CONCURRENT_STREAMS, u32::MAX)]);
    assert_eq!(pair.client.room(), STREAMS_MAX);
}

#[test]
fn settings_without_max_streams_keep_the_limit() {
    let mut pair = Pair::with_settings(&[(id::MAX_CONCURRENT_STREAMS, 7)]);
    pair.settings(&[(id::INITIAL_WINDOW_SIZE, 1), (0xf0f0, 1), (id::MAX_FRAME_SIZE, 1 << 14)]);
    assert_eq!(pair.client.room(), 7);
}

#[test]
fn table_size_change_precedes_the_next_request() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.settings(&[(id::HEADER_TABLE_SIZE, 0)]);
    pair.request(2, b"");
    let written = pair.written();
    assert_eq!(pair.read_block(&written[0].payload).len(), 6);
    assert_eq!(written[2].payload[0], 0x20);
    assert_eq!(pair.read_block(&written[2].payload).len(), 6);
}

#[test]
fn pings_in_both_directions() {
    let mut pair = Pair::new();
    pair.send(kind::PING, 0, 0, b"01234567");
    assert_eq!(pair.written(), frames(&frame(kind::PING, flag::ACK, 0, b"01234567")));
    pair.client.ping();
    pair.client.ping();
    let [first, second] = &pair.written()[..] else { panic!("two pings") };
    assert_ne!(first.payload, second.payload);
    pair.send(kind::PING, flag::ACK, 0, &first.payload);
    pair.send(kind::PING, flag::ACK, 0, b"whatever");
    assert_eq!(pair.events(), []);
    pair.send(kind::PING, flag::ACK, 0, &second.payload);
    pair.send(kind::PING, flag::ACK, 0, &second.payload);
    assert_eq!(pair.events(), [Event::Pong]);
}

#[test]
fn unknown_frames_are_ignored() {
    let mut pair = Pair::new();
    pair.request(1, b"");
    pair.written();
    pair.send(0xa, 0xff, 1, b"an alternative service");
    pair.send(0xfe, 0xff, 0, b"");
    pair.send(kind::PRIORITY, 0, 9, &[0, 0, 0, 1, 5]);
    pair.send(kind::SETTINGS, flag::ACK, 0, b"");
    assert_eq!((pair.written(), pair.events()), (vec![], vec![]));
}
