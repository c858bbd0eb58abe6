//! Topic rules that change during a decision, and webhooks that answer when the test lets them.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use noroshi_protocol::mqtt::{Packet, Qos};
use noroshi_store::{AppSettings, Devices};
use noroshi_types::{DeviceId, When};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

use crate::mqtt::{Asked, Client as Mqtt, config};
use crate::node::{Client, Node, PATIENCE, topic};
use crate::xmpp::{Peer, pubsub};

/// A webhook. Each question waits for [`Question::answer`].
struct Hook {
    url: String,
    questions: mpsc::Receiver<Question>,
}

struct Question {
    stream: TcpStream,
    body: Value,
}

impl Hook {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address"));
        let (send, questions) = mpsc::channel(64);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let send = send.clone();
                tokio::spawn(async move {
                    if let Some(body) = read_request(&mut stream).await {
                        let _ = send.send(Question { stream, body }).await;
                    }
                });
            }
        });
        Self { url, questions }
    }

    async fn next(&mut self) -> Question {
        let next = tokio::time::timeout(PATIENCE, self.questions.recv()).await;
        next.expect("a question within a long time").expect("the webhook runs")
    }

    fn is_asked(&mut self) -> bool {
        self.questions.try_recv().is_ok()
    }
}

impl Question {
    async fn answer(mut self, allow: bool) {
        let body = json!({ "allow": allow, "expires_in": "1ms" }).to_string();
        let answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        self.stream.write_all(answer.as_bytes()).await.expect("answered");
        let _ = self.stream.shutdown().await;
    }
}

async fn read_request(stream: &mut TcpStream) -> Option<Value> {
    let mut read = Vec::new();
    loop {
        if stream.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&read);
        if let Some((_, body)) = text.split_once("\r\n\r\n")
            && let Ok(body) = serde_json::from_str(body)
        {
            return Some(body);
        }
    }
}

async fn node() -> Node {
    node_with(config()).await
}

async fn node_with(config: noroshi_gateway::Config) -> Node {
    let node = Node::start(config).await;
    let egress = noroshi_egress::Config {
        allow: vec!["127.0.0.0/8".parse().expect("a network")],
        ..noroshi_egress::Config::default()
    };
    node.delivery.rules.attach_webhooks(Arc::new(noroshi_egress::Egress::new(egress).expect("egress")));
    let delivery = node.delivery.clone();
    node.auth.watch_apps(move |_, rules| delivery.rules.set(rules)).await;
    node
}

/// `lists`: the rules without their webhook.
async fn set_rules(node: &Node, lists: Value, hook: Option<&Hook>) {
    let mut rules = lists;
    if let Some(hook) = hook {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        rules["ask"] = json!({ "url": hook.url, "secret": secret, "timeout": "10s" });
    }
    node.auth.set_topic_rules(node.app, Some(rules.to_string())).await.expect("set");
}

async fn topics_of(node: &Node, device: &str) -> Vec<String> {
    let device = DeviceId::parse(device).expect("an id");
    let found = node.store.device(node.app, &device).await.expect("read").expect("a device");
    found.topics.iter().map(|topic| topic.to_string()).collect()
}

