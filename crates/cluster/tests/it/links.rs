//! Links between nodes: which way messages take, and faults of links while every node reaches Redis.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use bytes::Bytes;
use noroshi_cluster::Epoch;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::task::JoinHandle;

use crate::engine::{TestNode, Wire, config, direct_node, redis_node};
use crate::recorder::{DEADLINE, until};
use crate::server::Server;

/// The way to a node's links, with faults.
struct Way {
    address: SocketAddr,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Faults {
    delay_ms: AtomicU64,
    /// Bytes are held back, and connections stay open.
    is_stalled: AtomicBool,
    /// Connections are refused.
    is_cut: AtomicBool,
    /// Connections up to this one are closed.
    closed: AtomicU64,
    opened: AtomicU64,
}

impl Way {
    async fn to(target: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let faults = Arc::new(Faults::default());
        let shared = faults.clone();
        let task = tokio::spawn(async move {
            while let Ok((inward, _)) = listener.accept().await {
                let Ok(outward) = TcpStream::connect(target).await else { continue };
                let number = shared.opened.fetch_add(1, SeqCst) + 1;
                let ((a, b), (c, d)) = (inward.into_split(), outward.into_split());
                tokio::spawn(pass(a, d, shared.clone(), number));
                tokio::spawn(pass(c, b, shared.clone(), number));
            }
        });
        Self { address, faults, task }
    }

    fn cut(&self) {
        self.faults.is_cut.store(true, SeqCst);
        self.faults.closed.store(u64::MAX, SeqCst);
    }

    fn heal(&self) {
        self.faults.is_cut.store(false, SeqCst);
        self.faults.is_stalled.store(false, SeqCst);
        self.faults.closed.store(self.faults.opened.load(SeqCst), SeqCst);
    }
}

impl Drop for Way {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: Arc<Faults>, number: u64) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let read = tokio::time::timeout(Duration::from_millis(10), from.read(&mut bytes)).await;
        if faults.closed.load(SeqCst) >= number || faults.is_cut.load(SeqCst) {
            return;
        }
        let Ok(read) = read else { continue };
        let Ok(count @ 1..) = read else { return };
        tokio::time::sleep(Duration::from_millis(faults.delay_ms.load(SeqCst))).await;
        while faults.is_stalled.load(SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if faults.closed.load(SeqCst) >= number {
                return;
            }
        }
        if to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Three nodes, of which the third is reached through a [`Way`].
struct Cell {
    server: Server,
    a: TestNode,
    b: TestNode,
    c: TestNode,
    way: Way,
}

impl Cell {
    async fn start() -> Self {
        let server = Server::start();
        let wire = Wire::new();
        let way = Way::to(wire.listener.local_addr().expect("bound")).await;
        let wire = Wire { advertise: way.address.to_string(), ..wire };
        let a = direct_node(config(&server.url()), "a", Wire::new());
        let b = direct_node(config(&server.url()), "b", Wire::new());
        let c = direct_node(config(&server.url()), "c", wire);
        let cell = Self { server, a, b, c, way };
        for node in cell.nodes() {
            node.events.joined_again().await;
        }
        cell.linked().await;
        cell
    }

    fn nodes(&self) -> [&TestNode; 3] {
        [&self.a, &self.b, &self.c]
    }

