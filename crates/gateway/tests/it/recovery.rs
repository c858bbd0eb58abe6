//! From the store to live without a gap, a repetition or a change of order, while others publish.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use noroshi_types::{Target, When};
use serde_json::{Value, json};

use crate::node::{Client, Node, plain, request, topic, user};

/// Publishes numbers from 0 on, one after the other, until `stop` is set.
struct Publisher {
    stop: Arc<AtomicBool>,
    published: Arc<AtomicU64>,
    task: tokio::task::JoinHandle<()>,
}

impl Publisher {
    fn start(node: &Arc<Node>, target: Target) -> Self {
        let (stop, published) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (node, stopping, count) = (node.clone(), stop.clone(), published.clone());
        let task = tokio::spawn(async move {
            while !stopping.load(Ordering::SeqCst) {
                let n = count.load(Ordering::SeqCst);
                node.publish(target.clone(), When::Stored, &n.to_string()).await;
                count.store(n + 1, Ordering::SeqCst);
            }
        });
        Self { stop, published, task }
    }

    async fn stop(self) -> u64 {
        self.stop.store(true, Ordering::SeqCst);
        self.task.await.expect("no panic");
        self.published.load(Ordering::SeqCst)
    }
}

fn numbers(frames: &[Value]) -> Vec<u64> {
    frames
        .iter()
        .filter(|frame| frame["t"] == "msg")
        .map(|frame| frame["data"].as_u64().expect("a number"))
        .collect()
}

