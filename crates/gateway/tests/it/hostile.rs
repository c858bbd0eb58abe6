//! Peers that are slow, broken or mean: each is bounded and none disturbs another.

use std::sync::Arc;
use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::{CloseReason, When};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::node::{Client, Node, PATIENCE, plain, user};

/// A logged-in device whose socket takes little and reads nothing.
async fn zero_window(node: &Node, device: &str) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("set");
    let stream = socket.connect(node.address()).await.expect("connected");
    let mut client = Client::over(stream, &format!("/v1/connect?token={}", node.token(device))).await;
    assert_eq!(client.next().await["t"], "ready");
    client
}

fn large() -> String {
    format!("\"{}\"", "x".repeat(60_000))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_consumer_loses_what_is_not_kept_and_then_its_connection() {
    let node = Node::start(plain()).await;
    node.device("slow", "u1", &[]).await;
    node.device("quick", "u2", &[]).await;
    let mut slow = zero_window(&node, "slow").await;
    let mut quick = node.connect("quick").await;
    // What is not kept is dropped, and the connection stays.
    for _ in 0..200 {
        node.publish(user("u1"), When::Connected, &large()).await;
    }
    assert_eq!(node.gateway.sessions_count(), 2);
    // What is kept is not dropped: the connection is, and the inbox has it.
    let mut kept = 0;
    while node.gateway.sessions_count() == 2 {
        node.publish(user("u1"), When::Stored, &format!("[{kept},{}]", large())).await;
        kept += 1;
        assert!(kept < 500, "it is still connected");
    }
    node.publish(user("u2"), When::Connected, "1").await;
    assert_eq!(quick.next_data().await, json!(1));
    node.until("it is gone", |node| node.metrics.closed(CloseReason::SlowConsumer).get() == 1).await;
    // Whatever reached it is whole frames.
    while let Some(Ok(_)) = slow.message().await {}
    let mut again = node.connect("slow").await;
    for n in 0..kept {
        assert_eq!(again.next_data().await[0], json!(n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_consumer_is_closed() {
    let node = Node::start(Config { send_stall: Duration::from_secs(1), ..plain() }).await;
    node.device("slow", "u1", &[]).await;
    let _slow = zero_window(&node, "slow").await;
    for _ in 0..100 {
        node.publish(user("u1"), When::Connected, &large()).await;
    }
    node.until("it is gone", |node| node.metrics.closed(CloseReason::SlowConsumer).get() == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_of_a_long_backlog_gets_all_of_it() {
    let node = Node::start(plain()).await;
    node.device("slow", "u1", &[]).await;
    for n in 0..300 {
        node.publish(user("u1"), When::Stored, &format!("[{n},\"{}\"]", "x".repeat(4_000))).await;
    }
    let mut slow = zero_window(&node, "slow").await;
    for n in 300..400 {
        node.publish(user("u1"), When::Stored, &format!("[{n},\"{}\"]", "x".repeat(4_000))).await;
    }
    for n in 0..400 {
        assert_eq!(slow.next_data().await[0], json!(n));
    }
}

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
        assert!(answer.contains("application/problem+json"), "{answer}");
    }
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_timed_out() {
    let node = Node::start(Config { head_timeout: Duration::from_millis(200), ..plain() }).await;
    let mut sockets = Vec::new();
    for n in 0..50 {
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        if n % 2 == 0 {
            socket.write_all(b"GET /v1/events HTT").await.expect("sent");
        }
        sockets.push(socket);
    }
    let mut answer = String::new();
    let read = tokio::time::timeout(PATIENCE, sockets[0].read_to_string(&mut answer)).await.expect("in time");
    read.expect("read");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    drop(sockets);
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
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

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_connections_closed_at_once_leave_nothing() {
    let node = Arc::new(Node::start(plain()).await);
    let registrations = (0..1_000).map(|n| noroshi_store::Registration {
        device: Some(noroshi_types::DeviceId::parse(&format!("d{n}")).expect("an id")),
        ..Default::default()
    });
    noroshi_store::Devices::register(&*node.store, node.app, registrations.collect(), node.now())
        .await
        .expect("stored");
    let mut clients = Vec::new();
    for n in 0..1_000 {
        clients.push(node.connect(&format!("d{n}")).await);
    }
    assert_eq!(node.gateway.sessions_count(), 1_000);
    drop(clients);
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
    assert_eq!(node.gateway.sessions_count(), 0);
    assert_eq!(
        noroshi_delivery::Edge::topic_sessions(&*node.gateway, node.app, &noroshi_types::Topic::everyone()),
        0
    );
}
