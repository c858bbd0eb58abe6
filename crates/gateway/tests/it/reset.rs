//! Peers that vanish, by a reset or an end, in every phase of a connection: nothing of them is left.

use std::sync::Arc;
use std::time::Duration;

use noroshi_delivery::Edge;
use noroshi_gateway::{Config, tls};
use noroshi_protocol::ws::{Opcode, push_masked_frame};
use noroshi_types::{CloseReason, Topic, When};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::alone::{alone, settled_heap};
use crate::node::{Node, PATIENCE, read_until, topic, upgrade_head, user};
use crate::secure::{certificate, secure};

/// How far a connection comes.
#[derive(Debug, Clone, Copy)]
enum Phase {
    Accepted,
    HalfHello,
    HalfHead,
    BadHead,
    HandedOver,
    AwaitsToken,
    HalfFrame,
    WrongToken,
    LogsIn,
    StreamLogsIn,
    Open,
    Stream,
    /// With a message of which a part is still to come.
    HalfMessage,
    /// Its socket takes no more, and the rest waits.
    Full,
    /// A backlog of some pages, of which it read nothing.
    CatchesUp,
    /// The server sent its close frame.
    Closing,
    SaidGoodBye,
}

const PHASES: [Phase; 17] = [
    Phase::Accepted,
    Phase::HalfHello,
    Phase::HalfHead,
    Phase::BadHead,
    Phase::HandedOver,
    Phase::AwaitsToken,
    Phase::HalfFrame,
    Phase::WrongToken,
    Phase::LogsIn,
    Phase::StreamLogsIn,
    Phase::Open,
    Phase::Stream,
    Phase::HalfMessage,
    Phase::Full,
    Phase::CatchesUp,
    Phase::Closing,
    Phase::SaidGoodBye,
];

#[derive(Debug, Clone, Copy)]
enum Leave {
    /// RST: the kernel forgets the connection and all unsent bytes.
    Reset,
    /// FIN for one direction, and the other is held until the gateway ends it too.
    HalfClose,
    /// FIN, and RST in answer to everything that arrives afterwards.
    Close,
}

async fn dial(node: &Node, listener: usize) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(2_048).expect("set");
    socket.connect(node.gateway.local_addrs()[listener]).await.expect("connected")
}

fn frame(text: &str) -> Vec<u8> {
    let mut frame = Vec::new();
    push_masked_frame(&mut frame, Opcode::Text, text.as_bytes(), [1, 2, 3, 4]);
    frame
}

/// A socket that is in `phase`, of a device of its own where it needs one.
async fn in_phase(node: &Node, phase: Phase, device: &str) -> TcpStream {
    let mut socket = dial(node, usize::from(matches!(phase, Phase::HalfHello))).await;
    let upgrade = upgrade_head(&node.token(device));
    let mut without_token = String::from_utf8_lossy(&upgrade_head("")).replace("?token=", "").into_bytes();
    let events = format!("GET /v1/events?token={} HTTP/1.1\r\n\r\n", node.token(device)).into_bytes();
    let (sent, until): (Vec<u8>, &[u8]) = match phase {
        Phase::Accepted => (Vec::new(), b""),
        Phase::HalfHello => ([0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00].to_vec(), b""),
        Phase::HalfHead => (b"GET /v1/events HTTP/1.1\r\nX: y".to_vec(), b""),
        Phase::BadHead => (b"what is this\r\n\r\n".to_vec(), b""),
        Phase::HandedOver => (b"GET /v1/me HTTP/1.1\r\n\r\n".to_vec(), b""),
        Phase::AwaitsToken => (without_token, b"\r\n\r\n"),
        Phase::HalfFrame => {
            without_token.extend_from_slice(&frame(r#"{"t":"connect"}"#)[..7]);
            (without_token, b"\r\n\r\n")
        }
        Phase::WrongToken => (upgrade_head("nd1.wrong"), b""),
        Phase::LogsIn => (upgrade, b""),
        Phase::StreamLogsIn => (events, b""),
        Phase::Stream => (events, b"retry: "),
        Phase::Open
        | Phase::HalfMessage
        | Phase::Full
        | Phase::CatchesUp
        | Phase::Closing
        | Phase::SaidGoodBye => (upgrade, b"ping_s"),
    };
    socket.write_all(&sent).await.expect("sent");
    if !until.is_empty() {
        read_until(&mut socket, until).await;
    }
    match phase {
        Phase::HalfMessage => {
            let mut part = frame(&"x".repeat(1_000));
            part[0] &= 0x7F;
            part.extend_from_slice(&frame("y")[..5]);
            socket.write_all(&part).await.expect("sent");
        }
        Phase::Full => {
            let large = format!("\"{}\"", "x".repeat(200_000));
            for _ in 0..20 {
                node.publish(user(device), When::Connected, &large).await;
            }
        }
        Phase::Closing => {
            let device = noroshi_types::DeviceId::parse(device).expect("an id");
            node.delivery.sessions.close(node.app, &[device], CloseReason::Drain).await;
        }
        Phase::SaidGoodBye => {
            let mut close = Vec::new();
            push_masked_frame(&mut close, Opcode::Close, &1000u16.to_be_bytes(), [1, 2, 3, 4]);
            socket.write_all(&close).await.expect("sent");
        }
        _ => {}
    }
    socket
}

async fn leave(mut socket: TcpStream, how: Leave) {
    match how {
        Leave::Reset => {
            let linger = socket2::SockRef::from(&socket).set_linger(Some(Duration::ZERO));
            linger.expect("set");
        }
        Leave::HalfClose => {
            // It may be ended or reset from the other side already.
            let _ = socket.shutdown().await;
            let mut rest = Vec::new();
            let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut rest)).await;
            let _ = read.expect("the gateway ends it too");
        }
        Leave::Close => {}
    }
}

