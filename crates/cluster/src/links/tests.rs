//! The transport against strangers and misbehaving peers, over real sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use noroshi_telemetry::registry;
use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::incoming::{Arrival, Arrivals};
use super::stream::{Ended, Reader, write_unit};
use super::wire::Unit;
use super::*;
use crate::bus::FRAME_BYTES_MAX;
use crate::metrics::Metrics;
use crate::{Members, NodeInfo, NodeView};

const SECRET: [u8; 32] = [5; 32];
const HERE: Epoch = Epoch(1);
const THERE: Epoch = Epoch(2);
/// Nothing here takes this long, however busy the machine.
const DEADLINE: Duration = Duration::from_secs(30);

struct Held(Mutex<Option<Epoch>>);

impl Members for Held {
    fn nodes(&self) -> Arc<Vec<NodeView>> {
        Arc::default()
    }

    fn epoch(&self) -> Option<Epoch> {
        *self.0.lock()
    }

    fn set_info(&self, _: NodeInfo) {}
}

/// A node that holds [`HERE`] and accepts links.
struct Node {
    address: SocketAddr,
    links: Arc<Links>,
    members: Arc<Held>,
    arriving: mpsc::Receiver<Arrival>,
    registry: noroshi_telemetry::Registry,
    task: JoinHandle<()>,
}

