//! Measures what a push costs in this layer: `cargo run --release -p noroshi-protocol --example http2_cost`.
//! Encodes requests in the form that APNs expects and decodes responses in the form that APNs sends, with
//! `streams` in flight at a time, without socket and TLS. Prints nanoseconds per request.

use std::time::Instant;

use bytes::Bytes;
use noroshi_protocol::http2::{Config, Connection, Event, Field, Head, Key, hpack};

const ROUNDS: usize = 4000;
const STREAMS: usize = 250;

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    let [_, a, b, c] = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// A response: status and id only, or with a reason as body.
fn answer(encoder: &mut hpack::Encoder, out: &mut Vec<u8>, stream: u32, good: bool) {
    let mut block = Vec::new();
    encoder.begin(&mut block);
    encoder.field(b":status", if good { b"200" } else { b"410" }, true, &mut block);
    encoder.field(b"apns-id", b"9d6e3b0a-27c4-4c2f-9f0e-1d7c1a1f5b11", false, &mut block);
    frame(out, 1, if good { 5 } else { 4 }, stream, &block);
    if !good {
        frame(out, 0, 1, stream, br#"{"reason":"Unregistered","timestamp":1700000000000}"#);
    }
}

fn main() {
    let mut client = Connection::new(Config {
        stream_window: 65_535,
        connection_window: 1 << 24,
        response_body_bytes_max: 16 << 10,
        header_list_bytes_max: 16 << 10,
    });
    let mut greeting = Vec::new();
    frame(&mut greeting, 4, 0, 0, &[]);
    frame(&mut greeting, 8, 0, 0, &0x7000_0000u32.to_be_bytes());
    client.receive(&greeting).expect("a good greeting");

    let bearer = format!("bearer {}", "a".repeat(220));
    let body = Bytes::from(vec![b'{'; 300]);
    let paths: Vec<String> = (0..STREAMS).map(|i| format!("/3/device/{i:064x}")).collect();
    let mut encoder = hpack::Encoder::new();
    let (mut encoded, mut decoded, mut written, mut answers) = (0, 0, 0, 0);
    for round in 0..ROUNDS {
        let start = Instant::now();
        for (i, path) in paths.iter().enumerate() {
            let headers = [
                Field { name: "authorization", value: bearer.as_bytes(), indexed: true },
                Field { name: "apns-topic", value: b"com.example.app", indexed: true },
                Field { name: "apns-push-type", value: b"alert", indexed: true },
                Field { name: "apns-priority", value: b"10", indexed: true },
                Field { name: "apns-expiration", value: b"1700000000", indexed: false },
                Field { name: "apns-id", value: b"9d6e3b0a-27c4-4c2f-9f0e-1d7c1a1f5b11", indexed: false },
            ];
            let head = Head { method: "POST", authority: "api.push.apple.com", path, headers: &headers };
            client.request(Key(i as u64), &head, body.clone()).expect("room");
        }
        encoded += start.elapsed().as_nanos();
        written += client.output().len();
        client.output().clear();

        let mut received = Vec::new();
        for i in 0..STREAMS {
            let stream = 2 * (round * STREAMS + i) as u32 + 1;
            answer(&mut encoder, &mut received, stream, i % 10 != 0);
        }
        // Restores the peer's window now and then, as servers do.
        frame(&mut received, 8, 0, 0, &((body.len() * STREAMS) as u32).to_be_bytes());
        let start = Instant::now();
        for read in received.chunks(16 << 10) {
            client.receive(read).expect("good answers");
            while let Some(event) = client.poll_event() {
                answers += usize::from(matches!(event, Event::Response { .. }));
            }
        }
        decoded += start.elapsed().as_nanos();
    }
    let requests = (ROUNDS * STREAMS) as u128;
    assert_eq!(answers as u128, requests);
    println!("{requests} requests of {} bytes on the wire each", written as u128 / requests);
    println!("encode  {:>5} ns/request", encoded / requests);
    println!("decode  {:>5} ns/response", decoded / requests);
}
