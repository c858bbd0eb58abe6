//! All devices at once: they leave, they reconnect while their messages are being accepted, and they get a delay for
//! their reconnect if they are too many.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use noroshi_delivery::Edge;
use noroshi_gateway::{Config, tls};
use noroshi_types::{DeviceId, Target, Topic, When};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Client, Node, PATIENCE, plain, read_until, topic, upgrade_head};
use crate::secure::{certificate, secure};

fn device(n: usize) -> DeviceId {
    DeviceId::parse(&format!("d{n}")).expect("an id")
}

/// All devices connected, some at a time.
async fn connect_all(node: &Arc<Node>, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for begin in (0..count).step_by(50) {
        let some = (begin..count.min(begin + 50)).map(|n| {
            let node = node.clone();
            tokio::spawn(async move { node.connect(&format!("d{n}")).await })
        });
        for client in some.collect::<Vec<_>>() {
            clients.push(client.await.expect("no panic"));
        }
    }
    clients
}

/// The number of operations in all commits, once no more commits follow.
async fn settled_operations(node: &Node) -> u64 {
    let (mut last, mut same) = (0, 0);
    while same < 10 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        let commits = node.metric("noroshi_store_commits_total");
        same = if commits == last { same + 1 } else { 0 };
        last = commits;
    }
    // One may take longer than that.
    node.until_written().await;
    node.metric("noroshi_store_commit_operations_sum")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_disconnects_at_once_write_nothing_and_leak_nothing() {
    const COUNT: usize = 1_000;
    let node = Arc::new(Node::start(plain()).await);
    node.crowd("d", COUNT, &["news"]).await;
    let mut sockets = Vec::new();
    for n in 0..COUNT {
        sockets.push(node.bare(&format!("d{n}")).await);
    }
    assert_eq!(node.gateway.sessions_count(), COUNT);
    let news = Topic::parse("news").expect("a topic");
    assert_eq!(node.gateway.topic_sessions(node.app, &news), COUNT as u64);
    let operations = settled_operations(&node).await;
    drop(sockets);
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
    // Background work may write meanwhile, a few operations.
    let written = settled_operations(&node).await - operations;
    assert!(written < COUNT as u64 / 10, "a disconnect is not written down: {written} operations");
    assert_eq!(node.gateway.sessions_count(), 0);
    for topic in [news, Topic::everyone()] {
        assert_eq!(node.gateway.topic_sessions(node.app, &topic), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_reconnect_while_their_messages_are_accepted_and_miss_and_repeat_nothing() {
    const COUNT: usize = 200;
    const ACKNOWLEDGED: usize = 3;
    let node = Arc::new(Node::start(plain()).await);
    node.crowd("d", COUNT, &["news"]).await;
    let all = Target::Devices((0..COUNT).map(device).collect());
    let mut clients = connect_all(&node, COUNT).await;
    // What was acknowledged never comes again.
    for n in 0..ACKNOWLEDGED {
        node.publish(all.clone(), When::Stored, &n.to_string()).await;
    }
    for client in &mut clients {
        let mut ids = Vec::new();
        for n in 0..ACKNOWLEDGED {
            let message = client.next().await;
            assert_eq!(message["data"], json!(n));
            ids.push(message["id"].clone());
        }
        client.send(json!({"t": "ack", "ids": ids})).await;
    }
    for n in 0..COUNT {
        node.until_acknowledged(&format!("d{n}")).await;
    }
    // Published without a pause from before the storms until after them: to each by name, and to a topic.
    let (over, published) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(ACKNOWLEDGED)));
    let publisher = tokio::spawn({
        let (node, over, published, all) = (node.clone(), over.clone(), published.clone(), all.clone());
        async move {
            while !over.load(Ordering::SeqCst) {
                let n = published.load(Ordering::SeqCst);
                let target = if n % 4 == 3 { topic("news") } else { all.clone() };
                node.publish(target, When::Stored, &n.to_string()).await;
                published.fetch_add(1, Ordering::SeqCst);
            }
        }
    });
    for _ in 0..3 {
        let before = published.load(Ordering::SeqCst);
        drop(clients);
        clients = connect_all(&node, COUNT).await;
        node.until("more", |_| published.load(Ordering::SeqCst) > before).await;
    }
    over.store(true, Ordering::SeqCst);
    publisher.await.expect("no panic");
    let count = published.load(Ordering::SeqCst);
    for (n, client) in clients.iter_mut().enumerate() {
        for expected in ACKNOWLEDGED..count {
            assert_eq!(client.next_data().await, json!(expected), "device {n} of {count} messages");
        }
        assert!(client.sync().await.is_empty(), "device {n} hears nothing twice");
    }
    assert_eq!(node.gateway.sessions_count(), COUNT);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_the_connect_rate_each_device_gets_its_own_delay_the_api_answers_and_tls_waits() {
    let folder = tempfile::tempdir().expect("a folder");
    let (certificate_file, key_file, _) = certificate(folder.path());
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let node = Node::start(Config { connects_per_second: 4, ..secure(acceptor) }).await;
    let mut told = HashSet::new();
    // 32 may come at once, and four more each second.
    for _ in 0..100 {
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        let sent = socket.write_all(b"GET /v1/events HTTP/1.1\r\nHost: h\r\n\r\n").await;
        sent.expect("it may be answered already, but not reset");
        let mut answer = String::new();
        let read = tokio::time::timeout(PATIENCE, socket.read_to_string(&mut answer)).await;
        read.expect("in time").expect("an answer, not a reset");
        if answer.starts_with("HTTP/1.1 503 ") {
            let seconds = answer.split("\r\nRetry-After: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            let seconds: u64 = seconds.expect("a time").parse().expect("seconds");
            assert!((1..=10).contains(&seconds));
            told.insert(seconds);
        } else {
            assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
        }
    }
    assert!(told.len() > 1, "all are told to come back at once: {told:?}");
    assert!(node.metric("noroshi_connections_refused_total") >= told.len() as u64);
    // The API is not what a storm of devices is held back for.
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    socket.write_all(b"GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n").await.expect("sent");
    node.until("handed over", |node| node.metric("noroshi_connections_handed_over_total") > 0).await;
    // Each waits for its turn, and then is served.
    let refused = node.metric("noroshi_connections_refused_total");
    let mut waiting = Vec::new();
    for _ in 0..6 {
        waiting.push(TcpStream::connect(node.gateway.local_addrs()[1]).await.expect("connected"));
    }
    let accepted = node.metric("noroshi_connections_accepted_total");
    node.until("all had their turn", |node| node.gateway.connections() >= waiting.len()).await;
    assert!(node.metric("noroshi_connections_accepted_total") >= accepted);
    assert_eq!(node.metric("noroshi_connections_refused_total"), refused, "none was sent away");
    drop(waiting);
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn at_capacity_the_oldest_unauthenticated_connection_is_evicted() {
    const MAX: usize = 10;
    let node = Node::start(Config { connections_max: MAX, unauthenticated_max: MAX, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let mut client = node.connect("d1").await;
    let mut sockets = Vec::new();
    for _ in 0..MAX + 200 {
        sockets.push(TcpStream::connect(node.address()).await.expect("connected"));
    }
    node.until("all were looked at", |node| {
        node.metric("noroshi_connections_accepted_total") == 1 + (MAX + 200) as u64
    })
    .await;
    node.until("the newest are left", |node| node.gateway.connections() <= MAX).await;
    // Where more than some dozens come at once, some of them are refused instead.
    assert!(node.metric("noroshi_connections_evicted_total") > 0);
    assert_eq!(sockets[0].read(&mut [0; 1]).await.unwrap_or_default(), 0, "the oldest is gone");
    let mut other = node.connect("d2").await;
    for device in [&mut client, &mut other] {
        assert!(device.sync().await.is_empty(), "devices stay");
    }
    drop(sockets);
    node.until("only devices are left", |node| node.gateway.connections() == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_all_connections_in_use_a_device_is_refused_and_the_api_is_reachable() {
    const MAX: usize = 4;
    let node = Node::start(Config { connections_max: MAX, ..plain() }).await;
    let mut clients = Vec::new();
    for n in 0..MAX {
        let name = format!("d{n}");
        node.device(&name, "u1", &[]).await;
        clients.push(node.connect(&name).await);
    }
    node.device("late", "u1", &[]).await;
    let mut late = TcpStream::connect(node.address()).await.expect("connected");
    late.write_all(&upgrade_head(&node.token("late"))).await.expect("sent");
    let mut answer = String::new();
    late.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: "), "{answer}");
    let mut provider = TcpStream::connect(node.address()).await.expect("connected");
    provider.write_all(b"GET /v1/topics HTTP/1.1\r\n\r\n").await.expect("sent");
    node.next_handover().await;
    for client in &mut clients {
        assert!(client.sync().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_connections_and_clients_have_limits() {
    let node = Node::start(Config { shards: 1, unauthenticated_max: 5, ..plain() }).await;
    let mut sockets = Vec::new();
    for _ in 0..20 {
        sockets.push(TcpStream::connect(node.address()).await.expect("connected"));
    }
    node.until("five are left", |node| node.metric("noroshi_connections_evicted_total") == 15).await;
    node.until("five are left", |node| node.gateway.connections() == 5).await;

    let node = Node::start(Config { connections_per_client: 2, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    let second = TcpStream::connect(node.address()).await.expect("connected");
    let mut third = TcpStream::connect(node.address()).await.expect("connected");
    let mut answer = String::new();
    third.read_to_string(&mut answer).await.expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert_eq!(node.metric("noroshi_connections_refused_client_total"), 1);
    drop(second);
    node.until("one is left", |node| node.gateway.connections() == 1).await;
    assert!(client.sync().await.is_empty());
    node.connect("d1").await;
}

/// Each of the clients that a trusted proxy names has its own.
#[tokio::test(flavor = "multi_thread")]
async fn a_trusted_proxy_names_its_clients() {
    let proxies = noroshi_auth::TrustedProxies {
        networks: vec!["127.0.0.0/8".parse().expect("a network")],
        ..Default::default()
    };
    let node = Node::start(Config { connections_per_client: 1, proxies, ..plain() }).await;
    for n in 0..4 {
        node.device(&format!("d{n}"), "u1", &[]).await;
    }
    let mut open = Vec::new();
    for (n, client, expected) in [
        (0, "192.0.2.1", "101"),
        (1, "192.0.2.2", "101"),
        (2, "192.0.2.1", "503"),
        (3, "10.0.0.1, 192.0.2.3", "101"),
    ] {
        let mut head = upgrade_head(&node.token(&format!("d{n}")));
        head.truncate(head.len() - 2);
        head.extend_from_slice(format!("X-Forwarded-For: {client}\r\n\r\n").as_bytes());
        let mut socket = TcpStream::connect(node.address()).await.expect("connected");
        socket.write_all(&head).await.expect("sent");
        read_until(&mut socket, format!("HTTP/1.1 {expected} ").as_bytes()).await;
        open.push(socket);
    }
}
