//! Log-in, take-over, tokens, and every way a session ends.

use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_types::{CloseReason, DeviceId, When};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::node::{Node, plain, user};

#[tokio::test(flavor = "multi_thread")]
async fn a_device_logs_in_receives_and_acknowledges() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    let id = node.publish(user("u1"), When::Stored, r#"{"n":1}"#).await;
    let message = client.next().await;
    assert_eq!(message["id"], id.to_string());
    assert_eq!(message["data"], json!({"n": 1}));
    assert_eq!(message["ack"], true);
    client.send(json!({"t": "ack", "ids": [id.to_string()]})).await;
    client.sync().await;
    drop(client);
    node.until_sessions(0).await;
    // Acknowledged: the next log-in does not receive it again.
    node.until_acknowledged("d1").await;
    let mut client = node.connect("d1").await;
    assert!(client.sync().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_frame_may_carry_the_token_and_others_follow() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.open("/v1/connect").await;
    client.send(json!({"t": "connect", "token": node.token("d1")})).await;
    client.send(json!({"t": "sub", "topics": ["news"]})).await;
    client.send(json!({"t": "ping"})).await;
    assert_eq!(client.next().await["t"], "ready");
    assert_eq!(client.next().await["t"], "pong");
    node.publish(crate::node::topic("news"), When::Connected, "7").await;
    assert_eq!(client.next_data().await, json!(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_tokens_are_refused_in_frames() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.open("/v1/connect?token=nd1.garbage").await;
    assert_eq!(client.closed().await, ("unauthorized".to_owned(), 4004));
    let expired = node.token_for("d1", Duration::ZERO);
    tokio::time::sleep(Duration::from_millis(20)).await;
    let mut client = node.open(&format!("/v1/connect?token={expired}")).await;
    assert_eq!(client.closed().await, ("expired".to_owned(), 4002));
    // Signed well, of a device that does not exist.
    let mut client = node.open(&format!("/v1/connect?token={}", node.token("ghost"))).await;
    assert_eq!(client.closed().await, ("revoked".to_owned(), 4003));
    let mut client = node.open("/v1/connect").await;
    client.send(json!({"t": "ping"})).await;
    assert_eq!(client.next().await["code"], "not_connected");
    assert_eq!(client.closed().await, ("bad_message".to_owned(), 4009));
}

#[tokio::test(flavor = "multi_thread")]
async fn no_token_in_time_ends_a_connection() {
    let node = Node::start(Config { auth_timeout: Duration::from_millis(100), ..plain() }).await;
    let mut client = node.open("/v1/connect").await;
    assert_eq!(client.closed().await, ("auth_timeout".to_owned(), 4005));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_newer_connection_takes_over() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut first = node.connect("d1").await;
    let mut second = node.connect("d1").await;
    assert_eq!(first.closed().await, ("replaced".to_owned(), 4001));
    node.until("the first is gone", |node| node.gateway.connections() == 1).await;
    assert_eq!(node.gateway.sessions_count(), 1);
    node.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(second.next_data().await, json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_that_fight_for_a_device_leave_one_session_that_works() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let fight = async || {
        for _ in 0..30 {
            let _ = node.open(&format!("/v1/connect?token={}", node.token("d1"))).await;
        }
    };
    tokio::join!(fight(), fight());
    let mut last = node.connect("d1").await;
    node.until("all others are gone", |node| node.gateway.connections() == 1).await;
    assert_eq!(node.gateway.sessions_count(), 1);
    node.publish(user("u1"), When::Connected, "1").await;
    assert_eq!(last.next_data().await, json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_token_unless_it_is_renewed() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let short = Duration::from_millis(1_500);
    let mut ends = node.open(&format!("/v1/connect?token={}", node.token_for("d1", short))).await;
    let mut renews = node.open(&format!("/v1/connect?token={}", node.token_for("d2", short))).await;
    assert_eq!(renews.next().await["t"], "ready");
    renews.send(json!({"t": "token", "token": node.token("d1")})).await;
    assert_eq!(renews.next().await["code"], "unauthorized", "another device's token");
    renews.send(json!({"t": "token", "token": node.token("d2")})).await;
    assert_eq!(ends.closed().await, ("expired".to_owned(), 4002));
    assert!(renews.sync().await.is_empty());
    assert_eq!(node.gateway.sessions_count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_ends_the_session_and_its_token() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    let device = DeviceId::parse("d1").expect("an id");
    node.delivery.devices.revoke(node.app, &device).await.expect("revoked");
    assert_eq!(client.closed().await, ("revoked".to_owned(), 4003));
    let mut client = node.open(&format!("/v1/connect?token={}", node.token("d1"))).await;
    assert_eq!(client.closed().await, ("revoked".to_owned(), 4003));
    assert_eq!(node.gateway.sessions_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_app_ends_its_sessions() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let mut clients = [node.connect("d1").await, node.connect("d2").await];
    node.delivery.close_app(noroshi_types::AppId(node.app.0 + 1)).await;
    assert_eq!(node.gateway.sessions_count(), 2, "another app's sessions stay");
    node.delivery.close_app(node.app).await;
    for client in &mut clients {
        assert_eq!(client.closed().await, ("revoked".to_owned(), 4003));
    }
    assert_eq!(node.gateway.sessions_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frames_are_reported_and_bounded() {
    let node = Node::start(Config { frames_burst: 20, frames_per_second: 1, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    client.send(json!({"t": "dance"})).await;
    assert_eq!(client.next().await["t"], "error");
    client.send(json!({"t": "connect", "token": "x"})).await;
    assert_eq!(client.next().await["code"], "already_connected");
    for _ in 0..40 {
        let _ = futures_util::SinkExt::send(&mut client.socket, Message::Ping(Default::default())).await;
    }
    assert_eq!(client.closed().await, ("rate_limited".to_owned(), 4008));
    let mut client = node.connect("d1").await;
    futures_util::SinkExt::send(&mut client.socket, Message::binary(vec![1])).await.expect("sent");
    assert_eq!(client.closed().await, ("bad_message".to_owned(), 4009));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_peer_is_pinged_and_then_closed() {
    let timing =
        Config { ping_interval: Duration::from_secs(1), ping_timeout: Duration::from_secs(1), ..plain() };
    let node = Node::start(timing).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    // Answers nothing, since nothing polls it.
    let half_open = node.connect("d1").await;
    let mut answers = node.connect("d2").await;
    let mut pings = 0;
    let ended = node.until("a silent peer", |node| node.metrics.closed(CloseReason::PingTimeout) > 0);
    let mut ended = std::pin::pin!(ended);
    loop {
        tokio::select! {
            () = &mut ended => break,
            message = answers.message() => match message {
                Some(Ok(Message::Ping(_))) => pings += 1,
                other => panic!("{other:?}"),
            }
        }
    }
    assert!(pings > 0);
    drop(half_open);
    assert!(answers.sync().await.is_empty(), "who answers stays");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_closes_is_answered_and_recorded_once() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    client.socket.close(None).await.expect("sent");
    assert_eq!(client.closed().await.1, 1005);
    drop(client);
    node.until("it is gone", |node| node.gateway.connections() == 0).await;
    assert_eq!(node.metrics.closed(CloseReason::PeerClosed), 1);
    let all: u64 = CloseReason::ALL.iter().map(|reason| node.metrics.closed(*reason)).sum();
    assert_eq!(all, 1);
    assert_eq!(node.gateway.sessions_count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_races_with_a_log_in_is_not_lost() {
    let node = Node::start(plain()).await;
    let news = noroshi_types::Topic::parse("news").expect("a topic");
    let (mut hears, mut ends) = (Vec::new(), Vec::new());
    for n in 0..40 {
        let (subscribes, revokes) = (format!("s{n}"), format!("r{n}"));
        node.device(&subscribes, "u1", &[]).await;
        node.device(&revokes, "u2", &[]).await;
        let device = |id: &str| DeviceId::parse(id).expect("an id");
        let (subscribing, revoked) = (device(&subscribes), device(&revokes));
        let path = format!("/v1/connect?token={}", node.token(&revokes));
        let (client, ended, subscribed, version) = tokio::join!(
            node.connect(&subscribes),
            node.open(&path),
            node.delivery.devices.subscribe(node.app, &subscribing, &news),
            node.delivery.devices.revoke(node.app, &revoked),
        );
        subscribed.expect("stored");
        version.expect("stored");
        hears.push(client);
        ends.push(ended);
    }
    for client in &mut ends {
        assert_eq!(client.closed().await.0, "revoked");
    }
    node.publish(crate::node::topic("news"), When::Connected, "1").await;
    for client in &mut hears {
        assert_eq!(client.next_data().await, json!(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_sent_many_may_acknowledge_each() {
    let node = Node::start(Config { frames_burst: 20, frames_per_second: 1, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    for n in 0..150 {
        node.publish(user("u1"), When::Stored, &n.to_string()).await;
    }
    let mut client = node.connect("d1").await;
    for n in 0..300 {
        if n >= 150 {
            node.publish(user("u1"), When::Stored, &n.to_string()).await;
        }
        let message = client.next().await;
        assert_eq!(message["data"], json!(n));
        client.send(json!({"t": "ack", "ids": [message["id"]]})).await;
    }
    assert!(client.sync().await.is_empty());
}