/// Every phase left in every way; how many connections that were.
async fn storm(node: &Arc<Node>) -> u64 {
    let mut leaving = Vec::new();
    for (n, phase) in PHASES.into_iter().enumerate() {
        for (m, how) in [Leave::Reset, Leave::HalfClose, Leave::Close].into_iter().enumerate() {
            let node = node.clone();
            let device = format!("d{n}-{m}");
            leaving
                .push(tokio::spawn(async move { leave(in_phase(&node, phase, &device).await, how).await }));
        }
    }
    let count = leaving.len() as u64;
    for left in leaving {
        left.await.expect("no panic");
    }
    node.until("all are gone", |node| node.gateway.connections() == 0).await;
    node.until_written().await;
    count
}

async fn node(folder: &std::path::Path) -> Arc<Node> {
    let (certificate_file, key_file, _) = certificate(folder);
    let acceptor = tls::Acceptor::open(&certificate_file, &key_file).expect("usable");
    let linger = Duration::from_millis(500);
    let config = Config { close_linger: linger, ..secure(acceptor) };
    // The API closes each connection at once.
    let node = Node::start_with(config, Arc::default(), Arc::new(drop)).await;
    for (n, phase) in PHASES.into_iter().enumerate() {
        for m in 0..3 {
            let device = format!("d{n}-{m}");
            node.device(&device, &device, &["news", "sport"]).await;
            if matches!(phase, Phase::CatchesUp) {
                for n in 0..250 {
                    let data = format!("[{n},\"{}\"]", "x".repeat(2_000));
                    node.publish(user(&device), When::Stored, &data).await;
                }
            }
        }
    }
    Arc::new(node)
}

#[tokio::test(flavor = "multi_thread")]
async fn peers_that_vanish_in_any_phase_leave_nothing() {
    if !alone("reset::peers_that_vanish_in_any_phase_leave_nothing") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let node = node(folder.path()).await;
    // The first storm pays for what all share: statements, pages of the database, runtime.
    let mut left = storm(&node).await;
    let mut grown = None;
    // A leak grows with every storm; one more reader of the database starts only once.
    for _ in 0..3 {
        let before = settled_heap().await;
        for _ in 0..2 {
            left += storm(&node).await;
        }
        let grows = settled_heap().await - before;
        println!("{grows} bytes are left of two storms");
        grown = grown.min(Some(grows)).or(Some(grows));
        // Of each a place in the timer wheel may be left until its tick has passed.
        if grows < 32 << 10 {
            break;
        }
    }
    assert!(grown.is_some_and(|grown| grown < 32 << 10), "{grown:?} bytes are left at least of two storms");

    assert_eq!(node.gateway.sessions_count(), 0);
    for name in ["$everyone", "news", "sport"] {
        let topic =
            if name == "$everyone" { Topic::everyone() } else { Topic::parse(name).expect("a topic") };
        assert_eq!(node.gateway.topic_sessions(node.app, &topic), 0, "{name}");
    }
    // Each ended once: for one reason, or by going to the API.
    let closed: u64 = CloseReason::ALL.iter().map(|reason| node.metrics.closed(*reason)).sum();
    let handed_over = node.metric("noroshi_connections_handed_over_total");
    assert_eq!((closed + handed_over, node.metric("noroshi_connections_accepted_total")), (left, left));
    assert_eq!(node.metric("noroshi_connection_panics_total"), 0);
    // And the node is as it was.
    node.device("last", "last", &["news"]).await;
    let mut client = node.connect("last").await;
    node.publish(topic("news"), When::Connected, "1").await;
    assert_eq!(client.next_data().await, 1);
}
