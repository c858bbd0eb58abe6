//! permessage-deflate (RFC 7692): which clients get it, which frames are compressed, and hostile peers.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use flate2::{Compress, Compression, FlushCompress};
use noroshi_gateway::Config;
use noroshi_protocol::ws::{Decoder, Inflater, Input, Opcode, Role, Terms, push_masked_frame};
use noroshi_types::{CloseReason, When};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain, read_until, topic, user};

fn deflating() -> Config {
    Config { websocket_deflate: true, ..plain() }
}

#[derive(Debug, PartialEq)]
enum Said {
    Text { text: String, deflated: bool },
    Close(u16),
}

/// A client that reports which frames arrived compressed.
struct Peer {
    socket: TcpStream,
    decoder: Decoder,
    inflater: Inflater,
    said: VecDeque<Said>,
}

const OFFER: &str = "permessage-deflate; client_max_window_bits";

impl Peer {
    /// Its WebSocket is open; the answer's extensions.
    async fn open(node: &Node, path: &str, offer: &str) -> (Self, Option<String>) {
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        let offer =
            if offer.is_empty() { String::new() } else { format!("Sec-WebSocket-Extensions: {offer}\r\n") };
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{offer}\r\n"
        );
        socket.write_all(head.as_bytes()).await.expect("sent");
        let mut read = read_until(&mut socket, b"\r\n\r\n").await;
        let end = read.windows(4).position(|four| four == b"\r\n\r\n").expect("a head") + 4;
        let mut rest = read.split_off(end);
        let head = String::from_utf8(read).expect("text");
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let extensions = head.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "));
        let extensions = extensions.map(str::to_owned);
        let (decoder, inflater) = (Decoder::new(), Inflater::default());
        let mut peer = Self { socket, decoder, inflater, said: VecDeque::new() };
        peer.hear(&mut rest);
        (peer, extensions)
    }

    /// A device that is logged in, on a connection that agreed on compression.
    async fn connect(node: &Node, device: &str, offer: &str) -> Self {
        let path = format!("/v1/connect?token={}", node.token(device));
        let (mut peer, extensions) = Self::open(node, &path, offer).await;
        assert!(extensions.is_some(), "{offer}");
        assert_eq!(peer.json().await["t"], "ready");
        peer
    }

    fn hear(&mut self, bytes: &mut [u8]) {
        let Self { decoder, inflater, said, .. } = self;
        let terms = Terms { role: Role::Client, deflates: true, message_bytes_max: 1 << 20 };
        let mut on = |input: Input<'_>| {
            let (input, deflated) = match input {
                Input::Deflated(message) => (inflater.inflate(message, 1 << 20).expect("valid"), true),
                input => (input, false),
            };
            match input {
                Input::Text(text) => said.push_back(Said::Text { text: text.to_owned(), deflated }),
                Input::Close { code, .. } => said.push_back(Said::Close(code.expect("a code"))),
                input => panic!("{input:?}"),
            }
            ControlFlow::Continue(())
        };
        decoder.feed_with_terms(terms, bytes, &mut on).expect("frames");
    }

    async fn next(&mut self) -> Said {
        loop {
            if let Some(said) = self.said.pop_front() {
                return said;
            }
            let mut chunk = [0; 16 << 10];
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut chunk)).await.expect("in time");
            let count = read.expect("no error");
            assert!(count > 0, "ended");
            self.hear(&mut chunk[..count]);
        }
    }

    async fn text(&mut self) -> (String, bool) {
        match self.next().await {
            Said::Text { text, deflated } => (text, deflated),
            said @ Said::Close(_) => panic!("{said:?}"),
        }
    }

    async fn json(&mut self) -> Value {
        serde_json::from_str(&self.text().await.0).expect("JSON")
    }

    /// The data of the next message, and whether it came compressed.
    async fn data(&mut self) -> (Value, bool) {
        let (text, deflated) = self.text().await;
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(json["t"], "msg", "{json}");
        (json["data"].clone(), deflated)
    }

    async fn closed(&mut self) -> u16 {
        loop {
            if let Said::Close(code) = self.next().await {
                return code;
            }
        }
    }

    async fn send(&mut self, text: &str) {
        self.send_frame(0x81, text.as_bytes()).await;
    }

    async fn send_deflated(&mut self, text: &str) {
        self.send_frame(0xC1, &compressed(text.as_bytes())).await;
    }

    async fn send_frame(&mut self, first: u8, payload: &[u8]) {
        self.socket.write_all(&frame(first, payload)).await.expect("sent");
    }
}

/// A masked frame with any first byte.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    push_masked_frame(&mut frame, Opcode::Binary, payload, [1, 2, 3, 4]);
    frame[0] = first;
    frame
}

/// RFC 7692 §7.2.1.
fn compressed(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(plain.len() + 64);
    Compress::new(Compression::best(), false)
        .compress_vec(plain, &mut out, FlushCompress::Sync)
        .expect("any input");
    assert_eq!(out.split_off(out.len() - 4), [0, 0, 0xFF, 0xFF]);
    out
}

