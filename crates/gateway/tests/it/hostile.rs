//! Peers that are slow, broken or mean: each is bounded and none disturbs another.

use std::time::Duration;

use noroshi_gateway::{Config, tls};
use noroshi_protocol::ws::{Opcode, push_masked_frame};
use noroshi_types::{CloseReason, When};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain, read_until, upgrade_head, user};
use crate::secure::{certificate, secure};

async fn answer(node: &Node, bytes: &[u8]) -> String {
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    // It may be answered before all of it was sent.
    let _ = socket.write_all(bytes).await;
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.expect("in time");
    let _ = read;
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_heads_are_answered() {
    let node = Node::start(plain()).await;
    let many = format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(100));
    let long = format!("GET /{} HTTP/1.1\r\n", "x".repeat(20_000));
    for (head, status) in [
        ("nonsense\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        (&*many, 431),
        (&*long, 431),
        ("GET /v1/connect HTTP/1.1\r\nHost: h\r\n\r\n", 426),
    ] {
        let answer = answer(&node, head.as_bytes()).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:.40}: {answer}");
        for part in ["application/problem+json", "\r\nX-Request-Id: ", r#""type":"/docs#"#] {
            assert!(answer.contains(part), "{answer}");
        }
    }
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_never_finishes_ends_at_its_time_with_its_reason() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, _) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let short = Duration::from_millis(200);
    let config = Config { head_timeout: short, auth_timeout: short, close_linger: short, ..secure(acceptor) };
    let node = Node::start(config).await;
    let upgrade = upgrade_head("");
    let without_token = String::from_utf8_lossy(&upgrade).replace("?token=", "").into_bytes();
    let ping = client_frame(Opcode::Ping, b"");
    let half_frame = [&without_token[..], &client_frame(Opcode::Text, br#"{"t":"connect"}"#)[..9]].concat();
    let hello = [0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xFC];
    let cases: [(usize, &[u8], &str); 8] = [
        (0, b"", "HTTP/1.1 408 "),
        (0, b"\r\n\r\n", "HTTP/1.1 408 "),
        (0, b"GET /v1/events HTTP/1.1\r\nHost", "HTTP/1.1 408 "),
        (0, &without_token, "HTTP/1.1 101 "),
        (0, &[&without_token[..], &ping].concat(), "HTTP/1.1 101 "),
        (0, &half_frame, "HTTP/1.1 101 "),
        (1, b"", ""),
        (1, &hello, ""),
    ];
    let mut count = 0;
    for (listener, sent, begin) in cases {
        for _ in 0..5 {
            let mut socket =
                TcpStream::connect(node.gateway.local_addrs()[listener]).await.expect("connected");
            socket.write_all(sent).await.expect("sent");
            count += 1;
            tokio::spawn(async move {
                let mut answer = Vec::new();
                // An end or a reset: the server may not have read all that was sent.
                let _ = socket.read_to_end(&mut answer).await;
                let text = String::from_utf8_lossy(&answer).into_owned();
                assert!(text.starts_with(begin), "{text}");
            });
        }
    }
    node.until("all are gone", |node| node.metrics.closed(CloseReason::AuthTimeout) == count).await;
    node.until("nothing is left", |node| node.gateway.connections() == 0).await;
    assert_eq!(node.metric("noroshi_tls_handshake_failures_total"), 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_byte_after_another_moves_no_deadline() {
    let short = Duration::from_millis(200);
    let node = Node::start(Config { head_timeout: short, close_linger: short, ..plain() }).await;
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    socket.set_nodelay(true).expect("set");
    let endless = b"GET /v1/events HTTP/1.1\r\nX: ".iter().chain(std::iter::repeat(&b'x'));
    for byte in endless {
        let sent = socket.write_all(&[*byte]).await;
        if sent.is_err() || node.metrics.closed(CloseReason::AuthTimeout) == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    node.until("it is timed out", |node| node.metrics.closed(CloseReason::AuthTimeout) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_over_its_limit_is_refused_however_it_is_cut() {
    let node = Node::start(plain()).await;
    let lines = format!("GET / HTTP/1.1\r\n{}", "a:\n".repeat(6_000));
    let line = format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(17_000));
    for (head, piece) in [(&lines, 1), (&lines, 7), (&line, 1), (&line, 1_000)] {
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        socket.set_nodelay(true).expect("set");
        let (mut reader, mut writer) = socket.split();
        let send = async {
            for piece in head.as_bytes().chunks(piece) {
                if writer.write_all(piece).await.is_err() {
                    return; // answered already
                }
            }
            std::future::pending().await
        };
        let answer = tokio::select! {
            answer = read_until(&mut reader, b"head_too_large") => answer,
            () = send => panic!("closed without an answer"),
        };
        assert!(answer.starts_with(b"HTTP/1.1 431 "));
    }
    // Empty lines before a request are no part of it, and nothing is kept of them.
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    socket.write_all(&b"\r\n".repeat(100_000)).await.expect("sent");
    socket.write_all(b"GET /v1/events HTTP/1.1\r\n\r\n").await.expect("sent");
    let answer = read_until(&mut socket, b"unauthorized").await;
    assert!(answer.starts_with(b"HTTP/1.1 401 "));
}

/// A frame of a client.
fn client_frame(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    push_masked_frame(&mut frame, opcode, payload, [1, 2, 3, 4]);
    frame
}

/// The same, and more of its message is to come.
fn fragment(opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut frame = client_frame(opcode, payload);
    frame[0] &= 0x7F;
    frame
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_frames_ends_its_connection_and_disturbs_nobody() {
    const BURST: u32 = 50;
    let node = Node::start(Config { frames_burst: BURST, frames_per_second: 1, ..plain() }).await;
    node.device("flood", "u1", &[]).await;
    node.device("quiet", "u2", &[]).await;
    let mut quiet = node.connect("quiet").await;
    let text = |text: &str| client_frame(Opcode::Text, text.as_bytes());
    let floods: [(&str, Vec<u8>, Vec<u8>); 8] = [
        ("pings", Vec::new(), client_frame(Opcode::Ping, &[b'x'; 125])),
        ("pongs", Vec::new(), client_frame(Opcode::Pong, b"")),
        ("pings of the conversation", Vec::new(), text(r#"{"t":"ping"}"#)),
        ("what cannot be understood", Vec::new(), text("x")),
        ("empty messages", Vec::new(), text("")),
        ("changes", Vec::new(), text(r#"{"t":"sub","topics":["a","b"]}{"t":"unsub","topics":["a","b"]}"#)),
        ("empty fragments", fragment(Opcode::Text, b""), fragment(Opcode::Continuation, b"")),
        ("fragments of a byte", fragment(Opcode::Binary, b"x"), fragment(Opcode::Continuation, b"x")),
    ];
    for (n, (name, begin, frame)) in floods.into_iter().enumerate() {
        let before = node.metric("noroshi_frames_received_total");
        let mut socket = node.bare("flood").await;
        let bytes = [begin, frame.repeat(20_000)].concat();
        // Nothing is read: answers must not pile up either.
        let flood = tokio::spawn(async move {
            let _ = socket.write_all(&bytes).await;
            socket
        });
        let closed = n as u64 + 1;
        node.until(name, |node| {
            node.metrics.closed(CloseReason::RateLimited) == closed || node.gateway.sessions_count() == 1
        })
        .await;
        node.publish(user("u2"), When::Connected, &n.to_string()).await;
        assert_eq!(quiet.next_data().await, json!(n), "during {name}");
        drop(flood.await.expect("no panic"));
        node.until(name, |node| node.metrics.closed(CloseReason::RateLimited) == closed).await;
        let counted = node.metric("noroshi_frames_received_total") - before;
        assert!(counted <= u64::from(BURST) + 10, "{name}: {counted} frames were handled");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_the_largest_size_may_dribble_in() {
    let node = Node::start(plain()).await;
    node.device("slow", "u1", &[]).await;
    node.device("quick", "u2", &[]).await;
    let mut quick = node.connect("quick").await;
    let mut slow = node.bare("slow").await;
    slow.set_nodelay(true).expect("set");
    let mut text = br#"{"t":"ping"}"#.to_vec();
    text.resize(64 << 10, b' ');
    for (n, piece) in client_frame(Opcode::Text, &text).chunks(700).enumerate() {
        slow.write_all(piece).await.expect("sent");
        if n % 10 == 0 {
            node.publish(user("u2"), When::Connected, &n.to_string()).await;
            assert_eq!(quick.next_data().await, json!(n));
        }
    }
    read_until(&mut slow, br#"{"t":"pong"}"#).await;
    // One byte more is refused when it is announced, not when it came.
    text.push(b' ');
    slow.write_all(&client_frame(Opcode::Text, &text)[..14]).await.expect("sent");
    node.until("it is too big", |node| node.metrics.closed(CloseReason::TooBig) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_frames_end_a_connection_with_their_code() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let key = [1, 2, 3, 4];
    let frame = |opcode: u8, payload: &[u8]| {
        let mut bytes = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).expect("short")];
        bytes.extend(key);
        bytes.extend(payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key));
        bytes
    };
    let too_big = [0x81, 0xFF, 0, 0, 0, 0, 0, 0x10, 0, 0, 1, 2, 3, 4].to_vec();
    for (bytes, code) in [
        (vec![0x81, 0x01, b'x'], 1002), // not masked
        (frame(0x3, b""), 1002),        // reserved opcode
        (frame(0x1, b"\xFF"), 1007),    // not UTF-8
        (too_big, 1009),                // 1 MiB announced
    ] {
        let client = node.connect("d1").await;
        let mut socket = client.socket.into_inner();
        socket.write_all(&bytes).await.expect("sent");
        let mut answer = Vec::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await.expect("in time");
        read.expect("an end, not a reset");
        let code: u16 = code;
        let at = answer.windows(2).rposition(|pair| pair == code.to_be_bytes()).expect("its code");
        assert_eq!(answer[at - 2], 0x88, "in a close frame");
        drop(socket);
        node.until("it is gone", |node| node.gateway.connections() == 0).await;
    }
}
