//! Two gateways over one engine and one store: what a device receives although messages between the gateways get lost.

use std::sync::Arc;
use std::time::Duration;

use noroshi_cluster::in_process::{Node as Member, World};
use noroshi_cluster::{NodeInfo, Roles};
use noroshi_delivery::Delivery;
use noroshi_delivery::cluster::{Config, Reload};
use noroshi_types::When;
use serde_json::{Value, json};

use crate::node::{Client, Node, plain, topic, user};

struct Nothing;

#[async_trait::async_trait]
impl Reload for Nothing {
    async fn reload(&self) {}
}

/// Two nodes, and the second one's place among them.
struct Pair {
    world: World,
    a: Node,
    b: Node,
    at_b: Member,
    /// The store's.
    _first: Node,
}

impl Pair {
    async fn start() -> Self {
        let world = World::new();
        let first = Node::start(plain()).await;
        let (mut members, mut nodes) = (Vec::new(), Vec::new());
        for name in ["a", "b"] {
            let info = NodeInfo { name: name.to_owned(), roles: Roles::ALL, ..NodeInfo::default() };
            let member = world.node(info);
            let join = |delivery: &Arc<Delivery>| {
                let never = Duration::from_secs(3_600);
                let config = Config { sweep_interval: never, audit_interval: never, ..Config::default() };
                delivery.nodes.attach(member.cluster(), config, Arc::new(Nothing));
                member.attach(delivery.nodes.receiver());
            };
            nodes.push(first.start_beside(join).await);
            members.push(member);
        }
        let (b, a) = (nodes.pop().expect("two"), nodes.pop().expect("two"));
        let at_b = members.pop().expect("two");
        a.until("the other is known", |_| at_b.cluster().members.nodes().len() == 2).await;
        Self { world, a, b, at_b, _first: first }
    }

    /// Published at A, to the user and the topic, kept.
    async fn publish(&self, number: u32) {
        self.a.publish(user("u1"), When::Stored, &number.to_string()).await;
        self.a.publish(topic("news"), When::Stored, &(number + 100).to_string()).await;
    }
}