/// A JSON string of so many bytes that compresses well.
fn long(bytes: usize) -> String {
    format!("\"{}\"", "nothing new under the sun, ".repeat(bytes / 27 + 1).split_at(bytes - 2).0)
}

#[tokio::test(flavor = "multi_thread")]
async fn compression_needs_configuration_and_an_offer() {
    let (on, off) = (Node::start(deflating()).await, Node::start(plain()).await);
    for path in ["/v1/connect", "/mqtt", "/xmpp", "/socket.io/?EIO=4&transport=websocket"] {
        let agreed = "permessage-deflate; server_no_context_takeover; client_no_context_takeover";
        assert_eq!(Peer::open(&on, path, OFFER).await.1.as_deref(), Some(agreed), "{path}");
        assert_eq!(Peer::open(&on, path, "").await.1, None, "{path}");
        assert_eq!(Peer::open(&on, path, "permessage-deflate; x").await.1, None, "{path}");
        assert_eq!(Peer::open(&off, path, OFFER).await.1, None, "{path}");
    }
    let bits = Peer::open(&on, "/v1/connect", "permessage-deflate; server_max_window_bits=12").await.1;
    assert!(bits.expect("agreed").ends_with("; server_max_window_bits=12"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_is_compressed_for_clients_that_agreed() {
    let node = Node::start(deflating()).await;
    for device in ["d1", "d2", "d3", "d4"] {
        node.device(device, "u1", &["news"]).await;
    }
    let mut plain = node.connect("d1").await;
    let mut deflated = Peer::connect(&node, "d2", OFFER).await;
    let mut small = Peer::connect(&node, "d3", "permessage-deflate; server_max_window_bits=9").await;
    let mut fair = Peer::connect(&node, "d4", "permessage-deflate; server_max_window_bits=12").await;
    // Longer than a window of 512 bytes, and than one of 4 KiB; and too short to be worth it.
    for (data, by_small, by_fair, by_all) in [
        (long(300), true, true, true),
        (long(1_000), false, true, true),
        (long(5_000), false, false, true),
        (long(20), false, false, false),
    ] {
        for target in [topic("news"), user("u1")] {
            for when in [When::Stored, When::Connected] {
                node.publish(target.clone(), when, &data).await;
                let expected: Value = serde_json::from_str(&data).expect("JSON");
                assert_eq!(plain.next_data().await, expected);
                assert_eq!(deflated.data().await, (expected.clone(), by_all), "{}", data.len());
                assert_eq!(small.data().await, (expected.clone(), by_small), "{}", data.len());
                assert_eq!(fair.data().await, (expected, by_fair), "{}", data.len());
            }
        }
    }
    let (before, after) =
        ("noroshi_websocket_deflate_plain_bytes_total", "noroshi_websocket_deflate_sent_bytes_total");
    node.until("counted", |node| node.metric(before) > 60_000).await;
    assert!(node.metric(after) < node.metric(before));
}

#[tokio::test(flavor = "multi_thread")]
async fn backlogs_and_acknowledgements_are_compressed() {
    let node = Node::start(deflating()).await;
    node.device("d1", "u1", &["news"]).await;
    let mut ids = Vec::new();
    for n in 0..100 {
        let data = format!(r#"{{"n":{n},"text":{}}}"#, long(400));
        ids.push(node.publish(user("u1"), When::Stored, &data).await.to_string());
    }
    let (mut peer, _) = Peer::open(&node, "/v1/connect", OFFER).await;
    // A token in a compressed frame, split in two.
    let connect = compressed(json!({"t": "connect", "token": node.token("d1")}).to_string().as_bytes());
    peer.send_frame(0x41, &connect[..10]).await;
    peer.send_frame(0x80, &connect[10..]).await;
    assert_eq!(peer.json().await["t"], "ready");
    for n in 0..100 {
        let (data, deflated) = peer.data().await;
        assert_eq!((&data["n"], deflated), (&json!(n), true));
    }
    peer.send_deflated(&json!({"t": "ack", "ids": ids}).to_string()).await;
    peer.send_deflated(r#"{"t":"ping"}"#).await;
    assert_eq!(peer.text().await, (r#"{"t":"pong"}"#.to_owned(), false));
    node.until_acknowledged("d1").await;
    peer.send_frame(0x88, &1_000_u16.to_be_bytes()).await;
    assert_eq!(peer.closed().await, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn socket_io_heads_precede_the_shared_part() {
    let node = Node::start(deflating()).await;
    let mut peers = Vec::new();
    for (device, auth) in [("d1", ""), ("d2", ""), ("d3", r#","offsets":true"#)] {
        node.device(device, "u1", &[]).await;
        let (mut peer, extensions) = Peer::open(&node, "/socket.io/?EIO=4&transport=websocket", OFFER).await;
        assert!(extensions.is_some());
        assert!(peer.text().await.0.starts_with("0{"));
        peer.send_deflated(&format!(r#"40{{"token":"{}"{auth}}}"#, node.token(device))).await;
        assert!(peer.text().await.0.starts_with("40{"));
        peers.push(peer);
    }
    for n in 0..20 {
        for when in [When::Stored, When::Connected] {
            node.publish(user("u1"), when, &format!(r#"{{"n":{n},"text":{}}}"#, long(400))).await;
            for peer in &mut peers {
                let (text, deflated) = peer.text().await;
                let (head, json) = text.split_at(text.find('[').expect("an event"));
                let event: Value = serde_json::from_str(json).expect("JSON");
                assert!(deflated && head.starts_with("42"), "{text}");
                assert_eq!((&event[0], &event[1]["data"]["n"]), (&json!("notification"), &json!(n)));
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgraded_session_is_compressed() {
    let node = Node::start(deflating()).await;
    node.device("d1", "u1", &[]).await;
    let mut http = TcpStream::connect(node.address()).await.expect("connected");
    let open = "GET /socket.io/?EIO=4&transport=polling HTTP/1.1\r\nHost: h\r\n\r\n";
    http.write_all(open.as_bytes()).await.expect("sent");
    let answer = String::from_utf8(read_until(&mut http, b"\"maxPayload\"").await).expect("text");
    let sid = answer.split("\"sid\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a sid");
    let path = format!("/socket.io/?EIO=4&transport=websocket&sid={sid}");
    let (mut peer, extensions) = Peer::open(&node, &path, OFFER).await;
    assert!(extensions.is_some());
    peer.send("2probe").await;
    assert_eq!(peer.text().await.0, "3probe");
    peer.send("5").await;
    peer.send_deflated(&format!(r#"40{{"token":"{}"}}"#, node.token("d1"))).await;
    assert!(peer.text().await.0.starts_with("40{"));
    node.publish(user("u1"), When::Connected, &long(400)).await;
    let (text, deflated) = peer.text().await;
    assert!(deflated && text.starts_with("42[\"notification\","), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_breaks_the_rules_is_closed() {
    let node = Node::start(deflating()).await;
    node.device("d1", "u1", &[]).await;
    let bomb = compressed(&vec![b' '; 32 << 20]);
    let floods = compressed(&[b' '; 16 << 10]);
    // 10 bits each: 65,000 bytes would take 0.2 s.
    let empty_blocks: Vec<u8> = [0x02, 0x08, 0x20, 0x80, 0x00].repeat(13_000);
    for (first, payload, code) in [
        (0xC1, &bomb[..], 1009),
        (0xC1, &[0x07, 0xFF], 1002),
        (0xC1, &empty_blocks, 1002),
        (0xC1, &compressed(b"\xFF"), 1007),
        (0xC9, b"", 1002),
        (0xC0, b"", 1002),
        (0xE1, b"", 1002),
    ] {
        let mut peer = Peer::connect(&node, "d1", OFFER).await;
        peer.send_frame(first, payload).await;
        assert_eq!(peer.closed().await, code, "{first:x}");
        node.until_sessions(0).await;
    }
    // Before the log-in a message becomes 16 KiB at most, with the same result as without compression behind it.
    let (mut stranger, _) = Peer::open(&node, "/v1/connect", OFFER).await;
    stranger.send_frame(0xC1, &floods).await;
    assert_eq!(stranger.json().await["code"], "bad_frame");
    let (mut stranger, _) = Peer::open(&node, "/v1/connect", OFFER).await;
    stranger.send_frame(0xC1, &compressed(&vec![b' '; (16 << 10) + 1])).await;
    assert_eq!(stranger.closed().await, 1009);
    // Compressed frames are off the allowance like others.
    let mut peer = Peer::connect(&node, "d1", OFFER).await;
    let frames = frame(0xC1, &compressed(br#"{"t":"presence","state":"idle"}"#)).repeat(1_000);
    peer.socket.write_all(&frames).await.expect("sent");
    node.until("it sent too much", |node| node.metrics.closed(CloseReason::RateLimited) == 1).await;
    // The client did not negotiate compression.
    let (mut peer, _) = Peer::open(&node, "/v1/connect", "").await;
    peer.send_deflated(r#"{"t":"ping"}"#).await;
    assert_eq!(peer.closed().await, 1002);
    assert_eq!(node.metric("noroshi_connection_panics_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_message_is_compressed() {
    let node = Node::start(deflating()).await;
    node.device("d1", "u1", &[]).await;
    let mut request = crate::node::request(topic("news"), When::Stored, &long(400));
    request.retain = true;
    node.publish_request(request).await;
    let mut peer = Peer::connect(&node, "d1", OFFER).await;
    peer.send_deflated(&json!({"t": "sub", "topics": ["news"]}).to_string()).await;
    assert!(peer.data().await.1);
}