impl Node {
    fn start(epoch: Epoch) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let members = Arc::new(Held(Mutex::new(Some(epoch))));
        let (arrivals, arriving) = Arrivals::new();
        let mut registry = registry();
        let metrics = Metrics::new(&mut registry).links;
        let config = Config { listener, advertise: address.to_string(), secret: SECRET };
        let (links, listening) =
            Links::open(config, "cell", members.clone(), arrivals, metrics).expect("configuration");
        let task = tokio::spawn(Links::run(listening));
        Self { address, links, members, arriving, registry, task }
    }

    fn metric(&self, name: &str) -> u64 {
        let text = noroshi_telemetry::encode(&self.registry).expect("metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("noroshi_cluster_{name} ")));
        line.unwrap_or_else(|| panic!("no metric {name}")).parse().expect("a number")
    }

    async fn has(&self, name: &str, value: u64) {
        until(name, || self.metric(name) == value).await;
    }

    fn lists(&self, own: Epoch, other: (Epoch, &str)) {
        let info = NodeInfo { links: other.1.to_owned(), ..NodeInfo::default() };
        let view = NodeView { epoch: other.0, info, lease_remaining: Duration::MAX, is_self: false };
        self.links.update(Some(own), &[view]);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn until(what: &str, mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + DEADLINE;
    while !check() {
        assert!(Instant::now() < deadline, "never came about: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A peer that knows `secret`, up to and including the TLS handshake.
async fn dial(address: SocketAddr, secret: [u8; 32], scope: &str) -> std::io::Result<TlsStream<TcpStream>> {
    let tls = TlsConnector::from(Identity::new(&secret, scope).expect("key").client);
    let name = ServerName::try_from("noroshi").expect("name");
    tls.connect(name, TcpStream::connect(address).await?).await
}

/// A peer of the cell, after the hello.
async fn greet(node: &Node, from: Epoch, to: Epoch) -> (TlsStream<TcpStream>, Result<Unit, Ended>) {
    let mut stream = dial(node.address, SECRET, "cell").await.expect("handshake");
    write_unit(&mut stream, &Unit::Hello { version: 1, from, to }).await.expect("hello");
    let answer = Reader::new(&mut stream).next().await;
    (stream, answer)
}

/// Whether the peer has closed the connection.
async fn is_closed(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    let mut rest = Vec::new();
    tokio::time::timeout(DEADLINE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[test]
fn addresses_to_announce_are_checked() {
    for good in ["10.0.0.1:7777", "[2001:db8::1]:1", "node-1.internal:65535"] {
        assert!(check_advertise(good).is_ok(), "{good}");
    }
    for bad in ["", "host", "host:", ":1", "host:0", "0.0.0.0:7777", "[::]:7777", "a b:1", "2001:db8::1:7777"]
    {
        assert!(check_advertise(bad).is_err(), "{bad}");
    }
    assert!(check_advertise(&format!("{}:1", "a".repeat(300))).is_err());
}

#[tokio::test]
async fn a_node_of_the_cell_gets_a_link_and_receipts() {
    let mut node = Node::start(HERE);
    let (mut stream, answer) = greet(&node, THERE, HERE).await;
    assert_eq!(answer.expect("an answer"), Unit::Welcome { version: 1 });
    write_unit(&mut stream, &Unit::Frame(Bytes::from_static(b"frame"))).await.expect("frame");
    let arrival = node.arriving.recv().await.expect("a frame");
    assert_eq!((&arrival.frame[..], arrival.to), (&b"frame"[..], HERE));
    assert!(arrival.is_from(THERE));
    arrival.confirm(7);
    write_unit(&mut stream, &Unit::Ping).await.expect("ping");
    let mut reader = Reader::new(&mut stream);
    assert_eq!(reader.next().await.expect("receipt"), Unit::Receipt(7));
    assert_eq!(reader.next().await.expect("pong"), Unit::Pong);
    // A frame that names another sender ends the link.
    assert!(!arrival.is_from(Epoch(3)));
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn strangers_are_rejected_before_anything_is_read_from_them() {
    let mut node = Node::start(HERE);
    // No TLS.
    let mut plain = TcpStream::connect(node.address).await.expect("connect");
    plain.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("write");
    assert!(is_closed(&mut plain).await);
    node.has("link_rejections_total{why=\"handshake\"}", 1).await;
    // Another secret, and the same secret in another cell: the peer notices it on its own.
    assert!(dial(node.address, [6; 32], "cell").await.is_err());
    assert!(dial(node.address, SECRET, "another").await.is_err());
    node.has("link_rejections_total{why=\"handshake\"}", 3).await;
    // TLS 1.3 without a key of its own, which does not check the node's either.
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.retain(|suite| suite.tls13().is_some());
    let anonymous = rustls::ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("version")
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("noroshi").expect("name");
    let stream = TcpStream::connect(node.address).await.expect("connect");
    assert!(TlsConnector::from(Arc::new(anonymous)).connect(name, stream).await.is_err());
    node.has("link_rejections_total{why=\"handshake\"}", 4).await;
    // Nothing at all, for too long.
    let mut idle = TcpStream::connect(node.address).await.expect("connect");
    assert!(is_closed(&mut idle).await);
    node.has("link_rejections_total{why=\"slow\"}", 1).await;
    assert!(node.arriving.try_recv().is_err());
}

#[tokio::test]
async fn a_recorded_connection_cannot_be_played_again() {
    let mut node = Node::start(HERE);
    // A listener in between, which records what the peer sends.
    let between = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, target) = (between.local_addr().expect("bound"), node.address);
    let recording = tokio::spawn(async move {
        let (mut peer, _) = between.accept().await.expect("accept");
        let mut onward = TcpStream::connect(target).await.expect("connect");
        let mut recorded = Vec::new();
        let (mut from_peer, mut from_node) = (vec![0; 1 << 14], vec![0; 1 << 14]);
        loop {
            tokio::select! {
                read = peer.read(&mut from_peer) => match read {
                    Ok(count @ 1..) => {
                        recorded.extend_from_slice(&from_peer[..count]);
                        onward.write_all(&from_peer[..count]).await.expect("forward");
                    }
                    _ => return recorded,
                },
                read = onward.read(&mut from_node) => match read {
                    Ok(count @ 1..) => peer.write_all(&from_node[..count]).await.expect("back"),
                    _ => return recorded,
                },
            }
        }
    });
    let mut stream = dial(address, SECRET, "cell").await.expect("handshake");
    write_unit(&mut stream, &Unit::Hello { version: 1, from: THERE, to: HERE }).await.expect("hello");
    assert!(matches!(Reader::new(&mut stream).next().await, Ok(Unit::Welcome { .. })));
    write_unit(&mut stream, &Unit::Frame(Bytes::from_static(b"once"))).await.expect("frame");
    assert_eq!(&node.arriving.recv().await.expect("the frame").frame[..], b"once");
    drop(stream);
    let recorded = recording.await.expect("recorded");
    let mut again = TcpStream::connect(node.address).await.expect("connect");
    again.write_all(&recorded).await.expect("replay");
    assert!(is_closed(&mut again).await);
    node.has("link_rejections_total{why=\"handshake\"}", 1).await;
    assert!(node.arriving.try_recv().is_err());
}

#[tokio::test]
async fn only_the_lease_that_a_node_holds_gets_a_link() {
    let node = Node::start(HERE);
    assert_eq!(greet(&node, THERE, Epoch(9)).await.1.expect("an answer"), Unit::Refused);
    assert_eq!(greet(&node, HERE, HERE).await.1.expect("an answer"), Unit::Refused);
    let (mut stream, answer) = greet(&node, THERE, HERE).await;
    assert_eq!(answer.expect("an answer"), Unit::Welcome { version: 1 });
    // The lease lapses: nothing more is accepted for it.
    *node.members.0.lock() = Some(Epoch(8));
    write_unit(&mut stream, &Unit::Frame(Bytes::from_static(b"late"))).await.expect("frame");
    assert!(is_closed(&mut stream).await);
    node.has("link_frames_total{direction=\"in\"}", 0).await;
}

#[tokio::test]
async fn a_new_link_of_a_sender_replaces_the_old_one() {
    let node = Node::start(HERE);
    let (mut first, _) = greet(&node, THERE, HERE).await;
    let (_second, answer) = greet(&node, THERE, HERE).await;
    assert!(answer.is_ok());
    assert!(is_closed(&mut first).await);
    node.has("links{direction=\"in\"}", 1).await;
}

#[tokio::test]
async fn an_oversized_frame_ends_the_link_before_it_is_read() {
    let node = Node::start(HERE);
    let (mut stream, _) = greet(&node, THERE, HERE).await;
    let mut bytes = BytesMut::new();
    Unit::Frame(Bytes::new()).write(&mut bytes);
    bytes[..4].copy_from_slice(&((FRAME_BYTES_MAX + 2) as u32).to_be_bytes());
    stream.write_all(&bytes).await.expect("write");
    stream.flush().await.expect("flush");
    assert!(is_closed(&mut stream).await);
    node.has("links{direction=\"in\"}", 0).await;
}

#[tokio::test]
async fn frames_that_waited_too_long_are_not_handed_over() {
    let mut node = Node::start(HERE);
    let (mut stream, _) = greet(&node, THERE, HERE).await;
    write_unit(&mut stream, &Unit::Frame(Bytes::from_static(b"frame"))).await.expect("frame");
    let arrival = node.arriving.recv().await.expect("a frame");
    tokio::time::sleep(stall::STALL_MAX + Duration::from_millis(50)).await;
    assert!(!arrival.is_fresh());
    assert!(is_closed(&mut stream).await, "and nothing behind them");
}

#[tokio::test]
async fn a_link_delivers_and_reports_receipts() {
    let (a, mut b) = (Node::start(HERE), Node::start(THERE));
    a.lists(HERE, (THERE, &b.address.to_string()));
    until("the link", || a.links.link(THERE).is_some()).await;
    assert!(a.links.is_complete() && a.links.confirms(THERE) && a.links.confirms(HERE));
    let link = a.links.link(THERE).expect("up");
    let frames = [Bytes::from_static(b"1"), Bytes::from(vec![2; FRAME_BYTES_MAX])];
    let connection = link.push(frames.iter().cloned()).expect("room");
    for frame in &frames {
        let arrival = b.arriving.recv().await.expect("a frame");
        assert!(arrival.frame == frame && arrival.is_from(HERE));
        arrival.confirm(arrival.frame.len() as u64);
    }
    until("the receipt", || a.links.receipts().confirmed(HERE, THERE) == FRAME_BYTES_MAX as u64).await;
    // What exceeds the queue is not accepted in part.
    let many =
        std::iter::repeat_n(Bytes::from(vec![0; FRAME_BYTES_MAX]), QUEUE_BYTES_MAX / FRAME_BYTES_MAX + 1);
    assert!(link.push(many).is_none());
    // A peer that does not announce an address ends links, and the cell's use of them.
    a.lists(HERE, (THERE, ""));
    assert!(!a.links.is_complete() && !a.links.confirms(THERE) && connection.is_cancelled());
    b.has("links{direction=\"in\"}", 0).await;
}

#[tokio::test]
async fn a_peer_that_is_silent_loses_its_link() {
    // Accepts, and authenticates, and then does nothing.
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("bound");
    let silent = tokio::spawn(async move {
        let tls = tokio_rustls::TlsAcceptor::from(Identity::new(&SECRET, "cell").expect("key").server);
        let (stream, _) = listener.accept().await.expect("accept");
        let mut stream = tls.accept(stream).await.expect("handshake");
        let hello = Reader::new(&mut stream).next().await.expect("hello");
        assert_eq!(hello, Unit::Hello { version: 1, from: HERE, to: THERE });
        write_unit(&mut stream, &Unit::Welcome { version: 1 }).await.expect("welcome");
        // Until the test ends.
        std::future::pending::<()>().await;
        drop(stream);
    });
    let a = Node::start(HERE);
    a.lists(HERE, (THERE, &address.to_string()));
    until("the link", || a.links.link(THERE).is_some()).await;
    until("it is down", || a.links.link(THERE).is_none()).await;
    a.has("link_failures_total{why=\"silent\"}", 1).await;
    silent.abort();
}
