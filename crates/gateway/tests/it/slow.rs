//! Consumers that read slowly or not at all: the messages that wait for them are bounded, stored messages are not lost,
//! and their neighbours notice nothing.

use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::{CloseReason, When, limits};
use serde_json::json;
use tokio::net::{TcpSocket, TcpStream};

use crate::node::{Client, Node, plain, topic, user};

const LARGE_BYTES: usize = 60_000;

/// A logged-in device whose socket takes little and reads nothing.
async fn zero_window(node: &Node, device: &str) -> Client {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("set");
    let stream = socket.connect(node.address()).await.expect("connected");
    let mut client = Client::over(stream, &format!("/v1/connect?token={}", node.token(device))).await;
    assert_eq!(client.next().await["t"], "ready");
    client
}

fn large(n: usize) -> String {
    format!("[{n},\"{}\"]", "x".repeat(LARGE_BYTES))
}

/// Bytes that the kernel holds on the way from the gateway to a client that reads nothing: sent and
/// not taken at one end, taken and not read at the other.
async fn kernel_bytes(node: &Node, client: &TcpStream) -> usize {
    let (server, client) = (node.address().port(), client.local_addr().expect("bound").port());
    let held = || -> usize {
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux");
        let held = table.lines().skip(1).filter_map(|line| {
            // sl local_address rem_address st tx_queue:rx_queue, all hexadecimal
            let fields: Vec<&str> = line.split([' ', ':']).filter(|field| !field.is_empty()).collect();
            let number = |at: usize| usize::from_str_radix(fields[at], 16).expect("hexadecimal");
            let ports = (number(2), number(4));
            let mine = [(server.into(), client.into()), (client.into(), server.into())].contains(&ports);
            mine.then(|| number(6) + number(7))
        });
        held.sum()
    };
    let mut last = held();
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = held();
        if now == last && now > 0 {
            return now;
        }
        last = now;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_zero_window_loses_unkept_messages_then_its_connection_and_no_kept_message() {
    let node = Node::start(plain()).await;
    node.device("slow", "u1", &["news"]).await;
    node.device("quick", "u2", &["news"]).await;
    let mut slow = zero_window(&node, "slow").await;
    let mut quick = node.connect("quick").await;
    // Messages that are not stored are dropped, and the connection stays; the neighbour receives all, in order.
    for n in 0..200 {
        node.publish(topic("news"), When::Connected, &large(n)).await;
        assert_eq!(quick.next_data().await[0], json!(n));
    }
    assert_eq!(node.gateway.sessions_count(), 2);
    let in_kernel = kernel_bytes(&node, slow.socket.get_ref()).await;
    let in_gateway_max = limits::SEND_QUEUE_SOFT_BYTES + LARGE_BYTES + 1_000;
    let held_max = (in_kernel + in_gateway_max) / LARGE_BYTES;
    node.until("drops are counted", |node| node.metric("noroshi_slow_drops_total") >= 200 - held_max as u64)
        .await;
    // Stored messages are not dropped: the connection is closed, and the inbox has them.
    let mut kept = 0;
    while node.gateway.sessions_count() == 2 {
        node.publish(user("u1"), When::Stored, &large(1_000 + kept)).await;
        node.publish(user("u2"), When::Connected, &kept.to_string()).await;
        assert_eq!(quick.next_data().await, json!(kept));
        kept += 1;
        assert!(kept < 20, "256 KiB are full long ago, and it is still connected");
    }
    node.until("it is closed", |node| node.metrics.closed(CloseReason::SlowConsumer) == 1).await;
    // Whatever reached it is whole frames, and no more than was held for it.
    let mut reached = 0;
    while let Some(Ok(message)) = slow.message().await {
        reached += message.len();
    }
    assert!(reached <= in_kernel + in_gateway_max, "{reached} bytes, {in_kernel} of them in the kernel");
    let mut again = node.connect("slow").await;
    for n in 0..kept {
        assert_eq!(again.next_data().await[0], json!(1_000 + n));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_consumer_is_closed() {
    let node = Node::start(Config { send_stall: Duration::from_secs(1), ..plain() }).await;
    node.device("slow", "u1", &[]).await;
    let _slow = zero_window(&node, "slow").await;
    for _ in 0..100 {
        node.publish(user("u1"), When::Connected, &large(0)).await;
    }
    node.until("it is gone", |node| node.metrics.closed(CloseReason::SlowConsumer) == 1).await;
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