    /// Every node has a link to every other one.
    async fn linked(&self) {
        for node in self.nodes() {
            until("links", || node.metric("links{direction=\"out\"}") == 2).await;
        }
    }
}

fn text(number: u64) -> Bytes {
    Bytes::from(number.to_string())
}

async fn send(from: &TestNode, to: &TestNode, number: u64) {
    from.cluster.bus.send(vec![(to.epoch(), text(number))]).await.expect("send");
}

fn numbers(node: &TestNode, from: Epoch) -> Vec<u64> {
    let of_sender = node.events.messages().into_iter().filter(|(sender, _)| *sender == from);
    of_sender.map(|(_, text)| std::str::from_utf8(&text).expect("text").parse().expect("number")).collect()
}

/// Sends numbers from `a` to `c`, one after the other, until `done`. Returns how many.
async fn send_until(cell: &Cell, done: impl Fn(u64) -> bool) -> u64 {
    let mut sent = 0;
    while !done(sent) {
        send(&cell.a, &cell.c, sent).await;
        sent += 1;
    }
    sent
}

async fn all_arrived_in_order(cell: &Cell, sent: u64) {
    let from = cell.a.epoch();
    until("all messages", || numbers(&cell.c, from).len() as u64 >= sent).await;
    assert_eq!(numbers(&cell.c, from), (0..sent).collect::<Vec<_>>());
    assert!(!cell.c.events.has_lost(), "nothing was lost: no sweep");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_take_links_and_not_redis() {
    let cell = Cell::start().await;
    send(&cell.c, &cell.c, 7).await;
    assert_eq!(numbers(&cell.c, cell.c.epoch()), [7], "a message to itself is there when send resolves");
    let mut sent = 0;
    let deadline = Instant::now() + DEADLINE;
    loop {
        let (before, first) = (cell.server.commands("publish"), sent);
        while sent < first + 50 {
            send(&cell.a, &cell.c, sent).await;
            sent += 1;
            assert_eq!(numbers(&cell.c, cell.a.epoch()).len() as u64, sent, "and one to another node");
        }
        // A machine that is busy may suspend the test for so long that Redis takes over.
        if cell.server.commands("publish") == before {
            break;
        }
        assert!(Instant::now() < deadline, "links carry messages");
    }
    all_arrived_in_order(&cell, sent).await;
    assert_eq!(cell.a.metric("peers{bus=\"direct\"}"), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_links_keeps_all_on_redis_until_it_leaves() {
    let cell = Cell::start().await;
    let old = redis_node(config(&cell.server.url()), "old");
    old.events.joined_again().await;
    for node in cell.nodes() {
        until("redis for all", || node.metric("peers{bus=\"redis\"}") == 3).await;
    }
    let frames = || cell.a.metric("link_frames_total{direction=\"out\"}");
    let before = frames();
    let sent = send_until(&cell, |sent| sent == 20).await;
    assert_eq!(frames(), before);
    send(&old, &cell.c, 1).await;
    send(&cell.a, &old, 2).await;
    old.events.until("a's message", |events| events.len() >= 2).await;
    old.stop().await;
    // On the way from one bus to the other nothing is lost, repeated or reordered.
    let mut more = sent;
    while frames() == before {
        send(&cell.a, &cell.c, more).await;
        more += 1;
    }
    all_arrived_in_order(&cell, more).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_breaks_again_and_again_loses_and_reorders_nothing() {
    let cell = Cell::start().await;
    let began = Instant::now();
    let breaks = AtomicU64::new(0);
    let sent = send_until(&cell, |sent| {
        // Alternately between two messages, and while one is on its way.
        let due = began.elapsed().as_millis() as u64 / 100;
        if due > breaks.swap(due, SeqCst) {
            cell.way.heal();
        }
        sent > 200 && breaks.load(SeqCst) >= 20
    })
    .await;
    all_arrived_in_order(&cell, sent).await;
    cell.linked().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_between_two_nodes_is_bridged_by_redis() {
    let cell = Cell::start().await;
    let mut sent = send_until(&cell, |sent| sent == 5).await;
    cell.way.cut();
    until("the link is down", || cell.a.metric("links{direction=\"out\"}") == 1).await;
    let began = Instant::now();
    for _ in 0..50 {
        send(&cell.a, &cell.c, sent).await;
        sent += 1;
    }
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}: a link that is down costs no wait",
        began.elapsed()
    );
    all_arrived_in_order(&cell, sent).await;
    cell.way.heal();
    cell.linked().await;
    let before = cell.a.metric("link_frames_total{direction=\"out\"}");
    while cell.a.metric("link_frames_total{direction=\"out\"}") == before {
        send(&cell.a, &cell.c, sent).await;
        sent += 1;
    }
    all_arrived_in_order(&cell, sent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_stalls_delays_others_once_and_loses_nothing() {
    let cell = Cell::start().await;
    cell.way.faults.is_stalled.store(true, SeqCst);
    let began = Instant::now();
    // In one call: the healthy receiver has its part at once.
    let both = vec![(cell.c.epoch(), text(0)), (cell.b.epoch(), text(0))];
    let sending = cell.a.cluster.bus.send(both);
    let healthy = cell.b.events.until("b's part", |events| events.len() > 1);
    let (sent, ()) = tokio::join!(sending, healthy);
    sent.expect("redis took over");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert!(cell.a.metric("link_resent_total") > 0);
    let later = Instant::now();
    for number in 1..20 {
        send(&cell.a, &cell.c, number).await;
    }
    assert!(later.elapsed() < Duration::from_secs(5), "{:?}", later.elapsed());
    all_arrived_in_order(&cell, 20).await;
    cell.way.heal();
    cell.linked().await;
    all_arrived_in_order(&cell, 20).await;
}

/// The order of commits: a node hands over its messages, and only then may the next node commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_link_does_not_put_messages_behind_those_of_later_senders() {
    let cell = Cell::start().await;
    cell.way.faults.delay_ms.store(40, SeqCst);
    // b reaches c without the delay.
    for number in 0..15 {
        send(&cell.a, &cell.c, number * 3).await;
        send(&cell.b, &cell.c, number * 3 + 1).await;
        send(&cell.c, &cell.c, number * 3 + 2).await;
        // Between two of them the link fails, which is where a message could fall behind.
        if number == 7 {
            cell.way.heal();
        }
    }
    let order: Vec<Bytes> = cell.c.events.messages().into_iter().map(|(_, text)| text).collect();
    assert_eq!(order, (0..45).map(text).collect::<Vec<_>>());
    assert!(!cell.c.events.has_lost());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_of_other_secrets_and_other_cells_get_no_link() {
    let server = Server::start();
    let a = direct_node(config(&server.url()), "a", Wire::new());
    let wrong = direct_node(config(&server.url()), "wrong", Wire { secret: [1; 32], ..Wire::new() });
    a.events.joined_again().await;
    wrong.events.joined_again().await;
    a.knows(2).await;
    until("a's handshake failed", || a.metric("link_failures_total{why=\"handshake\"}") > 0).await;
    until("a rejected the other", || a.metric("link_rejections_total{why=\"handshake\"}") > 0).await;
    // They still exchange messages: both have the credentials of Redis.
    send(&wrong, &a, 5).await;
    until("the message", || numbers(&a, wrong.epoch()) == [5]).await;
    assert_eq!(a.metric("links{direction=\"in\"}"), 0);

    // A listener that answers at the address of a node, of a cell with the same secret.
    let other = Server::start();
    let wire = Wire::new();
    let address = wire.advertise.clone();
    let foreign = direct_node(config(&other.url()), "foreign", wire);
    foreign.events.joined_again().await;
    let here = Wire { advertise: address, ..Wire::new() };
    let b = direct_node(config(&server.url()), "b", here);
    b.events.joined_again().await;
    until("the foreign node refused", || a.metric("link_failures_total{why=\"refused\"}") > 0).await;
    send(&a, &b, 6).await;
    until("by redis", || numbers(&b, a.epoch()) == [6]).await;
    assert!(foreign.events.messages().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_nobody_answers_is_replaced_by_redis() {
    let server = Server::start();
    // Bound and never accepted.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let advertise = silent.local_addr().expect("bound").to_string();
    let a = direct_node(config(&server.url()), "a", Wire::new());
    let b = direct_node(config(&server.url()), "b", Wire { advertise, ..Wire::new() });
    a.events.joined_again().await;
    b.events.joined_again().await;
    a.knows(2).await;
    for number in 0..10 {
        send(&a, &b, number).await;
    }
    until("all", || numbers(&b, a.epoch()) == (0..10).collect::<Vec<_>>()).await;
    assert!(!b.events.has_lost());
    until("the failure is counted", || a.metric("link_failures_total{why=\"connect\"}") > 0).await;
}