async fn until_topics(node: &Node, device: &str, topics: &[&str]) {
    let until = tokio::time::Instant::now() + PATIENCE;
    while topics_of(node, device).await != topics {
        assert!(tokio::time::Instant::now() < until, "{:?}", topics_of(node, device).await);
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

fn error(frame: &Value) -> String {
    let text = |name: &str| frame[name].as_str().unwrap_or_default();
    format!("{} {} {}", text("code"), text("topic"), text("reason"))
}

fn rule(topic: &str, allow: &str) -> Value {
    json!({ "topic": topic, "allow": allow })
}

#[tokio::test]
async fn an_answer_to_rules_that_changed_does_not_count() {
    let (node, mut hook) = (node().await, Hook::start().await);
    set_rules(&node, json!({ "subscribe": [rule("room/+", "ask"), rule("open", "anyone")] }), Some(&hook))
        .await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.connect("d1").await;
    client.send(json!({ "t": "sub", "topics": ["room/a"] })).await;
    client.send(json!({ "t": "sub", "topics": ["open"] })).await;
    let question = hook.next().await;
    assert_eq!(question.body["topic"], "room/a");
    set_rules(&node, json!({ "subscribe": [rule("open", "anyone")] }), None).await;
    question.answer(true).await;
    assert_eq!(error(&client.next().await), "topic_forbidden room/a no_rule");
    // The later subscription was carried out after the refused one.
    node.until("the subscription", |node| connected(node, "open") == 1).await;
    assert_eq!(connected(&node, "room/a"), 0);
}

fn connected(node: &Node, name: &str) -> u64 {
    let name = noroshi_types::Topic::parse(name).expect("a topic");
    noroshi_delivery::Edge::topic_sessions(&*node.gateway, node.app, &name)
}

#[tokio::test]
async fn changed_rules_decide_a_log_in_again() {
    let (node, mut hook) = (node().await, Hook::start().await);
    let asks = || json!({ "subscribe": [rule("room/+", "ask")] });
    set_rules(&node, asks(), Some(&hook)).await;
    node.device("d1", "u1", &["room/a", "room/b"]).await;
    let connect = json!({ "t": "connect", "token": node.token("d1") });
    let mut client = node.open("/v1/connect").await;
    client.send(connect.clone()).await;
    let (first, second) = (hook.next().await, hook.next().await);
    let rules = json!({ "subscribe": [rule("room/a", "anyone")] });
    set_rules(&node, rules, None).await;
    first.answer(true).await;
    second.answer(true).await;
    let ready = client.next().await;
    assert_eq!(ready["t"], "ready", "{ready}");
    assert_eq!(error(&client.next().await), "topic_forbidden room/b no_rule");
    until_topics(&node, "d1", &["room/a"]).await;
    // What a webhook allowed counts for the rest of the log-in, however short the answer's life is.
    set_rules(&node, asks(), Some(&hook)).await;
    let mut client = node.open("/v1/connect").await;
    client.send(connect).await;
    hook.next().await.answer(true).await;
    assert_eq!(client.next().await["t"], "ready");
    assert!(!hook.is_asked());
}

/// Waits until the requests that clients sent so far were carried out. Blocks the thread, which is the runtime's: no
/// job of a client makes progress.
fn block_until_frames(node: &Node, count: u64) {
    let until = std::time::Instant::now() + PATIENCE;
    while node.metric("noroshi_frames_received_total") < count {
        assert!(std::time::Instant::now() < until, "{count} frames");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[tokio::test]
async fn a_subscription_that_is_being_kept_while_rules_change_does_not_survive() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    set_rules(&node, json!({ "subscribe": [rule("a/#", "anyone")] }), None).await;
    let mut client = Mqtt::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("a/b", Qos::AtLeastOnce), ("a/+", Qos::AtLeastOnce)]).await;
    block_until_frames(&node, 2);
    let deny = noroshi_auth::topic_rules::read(r#"{"subscribe":[]}"#).expect("rules");
    let name = noroshi_types::AppName::parse("dev").expect("a name");
    node.delivery.rules.set(&[(node.app, (name, Arc::new(deny)))].into());
    // In the turn that takes this packet connections are checked again.
    client.send(Packet::PingReq).await;
    block_until_frames(&node, 3);
    assert_eq!(client.next().await, "pong");
    assert_eq!(client.next().await, "suback [1, 1]");
    assert_eq!(client.next().await, "disconnect 0x87");
    until_topics(&node, "d1", &[]).await;
}

#[tokio::test]
async fn a_subscription_to_a_node_is_decided_again_when_rules_change_while_it_is_stored() {
    for (change, answered, made_by_key, left) in [
        (r#"{"subscribe":[]}"#, "<forbidden ", None, &[][..]),
        // A subscription that a client makes differs from one that an API key made, which such a rule does not end.
        (r#"{"subscribe":[{"topic":"a/#","allow":"server"}]}"#, "<forbidden ", None, &[]),
        (r#"{"subscribe":[{"topic":"a/#","allow":"server"}]}"#, "<forbidden ", Some("a/b"), &["a/b"]),
        (r#"{"subscribe":[{"topic":"a/b","allow":"anyone"}]}"#, "<subscription node='a/b'", None, &["a/b"]),
        (r#"{"subscribe":[{"topic":"a/{user}","allow":"anyone"}]}"#, "<forbidden ", None, &[]),
        // A session that began without rules ends, since only a new log-in can be decided.
        (r#"{"subscribe":[{"topic":"a/{user}","allow":"anyone"}]}"#, "", None, &[]),
    ] {
        let node = node_with(crate::xmpp::config()).await;
        node.device("d1", "u1", made_by_key.as_slice()).await;
        if !answered.is_empty() {
            set_rules(&node, json!({ "subscribe": [rule("a/#", "anyone")] }), None).await;
        }
        let mut peer = Peer::log_in(&node, "d1").await;
        let before = node.metric("noroshi_frames_received_total");
        peer.say(&pubsub("set", "<subscribe node='a/b' jid='d1@localhost'/>")).await;
        block_until_frames(&node, before + 1);
        let rules = noroshi_auth::topic_rules::read(change).expect("rules");
        let name = noroshi_types::AppName::parse("dev").expect("a name");
        node.delivery.rules.set(&[(node.app, (name, Arc::new(rules)))].into());
        if answered.is_empty() {
            assert!(peer.ended().await.contains("<reset "), "{change}");
        } else {
            let answer = peer.until("</iq>").await;
            assert!(answer.contains(answered), "{change}: {answer}");
        }
        until_topics(&node, "d1", left).await;
        node.gateway.stop();
    }
}

#[tokio::test]
async fn rules_for_publishing_decide_about_wills_and_client_publish_does_not() {
    let node = node().await;
    let settings = AppSettings { client_publish: vec!["open/#".to_owned()], ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    set_rules(&node, json!({ "publish": [rule("w/#", "anyone")] }), None).await;
    node.device("d1", "u1", &["w/gone", "open/gone"]).await;
    node.device("d2", "u2", &[]).await;
    let mut watch = Mqtt::connect(&node, Asked::clean("d1")).await;
    watch.next().await;
    for will in ["open/gone", "w/gone"] {
        let asked = Asked { will: Some(will), ..Asked::clean("d2") };
        let mut vanishing = Mqtt::connect(&node, asked).await;
        assert_eq!(vanishing.next().await, "connack 0x00 false", "{will}");
        drop(vanishing);
        node.until("its end", |node| node.gateway.sessions_count() == 1).await;
    }
    assert_eq!(watch.next().await, "w/gone gone qos1 #1");
    watch.is_quiet().await;
    assert_eq!(node.metric("noroshi_mqtt_wills_withheld_total"), 1);
}

#[tokio::test]
async fn sessions_stay_if_the_rules_can_decide_and_log_in_again_otherwise() {
    let node = node().await;
    node.crowd("c", 1, &["other"]).await;
    node.device("d1", "u1", &["user/u1/a", "user/u2/a"]).await;
    let mut of_nobody = node.connect("c0").await;
    let mut of_a_user = node.connect("d1").await;
    set_rules(&node, json!({ "subscribe": [rule("user/{user}/#", "anyone")] }), None).await;
    assert_eq!(error(&of_nobody.next().await), "topic_revoked other no_rule");
    let told = of_a_user.next().await;
    assert_eq!((&told["t"], &told["reason"]), (&json!("close"), &json!("rules_changed")), "{told}");
    assert!(told["after_ms"].as_u64().expect("a number") >= 1_000, "{told}");
    assert_eq!(of_a_user.closed().await.1, 4013);
    let mut back = node.connect("d1").await;
    assert_eq!(error(&back.next().await), "topic_forbidden user/u2/a no_rule");
    // It knows its user now.
    set_rules(&node, json!({ "subscribe": [rule("{user}", "anyone")] }), None).await;
    assert_eq!(error(&back.next().await), "topic_revoked user/u1/a no_rule");
    assert!(back.sync().await.is_empty() && of_nobody.sync().await.is_empty());
}

#[tokio::test]
async fn a_session_of_mqtt_keeps_a_filter_that_the_webhook_allows_again() {
    let (node, mut hook) = (node().await, Hook::start().await);
    set_rules(&node, json!({ "subscribe": [rule("room/#", "ask")] }), Some(&hook)).await;
    node.device("d1", "u1", &[]).await;
    let mut client = Mqtt::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("room/+", Qos::AtLeastOnce)]).await;
    hook.next().await.answer(true).await;
    assert_eq!(client.next().await, "suback [1]");
    for (allow, connack) in [(true, "connack 0x00 true"), (false, "connack 0x00 false")] {
        drop(client);
        node.until_sessions(0).await;
        client = Mqtt::connect(&node, Asked::lasting("d1")).await;
        let question = hook.next().await;
        assert_eq!(question.body["topic"], "room/+");
        question.answer(allow).await;
        assert_eq!(client.next().await, connack);
        node.publish(topic("room/a"), When::Connected, "1").await;
        if allow {
            assert_eq!(client.next().await, "room/a 1 qos0 #0");
        }
        client.is_quiet().await;
    }
    assert!(!hook.is_asked());
}

#[tokio::test]
async fn a_rule_server_ends_subscriptions_of_mqtt_clients_and_keeps_those_of_api_keys() {
    let node = node().await;
    node.device("d1", "u1", &["alerts/of-the-server"]).await;
    let mut client = Mqtt::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("alerts/own", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1]");
    set_rules(&node, json!({ "subscribe": [rule("alerts/#", "server")] }), None).await;
    // If the rules need facts about the session, it must log in again first; here they need none.
    assert_eq!(client.next().await, "disconnect 0x87");
    until_topics(&node, "d1", &["alerts/of-the-server"]).await;
    let mut client = Mqtt::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    node.publish(topic("alerts/of-the-server"), When::Connected, "1").await;
    assert_eq!(client.next().await, "alerts/of-the-server 1 qos0 #0");
    // The session continues, and a subscription that the API made is still not the client's.
    client.subscribe(&[("$noroshi/inbox", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1]");
    drop(client);
    node.until_sessions(0).await;
    let mut client = Mqtt::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 true");
    assert_eq!(topics_of(&node, "d1").await, ["alerts/of-the-server"]);
}

#[tokio::test]
async fn a_token_with_fewer_claims_ends_what_they_allowed() {
    let node = node().await;
    let secret = [7; 32];
    let settings = AppSettings { jwt_secret: Some(secret.to_vec()), ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    set_rules(&node, json!({ "subscribe": [rule("team/{claim:team}", "anyone")] }), None).await;
    let exp = node.now().0 / 1_000 + 3_600;
    let jwt = |teams: &[&str]| {
        let claims = json!({ "sub": "u1", "device": "d1", "exp": exp, "aud": "dev", "team": teams });
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let signed = format!("{}.{}", part(r#"{"alg":"HS256","typ":"JWT"}"#), part(&claims.to_string()));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, &secret);
        let signature = ring::hmac::sign(&key, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    };
    let mut client = node.open(&format!("/v1/connect?token={}", jwt(&["red", "blue"]))).await;
    assert_eq!(client.next().await["t"], "ready");
    client.send(json!({ "t": "sub", "topics": ["team/red", "team/blue"] })).await;
    assert!(client.sync().await.is_empty());
    client.send(json!({ "t": "token", "token": jwt(&["blue"]) })).await;
    assert_eq!(error(&client.next().await), "topic_revoked team/red no_rule");
    assert!(client.sync().await.is_empty());
    assert_eq!((connected(&node, "team/red"), connected(&node, "team/blue")), (0, 1));
    // A device token has no claims: the session continues without any.
    client.send(json!({ "t": "token", "token": node.token("d1") })).await;
    assert_eq!(error(&client.next().await), "topic_revoked team/blue no_rule");
    client.send(json!({ "t": "sub", "topics": ["team/blue"] })).await;
    assert_eq!(error(&client.next().await), "topic_forbidden team/blue no_rule");
    client.send(json!({ "t": "token", "token": jwt(&["blue"]) })).await;
    client.send(json!({ "t": "sub", "topics": ["team/blue"] })).await;
    assert!(client.sync().await.is_empty());
    assert_eq!(connected(&node, "team/blue"), 1);
}

#[tokio::test]
async fn operations_that_wait_for_a_webhook_are_bounded_by_their_bytes() {
    let (node, mut hook) = (node_with(crate::xmpp::config()).await, Hook::start().await);
    set_rules(&node, json!({ "subscribe": [rule("room/+", "ask"), rule("open/#", "anyone")] }), Some(&hook))
        .await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let mut client = node.connect("d1").await;
    client.send(json!({ "t": "sub", "topics": ["room/a"] })).await;
    let _unanswered = hook.next().await;
    // Short names, each with a list entry of its own.
    let topics: Vec<String> = (0..400).map(|n| format!("open/{n}")).collect();
    for _ in 0..4 {
        client.send(json!({ "t": "unsub", "topics": topics })).await;
    }
    assert_eq!(client.closed().await, ("rate_limited".to_owned(), 4008));
    let mut peer = Peer::log_in(&node, "d2").await;
    peer.say(&pubsub("set", "<subscribe node='room/a' jid='d2@localhost'/>")).await;
    let _unanswered = hook.next().await;
    let unsubscribe = pubsub("set", "<unsubscribe node='open/a' jid='d2@localhost'/>");
    peer.say(&unsubscribe.replace("id='q'", &format!("id='{}'", "x".repeat(2_000))).repeat(40)).await;
    let end = peer.ended().await;
    assert!(end.contains("<stream:error>") && !end.contains("<iq"), "{end}");
}

#[tokio::test]
async fn a_session_that_has_to_log_in_again_publishes_no_will() {
    let node = node().await;
    let settings = AppSettings { client_publish: vec!["gone".to_owned()], ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    node.crowd("c", 1, &["gone"]).await;
    node.device("d1", "u1", &[]).await;
    let mut watch = Mqtt::connect(&node, Asked::clean("c0")).await;
    watch.next().await;
    let mut client = Mqtt::connect(&node, Asked { will: Some("gone"), ..Asked::clean("d1") }).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    // They need a user, and the session has not kept its own.
    let lists = json!({ "subscribe": [rule("gone", "anyone"), rule("{user}", "anyone")] });
    set_rules(&node, lists, None).await;
    assert_eq!(client.next().await, "disconnect 0x89");
    drop(client);
    node.until_sessions(1).await;
    node.until_written().await;
    watch.is_quiet().await;
}

#[tokio::test]
async fn a_socket_io_session_does_not_wait_for_a_webhook_of_its_predecessor() {
    let (node, mut hook) = (node().await, Hook::start().await);
    set_rules(&node, json!({ "subscribe": [rule("room/+", "ask"), rule("open", "anyone")] }), Some(&hook))
        .await;
    node.device("d1", "u1", &[]).await;
    let mut client = node.open("/socket.io/?EIO=4&transport=websocket").await;
    let connect = format!("40{}", json!({ "token": node.token("d1") }));
    let connect = connect.as_str();
    let said = |text: &str| Message::text(text.to_owned());
    assert!(heard(&mut client).await.starts_with('0'));
    for text in [connect, r#"42["subscribe",{"topics":["room/a"]}]"#] {
        futures_util::SinkExt::send(&mut client.socket, said(text)).await.expect("sent");
    }
    assert!(heard(&mut client).await.starts_with("40"));
    let question = hook.next().await;
    for text in ["41", connect, r#"421["subscribe",{"topics":["open"]}]"#] {
        futures_util::SinkExt::send(&mut client.socket, said(text)).await.expect("sent");
        if text == connect {
            assert!(heard(&mut client).await.starts_with("40"));
        }
    }
    assert!(heard(&mut client).await.starts_with("431["), "its acknowledgement");
    question.answer(true).await;
    assert_eq!((connected(&node, "open"), connected(&node, "room/a")), (1, 0));
}

async fn heard(client: &mut Client) -> String {
    match client.message().await {
        Some(Ok(Message::Text(text))) => text.as_str().to_owned(),
        other => panic!("expected text, got {other:?}"),
    }
}

/// MQTT 5 §4.7.2: wildcards at the front do not match them, in filters and in rules.
#[tokio::test]
async fn names_with_a_dollar_need_a_rule() {
    let node = node().await;
    let all = ["#".to_owned(), "+/state".to_owned()];
    let settings = AppSettings { client_publish: all.to_vec(), ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    let mut one = Mqtt::connect(&node, Asked::lasting("d1")).await;
    let mut two = Mqtt::connect(&node, Asked::clean("d2")).await;
    assert_eq!(
        (one.next().await, two.next().await),
        ("connack 0x00 false".into(), "connack 0x00 false".into())
    );
    // Without rules, by those for the other action, and by patterns that begin with a wildcard.
    let mut packet_id = 0;
    for rules in [
        None,
        Some(json!({ "subscribe": [rule("other/#", "anyone")] })),
        Some(json!({ "publish": [rule("#", "anyone")], "subscribe": [rule("#", "anyone")] })),
        Some(json!({ "publish": [rule("+/state", "anyone")], "subscribe": [rule("+/state", "token")] })),
    ] {
        if let Some(rules) = &rules {
            set_rules(&node, rules.clone(), None).await;
        }
        packet_id += 1;
        one.publish("$app/state", "x", Qos::AtLeastOnce, packet_id).await;
        let said = one.next().await;
        assert!(said.starts_with(&format!("puback 0x87 #{packet_id} ")), "{rules:?}: {said}");
        one.subscribe(&[("$app/state", Qos::AtLeastOnce), ("$app/#", Qos::AtLeastOnce)]).await;
        assert_eq!(one.next().await, "suback [135, 135]", "{rules:?}");
    }
    let opened = json!({
        "publish": [rule("$app/#", "anyone"), rule("#", "anyone")],
        "subscribe": [rule("$app/{user}/#", "anyone"), rule("#", "anyone")],
    });
    set_rules(&node, opened, None).await;
    one.subscribe(&[
        ("$app/u1/#", Qos::AtLeastOnce),
        ("$app/u2/a", Qos::AtLeastOnce),
        ("#", Qos::AtLeastOnce),
    ])
    .await;
    let said = one.next().await;
    // The rules name the user, whom a session that began without rules does not know. So the client reconnects.
    let mut one = match said.as_str() {
        "disconnect 0x89" => {
            let mut one = Mqtt::connect(&node, Asked::lasting("d1")).await;
            one.next().await;
            one.subscribe(&[
                ("$app/u1/#", Qos::AtLeastOnce),
                ("$app/u2/a", Qos::AtLeastOnce),
                ("#", Qos::AtLeastOnce),
            ])
            .await;
            assert_eq!(one.next().await, "suback [1, 135, 1]");
            one
        }
        said => {
            assert_eq!(said, "suback [1, 135, 1]");
            one
        }
    };
    let mut two = match two.next().await.as_str() {
        "disconnect 0x89" => {
            let mut two = Mqtt::connect(&node, Asked::clean("d2")).await;
            two.next().await;
            two
        }
        said => panic!("{said}"),
    };
    for (name, code) in
        [("$app/u1/a", "0x10"), ("$app/u2/a", "0x00"), ("$other/a", "0x87"), ("$SYS/a", "0x87")]
    {
        packet_id += 1;
        two.publish(name, "x", Qos::AtLeastOnce, packet_id).await;
        let said = two.next().await;
        let accepted = said.starts_with("puback 0x00") || said.starts_with("puback 0x10");
        assert_eq!(accepted, code != "0x87", "{name}: {said}");
    }
    // Only what its own filter names: `#` does not match the other.
    assert!(one.next().await.starts_with("$app/u1/a x qos1"));
    one.is_quiet().await;
    // Another protocol does not know the name, and cannot be made to.
    let mut native = node.connect("d2").await;
    native.send(json!({ "t": "sub", "topics": ["$app/u2/a"] })).await;
    assert_eq!(native.next().await["t"], "error");
}

/// XEP-0060 §4.1, §8.1: the rules decide what a topic is to a device, also to one without any right to it.
#[tokio::test]
async fn affiliations_follow_the_rules() {
    let node = node_with(crate::xmpp::config()).await;
    let settings = AppSettings { client_publish: vec!["open/#".to_owned()], ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    node.device("d1", "u1", &[]).await;
    let affiliation = |topic: &str| pubsub("get", &format!("<affiliations node='{topic}'/>"));
    let create = |topic: &str| pubsub("set", &format!("<create node='{topic}'/>"));
    let mut peer = Peer::log_in(&node, "d1").await;
    for (topic, expected, made) in [("open/a", "publisher", "<create "), ("a", "none", "<forbidden ")] {
        let said = peer.ask(&affiliation(topic), "</iq>").await;
        assert!(said.contains(&format!("affiliation='{expected}'")), "{topic}: {said}");
        let said = peer.ask(&create(topic), "</iq>").await;
        assert!(said.contains(made), "{topic}: {said}");
    }
    let json = "<publish node='open/a'><item><json xmlns='urn:xmpp:json:0'>1</json></item></publish>";
    assert!(peer.ask(&pubsub("set", json), "</iq>").await.contains("type='result'"));
    let said = peer.ask(&create("open/a"), "</iq>").await;
    assert!(said.contains("<conflict "), "{said}");
    let lists = json!({
        "subscribe": [rule("both/{user}", "anyone"), rule("read/#", "anyone"), rule("asked/#", "ask")],
        "publish": [rule("both/{user}", "anyone"), rule("write/#", "anyone")],
    });
    let hook = Hook::start().await;
    set_rules(&node, lists, Some(&hook)).await;
    drop(peer);
    node.until_sessions(0).await;
    let mut peer = Peer::log_in(&node, "d1").await;
    for (topic, expected, made) in [
        ("both/u1", "publisher", "<create "),
        ("both/u2", "outcast", "<forbidden "),
        ("read/a", "member", "<forbidden "),
        ("write/a", "publish-only", "<create "),
        ("open/a", "outcast", "<forbidden "),
        ("asked/a", "none", "<forbidden "),
    ] {
        let said = peer.ask(&affiliation(topic), "</iq>").await;
        assert!(said.contains(&format!("affiliation='{expected}'")), "{topic}: {said}");
        let said = peer.ask(&create(topic), "</iq>").await;
        assert!(said.contains(made), "{topic}: {said}");
    }
    node.gateway.stop();
}
