//! Moving devices away: at the end of the node, and for an operator, who may think better of it.

use std::sync::Arc;
use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_gateway::drain::{Order, State, Stopping};
use noroshi_types::{CloseReason, When};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain, topic, user};

fn order(rate_per_second: u32, spread: Duration, deadline: Duration) -> Order {
    Order { rate_per_second, spread, deadline: Some(deadline) }
}

fn fast() -> Order {
    order(100_000, Duration::from_secs(3), PATIENCE)
}

/// A request of a device, and the whole answer.
async fn answer(node: &Node, path: &str) -> String {
    let mut socket = TcpStream::connect(node.address()).await.expect("accepted");
    let upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                   Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = format!("GET {path}?token={} HTTP/1.1\r\nHost: h\r\n{upgrade}\r\n", node.token("d1"));
    socket.write_all(head.as_bytes()).await.expect("sent");
    let mut answer = String::new();
    let read = socket.read_to_string(&mut answer);
    tokio::time::timeout(PATIENCE, read).await.expect("an answer").expect("text");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_moves_every_connection_at_its_rate() {
    let node = Arc::new(Node::start(plain()).await);
    let mut clients = Vec::new();
    for n in 0..40 {
        node.device(&format!("d{n}"), "u1", &[]).await;
        clients.push(node.connect(&format!("d{n}")).await);
    }
    let started = std::time::Instant::now();
    let draining = node.clone();
    let drain = tokio::task::spawn_blocking(move || {
        draining.gateway.drain(order(40, Duration::from_secs(7), PATIENCE))
    });
    for client in &mut clients {
        let frame = client.next().await;
        assert_eq!((&frame["reason"], &frame["reconnect"]), (&json!("drain"), &json!(true)));
        assert!(frame["after_ms"].as_u64().is_some_and(|ms| ms <= 7_000), "{frame}");
        client.closed().await;
    }
    assert!(drain.await.expect("no panic"), "all went in time");
    // 40 at 40 a second: a second, less what the last steps may round up.
    assert!(started.elapsed() > Duration::from_millis(900), "{:?}", started.elapsed());
    assert!(TcpStream::connect(node.address()).await.is_err(), "no longer accepting");
    assert_eq!(node.metrics.closed(CloseReason::Drain), 40);
    let report = node.gateway.drain_report();
    assert_eq!((report.state, report.remaining), (State::Stopping, 0));
    assert_eq!(report.progress.map(|progress| progress.moved), Some(40));
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_has_a_deadline() {
    let node = Arc::new(Node::start(Config { close_linger: Duration::from_millis(100), ..plain() }).await);
    node.device("d1", "u1", &[]).await;
    // Two connections that their clients never end, and a rate that would take a second for each.
    let silent: Vec<_> = [
        node.connect("d1").await.socket.into_inner(),
        TcpStream::connect(node.address()).await.expect("connected"),
    ]
    .into();
    let draining = node.clone();
    let drain = tokio::task::spawn_blocking(move || {
        let all = draining.gateway.drain(order(1, Duration::ZERO, Duration::from_millis(50)));
        draining.gateway.stop();
        all
    });
    assert!(!drain.await.expect("no panic"));
    assert_eq!(node.gateway.connections(), 0);
    drop(silent);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_drain_refuses_devices_until_it_is_cancelled_and_loses_nothing() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut device = node.connect("d1").await;
    let idle = TcpStream::connect(node.address()).await.expect("connected");
    node.gateway.drain_devices(fast()).expect("not stopping");
    assert_eq!(device.closed().await, ("drain".to_owned(), 4000));
    node.until("nobody to be left", |node| node.gateway.drain_report().state == State::Drained).await;
    // A connection without a request stays open, since it may still call the API.
    node.until("the device to be gone", |node| node.gateway.connections() == 1).await;
    drop(idle);

    for path in ["/v1/connect", "/v1/events"] {
        let answer = answer(&node, path).await;
        assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        assert!(answer.contains("\"unavailable\""), "{answer}");
        let told = answer.split("Retry-After: ").nth(1).and_then(|rest| rest.split('\r').next());
        assert!(told.is_some_and(|seconds| seconds.parse().is_ok_and(|s: u64| (1..=6).contains(&s))));
    }
    let mut api = TcpStream::connect(node.address()).await.expect("accepted");
    api.write_all(b"GET /v1/me HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    node.next_handover().await;

    node.publish(user("u1"), When::Stored, "\"during the drain\"").await;
    node.gateway.cancel_drain().expect("not stopping");
    assert_eq!(node.gateway.drain_report().state, State::Serving);
    let mut device = node.connect("d1").await;
    assert_eq!(device.next_data().await, "during the drain");
    node.gateway.drain_devices(fast()).expect("again");
    assert_eq!(device.closed().await.0, "drain");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_under_way_can_be_hastened_and_is_overruled_by_the_end() {
    let node = Arc::new(Node::start(plain()).await);
    let mut clients = Vec::new();
    for n in 0..4 {
        node.device(&format!("d{n}"), "u1", &[]).await;
        clients.push(node.connect(&format!("d{n}")).await);
    }
    let slow = || Order { rate_per_second: 1, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(slow()).expect("not stopping");
    let report = node.gateway.drain_report();
    assert_eq!((report.state, report.remaining), (State::Draining, 4));
    // At one a second this would take four.
    node.gateway.drain_devices(Order { deadline: Some(Duration::ZERO), ..slow() }).expect("changed");
    for client in &mut clients {
        assert_eq!(client.closed().await.0, "drain");
    }
    node.until("all to be gone", |node| node.gateway.drain_report().state == State::Drained).await;
    assert_eq!(node.gateway.drain_report().progress.map(|progress| progress.moved), Some(4));

    let draining = node.clone();
    let end = tokio::task::spawn_blocking(move || draining.gateway.drain(fast()));
    assert!(end.await.expect("no panic"));
    assert_eq!(node.gateway.cancel_drain(), Err(Stopping));
    assert_eq!(node.gateway.drain_devices(fast()), Err(Stopping));
    assert_eq!(node.gateway.drain_report().state, State::Stopping);
    assert!(TcpStream::connect(node.address()).await.is_err(), "no longer accepting");
    node.gateway.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_devices_hands_on_everything() {
    let node = Node::start(Config { devices: false, ..plain() }).await;
    for (count, path) in ["/v1/connect", "/v1/events", "/v1/presence"].into_iter().enumerate() {
        let mut request = TcpStream::connect(node.address()).await.expect("connected");
        let head = format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
        request.write_all(head.as_bytes()).await.expect("written");
        let handed_over = |node: &Node| node.handed_over.lock().expect("no panic").len();
        node.until("a request to be handed on", |node| handed_over(node) == count + 1).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_during_a_drain_count() {
    let node = Arc::new(Node::start(plain()).await);
    node.device("d1", "u1", &["news"]).await;
    let mut client = node.connect("d1").await;
    let ids = [
        node.publish(user("u1"), When::Stored, "1").await,
        node.publish(topic("news"), When::Stored, "2").await,
    ];
    node.gateway.drain_devices(fast()).expect("begun");
    // It reads, and does not answer the close frame yet.
    while client.next().await["t"] != "close" {}
    client.send(json!({"t": "ack", "ids": ids.map(|id| id.to_string())})).await;
    client.closed().await;
    node.gateway.cancel_drain().expect("serving");
    let acknowledged = async || {
        let app = noroshi_store::Notifications::notification(&*node.store, node.app, ids[1], node.now());
        let counts = app.await.expect("read").expect("known").counts;
        counts.iter().any(|(outcome, count)| *outcome == noroshi_types::Outcome::Acked && *count == 1)
    };
    let written = async { while !acknowledged().await {} };
    tokio::time::timeout(PATIENCE, written).await.expect("acknowledged");
    let mut client = node.connect("d1").await;
    assert_eq!(client.sync().await, Vec::<serde_json::Value>::new());
    node.gateway.stop();
}