/// Data of the next `count` messages, in order of their size.
async fn heard(client: &mut Client, count: usize) -> Vec<Value> {
    let mut heard = Vec::new();
    while heard.len() < count {
        heard.push(client.next_data().await);
    }
    heard.sort_by_key(Value::as_u64);
    heard
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_lost_between_nodes_are_delivered_once_and_others_not_again() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &["news"]).await;
    let mut client = pair.b.connect("d1").await;
    pair.publish(1).await;
    assert_eq!(heard(&mut client, 2).await, [json!(1), json!(101)]);
    pair.at_b.lose_messages(2);
    pair.publish(2).await;
    pair.publish(3).await;
    assert_eq!(heard(&mut client, 4).await, [json!(2), json!(3), json!(102), json!(103)]);
    // One more sweep, without losses: the client receives nothing twice, although it acknowledged nothing.
    let sweeps = "noroshi_delivery_cluster_sweeps_total";
    let before = pair.b.metric(sweeps);
    pair.at_b.partition();
    pair.at_b.heal();
    pair.b.until("another sweep", |node| node.metric(sweeps) > before + 1).await;
    pair.publish(4).await;
    assert_eq!(heard(&mut client, 2).await, [json!(4), json!(104)]);
    assert_eq!(client.sync().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_topic_message_is_delivered_with_the_next_one() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &["news"]).await;
    let mut client = pair.b.connect("d1").await;
    let publish = |number: &'static str| pair.a.publish(topic("news"), When::Stored, number);
    publish("1").await;
    assert_eq!(client.next_data().await, json!(1));
    let sweeps = "noroshi_delivery_cluster_sweeps_total";
    let before = pair.b.metric(sweeps);
    pair.at_b.lose_messages_unseen(1);
    publish("2").await;
    publish("3").await;
    // In order: what is behind the gap could be acknowledged anywhere.
    assert_eq!([client.next_data().await, client.next_data().await], [json!(2), json!(3)]);
    publish("4").await;
    assert_eq!(client.next_data().await, json!(4));
    assert_eq!(client.sync().await, Vec::<Value>::new());
    assert_eq!(
        (pair.b.metric(sweeps), pair.b.metric("noroshi_delivery_cluster_topic_gaps_total")),
        (before, 1)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_message_after_a_log_in_reveals_earlier_losses() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &["news", "new"]).await;
    pair.a.publish(topic("news"), When::Stored, "1").await;
    let mut client = pair.b.connect("d1").await;
    assert_eq!(client.next_data().await, json!(1));
    // The second topic was never used before.
    for name in ["news", "new"] {
        pair.at_b.lose_messages_unseen(1);
        pair.a.publish(topic(name), When::Stored, "2").await;
        pair.a.publish(topic(name), When::Stored, "3").await;
        assert_eq!([client.next_data().await, client.next_data().await], [json!(2), json!(3)], "{name}");
    }
    assert_eq!(client.sync().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_holds_up_nothing_that_is_not_kept() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &["news"]).await;
    let mut client = pair.b.connect("d1").await;
    pair.a.publish(topic("news"), When::Connected, "1").await;
    assert_eq!(client.next_data().await, json!(1));
    pair.at_b.lose_messages_unseen(1);
    for (number, when) in
        [("2", When::Connected), ("3", When::Connected), ("4", When::Stored), ("5", When::Active)]
    {
        pair.a.publish(topic("news"), when, number).await;
    }
    assert_eq!(heard(&mut client, 3).await, [json!(3), json!(4), json!(5)], "2 is lost, and was not kept");
    assert_eq!(client.sync().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_acknowledged_at_another_node_are_not_offered() {
    let pair = Pair::start().await;
    let num = pair.b.device("d1", "u1", &["news"]).await;
    let mut client = pair.a.connect("d1").await;
    // B does not receive these messages, as if it started later.
    pair.at_b.partition();
    let mut ids = Vec::new();
    for number in ["1", "2"] {
        ids.push(pair.a.publish(topic("news"), When::Stored, number).await);
        client.next_data().await;
    }
    assert_eq!(pair.a.delivery.acks.ack_now(pair.a.app, num, ids).await.expect("written"), 2);
    let mut client = pair.b.connect("d1").await;
    let offered = "noroshi_delivery_cluster_offered_again_total";
    assert_eq!(pair.b.metric(offered), 0);
    pair.at_b.heal();
    pair.b.until("both are offered", |node| node.metric(offered) >= 2).await;
    pair.a.publish(topic("news"), When::Stored, "3").await;
    assert_eq!(client.next_data().await, json!(3));
    assert_eq!(client.sync().await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_that_connects_to_another_node_is_closed_here() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &[]).await;
    let mut old = pair.a.connect("d1").await;
    let mut new = pair.b.connect("d1").await;
    assert_eq!(old.closed().await, ("replaced".to_owned(), 4001));
    pair.a.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(new.next_data().await, json!(1));
    pair.b.until_sessions(1).await;
    assert_eq!(pair.a.gateway.sessions_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_the_engine_loses_nothing_that_is_kept() {
    let pair = Pair::start().await;
    pair.b.device("d1", "u1", &["news"]).await;
    let mut client = pair.b.connect("d1").await;
    pair.publish(1).await;
    assert_eq!(heard(&mut client, 2).await, [json!(1), json!(101)]);
    pair.world.stop();
    pair.publish(2).await;
    pair.world.start();
    assert_eq!(heard(&mut client, 2).await, [json!(2), json!(102)]);
    // A lease that lapses takes the session along, and brings it back.
    pair.at_b.partition();
    pair.at_b.lapse();
    pair.a.until("b is gone", |_| pair.at_b.cluster().members.epoch().is_none()).await;
    pair.publish(3).await;
    pair.at_b.heal();
    assert_eq!(heard(&mut client, 2).await, [json!(3), json!(103)]);
    assert_eq!(client.sync().await, Vec::<Value>::new());
}
