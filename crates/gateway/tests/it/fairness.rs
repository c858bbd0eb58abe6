//! No client's load starves another client, asserted by the work that is done meanwhile and not by the clock.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use mio::{Events, Interest, Poll, Token};
use noroshi_gateway::Config;
use noroshi_types::{DeviceId, Target, When};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::node::{Node, plain, topic, user};

/// Devices that read whatever comes and look at none of it.
struct Crowd {
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Crowd {
    async fn connect(node: &Arc<Node>, prefix: &'static str, count: usize) -> Self {
        let mut sockets = Vec::with_capacity(count);
        for begin in (0..count).step_by(100) {
            let mut connecting = JoinSet::new();
            for n in begin..count.min(begin + 100) {
                let node = node.clone();
                connecting.spawn(async move { node.bare(&format!("{prefix}{n}")).await });
            }
            sockets.extend(connecting.join_all().await);
        }
        let over = Arc::new(AtomicBool::new(false));
        let reader = std::thread::spawn({
            let over = over.clone();
            move || discard(sockets, &over)
        });
        Self { over, reader: Some(reader) }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let ended = self.reader.take().map(JoinHandle::join);
        assert!(ended.is_some_and(|ended| ended.is_ok()) || std::thread::panicking());
    }
}

fn discard(sockets: Vec<TcpStream>, over: &AtomicBool) {
    let mut poll = Poll::new().expect("a poll");
    let mut sockets: Vec<mio::net::TcpStream> = sockets
        .into_iter()
        .map(|socket| mio::net::TcpStream::from_std(socket.into_std().expect("its socket")))
        .collect();
    for (n, socket) in sockets.iter_mut().enumerate() {
        poll.registry().register(socket, Token(n), Interest::READABLE).expect("registered");
    }
    let (mut events, mut scratch) = (Events::with_capacity(1_024), vec![0; 256 << 10]);
    while !over.load(Ordering::SeqCst) {
        poll.poll(&mut events, Some(std::time::Duration::from_millis(20))).expect("polled");
        for event in &events {
            while sockets[event.token().0].read(&mut scratch).is_ok_and(|count| count > 0) {}
        }
    }
}

/// Publishes to a target without a pause until it is dropped.
fn publish_without_pause(node: &Arc<Node>, target: &Target, tasks: usize) -> JoinSet<()> {
    let mut publishing = JoinSet::new();
    for _ in 0..tasks {
        let (node, target) = (node.clone(), target.clone());
        publishing.spawn(async move {
            loop {
                node.publish(target.clone(), When::Connected, "\"all\"").await;
                // A message that is not stored is accepted without waiting for anything.
                tokio::task::yield_now().await;
            }
        });
    }
    publishing
}

fn written(node: &Node) -> u64 {
    node.metric("noroshi_messages_written_total")
}

/// A slice: as many connections of topics as are written to in one turn, each with all that waits.
const SLICE: u64 = 256 * 64;

/// What usually happened meanwhile: the thread that counts may itself have to wait now and then.
fn usual(mut between: Vec<u64>) -> u64 {
    between.sort_unstable();
    between[between.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hot_topic_delays_direct_messages_by_a_slice_and_keeps_the_order_of_its_own_audience() {
    const AUDIENCE: usize = 1_000;
    const ROUNDS: usize = 12;
    let node = Arc::new(Node::start(Config { shards: 1, ..plain() }).await);
    node.crowd("c", AUDIENCE, &["hot"]).await;
    node.device("both", "both", &["hot"]).await;
    let mut devices = Vec::new();
    for n in 0..5 {
        node.device(&format!("d{n}"), &format!("u{n}"), &[]).await;
        devices.push(node.connect(&format!("d{n}")).await);
    }
    let mut both = node.connect("both").await;
    let _crowd = Crowd::connect(&node, "c", AUDIENCE).await;
    let _storm = publish_without_pause(&node, &topic("hot"), 50);
    let both_in_turn = tokio::spawn({
        let node = node.clone();
        async move {
            for n in 0..ROUNDS {
                let target = if n % 2 == 0 { topic("hot") } else { user("both") };
                node.publish(target, When::Stored, &n.to_string()).await;
            }
        }
    });
    let mut between = Vec::new();
    for n in 0..ROUNDS {
        let before = written(&node);
        node.until("the storm goes on", |node| written(node) > before).await;
        let client = &mut devices[n % 5];
        let when = if n % 4 < 2 { When::Connected } else { When::Stored };
        node.publish(user(&format!("u{}", n % 5)), when, &n.to_string()).await;
        let accepted = written(&node);
        assert_eq!(client.next_data().await, json!(n));
        between.push(written(&node) - accepted);
    }
    let usual = usual(between);
    assert!(usual <= 2 * SLICE, "{usual} deliveries of a topic before a direct message");
    // A subscriber of the topic too waits for it, and receives both in their order.
    let mut expected = 0;
    while expected < ROUNDS {
        let data = both.next_data().await;
        if data != json!("all") {
            assert_eq!(data, json!(expected));
            expected += 1;
        }
    }
    both_in_turn.await.expect("no panic");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_mailbox_behind_a_hot_topic_loses_and_reorders_nothing_that_is_kept() {
    const AUDIENCE: usize = 500;
    const KEPT: u64 = 200;
    let node = Arc::new(Node::start(Config { shards: 1, mailbox_items: 4, ..plain() }).await);
    node.crowd("c", AUDIENCE, &["hot"]).await;
    node.device("d", "u", &["news"]).await;
    let mut device = node.connect("d").await;
    let _crowd = Crowd::connect(&node, "c", AUDIENCE).await;
    for n in 0..KEPT {
        for _ in 0..8 {
            node.publish_unasked(topic("hot"), When::Connected, "\"all\"");
        }
        let target = if n % 2 == 0 { user("u") } else { topic("news") };
        node.publish_unasked(target, When::Stored, &n.to_string());
    }
    let mut next = 0;
    while next < KEPT {
        let heard = device.next_data().await.as_u64().expect("a number");
        assert!(heard <= next, "{heard} before {next}");
        next = next.max(heard + 1);
    }
    assert!(node.metric("noroshi_resyncs_total") > 0, "the mailbox was never full");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hot_direct_messages_delay_topics_and_log_ins_by_a_bounded_number() {
    const NAMED: usize = 300;
    let node = Arc::new(Node::start(Config { shards: 1, ..plain() }).await);
    node.crowd("c", NAMED, &[]).await;
    node.device("d", "u", &["calm"]).await;
    node.device("new", "new", &[]).await;
    let mut device = node.connect("d").await;
    let _crowd = Crowd::connect(&node, "c", NAMED).await;
    let named = (0..NAMED).map(|n| DeviceId::parse(&format!("c{n}")).expect("an id")).collect();
    let _storm = publish_without_pause(&node, &Target::Devices(named), 2);
    let (mut to_topic, mut to_log_in) = (Vec::new(), Vec::new());
    for n in 0..5 {
        let before = written(&node);
        node.until("the storm goes on", |node| written(node) > before).await;
        node.publish(topic("calm"), When::Connected, &n.to_string()).await;
        let accepted = written(&node);
        assert_eq!(device.next_data().await, json!(n));
        to_topic.push(written(&node) - accepted);
        let asked = written(&node);
        let _session = node.bare("new").await;
        to_log_in.push(written(&node) - asked);
    }
    // What may wait in the mailbox, a full ring, and two requests that were accepted meanwhile.
    let waiting_max = (1 << 17) + (64 + 2) * NAMED as u64 + 4 * SLICE;
    let (to_topic, to_log_in) = (usual(to_topic), usual(to_log_in));
    assert!(to_topic <= waiting_max, "{to_topic} direct deliveries before a topic's message");
    assert!(to_log_in <= waiting_max, "{to_log_in} direct deliveries before a log-in");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_log_ins_delays_deliveries_by_a_few_of_them() {
    const STORMING: usize = 200;
    let node = Arc::new(Node::start(Config { shards: 1, ..plain() }).await);
    node.crowd("c", STORMING, &["news"]).await;
    node.device("d", "u", &[]).await;
    let mut device = node.connect("d").await;
    let mut storm = JoinSet::new();
    for n in 0..STORMING {
        let node = node.clone();
        storm.spawn(async move {
            loop {
                node.bare(&format!("c{n}")).await;
            }
        });
    }
    let log_ins = |node: &Node| node.metric("noroshi_log_ins_total");
    let mut between = Vec::new();
    for n in 0..10 {
        let before = log_ins(&node);
        node.until("the storm goes on", |node| log_ins(node) > before).await;
        node.publish(user("u"), When::Connected, &n.to_string()).await;
        let accepted = log_ins(&node);
        assert_eq!(device.next_data().await, json!(n));
        between.push(log_ins(&node) - accepted);
    }
    let usual = usual(between);
    assert!(usual <= 1_024, "{usual} log-ins before a direct message");
}
