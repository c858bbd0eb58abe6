//! HTTP/2 connections go to the API, which passes some of their streams back, each as an HTTP/1.1 connection.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use noroshi_gateway::{Bridge, Config, tls};
use noroshi_protocol::http2::PREFACE;
use noroshi_types::{DeviceId, When};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

use crate::node::{Node, PATIENCE, plain, read_until, user};
use crate::secure::{alpn, ask_api, certificate, secure};

fn with_http2() -> Config {
    Config { http2: true, ..plain() }
}

fn peer(last: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, last], 4_711))
}

fn bridge(node: &Node, peer: SocketAddr, head: &str) -> Option<(UnixStream, Bridge)> {
    let (stream, bridge) = node.gateway.bridge(peer, head.as_bytes().to_vec())?;
    Some((UnixStream::from_std(stream).expect("a socket"), bridge))
}

fn events(token: &str) -> String {
    format!(
        "GET /v1/events HTTP/1.1\r\nhost: h\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\r\n"
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preface_is_handed_over_wherever_it_is_cut() {
    let node = Node::start(with_http2()).await;
    let sent = [&PREFACE[..], b"and frames"].concat();
    for cut in [1, 3, 17, 18, 22, 23, 24, 30] {
        let mut client = TcpStream::connect(node.address()).await.expect("connected");
        client.set_nodelay(true).expect("a socket");
        client.write_all(&sent[..cut]).await.expect("sent");
        tokio::time::sleep(Duration::from_millis(5)).await; // mostly in pieces; together is right too
        client.write_all(&sent[cut..]).await.expect("sent");
        let mut io = node.next_handover().await.into_io().expect("a stream");
        let mut read = vec![0; sent.len()];
        io.read_exact(&mut read).await.expect("read");
        assert_eq!(read, sent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_bytes_are_refused_as_without_http2() {
    for (config, sent) in [(with_http2(), &b"PRI * HTTP/2.0\r\n\r\nSX\r\n\r\n"[..]), (plain(), &PREFACE[..])]
    {
        let node = Node::start(config).await;
        let mut client = TcpStream::connect(node.address()).await.expect("connected");
        client.write_all(sent).await.expect("sent");
        let answer = read_until(&mut client, b"\r\n\r\n").await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
        assert!(node.handed_over.lock().expect("no panic").is_empty());
    }
}

/// What a client offers, what is agreed on, and what becomes of an HTTP/1.1 request then.
#[tokio::test(flavor = "multi_thread")]
async fn under_tls_the_handshake_decides() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, trusted) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate, &key).expect("usable").with_http2();
    acceptor.reload(&certificate, &key).expect("usable");
    let node = Arc::new(Node::start(Config { http2: true, ..secure(acceptor) }).await);
    for (offered, agreed, answered) in [
        (&[&b"h2"[..], b"http/1.1"][..], Some(&b"h2"[..]), false),
        (&[b"http/1.1"], Some(b"http/1.1"), true),
        (&[], None, true),
    ] {
        let (node, trusted) = (node.clone(), trusted.clone());
        let offered: Vec<Vec<u8>> = offered.iter().map(|name| name.to_vec()).collect();
        let bad_request = b"GET /v1/events?topics=%24everyone HTTP/1.1\r\nHost: h\r\n\r\n";
        let got = tokio::task::spawn_blocking(move || alpn(&node, &trusted, offered, bad_request)).await;
        let (name, answer) = got.expect("no panic");
        assert_eq!(name.as_deref(), agreed);
        assert_eq!(answer.starts_with("HTTP/1.1 400 "), answered, "{answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_under_tls_lets_other_work_of_the_task_run() {
    const BYTES: usize = 10_000;
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate, key, trusted) = certificate(folder.path());
    let node = Arc::new(Node::start(secure(tls::Acceptor::open(&certificate, &key).expect("usable"))).await);
    let (mut client, mut io) = ask_api(&node, &trusted).await;
    client.write_all(&[0; BYTES]).expect("sent");
    let mut byte = [0; 1];
    io.read_exact(&mut byte).await.expect("read");
    // The rest of the record was decrypted with it, so no read has to wait.
    let rest = async {
        for _ in 1..BYTES {
            io.read_exact(&mut byte).await.expect("read");
        }
    };
    tokio::select! {
        biased;
        () = rest => panic!("the reader never yielded"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bridged_event_stream_receives_and_ends_with_either_side() {
    let node = Node::start(with_http2()).await;
    node.device("d1", "u1", &[]).await;
    let (mut stream, held) = bridge(&node, peer(1), &events(&node.token("d1"))).expect("room");
    let head = read_until(&mut stream, b"retry: ").await;
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", String::from_utf8_lossy(&head));
    node.until_sessions(1).await;
    node.publish(user("u1"), When::Stored, "1").await;
    let heard = read_until(&mut stream, b"\"data\":1").await;
    assert!(String::from_utf8_lossy(&heard).contains("event: msg\n"));
    assert_eq!(node.metric("noroshi_connections_bridged_total"), 1);
    drop(stream);
    node.until_sessions(0).await;
    drop(held);

    let (mut stream, _held) = bridge(&node, peer(1), &events(&node.token("d1"))).expect("room");
    read_until(&mut stream, b"retry: ").await;
    let device = DeviceId::parse("d1").expect("an id");
    node.delivery.devices.revoke(node.app, &device).await.expect("revoked");
    let rest = read_until(&mut stream, b"\"revoked\"").await;
    assert!(!rest.is_empty());
    let mut end = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut end)).await.expect("in time").expect("its end");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_without_a_token_is_answered() {
    let node = Node::start(with_http2()).await;
    let (mut stream, _held) = bridge(&node, peer(1), &events("wrong")).expect("room");
    let mut answer = String::new();
    tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer)).await.expect("in time").expect("text");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
    let problem: Value = serde_json::from_str(body).expect("JSON");
    assert_eq!(problem["code"], "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_a_client_count_as_its_connections() {
    let config = Config { connections_per_client: 2, ..with_http2() };
    let node = Node::start(config).await;
    for device in ["d1", "d2", "d3"] {
        node.device(device, "u1", &[]).await;
    }
    let mut open = Vec::new();
    for device in ["d1", "d2"] {
        let (mut stream, held) = bridge(&node, peer(1), &events(&node.token(device))).expect("room");
        read_until(&mut stream, b"retry: ").await;
        open.push((stream, held));
    }
    assert!(bridge(&node, peer(1), &events(&node.token("d3"))).is_none());
    assert!(bridge(&node, peer(2), &events(&node.token("d3"))).is_some(), "another client");
    drop(open);
    node.until("the seats to be free", |node| bridge(node, peer(1), &events("t")).is_some()).await;
}

/// Three for each: a stream, both ends of its pair, and the connection that it came by.
#[tokio::test(flavor = "multi_thread")]
async fn a_stream_takes_three_descriptors_of_the_devices() {
    let node = Node::start(Config { connections_max: 2, ..with_http2() }).await;
    let max = 2 + noroshi_gateway::OVER_MAX;
    let open: Vec<_> =
        (0..max).map_while(|_| bridge(&node, peer(1), "GET /v1/events HTTP/1.1\r\nhost: h\r\n")).collect();
    // Some of the shards' ends were evicted for later ones, so it may be half of it.
    assert!((max / 3..=max / 2).contains(&open.len()), "{} of {max}", open.len());
    drop(open);
    node.until("room", |node| bridge(node, peer(1), &events("t")).is_some()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rate_of_connects_limits_streams() {
    let node = Node::start(Config { connects_per_second: 1, ..with_http2() }).await;
    node.device("d1", "u1", &[]).await;
    let mut statuses = Vec::new();
    for _ in 0..40 {
        let (mut stream, _held) = bridge(&node, peer(1), &events(&node.token("d1"))).expect("room");
        let head = read_until(&mut stream, b"\r\n\r\n").await;
        statuses.push(String::from_utf8_lossy(&head[9..12]).into_owned());
    }
    assert_eq!(statuses[0], "200");
    assert!(statuses.iter().any(|status| status == "503"), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_of_a_session_do_not_take_from_the_rate() {
    let node = Node::start(Config { connects_per_second: 1, ..with_http2() }).await;
    node.device("d1", "u1", &[]).await;
    for _ in 0..100 {
        let head =
            "GET /socket.io/?EIO=4&transport=polling&sid=x HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n";
        let (mut stream, _held) = bridge(&node, peer(1), head).expect("room");
        let answer = read_until(&mut stream, b"\r\n\r\n").await;
        assert!(answer.starts_with(b"HTTP/1.1 400 "), "{}", String::from_utf8_lossy(&answer));
    }
    let (mut stream, _held) = bridge(&node, peer(2), &events(&node.token("d1"))).expect("room");
    let head = read_until(&mut stream, b"\r\n\r\n").await;
    assert!(head.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&head));
}

/// Its requests arrive on several shards.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_polls_is_reached_from_every_shard() {
    let node = Node::start(with_http2()).await;
    const PATH: &str = "/socket.io/?EIO=4&transport=polling";
    let ask = async |method: &str, path: &str, body: &str| {
        let length =
            if body.is_empty() { String::new() } else { format!("content-length: {}\r\n", body.len()) };
        let head = format!("{method} {path} HTTP/1.1\r\nhost: h\r\n{length}connection: close\r\n\r\n");
        let (mut stream, _held) = bridge(&node, peer(1), &head).expect("room");
        stream.write_all(body.as_bytes()).await.expect("written");
        let mut answer = String::new();
        let reading = tokio::time::timeout(PATIENCE, stream.read_to_string(&mut answer));
        reading.await.expect("in time").expect("text");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        answer.split_once("\r\n\r\n").expect("a head").1.to_owned()
    };
    node.device("d1", "u1", &[]).await;
    let opened = ask("GET", PATH, "").await;
    let opened: Value = serde_json::from_str(&opened[1..]).expect("JSON");
    let path = format!("{PATH}&sid={}", opened["sid"].as_str().expect("a sid"));
    let connect = format!("40{{\"token\":\"{}\"}}", node.token("d1"));
    assert_eq!(ask("POST", &path, &connect).await, "ok");
    assert!(ask("GET", &path, "").await.starts_with("40{"));
    for n in 0..8 {
        node.publish(user("u1"), When::Connected, &n.to_string()).await;
        assert!(ask("GET", &path, "").await.contains(&format!("\"data\":{n}")));
    }
}
