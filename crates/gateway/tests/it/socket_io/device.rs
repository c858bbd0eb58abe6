//! Devices that speak Socket.IO, beside those that speak the native protocol.

use noroshi_types::{CloseReason, When};
use serde_json::{Value, json};

use super::{Http, Socket, pause, polling};
use crate::node::{Node, plain, topic, user};

async fn connect(node: &Node, device: &str, more: &str) -> (Socket, Value) {
    let mut socket = Socket::session(node, "/socket.io/").await;
    socket.say(&format!(r#"40{{"token":"{}"{more}}}"#, node.token(device))).await;
    let answer = socket.next().await;
    let connected = answer.strip_prefix("40").unwrap_or_else(|| panic!("not connected: {answer}"));
    (socket, serde_json::from_str(connected).expect("JSON"))
}

/// The ack id and the argument of a `notification`.
fn notification(packet: &str) -> (Option<u64>, Vec<Value>) {
    let rest = packet.strip_prefix("42").unwrap_or_else(|| panic!("no event: {packet}"));
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let mut args: Vec<Value> = serde_json::from_str(&rest[digits..]).expect("JSON");
    assert_eq!(args.remove(0), "notification", "{packet}");
    (rest[..digits].parse().ok(), args)
}

async fn data(socket: &mut Socket) -> Value {
    notification(&socket.next().await).1[0]["data"].clone()
}

/// What a device has not acknowledged.
async fn waiting(node: &Node, device: &str) -> Vec<Value> {
    let mut client = node.connect(device).await;
    let messages = client.sync().await;
    messages.into_iter().map(|message| message["data"].clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_notification_is_an_event_and_its_ack_acknowledges_it() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    node.publish(user("u1"), When::Stored, "1").await;
    let (mut socket, connected) = connect(&node, "d1", "").await;
    assert!(connected["pid"].is_string() && connected["sid"].is_string(), "{connected}");
    let (ack, args) = notification(&socket.next().await);
    assert_eq!(args[0]["data"], 1);
    assert!(args[0].get("t").is_none() && args[0]["id"].is_string(), "{args:?}");
    socket.say(&format!("43{}[]", ack.expect("it asks"))).await;
    // Live: with an ack id and without.
    node.publish(topic("news"), When::Stored, "2").await;
    node.publish(user("u1"), When::Connected, "3").await;
    let (ack, args) = notification(&socket.next().await);
    assert_eq!((ack.is_some(), &args[0]["data"]), (true, &json!(2)));
    assert_eq!(notification(&socket.next().await).0, None);
    // One is acknowledged by the callback, one by name, one not at all.
    socket.say(&format!("43{}[]", ack.expect("it asks"))).await;
    let named = node.publish(user("u1"), When::Stored, "4").await;
    node.publish(user("u1"), When::Stored, "5").await;
    assert_eq!((data(&mut socket).await, data(&mut socket).await), (json!(4), json!(5)));
    socket.say(&format!(r#"4217["ack","{named}"]"#)).await;
    assert_eq!(socket.next().await, r#"4317[{"ok":true}]"#);
    node.until("acknowledged", |node| node.metric("noroshi_acked_seconds_count") >= 3).await;
    drop(socket);
    node.until_sessions(0).await;
    assert_eq!(waiting(&node, "d1").await, [json!(5)]);
}

/// Pages of a backlog reach beyond the messages that are held meanwhile, including messages of the connection's own
/// topics.
#[tokio::test(flavor = "multi_thread")]
async fn topics_of_the_connection_lose_nothing_while_a_backlog_is_read() {
    const COUNT: usize = 250;
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    // More than the sockets' buffers take.
    let long = "x".repeat(30_000);
    for n in 0..COUNT {
        node.publish(user("u1"), When::Stored, &format!(r#"{{"n":{n},"long":"{long}"}}"#)).await;
    }
    let (mut socket, _) = connect(&node, "d1", r#","topics":["own"]"#).await;
    for n in 0..3 {
        node.publish(topic("own"), When::Stored, &format!(r#"{{"own":{n}}}"#)).await;
    }
    node.publish(user("u1"), When::Stored, &format!(r#"{{"n":{COUNT}}}"#)).await;
    let (mut inbox, mut own) = (Vec::new(), Vec::new());
    while own.last() != Some(&3) {
        let data = data(&mut socket).await;
        let heard = if data["own"].is_null() { &mut inbox } else { &mut own };
        heard.push(data["n"].as_u64().or(data["own"].as_u64()).expect("a number"));
        if inbox.len() == COUNT + 1 && !data["n"].is_null() {
            node.publish(topic("own"), When::Stored, r#"{"own":3}"#).await;
        }
    }
    assert_eq!(own, [0, 1, 2, 3]);
    assert_eq!(inbox, (0..=COUNT as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_device_are_answered() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let (mut socket, _) = connect(&node, "d1", r#","topics":["first"]"#).await;
    for (said, heard) in [
        (r#"421["subscribe",{"topics":["second"]}]"#, r#"431[{"ok":true}]"#),
        (r#"422["unsubscribe","first"]"#, r#"432[{"ok":true}]"#),
        (r#"423["presence","idle"]"#, r#"433[{"ok":true}]"#),
    ] {
        socket.say(said).await;
        assert_eq!(socket.next().await, heard);
    }
    node.publish(topic("first"), When::Connected, "1").await;
    node.publish(user("u1"), When::Active, "2").await;
    node.publish(topic("second"), When::Connected, "3").await;
    assert_eq!(data(&mut socket).await, json!(3));
    socket.say(r#"42["presence",{"state":"active"}]"#).await;
    socket.say(&format!(r#"424["token",{{"token":"{}"}}]"#, node.token("d1"))).await;
    assert_eq!(socket.next().await, r#"434[{"ok":true}]"#);
    node.publish(user("u1"), When::Active, "4").await;
    assert_eq!(data(&mut socket).await, json!(4));
    let answer = |packet: String| -> Value { serde_json::from_str(&packet[3..]).expect("JSON") };
    for (said, code) in [
        (r#"425["token","nonsense"]"#.to_owned(), "unauthorized"),
        (r#"425["dance"]"#.to_owned(), "unknown_event"),
        (r#"425["subscribe",7]"#.to_owned(), "bad_event"),
        (
            format!(r#"425["subscribe",{}]"#, json!((0..1_000).map(|n| format!("t{n}")).collect::<Vec<_>>())),
            "too_many_topics",
        ),
    ] {
        socket.say(&said).await;
        let answer = answer(socket.next().await);
        assert_eq!((&answer[0]["ok"], &answer[0]["code"]), (&json!(false), &json!(code)), "{answer}");
    }
    // Without a request for an acknowledgement, the error is an event.
    socket.say(r#"42["dance"]"#).await;
    assert!(socket.next().await.starts_with(r#"42["error",{"code":"unknown_event""#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_client_gets_a_connect_error() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    for auth in [r#"{"token":"nonsense"}"#, "{}", ""] {
        let mut socket = Socket::session(&node, "/socket.io/").await;
        socket.say(&format!("40{auth}")).await;
        let answer = socket.next().await;
        assert!(answer.starts_with("44{") && answer.contains(r#""code":"unauthorized""#), "{answer}");
        assert_eq!(socket.closed().await, CloseReason::Unauthorized.websocket_code().expect("one"));
    }
    // What is only written wrongly may be tried again.
    let mut socket = Socket::session(&node, "/socket.io/").await;
    for auth in [r#"/custom,{}"#, r#"{"token":7}"#, r#"{"colour":"red"}"#] {
        socket.say(&format!("40{auth}")).await;
        assert!(socket.next().await.starts_with("44"), "{auth}");
    }
    let many = json!((0..1_001).map(|n| format!("t{n}")).collect::<Vec<_>>());
    socket.say(&format!(r#"40{{"token":"{}","topics":{many}}}"#, node.token("d1"))).await;
    assert!(socket.next().await.starts_with("44"));
    socket.say(&format!(r#"40{{"token":"{}"}}"#, node.token("d1"))).await;
    assert!(socket.next().await.starts_with("40{"));
    // Where the request brings a token, none is needed in the handshake.
    let path = format!("/socket.io/?EIO=4&transport=websocket&token={}", node.token("d1"));
    let mut second = Socket::open(&node, &path).await;
    second.next().await;
    second.say("40").await;
    assert!(second.next().await.starts_with("40{"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_may_log_out_and_in_on_its_connection() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let (mut socket, _) = connect(&node, "d1", "").await;
    node.publish(user("u1"), When::Stored, "1").await;
    assert_eq!(data(&mut socket).await, json!(1));
    socket.say("41").await;
    node.until_sessions(0).await;
    node.publish(user("u2"), When::Stored, "2").await;
    socket.say(&format!(r#"40{{"token":"{}"}}"#, node.token("d2"))).await;
    assert!(socket.next().await.starts_with("40{"));
    assert_eq!(data(&mut socket).await, json!(2));
    socket.say("41").await;
    node.until_sessions(0).await;
    socket.say(&format!(r#"40{{"token":"{}"}}"#, node.token("d1"))).await;
    assert!(socket.next().await.starts_with("40{"));
    assert_eq!(data(&mut socket).await, json!(1), "it was never acknowledged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_recovered_behind_its_offset() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    let asks = r#","topics":["own"],"offsets":true"#;
    let (mut socket, connected) = connect(&node, "d1", asks).await;
    let mut last = Value::Null;
    for (n, target) in [topic("own"), topic("news"), user("u1")].into_iter().enumerate() {
        node.publish(target, When::Stored, &n.to_string()).await;
        let (ack, args) = notification(&socket.next().await);
        assert_eq!((ack, &args[0]["data"]), (None, &json!(n)));
        last = args[1].clone();
    }
    drop(socket);
    node.until_sessions(0).await;
    for (n, target) in [topic("own"), user("u1"), topic("news")].into_iter().enumerate() {
        node.publish(target, When::Stored, &(n + 3).to_string()).await;
    }
    let came_with = format!(r#"{asks},"pid":{},"offset":{last}"#, connected["pid"]);
    let (mut socket, again) = connect(&node, "d1", &came_with).await;
    assert_eq!(again["pid"], connected["pid"], "that is how it hears that it was recovered");
    for n in 3..6 {
        assert_eq!(data(&mut socket).await, json!(n));
    }
    // An offset that is not ours recovers nothing.
    let strange = format!(r#"{asks},"pid":{},"offset":"17-0""#, connected["pid"]);
    let (_socket, again) = connect(&node, "d1", &strange).await;
    assert_ne!(again["pid"], connected["pid"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_is_recovered_by_its_position() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let (mut socket, _) = connect(&node, "d1", r#","topics":["own"]"#).await;
    node.publish(topic("own"), When::Stored, "0").await;
    let (_, args) = notification(&socket.next().await);
    let (epoch, offset) = (args[0]["epoch"].clone(), args[0]["offset"].clone());
    node.publish(topic("own"), When::Stored, "1").await;
    assert_eq!(data(&mut socket).await, json!(1));
    drop(socket);
    let (mut socket, _) = connect(&node, "d1", "").await;
    let since = json!({"topics": ["own"], "since": {"own": {"epoch": epoch, "offset": offset}}});
    socket.say(&format!(r#"427["subscribe",{since}]"#)).await;
    assert_eq!(socket.next().await, r#"437[{"ok":true}]"#);
    assert_eq!(data(&mut socket).await, json!(1));
    let recovered =
        format!(r#"42["recovered",{{"topic":"own","complete":true,"epoch":{epoch},"offset":2}}]"#);
    assert_eq!(socket.next().await, recovered);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_polling_device_receives_everything() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &["news"]).await;
    for n in 0..250 {
        node.publish(user("u1"), When::Stored, &n.to_string()).await;
    }
    let path = polling(&node, "/socket.io/").await;
    let (mut poll, mut post) = (Http::open(&node).await, Http::open(&node).await);
    let connect = format!(r#"40{{"token":"{}"}}"#, node.token("d1"));
    assert_eq!(post.post(&path, &connect).await.body, "ok");
    let mut heard = Vec::new();
    while heard.len() < 251 {
        heard.extend(poll.get(&path).await.body.split('\x1e').map(str::to_owned));
    }
    assert!(heard.remove(0).starts_with("40{"));
    let mut acks = Vec::new();
    for (n, packet) in heard.iter().enumerate() {
        let (ack, args) = notification(packet);
        assert_eq!(args[0]["data"], n);
        acks.push(format!("43{}[]", ack.expect("it asks")));
    }
    assert_eq!(post.post(&path, &acks.join("\x1e")).await.body, "ok");
    // Live ones end the poll that waits.
    poll.send("GET", &path, "").await;
    node.publish(topic("news"), When::Connected, "\"live\"").await;
    let answer = poll.answer().await;
    assert_eq!(notification(&answer.body).1[0]["data"], "live");
    node.until("counted", |node| node.metric("noroshi_messages_written_total") == 251).await;
    node.until("acknowledged", |node| node.metric("noroshi_acked_seconds_count") >= 250).await;
    // It moves, and still receives messages.
    let mut socket = Socket::open(&node, &path.replace("polling", "websocket")).await;
    socket.say("2probe").await;
    assert_eq!(socket.next().await, "3probe");
    socket.say("5").await;
    node.publish(user("u1"), When::Stored, "1000").await;
    assert_eq!(data(&mut socket).await, json!(1_000));
    drop((socket, poll, post));
    node.until_sessions(0).await;
    assert_eq!(waiting(&node, "d1").await, [json!(1_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_device_has_one_session_over_all_protocols() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let path = polling(&node, "/socket.io/").await;
    let mut http = Http::open(&node).await;
    let connect_polling = format!(r#"40{{"token":"{}"}}"#, node.token("d1"));
    assert_eq!(http.post(&path, &connect_polling).await.body, "ok");
    assert!(http.get(&path).await.body.starts_with("40{"));
    http.send("GET", &path, "").await;
    node.until_sessions(1).await;
    let (mut socket, _) = connect(&node, "d1", "").await;
    let said = http.answer().await.body;
    assert!(said.starts_with(r#"42["close",{"reason":"replaced""#) && said.ends_with("\x1e41"), "{said:?}");
    assert_eq!(http.get(&path).await.body, "1");
    assert_eq!(http.get(&path).await.status, 400);
    let mut native = node.connect("d1").await;
    assert!(socket.next().await.starts_with(r#"42["close",{"reason":"replaced""#));
    assert_eq!(socket.next().await, "41");
    assert_eq!(socket.closed().await, CloseReason::Replaced.websocket_code().expect("one"));
    let (_socket, _) = connect(&node, "d1", "").await;
    assert_eq!(native.closed().await.0, "replaced");
    assert_eq!(node.gateway.sessions_count(), 1);
    node.until("all are gone", |node| node.metrics.closed(CloseReason::Replaced) == 3).await;
}

/// A device that polls and whose WebSocket was probed and answered: it must still send the upgrade packet.
async fn moving(node: &Node, device: &str) -> (Http, Socket) {
    let path = polling(node, "/socket.io/").await;
    let mut http = Http::open(node).await;
    let connect_polling = format!(r#"40{{"token":"{}"}}"#, node.token(device));
    assert_eq!(http.post(&path, &connect_polling).await.body, "ok");
    assert!(http.get(&path).await.body.starts_with("40{"));
    let mut socket = Socket::open(node, &path.replace("polling", "websocket")).await;
    socket.say("2probe").await;
    assert_eq!(socket.next().await, "3probe");
    (http, socket)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_replaced_during_its_upgrade_is_notified() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    let (_http, mut socket) = moving(&node, "d1").await;
    let mut native = node.connect("d1").await;
    assert!(native.sync().await.is_empty());
    socket.say("5").await;
    let said = socket.next().await;
    assert!(said.starts_with(r#"42["close",{"reason":"replaced","reconnect":false"#), "{said:?}");
    assert_eq!(socket.next().await, "41");
    socket.closed().await;
    assert!(native.sync().await.is_empty());
}

/// Whichever comes first at the shard, its move or its end.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_replaced_at_its_upgrade_is_notified() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    for _ in 0..40 {
        let (_http, mut socket) = moving(&node, "d1").await;
        let (_native, ()) = tokio::join!(node.connect("d1"), socket.say("5"));
        let said = socket.next().await;
        assert!(said.starts_with(r#"42["close",{"reason":"replaced","reconnect":false"#), "{said:?}");
        assert_eq!(socket.next().await, "41");
        socket.closed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_moves_both_transports_away() {
    let node = Node::start(plain()).await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let (mut socket, _) = connect(&node, "d1", "").await;
    let path = polling(&node, "/socket.io/").await;
    let mut http = Http::open(&node).await;
    let connect_polling = format!(r#"40{{"token":"{}"}}"#, node.token("d2"));
    assert_eq!(http.post(&path, &connect_polling).await.body, "ok");
    assert!(http.get(&path).await.body.starts_with("40{"));
    http.send("GET", &path, "").await;
    pause(20).await;
    let order = noroshi_gateway::drain::Order {
        rate_per_second: 1_000,
        spread: std::time::Duration::from_secs(1),
        deadline: None,
    };
    node.gateway.drain_devices(order).expect("drained");
    let said = http.answer().await.body;
    assert!(said.starts_with(r#"42["close",{"reason":"drain","reconnect":true"#), "{said:?}");
    assert_eq!(http.get(&path).await.body, "1");
    assert!(socket.next().await.starts_with(r#"42["close",{"reason":"drain","reconnect":true"#));
    socket.closed().await;
    drop(socket);
    node.until("all are gone", |node| node.gateway.device_connections() == 0).await;
    // No device is admitted; requests of the API are still served.
    let answer = http.get("/socket.io/?EIO=4&transport=polling").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    node.gateway.cancel_drain().expect("cancelled");
    assert_eq!(Http::open(&node).await.get("/socket.io/?EIO=4&transport=polling").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_poller_is_closed() {
    let node = Node::start(noroshi_gateway::Config { send_queue_bytes: 64 << 10, ..plain() }).await;
    node.device("d1", "u1", &[]).await;
    let path = polling(&node, "/socket.io/").await;
    let mut http = Http::open(&node).await;
    let connect_polling = format!(r#"40{{"token":"{}"}}"#, node.token("d1"));
    assert_eq!(http.post(&path, &connect_polling).await.body, "ok");
    assert!(http.get(&path).await.body.starts_with("40{"));
    node.until_sessions(1).await;
    let large = format!("\"{}\"", "x".repeat(4_000));
    for _ in 0..40 {
        node.publish(user("u1"), When::Stored, &large).await;
    }
    node.until_sessions(0).await;
    node.until("let go", |node| node.metrics.closed(CloseReason::SlowConsumer) == 1).await;
    assert_eq!(waiting(&node, "d1").await.len(), 40, "the inbox has it all");
}
