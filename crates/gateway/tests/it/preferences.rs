//! Preferences of users and devices, as live delivery obeys them.

use futures_util::future::join_all;
use noroshi_delivery::{Clock, Edge};
use noroshi_protocol::mqtt::{Ack, Packet, Qos};
use noroshi_store::{Counted, Devices, PreferenceStore, Preferring, Registration};
use noroshi_types::local_time::{LocalTime, QuietHours};
use noroshi_types::{
    Category, CategoryPreference, Channel, Channels, Condition, DeviceId, Label, NotificationId, Preferences,
    Presence, QuietTime, Request, Target, Timestamp, Topic, UserId, When,
};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::mqtt::{self, Asked};
use crate::node::{Client, Node, plain, read_until, request, topic, upgrade_head, user};

/// The data of every message that came until now.
async fn heard(client: &mut Client) -> Vec<Value> {
    client.sync().await.into_iter().map(|frame| frame["data"].clone()).collect()
}

fn label(name: &str) -> Label {
    Label::parse(name).expect(name)
}

fn device(name: &str) -> Preferring {
    Preferring::Device(DeviceId::parse(name).expect(name))
}

/// Publishes a message of a category, with its number as data.
async fn publish(node: &Node, target: Target, when: When, category: &str, number: u32) -> NotificationId {
    let category = Some(Category { name: label(category), is_essential: false });
    let request = Request { category, ..request(target, when, &number.to_string()) };
    node.publish_request(request).await
}

fn only(channel: Channel) -> Option<Channels> {
    Some([channel].into_iter().collect())
}

/// Preferences for the category `ads`.
fn ads(own: CategoryPreference) -> Preferences {
    Preferences { categories: [(label("ads"), own)].into(), ..Preferences::default() }
}

fn muted() -> CategoryPreference {
    CategoryPreference { muted: Some(true), ..CategoryPreference::default() }
}

fn capped(max: u32) -> Preferences {
    ads(CategoryPreference { daily_max: Some(max), ..CategoryPreference::default() })
}

/// From an hour ago to the next hour.
fn quiet_now(node: &Node) -> Preferences {
    let minute = node.now().0 / 60_000;
    let clock = |minute: u64| {
        LocalTime::parse(&format!("{:02}:{:02}", minute / 60 % 24, minute % 60)).expect("a time")
    };
    let hours = QuietHours::new(clock(minute - 60), clock(minute + 60)).expect("hours");
    let timezone = Some("UTC".into());
    Preferences { quiet_hours: Some(QuietTime { hours, timezone }), ..Preferences::default() }
}

/// Sets preferences of which one connected device is concerned, and waits until its session has them.
async fn set(node: &Node, of: Preferring, preferences: Option<Preferences>) {
    let before = node.metric("noroshi_preference_reports_total");
    node.delivery.preferences.set(node.app, of, preferences).await.expect("set");
    node.until("reported", |node| node.metric("noroshi_preference_reports_total") > before).await;
}

/// Sets preferences that no connected device follows.
async fn store(node: &Node, of: &Preferring, preferences: Preferences) {
    node.store.set_preferences(node.app, of, Some(preferences)).await.expect("set");
}