/// Reads messages and acknowledges them, until `last` arrives.
async fn hear_until(client: &mut Client, last: u64, heard: &mut Vec<u64>) {
    while heard.last() != Some(&last) {
        let frame = client.next().await;
        if frame["t"] == "msg" {
            heard.push(frame["data"].as_u64().expect("a number"));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_while_others_publish_to_the_user_misses_and_repeats_nothing() {
    check_log_ins(&[], user("u1")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_while_others_publish_to_a_durable_topic_misses_and_repeats_nothing() {
    check_log_ins(&["news"], topic("news")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_in_while_others_publish_to_a_condition_misses_and_repeats_nothing() {
    let condition = noroshi_types::Condition::parse("'news' in topics").expect("a condition");
    check_log_ins(&["news"], Target::Condition(condition)).await;
}

/// Devices log in, one after the other, while numbers are published to all of them.
async fn check_log_ins(topics: &[&str], target: Target) {
    let node = Arc::new(Node::start(plain()).await);
    let devices: Vec<String> = (0..12).map(|n| format!("d{n}")).collect();
    for device in &devices {
        node.device(device, "u1", topics).await;
    }
    let publisher = Publisher::start(&node, target);
    let mut clients = Vec::new();
    for device in &devices {
        // Some of the numbers are in the backlog, the others come live.
        let more = publisher.published.load(Ordering::SeqCst) + 7;
        node.until("more numbers", |_| publisher.published.load(Ordering::SeqCst) > more).await;
        clients.push(node.connect(device).await);
    }
    let count = publisher.stop().await;
    for (client, device) in clients.iter_mut().zip(&devices) {
        let mut heard = Vec::new();
        hear_until(client, count - 1, &mut heard).await;
        assert_eq!(heard, (0..count).collect::<Vec<_>>(), "{device}");
        assert!(client.sync().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_backlog_arrives_in_pages_in_order() {
    let node = Arc::new(Node::start(plain()).await);
    node.device("d1", "u1", &["news"]).await;
    for n in 0..450 {
        let target = if n % 2 == 0 { user("u1") } else { topic("news") };
        node.publish(target, When::Stored, &n.to_string()).await;
    }
    let mut client = node.connect("d1").await;
    let mut heard = Vec::new();
    hear_until(&mut client, 449, &mut heard).await;
    assert_eq!(heard, (0..450).collect::<Vec<_>>());
    assert!(client.sync().await.is_empty());
    node.publish(user("u1"), When::Stored, "450").await;
    assert_eq!(client.next_data().await, json!(450));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_since_a_position_while_others_publish_misses_and_repeats_nothing() {
    let node = Arc::new(Node::start(plain()).await);
    node.device("first", "u1", &[]).await;
    let mut first = node.connect("first").await;
    first.send(json!({"t": "sub", "topics": ["news"]})).await;
    first.sync().await;
    node.publish(topic("news"), When::Stored, "0").await;
    let place = first.next().await;
    let since = json!({"news": {"epoch": place["epoch"], "offset": 0}});
    let publisher = Publisher::start(&node, topic("news"));
    let mut clients = Vec::new();
    for n in 0..12 {
        let more = publisher.published.load(Ordering::SeqCst) + 11;
        node.until("more numbers", |_| publisher.published.load(Ordering::SeqCst) > more).await;
        node.device(&format!("d{n}"), "u2", &[]).await;
        let mut client = node.connect(&format!("d{n}")).await;
        client.send(json!({"t": "sub", "topics": ["news"], "since": since})).await;
        clients.push(client);
    }
    let count = publisher.stop().await;
    for client in &mut clients {
        let mut frames = Vec::new();
        while numbers(&frames).last() != Some(&(count - 1))
            || !frames.iter().any(|frame| frame["t"] == "recovered")
        {
            frames.push(client.next().await);
        }
        let messages = frames.iter().filter(|frame| frame["t"] == "msg");
        let offsets: Vec<u64> = messages.filter_map(|frame| frame["offset"].as_u64()).collect();
        assert_eq!(offsets, (1..=count + 1).collect::<Vec<_>>());
        let recovered = frames.iter().find(|frame| frame["t"] == "recovered").expect("told");
        assert_eq!((&recovered["topic"], &recovered["complete"]), (&json!("news"), &json!(true)));
        assert_eq!(recovered["epoch"], place["epoch"]);
        assert!(recovered["offset"].as_u64().is_some_and(|offset| offset > 11));
        assert!(client.sync().await.is_empty());
    }
}

/// A client that names the position it got misses nothing, also if nothing was published before or in between.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_asks_for_the_position_recovers_from_it() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    for published in 0..3 {
        let mut client = node.connect("d1").await;
        client.send(json!({"t": "sub", "topics": ["news"], "since": {"news": null}})).await;
        let recovered = client.next().await;
        let position = json!({"epoch": recovered["epoch"], "offset": recovered["offset"]});
        assert_eq!((&recovered["complete"], &recovered["offset"]), (&json!(true), &json!(published)));
        assert_eq!(recovered["epoch"] == "00000000", published == 0);
        drop(client);
        let mut client = node.connect("d1").await;
        client.send(json!({"t": "sub", "topics": ["news"], "since": {"news": position}})).await;
        let mut unchanged = recovered.clone();
        assert_eq!(client.next().await, unchanged);
        drop(client);
        node.publish(topic("news"), When::Stored, &published.to_string()).await;
        let mut client = node.connect("d1").await;
        client.send(json!({"t": "sub", "topics": ["news"], "since": {"news": position}})).await;
        let message = client.next().await;
        assert_eq!((&message["t"], &message["data"]), (&json!("msg"), &json!(published)));
        (unchanged["epoch"], unchanged["offset"]) = (message["epoch"].clone(), json!(published + 1));
        assert_eq!(client.next().await, unchanged);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_position_of_another_epoch_is_not_complete() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    node.publish(topic("news"), When::Stored, "1").await;
    let mut client = node.connect("d1").await;
    let since = json!({"news": {"epoch": "00000000", "offset": 1}});
    client.send(json!({"t": "sub", "topics": ["news"], "since": since})).await;
    let mut frames = client.sync().await;
    while !frames.iter().any(|frame| frame["t"] == "recovered") {
        frames.push(client.next().await);
    }
    let recovered = frames.iter().find(|frame| frame["t"] == "recovered").expect("told");
    assert_eq!(recovered["complete"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retained_message_arrives_at_each_log_in_and_subscription() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    node.device("d2", "u2", &[]).await;
    let mut retained = request(topic("news"), When::Connected, r#""kept""#);
    retained.retain = true;
    node.publish_request(retained).await;
    for _ in 0..2 {
        let mut client = node.connect("d1").await;
        assert_eq!(client.next_data().await, json!("kept"));
        assert!(client.sync().await.is_empty());
    }
    let mut client = node.connect("d2").await;
    assert!(client.sync().await.is_empty());
    client.send(json!({"t": "sub", "topics": ["news"]})).await;
    assert_eq!(client.next_data().await, json!("kept"));
    node.publish(topic("news"), When::Stored, "1").await;
    assert_eq!(client.next_data().await, json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn unacknowledged_messages_are_redelivered_with_the_same_id() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let id = node.publish(user("u1"), When::Stored, "1").await.to_string();
    for _ in 0..3 {
        let mut client = node.connect("d1").await;
        let message = client.next().await;
        assert_eq!(message["id"], id);
        assert!(client.sync().await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mailbox_that_overflows_loses_nothing_that_is_kept() {
    // One item: most deliveries find it full.
    let node =
        Arc::new(Node::start(noroshi_gateway::Config { mailbox_items: 1, shards: 1, ..plain() }).await);
    node.device("d1", "u1", &["news"]).await;
    let mut client = node.connect("d1").await;
    let mut heard = Vec::new();
    for n in 0..500 {
        let target = if n % 2 == 0 { user("u1") } else { topic("news") };
        node.publish_unasked(target, When::Stored, &n.to_string());
    }
    hear_until(&mut client, 499, &mut heard).await;
    heard.extend(numbers(&client.sync().await));
    heard.dedup();
    assert_eq!(heard, (0..500).collect::<Vec<_>>());
}
