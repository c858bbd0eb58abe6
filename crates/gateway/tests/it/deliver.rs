//! Which devices receive a message: targets, the presence gate, outcomes.

use noroshi_delivery::Edge;
use noroshi_store::Notifications;
use noroshi_types::{
    Condition, DeviceId, NotificationId, Outcome, Presence, Request, Target, Topic, UserId, When,
};
use serde_json::json;

use crate::node::{Client, Node, plain, request, topic, user};

/// The data of every message that came until now.
async fn heard(client: &mut Client) -> Vec<serde_json::Value> {
    client.sync().await.into_iter().map(|frame| frame["data"].clone()).collect()
}

fn id(device: &str) -> DeviceId {
    DeviceId::parse(device).expect("an id")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_target_reaches_its_recipients() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &["news"]).await;
    node.device("b", "u1", &["sport"]).await;
    node.device("c", "u2", &["news", "sport"]).await;
    let (mut a, mut b, mut c) = (node.connect("a").await, node.connect("b").await, node.connect("c").await);
    let condition = |text: &str| Target::Condition(Condition::parse(text).expect("a condition"));
    for when in [When::Stored, When::Connected, When::Active] {
        node.publish(user("u1"), when, "1").await;
        node.publish(Target::Devices(vec![id("b"), id("nobody")]), when, "2").await;
        node.publish(topic("news"), when, "3").await;
        node.publish(Target::Everyone, when, "4").await;
        node.publish(condition("'news' in topics && 'sport' in topics"), when, "5").await;
        node.publish(condition("!('news' in topics)"), when, "6").await;
        assert_eq!(heard(&mut a).await, [1, 3, 4].map(|n| json!(n)), "{when:?}");
        assert_eq!(heard(&mut b).await, [1, 2, 4, 6].map(|n| json!(n)), "{when:?}");
        assert_eq!(heard(&mut c).await, [3, 4, 5].map(|n| json!(n)), "{when:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_are_separate() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &["news"]).await;
    let mut a = node.connect("a").await;
    let name = noroshi_types::AppName::parse("other").expect("a name");
    let other = node.auth.create_app(name, Default::default(), node.now()).await.expect("an app").id;
    for target in [user("u1"), Target::Devices(vec![id("a")]), topic("news"), Target::Everyone] {
        node.delivery
            .publisher
            .publish(other, request(target, When::Stored, "1"), None)
            .await
            .expect("accepted");
    }
    assert!(a.sync().await.is_empty());
    assert_eq!(node.gateway.session(other, &id("a")), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn active_is_for_devices_in_use() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &["news"]).await;
    let mut a = node.connect("a").await;
    a.send(json!({"t": "presence", "state": "idle"})).await;
    a.sync().await;
    let users = [UserId::parse("u1").expect("an id"), UserId::parse("u2").expect("an id")];
    let sessions = node.gateway.sessions(node.app, &users);
    assert_eq!(sessions[0].len(), 1);
    assert_eq!((sessions[0][0].presence, sessions[1].len()), (Presence::Idle, 0));
    let missed = node.publish(user("u1"), When::Active, "1").await;
    node.publish(topic("news"), When::Active, "2").await;
    assert!(a.sync().await.is_empty(), "it is idle");
    assert!(node.gateway.set_presence(node.app, &id("a"), Presence::Active));
    node.publish(user("u1"), When::Active, "3").await;
    assert_eq!(heard(&mut a).await, [json!(3)]);
    counted(&node, missed, Outcome::Inactive, 1).await;
}

/// Waits until so many devices had an outcome.
async fn counted(node: &Node, id: NotificationId, outcome: Outcome, count: u64) {
    let until = tokio::time::Instant::now() + crate::node::PATIENCE;
    loop {
        let state = node.store.notification(node.app, id, node.now()).await.expect("read");
        let counts = state.map(|state| state.counts).unwrap_or_default();
        if counts.contains(&(outcome, count)) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "no {outcome:?} {count} in {counts:?}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn outcomes_are_reported() {
    let node = Node::start(plain()).await;
    for (device, user) in [("a", "u1"), ("b", "u2"), ("c", "u3")] {
        node.device(device, user, &["news"]).await;
    }
    let (mut a, mut b) = (node.connect("a").await, node.connect("b").await);
    let users = ["u1", "u2", "u3"].map(|name| UserId::parse(name).expect("an id")).to_vec();
    let direct = node.publish(Target::Users(users), When::Connected, "1").await;
    let to_topic = node.publish(topic("news"), When::Stored, "2").await;
    assert_eq!(heard(&mut a).await.len() + heard(&mut b).await.len(), 4);
    counted(&node, direct, Outcome::Written, 2).await;
    counted(&node, direct, Outcome::Offline, 1).await;
    counted(&node, to_topic, Outcome::Written, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscriptions_of_a_connection_and_durable_ones() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &["news"]).await;
    let mut a = node.connect("a").await;
    let news = Topic::parse("news").expect("a topic");
    let sport = Topic::parse("sport").expect("a topic");
    assert_eq!(node.gateway.topic_sessions(node.app, &news), 1);
    a.send(json!({"t": "unsub", "topics": ["news"]})).await;
    a.send(json!({"t": "sub", "topics": ["chess"]})).await;
    a.sync().await;
    assert!(node.delivery.devices.subscribe(node.app, &id("a"), &sport).await.expect("stored"));
    for name in ["news", "chess", "sport"] {
        node.publish(topic(name), When::Connected, &format!("{name:?}")).await;
    }
    assert_eq!(heard(&mut a).await, ["chess", "sport"].map(|name| json!(name)));
    assert!(node.delivery.devices.unsubscribe(node.app, &id("a"), &sport).await.expect("stored"));
    node.publish(topic("sport"), When::Connected, "1").await;
    assert!(a.sync().await.is_empty());
    assert_eq!(node.gateway.topic_sessions(node.app, &news), 0);
    // Durable, so it is back with the next connection.
    drop(a);
    node.until_sessions(0).await;
    let _again = node.connect("a").await;
    assert_eq!(node.gateway.topic_sessions(node.app, &news), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_has_a_limited_number_of_topics() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &[]).await;
    let mut a = node.connect("a").await;
    let names: Vec<String> = (0..1_000).map(|n| format!("t{n}")).collect();
    a.send(json!({"t": "sub", "topics": names})).await;
    assert!(a.sync().await.is_empty());
    a.send(json!({"t": "sub", "topics": ["t5"]})).await;
    assert!(a.sync().await.is_empty(), "one of them again is not one more");
    a.send(json!({"t": "sub", "topics": ["one more"]})).await;
    assert_eq!(a.sync().await[0]["code"], "too_many_topics");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_to_one_topic_keeps_its_order_and_direct_messages_theirs() {
    let node = Node::start(plain()).await;
    let mut clients = Vec::new();
    for n in 0..20 {
        node.device(&format!("d{n}"), &format!("u{n}"), &["news"]).await;
        clients.push(node.connect(&format!("d{n}")).await);
    }
    for n in 0..300 {
        let target = if n % 3 == 0 { user("u7") } else { topic("news") };
        node.publish(target, When::Stored, &n.to_string()).await;
    }
    for (index, client) in clients.iter_mut().enumerate() {
        let heard = heard(client).await;
        let expected: Vec<_> = (0..300).filter(|n| n % 3 != 0 || index == 7).map(|n| json!(n)).collect();
        assert_eq!(heard, expected, "client {index}");
    }
}

/// RFC 8030 §5.3: a message that is not urgent waits while a device is idle, and arrives when it is active again.
#[tokio::test(flavor = "multi_thread")]
async fn an_idle_device_does_not_get_messages_that_wait_for_use() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &[]).await;
    let mut a = node.connect("a").await;
    let patient = async |data: &str| {
        let request = Request { waits_for_use: true, ..request(user("u1"), When::Stored, data) };
        node.publish_request(request).await
    };
    patient("1").await;
    assert_eq!(heard(&mut a).await, [json!(1)], "it is in use");
    let presence = |state: &str| json!({"t": "presence", "state": state});
    a.send(presence("idle")).await;
    assert!(a.sync().await.is_empty());
    let held = patient("2").await;
    patient("3").await;
    node.publish(user("u1"), When::Stored, "4").await;
    assert_eq!(heard(&mut a).await, [json!(4)]);
    a.send(presence("idle")).await;
    assert!(a.sync().await.is_empty(), "idle still");
    a.send(presence("active")).await;
    let mut first = a.next_data().await;
    if first == json!(1) {
        first = a.next_data().await; // of the same millisecond, and not acknowledged
    }
    assert_eq!([first, a.next_data().await], [2, 3].map(|n| json!(n)));
    assert_eq!(a.next_data().await, json!(4), "not acknowledged yet, and behind what was held back");
    counted(&node, held, Outcome::Written, 1).await;

    // Presence may be set over HTTP too.
    assert!(node.gateway.set_presence(node.app, &id("a"), Presence::Idle));
    patient("5").await;
    assert!(a.sync().await.is_empty());
    assert!(node.gateway.set_presence(node.app, &id("a"), Presence::Active));
    assert_eq!(a.next_data().await, json!(5));

    // Who never comes into use finds it at the next log-in.
    assert!(node.gateway.set_presence(node.app, &id("a"), Presence::Idle));
    patient("6").await;
    assert!(a.sync().await.is_empty());
    drop(a);
    let mut again = node.connect("a").await;
    let mut all = heard(&mut again).await;
    while all.len() < 6 {
        all.extend(heard(&mut again).await);
    }
    assert_eq!(all, [1, 2, 3, 4, 5, 6].map(|n| json!(n)));
}