async fn until_outcome(node: &Node, outcome: &str, count: u64) {
    node.until(outcome, |node| node.outcome(outcome) >= count).await;
    assert_eq!(node.outcome(outcome), count, "{outcome}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_muted_or_not_allowed_is_not_written() {
    let node = Node::start(plain()).await;
    node.delivery.context.set_essential_categories([(node.app, vec![label("alarm")])]);
    node.device("a", "u1", &["noise", "news"]).await;
    node.device("b", "u1", &["noise", "news"]).await;
    let chat = CategoryPreference { channels: only(Channel::Push), ..CategoryPreference::default() };
    let preferences = Preferences {
        muted_topics: [Topic::parse("noise").expect("a topic")].into(),
        categories: [(label("ads"), muted()), (label("chat"), chat), (label("alarm"), muted())].into(),
        ..Preferences::default()
    };
    store(&node, &device("a"), preferences).await;
    let (mut a, mut b) = (node.connect("a").await, node.connect("b").await);
    let condition = || Target::Condition(Condition::parse("'news' in topics").expect("a condition"));
    for when in [When::Stored, When::Connected] {
        for (category, number) in [("ads", 1), ("chat", 2), ("other", 3), ("alarm", 4)] {
            publish(&node, user("u1"), when, category, number).await;
            publish(&node, condition(), when, category, number + 10).await;
            publish(&node, topic("noise"), when, category, number + 20).await;
            publish(&node, Target::Everyone, when, category, number + 30).await;
        }
        node.publish(topic("noise"), when, "40").await;
        node.publish(topic("news"), when, "41").await;
        let expected = [3, 13, 33, 4, 14, 24, 34, 41].map(|n| json!(n));
        assert_eq!(heard(&mut a).await, expected, "{when:?}");
        assert_eq!(heard(&mut b).await.len(), 18, "another device of the user");
    }
    // Four with `ads`, and of the muted topic three of other categories that are not essential.
    until_outcome(&node, "muted", 2 * 7).await;
    until_outcome(&node, "channel_off", 2 * 3).await;
    // What is stored stays in the store, without the two of the muted category that its inbox was spared.
    set(&node, device("a"), None).await;
    drop(a);
    let mut a = node.connect("a").await;
    let mut all = Vec::new();
    while all.len() < 16 {
        all.extend(heard(&mut a).await);
    }
    assert_eq!(all.len(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connected_device_follows_changes_of_its_user_and_its_own() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &[]).await;
    node.device("b", "u2", &[]).await;
    let (mut a, mut b) = (node.connect("a").await, node.connect("b").await);
    let u1 = || Preferring::User(UserId::parse("u1").expect("an id"));
    let check = async |a: &mut Client, b: &mut Client, expected: &[u32]| {
        for number in [1, 2] {
            let category = if number == 1 { "ads" } else { "news" };
            publish(&node, user("u1"), When::Connected, category, number).await;
            publish(&node, user("u2"), When::Connected, category, number).await;
        }
        assert_eq!(heard(a).await, expected.iter().map(|n| json!(n)).collect::<Vec<_>>());
        assert_eq!(heard(b).await, [json!(1), json!(2)]);
    };
    check(&mut a, &mut b, &[1, 2]).await;
    set(&node, u1(), Some(ads(muted()))).await;
    check(&mut a, &mut b, &[2]).await;
    let not_muted = CategoryPreference { muted: Some(false), ..CategoryPreference::default() };
    set(&node, device("a"), Some(ads(not_muted))).await;
    check(&mut a, &mut b, &[1, 2]).await;
    set(&node, device("a"), None).await;
    check(&mut a, &mut b, &[2]).await;
    set(&node, u1(), Some(Preferences { channels: only(Channel::Inbox), ..Preferences::default() })).await;
    check(&mut a, &mut b, &[]).await;
    set(&node, u1(), None).await;
    check(&mut a, &mut b, &[1, 2]).await;
    let nobody = node.delivery.preferences.set(node.app, device("nobody"), None).await;
    assert!(nobody.is_err(), "no such device");
}

/// Log-ins that are read together take long enough that a change is committed between their read and their sessions.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_during_a_log_in_is_followed() {
    let node = Node::start(plain()).await;
    let u1 = || UserId::parse("u1").expect("an id");
    let registration = |number| Registration {
        device: DeviceId::parse(&format!("d{number}")).ok(),
        user: Some(u1()),
        ..Registration::default()
    };
    node.device("last", "last", &[]).await;
    let mut last = node.connect("last").await;
    node.store
        .register(node.app, (0..250).map(registration).collect(), node.now())
        .await
        .expect("registered");
    for round in 0..4 {
        store(&node, &Preferring::User(u1()), Preferences::default()).await;
        let open = async |number| {
            let mut socket = TcpStream::connect(node.address()).await.expect("connected");
            socket.write_all(&upgrade_head(&node.token(&format!("d{number}")))).await.expect("sent");
            socket
        };
        let mut sockets = join_all((0..250).map(open)).await;
        let change = node.delivery.preferences.set(node.app, Preferring::User(u1()), Some(ads(muted())));
        change.await.expect("set");
        for socket in &mut sockets {
            read_until(socket, b"\"ping_s\":").await;
        }
        // Changes are reported in order: when this device follows the last one, all others follow theirs.
        let last_user = Preferring::User(UserId::parse("last").expect("an id"));
        node.delivery.preferences.set(node.app, last_user.clone(), Some(ads(muted()))).await.expect("set");
        let before = node.outcome("muted");
        while node.outcome("muted") == before {
            publish(&node, user("last"), When::Connected, "ads", 1).await;
            last.sync().await;
        }
        publish(&node, user("u1"), When::Connected, "ads", 1).await;
        publish(&node, user("u1"), When::Connected, "news", 2).await;
        for socket in &mut sockets {
            let read = read_until(socket, b"\"data\":2").await;
            let text = String::from_utf8_lossy(&read);
            assert!(!text.contains("\"data\":1"), "round {round}: {text}");
        }
        drop(sockets);
        node.until_sessions(1).await;
        set(&node, last_user, None).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_leave_out_what_is_suppressed_and_reach_further() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &["noise"]).await;
    // More than a page of each, accepted before they were muted.
    for number in 0..150 {
        publish(&node, user("u1"), When::Stored, "ads", number).await;
        publish(&node, topic("noise"), When::Stored, "news", number).await;
    }
    publish(&node, user("u1"), When::Stored, "news", 1).await;
    let preferences =
        Preferences { muted_topics: [Topic::parse("noise").expect("a topic")].into(), ..ads(muted()) };
    store(&node, &device("a"), preferences).await;
    let mut a = node.connect("a").await;
    assert_eq!(a.next_data().await, json!(1));
    publish(&node, user("u1"), When::Stored, "ads", 2).await;
    publish(&node, user("u1"), When::Stored, "news", 3).await;
    assert_eq!(a.next_data().await, json!(3));
    // That of the acceptance: what a log-in or another read finds is not recorded.
    until_outcome(&node, "muted", 1).await;
    node.gateway.reread_all();
    node.publish(user("u1"), When::Connected, "4").await;
    while a.next_data().await != json!(4) {}
    assert!(node.gateway.set_presence(node.app, &DeviceId::parse("a").expect("an id"), Presence::Active));
    a.sync().await;
    assert_eq!(node.outcome("muted"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_a_client_recovers_obeys_preferences() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &[]).await;
    store(&node, &device("a"), ads(muted())).await;
    let retained = async |category: &str, number: u32| {
        let category = Some(Category { name: label(category), is_essential: false });
        let plain = request(topic("news"), When::Stored, &number.to_string());
        node.publish_request(Request { category, retain: true, ..plain }).await
    };
    retained("news", 0).await;
    let mut a = node.connect("a").await;
    a.send(json!({"t": "sub", "topics": ["news"]})).await;
    let first = a.next().await;
    assert_eq!(first["data"], 0);
    let since = json!({"epoch": first["epoch"], "offset": first["offset"]});
    a.send(json!({"t": "unsub", "topics": ["news"]})).await;
    a.sync().await;
    for number in 1..=6 {
        let category = if number % 2 == 0 { "news" } else { "ads" };
        publish(&node, topic("news"), When::Stored, category, number).await;
    }
    retained("ads", 7).await;
    a.send(json!({"t": "sub", "topics": ["news"], "since": {"news": since}})).await;
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &Value| frame["t"] != "recovered") {
        frames.push(a.next().await);
    }
    let last = frames.pop().expect("the end");
    assert_eq!(last["complete"], true, "what is suppressed is no gap");
    let data: Vec<_> = frames.iter().map(|frame| frame["data"].clone()).collect();
    assert_eq!(data, [2, 4, 6].map(|n| json!(n)));
    publish(&node, topic("news"), When::Stored, "ads", 8).await;
    publish(&node, topic("news"), When::Stored, "news", 9).await;
    assert_eq!(a.next_data().await, json!(9));
    // The live one: what is read from the log is not recorded.
    until_outcome(&node, "muted", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_device_in_its_quiet_hours_gets_what_is_stored_when_it_is_in_use() {
    let node = Node::start(plain()).await;
    node.delivery.context.set_essential_categories([(node.app, vec![label("alarm")])]);
    node.device("a", "u1", &["news"]).await;
    store(&node, &device("a"), quiet_now(&node)).await;
    let mut a = node.connect("a").await;
    node.publish(user("u1"), When::Connected, "0").await;
    assert_eq!(heard(&mut a).await, [json!(0)], "it is in use");
    a.send(json!({"t": "presence", "state": "idle"})).await;
    a.sync().await;
    node.publish(user("u1"), When::Connected, "1").await;
    node.publish(topic("news"), When::Connected, "2").await;
    node.publish(user("u1"), When::Stored, "3").await;
    node.publish(topic("news"), When::Stored, "4").await;
    publish(&node, user("u1"), When::Stored, "alarm", 5).await;
    publish(&node, user("u1"), When::Connected, "alarm", 6).await;
    node.publish(user("u1"), When::Active, "7").await;
    assert_eq!(heard(&mut a).await, [4, 5, 6].map(|n| json!(n)));
    until_outcome(&node, "quiet", 2).await;
    until_outcome(&node, "inactive", 1).await;
    a.send(json!({"t": "presence", "state": "active"})).await;
    assert_eq!(a.next_data().await, json!(3));
    // Messages without an acknowledgement follow once more.
    a.sync().await;
    node.publish(user("u1"), When::Connected, "8").await;
    while a.next_data().await != json!(8) {}

    // Who never comes into use finds it at the next log-in.
    a.send(json!({"t": "presence", "state": "idle"})).await;
    a.sync().await;
    node.publish(user("u1"), When::Stored, "9").await;
    assert!(heard(&mut a).await.is_empty());
    drop(a);
    let mut a = node.connect("a").await;
    while a.next_data().await != json!(9) {}
    // Without quiet hours an idle device gets everything.
    set(&node, device("a"), None).await;
    a.send(json!({"t": "presence", "state": "idle"})).await;
    a.sync().await;
    node.publish(user("u1"), When::Stored, "10").await;
    assert_eq!(heard(&mut a).await, [json!(10)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daily_cap_counts_over_sessions_and_pushes_until_the_next_day() {
    let clock = Clock::fixed(Timestamp(1_800_000_000_000));
    let node = Node::start_at(plain(), clock.clone()).await;
    node.delivery.context.set_essential_categories([(node.app, vec![label("alarm")])]);
    let num = node.device("a", "u1", &[]).await;
    store(&node, &device("a"), capped(2)).await;
    let mut a = node.connect("a").await;
    publish(&node, user("u1"), When::Connected, "ads", 1).await;
    publish(&node, user("u1"), When::Stored, "news", 2).await;
    publish(&node, user("u1"), When::Stored, "ads", 3).await;
    let fourth = publish(&node, user("u1"), When::Stored, "ads", 4).await;
    publish(&node, user("u1"), When::Connected, "ads", 5).await;
    publish(&node, user("u1"), When::Connected, "alarm", 6).await;
    assert_eq!(heard(&mut a).await, [1, 2, 3, 6].map(|n| json!(n)));
    until_outcome(&node, "capped", 2).await;
    // The store has the counts: a push of the fourth one does not fit either.
    let day = u32::try_from(node.now().0 / 86_400_000).expect("a day");
    let count = |id: NotificationId, day| Counted {
        device: num,
        category: label("ads"),
        day,
        id: *id.as_bytes(),
        max: 2,
    };
    let read = async || {
        let followed = node.store.followed_preferences(node.app, vec![DeviceId::parse("a").expect("an id")]);
        followed.await.expect("read").remove(0).counts.first().map_or(0, |count| count.ids.len())
    };
    while read().await < 2 {
        tokio::task::yield_now().await;
    }
    assert_eq!(node.store.count_for_caps(vec![count(fourth, day)]).await.expect("counted"), [false]);
    // The next session knows them too, and gets the counted message again.
    drop(a);
    let mut a = node.connect("a").await;
    assert_eq!([a.next_data().await, a.next_data().await], [2, 3].map(|n| json!(n)));
    publish(&node, user("u1"), When::Connected, "ads", 7).await;
    assert!(a.sync().await.is_empty());
    until_outcome(&node, "capped", 3).await;
    // On the next day it gets one message, and pushes reach the cap.
    clock.set(Timestamp(node.now().0 + 86_400_000));
    let pushed = [[7; 16], [8; 16]].map(NotificationId::from_bytes).map(|id| count(id, day + 1));
    node.store.count_for_caps(pushed.to_vec()).await.expect("counted");
    let mut first = 0;
    while node.outcome("capped") == 3 {
        publish(&node, user("u1"), When::Connected, "ads", 8).await;
        first += heard(&mut a).await.len();
    }
    assert!((1..=2).contains(&first), "the first excess message was refused by the store: {first}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_push_and_a_live_message_of_one_notification_count_once() {
    let node = Node::start(plain()).await;
    let num = node.device("a", "u1", &[]).await;
    store(&node, &device("a"), capped(1)).await;
    let id = publish(&node, user("u1"), When::Stored, "ads", 1).await;
    let day = u32::try_from(node.now().0 / 86_400_000).expect("a day");
    let pushed = |day| Counted { device: num, category: label("ads"), day, id: *id.as_bytes(), max: 1 };
    // Also if midnight is near.
    for day in [day, day + 1] {
        node.store.count_for_caps(vec![pushed(day)]).await.expect("counted");
    }
    let mut a = node.connect("a").await;
    assert_eq!(a.next_data().await, json!(1));
    publish(&node, user("u1"), When::Connected, "ads", 2).await;
    assert!(a.sync().await.is_empty());
    until_outcome(&node, "capped", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mqtt_sends_what_follows_a_suppressed_message() {
    let node = Node::start(mqtt::config()).await;
    node.device("a", "u1", &["noise"]).await;
    let retained = async |name: &str, category: &str, number: u32| {
        let category = Some(Category { name: label(category), is_essential: false });
        let plain = request(topic(name), When::Stored, &number.to_string());
        node.publish_request(Request { category, retain: true, ..plain }).await;
    };
    retained("r/1", "ads", 1).await;
    retained("r/2", "news", 2).await;
    publish(&node, user("u1"), When::Stored, "ads", 3).await;
    publish(&node, user("u1"), When::Stored, "news", 4).await;
    let preferences =
        Preferences { muted_topics: [Topic::parse("noise").expect("a topic")].into(), ..ads(muted()) };
    store(&node, &device("a"), preferences).await;
    // One in flight: suppressed messages take no place in the window.
    let asked = Asked { receive_maximum: 1, ..Asked::lasting("a") };
    let mut client = mqtt::Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("r/+", Qos::AtLeastOnce), ("$noroshi/inbox", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1, 1]");
    let mut said = Vec::new();
    for number in 5..8 {
        publish(&node, topic("noise"), When::Stored, "news", number).await;
        publish(&node, topic("r/3"), When::Stored, "ads", number).await;
        publish(&node, topic("r/3"), When::Stored, "news", number).await;
    }
    while said.len() < 5 {
        let packet = client.next().await;
        let (name, number) = packet.rsplit_once(" #").expect("a message");
        client.send(Packet::PubAck(Ack::success(number.parse().expect("a number")))).await;
        said.push(name.to_owned());
    }
    client.is_quiet().await;
    said.sort();
    let expected = ["$noroshi/inbox 4 qos1", "r/3 5 qos1", "r/3 6 qos1", "r/3 7 qos1", "retained r/2 2 qos1"];
    assert_eq!(said, expected);
    // Nothing that was suppressed comes later.
    drop(client);
    node.until_sessions(0).await;
    publish(&node, topic("r/3"), When::Stored, "ads", 9).await;
    publish(&node, topic("r/3"), When::Stored, "news", 10).await;
    let mut client = mqtt::Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 true");
    let packet = client.next().await;
    assert!(packet.ends_with("r/3 10 qos1 #1") || packet.contains("r/3 10 qos1"), "{packet}");
    client.is_quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_and_their_backlogs_obey_preferences() {
    let node = Node::start(plain()).await;
    node.device("a", "u1", &[]).await;
    publish(&node, user("u1"), When::Stored, "ads", 1).await;
    publish(&node, user("u1"), When::Stored, "news", 2).await;
    store(&node, &device("a"), ads(muted())).await;
    let mut socket = TcpStream::connect(node.address()).await.expect("connected");
    let token = node.token("a");
    let head = format!("GET /v1/events HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\r\n");
    socket.write_all(head.as_bytes()).await.expect("sent");
    let backlog = read_until(&mut socket, b"\"data\":2").await;
    publish(&node, user("u1"), When::Connected, "ads", 3).await;
    publish(&node, user("u1"), When::Connected, "news", 4).await;
    let live = read_until(&mut socket, b"\"data\":4").await;
    for read in [backlog, live] {
        let text = String::from_utf8_lossy(&read);
        assert!(!text.contains("\"data\":1") && !text.contains("\"data\":3"), "{text}");
    }
}
