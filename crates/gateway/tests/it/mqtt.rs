//! MQTT on the gateway, spoken by the codec's own client side on a bare socket.

use std::ops::ControlFlow;
use std::time::Duration;

use noroshi_gateway::{Config, Listener, Speaks};
use noroshi_protocol::mqtt::{
    Ack, Connect, Decoder, LastWill, Notice, Packet, Properties, Property, PropertyList, Publish, Qos,
    ReasonCode, Subscribe, SubscribeOptions, Value, Version,
};
use noroshi_store::AppSettings;
use noroshi_types::{CloseReason, Target, When};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::node::{Node, PATIENCE, plain, topic, user};

mod backlog;

/// A packet of the server as text: reason codes, names and payloads.
pub(crate) type Said = String;

pub(crate) struct Client {
    socket: TcpStream,
    decoder: Decoder,
    said: std::collections::VecDeque<Said>,
}

pub(crate) fn config() -> Config {
    let mut config = plain();
    let address = "127.0.0.1:0".parse().expect("an address");
    config.listeners.push(Listener { speaks: Speaks::Mqtt, address, tls: None });
    config
}

async fn node() -> Node {
    node_with(config()).await
}

async fn node_with(config: Config) -> Node {
    let node = Node::start(config).await;
    let settings = AppSettings { client_publish: vec!["open/#".to_owned()], ..AppSettings::default() };
    node.auth.update_app(node.app, settings).await.expect("updated");
    node
}

/// How a client connects.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) device: &'a str,
    pub(crate) clean_start: bool,
    pub(crate) expiry_s: u32,
    pub(crate) receive_maximum: u16,
    pub(crate) will: Option<&'a str>,
}

impl<'a> Asked<'a> {
    pub(crate) fn clean(device: &'a str) -> Self {
        Self { device, clean_start: true, expiry_s: 0, receive_maximum: 100, will: None }
    }

    pub(crate) fn lasting(device: &'a str) -> Self {
        Self { clean_start: false, expiry_s: 3_600, ..Self::clean(device) }
    }
}

impl Client {
    pub(crate) async fn connect(node: &Node, asked: Asked<'_>) -> Self {
        let socket = TcpStream::connect(node.gateway.local_addrs()[1]).await.expect("connected");
        Self::connect_by(node, socket, asked).await
    }

    async fn connect_by(node: &Node, socket: TcpStream, asked: Asked<'_>) -> Self {
        let mut client = Self { socket, decoder: Decoder::new(), said: Default::default() };
        let token = node.token(asked.device);
        client.log_in(asked, "c", Some(&token)).await;
        client
    }

    async fn log_in(&mut self, asked: Asked<'_>, client_id: &str, token: Option<&str>) {
        let bytes = Self::connect_packet(asked, client_id, token);
        self.socket.write_all(&bytes).await.expect("sent");
    }

    fn connect_packet(asked: Asked<'_>, client_id: &str, token: Option<&str>) -> Vec<u8> {
        let mut list = PropertyList::new();
        list.push(Property::SessionExpiryInterval, Value::U32(asked.expiry_s));
        list.push(Property::ReceiveMaximum, Value::U16(asked.receive_maximum));
        let will = asked.will.map(|name| LastWill {
            topic: name,
            payload: b"gone",
            qos: Qos::AtLeastOnce,
            retain: false,
            properties: Properties::default(),
        });
        let connect = Connect {
            version: Version::V5,
            is_mqtt31: false,
            clean_start: asked.clean_start,
            keep_alive_s: 0,
            properties: list.properties(),
            client_id,
            will,
            username: token.map(|_| asked.device),
            password: token.map(str::as_bytes),
        };
        let mut bytes = Vec::new();
        Packet::Connect(connect).encode(Version::V5, &mut bytes);
        bytes
    }

    /// The answer to a CONNECT without a token.
    async fn come_without_token(node: &Node, client_id: &str) -> Said {
        let socket = TcpStream::connect(node.gateway.local_addrs()[1]).await.expect("connected");
        let mut client = Self { socket, decoder: Decoder::new(), said: Default::default() };
        client.log_in(Asked::clean("-"), client_id, None).await;
        let said = client.next().await;
        if said != "connack 0x00 false" {
            // By then it is counted.
            assert_eq!(client.next().await, "", "the connection ends");
        }
        said
    }

    pub(crate) async fn send(&mut self, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(Version::V5, &mut bytes);
        self.socket.write_all(&bytes).await.expect("sent");
    }

    pub(crate) async fn subscribe(&mut self, filters: &[(&str, Qos)]) {
        let items: Vec<_> = filters.iter().map(|(name, qos)| (*name, SubscribeOptions::new(*qos))).collect();
        let filters = Subscribe::encode_filters(&items);
        self.send(Packet::Subscribe(Subscribe::new(7, Properties::default(), &filters))).await;
    }

    pub(crate) async fn publish(&mut self, name: &str, payload: &str, qos: Qos, packet_id: u16) {
        let publish = Publish {
            dup: false,
            qos,
            retain: false,
            topic: name,
            packet_id,
            properties: Properties::default(),
            payload: payload.as_bytes(),
        };
        self.send(Packet::Publish(publish)).await;
    }

    /// The next packet as text; empty at the end.
    pub(crate) async fn next(&mut self) -> Said {
        let mut chunk = [0; 4_096];
        while self.said.is_empty() {
            let read = tokio::time::timeout(PATIENCE, self.socket.read(&mut chunk)).await.expect("in time");
            let count = read.unwrap_or(0);
            if count == 0 {
                return String::new();
            }
            let said = &mut self.said;
            let feed = |frame: noroshi_protocol::mqtt::Frame<'_>| {
                said.push_back(describe(Packet::parse(Version::V5, frame).expect("a packet")));
                ControlFlow::Continue(())
            };
            self.decoder.feed(&chunk[..count], 1 << 20, &mut { feed }).expect("packets");
        }
        self.said.pop_front().unwrap_or_default()
    }

    /// Asserts that nothing more arrives before the answer to a ping.
    pub(crate) async fn is_quiet(&mut self) {
        self.send(Packet::PingReq).await;
        assert_eq!(self.next().await, "pong");
    }
}

fn describe(packet: Packet<'_>) -> Said {
    match packet {
        Packet::ConnAck(ack) => {
            let place = ack.properties.text(Property::ServerReference).map(|place| format!(" {place}"));
            format!("connack {:#04x} {}{}", ack.reason as u8, ack.session_present, place.unwrap_or_default())
        }
        Packet::Publish(publish) => {
            let payload = std::str::from_utf8(publish.payload).expect("text");
            // Of what a provider sent only the data is of interest.
            let payload = match serde_json::from_str::<serde_json::Value>(payload) {
                Ok(json) if json.get("data").is_some() => json["data"].to_string(),
                _ => payload.to_owned(),
            };
            let flags = if publish.dup { "again " } else { "" };
            let kept = if publish.retain { "retained " } else { "" };
            let (topic, qos, id) = (publish.topic, publish.qos as u8, publish.packet_id);
            format!("{flags}{kept}{topic} {payload} qos{qos} #{id}")
        }
        Packet::PubAck(ack) => {
            let why = ack.properties.text(Property::ReasonString).map(|text| format!(" {text}"));
            format!("puback {:#04x} #{}{}", ack.reason as u8, ack.packet_id, why.unwrap_or_default())
        }
        Packet::PubRec(ack) => format!("pubrec {:#04x} #{}", ack.reason as u8, ack.packet_id),
        Packet::PubRel(ack) => format!("pubrel #{}", ack.packet_id),
        Packet::PubComp(ack) => format!("pubcomp #{}", ack.packet_id),
        Packet::SubAck(ack) => format!("suback {:?}", ack.reasons),
        Packet::UnsubAck(ack) => format!("unsuback {:?}", ack.reasons),
        Packet::Disconnect(disconnect) => {
            let place = disconnect.properties.text(Property::ServerReference);
            let place = place.map(|place| format!(" {place}")).unwrap_or_default();
            format!("disconnect {:#04x}{place}", disconnect.reason as u8)
        }
        Packet::PingResp => "pong".to_owned(),
        other => format!("{other:?}"),
    }
}

#[tokio::test]
async fn inbox_and_topic_messages_are_received_and_acknowledged() {
    let node = node().await;
    node.device("d1", "u1", &["news"]).await;
    node.publish(user("u1"), When::Stored, "\"kept\"").await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.is_quiet().await; // what is its own it has not asked for
    client.subscribe(&[("$noroshi/inbox", Qos::ExactlyOnce)]).await;
    assert_eq!(client.next().await, "suback [2]");
    assert_eq!(client.next().await, "$noroshi/inbox \"kept\" qos1 #1");
    client.send(Packet::PubAck(Ack::success(1))).await;
    // Subscribed to over HTTP, received over MQTT.
    node.publish(topic("news"), When::Stored, "1").await;
    assert_eq!(client.next().await, "news 1 qos1 #2");
    node.publish(topic("news"), When::Connected, "2").await;
    assert_eq!(client.next().await, "news 2 qos0 #0");
    client.send(Packet::PubAck(Ack::success(2))).await;
    client.is_quiet().await;
    node.until_acknowledged("d1").await;
    drop(client);
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("$noroshi/inbox", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1]");
    client.is_quiet().await;
}

#[tokio::test]
async fn wildcards_match_live_and_retained_messages() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    node.publish_request(retained("a/1", "1")).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    client.subscribe(&[("a/+", Qos::AtLeastOnce), ("#", Qos::AtMostOnce), ("$SYS/a", Qos::AtMostOnce)]).await;
    assert_eq!(client.next().await, "suback [1, 0, 143]");
    assert_eq!(client.next().await, "retained a/1 1 qos1 #1");
    assert_eq!(client.next().await, "retained a/1 1 qos1 #2");
    for name in ["a/2", "b", "a/2/c"] {
        node.publish(topic(name), When::Connected, "5").await;
        assert_eq!(client.next().await, format!("{name} 5 qos0 #0"), "once, whatever matches");
    }
    node.publish(Target::Everyone, When::Connected, "6").await;
    client.is_quiet().await;
}

#[tokio::test]
async fn messages_before_a_subscription_are_not_delivered() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    for number in ["1", "2"] {
        node.publish(topic("past"), When::Stored, number).await;
        node.publish(user("u1"), When::Stored, number).await;
    }
    client.subscribe(&[("past", Qos::AtLeastOnce), ("pa/#", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1, 1]");
    // The inbox is read from its beginning, nothing else is.
    client.subscribe(&[("$noroshi/inbox", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1]");
    assert_eq!(client.next().await, "$noroshi/inbox 1 qos1 #1");
    assert_eq!(client.next().await, "$noroshi/inbox 2 qos1 #2");
    client.is_quiet().await;
    node.publish(topic("past"), When::Stored, "3").await;
    assert_eq!(client.next().await, "past 3 qos1 #3");
}

#[tokio::test]
async fn clients_publish_where_the_app_allows_it() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    client.subscribe(&[("open/#", Qos::ExactlyOnce)]).await;
    client.next().await;
    client.publish("closed", "no", Qos::AtLeastOnce, 1).await;
    assert!(client.next().await.starts_with("puback 0x87 #1 "), "with the reason");
    client.publish("open/x", "hello", Qos::ExactlyOnce, 2).await;
    let mut said = [client.next().await, client.next().await];
    said.sort();
    assert_eq!(said, ["open/x hello qos2 #1", "pubrec 0x00 #2"]);
    // Sent again before it is released, it is the same message.
    client.publish("open/x", "hello", Qos::ExactlyOnce, 2).await;
    assert_eq!(client.next().await, "pubrec 0x00 #2");
    client.send(Packet::PubRel(Ack::success(2))).await;
    assert_eq!(client.next().await, "pubcomp #2");
    client.send(Packet::PubRec(Ack::success(1))).await;
    assert_eq!(client.next().await, "pubrel #1");
    client.send(Packet::PubComp(Ack::success(1))).await;
    client.is_quiet().await;
}

#[tokio::test]
async fn a_packet_cut_before_connack_is_completed_after_it() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let socket = TcpStream::connect(node.gateway.local_addrs()[1]).await.expect("connected");
    let mut client = Client { socket, decoder: Decoder::new(), said: Default::default() };
    let mut bytes = Client::connect_packet(Asked::clean("d1"), "c", Some(&node.token("d1")));
    let filters = Subscribe::encode_filters(&[("open/#", SubscribeOptions::new(Qos::AtMostOnce))]);
    Packet::Subscribe(Subscribe::new(7, Properties::default(), &filters)).encode(Version::V5, &mut bytes);
    let publish = Publish {
        dup: false,
        qos: Qos::AtLeastOnce,
        retain: false,
        topic: "open/x",
        packet_id: 2,
        properties: Properties::default(),
        payload: b"\"a payload that TCP cuts\"",
    };
    Packet::Publish(publish).encode(Version::V5, &mut bytes);
    let cut = bytes.len() - 12;
    client.socket.write_all(&bytes[..cut]).await.expect("sent");
    assert_eq!(client.next().await, "connack 0x00 false");
    assert_eq!(client.next().await, "suback [0]");
    client.socket.write_all(&bytes[cut..]).await.expect("sent");
    let mut said = [client.next().await, client.next().await];
    said.sort();
    assert_eq!(said, ["open/x \"a payload that TCP cuts\" qos0 #0", "puback 0x00 #2"]);
}

#[tokio::test]
async fn renewals_are_refused_with_their_reasons() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    let expired = node.token_for("d1", Duration::ZERO);
    let bad = "the new token is invalid for this session, which keeps its old one";
    for (token, why) in [
        (&*expired, "the new token has expired; the session keeps its old one"),
        (&node.token("d2"), bad),
        // Not a token at all, so the reason is not its expiry.
        ("expired", bad),
    ] {
        client.publish("$noroshi/token", token, Qos::AtLeastOnce, 1).await;
        assert_eq!(client.next().await, format!("puback 0x87 #1 {why}"));
    }
    client.publish("$noroshi/token", &node.token("d1"), Qos::AtLeastOnce, 2).await;
    assert_eq!(client.next().await, "puback 0x00 #2");
    assert_eq!(node.metric("noroshi_log_ins_refused_total"), 0, "it is logged in");
}

#[tokio::test]
async fn a_client_without_a_token_is_refused_and_counted() {
    let node = node().await;
    assert_eq!(Client::come_without_token(&node, "c").await, "connack 0x86 false");
    assert_eq!(node.metric("noroshi_log_ins_refused_total"), 1);
    let mut config = config();
    config.mqtt.anonymous = true;
    let closed = Node::start(config.clone()).await;
    assert_eq!(Client::come_without_token(&closed, "c").await, "connack 0x86 false", "they have no app");
    assert_eq!(closed.metric("noroshi_log_ins_refused_total"), 1);
    config.anonymous_app = Some("dev".to_owned());
    let open = Node::start(config).await;
    assert_eq!(Client::come_without_token(&open, "c").await, "connack 0x00 false");
    assert_eq!(open.metric("noroshi_log_ins_refused_total"), 0);
    // No device can have this name.
    assert_eq!(Client::come_without_token(&open, &"c".repeat(1_000)).await, "connack 0x85 false");
    assert_eq!(open.metric("noroshi_log_ins_refused_total"), 1);
}

/// The client vanishes before it gets the acknowledgement of its QoS 2 publications, and sends them again.
#[tokio::test]
async fn exactly_once_publications_are_not_repeated() {
    const COUNT: u16 = 50;
    let node = node().await;
    node.device("d1", "u1", &["open/x"]).await;
    node.device("d2", "u2", &[]).await;
    let mut watch = Client::connect(&node, Asked::clean("d1")).await;
    watch.next().await;
    let mut client = Client::connect(&node, Asked::lasting("d2")).await;
    client.next().await;
    for number in 1..=COUNT {
        client.publish("open/x", &number.to_string(), Qos::ExactlyOnce, number).await;
    }
    drop(client);
    node.until_sessions(1).await;
    let mut again = Client::connect(&node, Asked::lasting("d2")).await;
    assert_eq!(again.next().await, "connack 0x00 true");
    for number in 1..=COUNT {
        again.publish("open/x", &number.to_string(), Qos::ExactlyOnce, number).await;
        assert_eq!(again.next().await, format!("pubrec 0x00 #{number}"));
        again.send(Packet::PubRel(Ack::success(number))).await;
        assert_eq!(again.next().await, format!("pubcomp #{number}"));
    }
    node.publish(topic("open/x"), When::Stored, "0").await;
    let mut heard = Vec::new();
    while heard.last() != Some(&0) {
        let said = watch.next().await;
        let (text, id) = said.rsplit_once(" qos1 #").expect("a message");
        heard.push(text.trim_start_matches("open/x ").parse::<u16>().expect("a number"));
        watch.send(Packet::PubAck(Ack::success(id.parse().expect("an id")))).await;
    }
    heard.pop();
    // The publication that the store was writing when the client reconnected may be there twice.
    assert!(heard.len() <= usize::from(COUNT) + 1, "{heard:?}");
    heard.sort_unstable();
    heard.dedup();
    assert_eq!(heard, (1..=COUNT).collect::<Vec<_>>());
}

fn retained(name: &str, data: &str) -> noroshi_types::Request {
    let mut request = crate::node::request(topic(name), When::Stored, data);
    request.retain = true;
    request
}

#[tokio::test]
async fn a_log_in_with_another_protocol_takes_over() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut native = node.connect("d1").await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    assert_eq!(native.closed().await.0, CloseReason::Replaced.as_str());
    let _native = node.connect("d1").await;
    assert_eq!(client.next().await, "disconnect 0x8e");
    assert_eq!(client.next().await, "");
    let refused = Asked { device: "nobody", ..Asked::clean("d1") };
    let mut stranger = Client::connect(&node, refused).await;
    assert_eq!(stranger.next().await, "connack 0x87 false", "no such device");
}

#[tokio::test]
async fn a_will_is_published_unless_it_is_taken_back() {
    let node = node().await;
    node.device("d1", "u1", &["open/will"]).await;
    node.device("d2", "u2", &[]).await;
    let mut watch = Client::connect(&node, Asked::clean("d1")).await;
    watch.next().await;
    let asked = Asked { will: Some("open/will"), ..Asked::clean("d2") };
    let mut good = Client::connect(&node, asked).await;
    good.next().await;
    good.send(Packet::Disconnect(Notice { reason: ReasonCode::Success, properties: Properties::default() }))
        .await;
    assert_eq!(good.next().await, "");
    let mut vanishing = Client::connect(&node, asked).await;
    vanishing.next().await;
    drop(vanishing);
    assert_eq!(watch.next().await, "open/will gone qos1 #1");
    watch.is_quiet().await;
    let denied = Asked { will: Some("open/will"), ..Asked::clean("d2") };
    node.auth.update_app(node.app, AppSettings::default()).await.expect("updated");
    let mut refused = Client::connect(&node, denied).await;
    assert_eq!(refused.next().await, "connack 0x87 false");
}

#[tokio::test]
async fn a_drain_asks_to_use_another_server() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    let order =
        noroshi_gateway::drain::Order { rate_per_second: 100, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(order).expect("begun");
    assert_eq!(client.next().await, "disconnect 0x9c");
    let mut late = Client::connect(&node, Asked::clean("d1")).await;
    assert_eq!(late.next().await, "connack 0x9c false");
}

#[tokio::test]
async fn a_drain_reports_that_the_server_moved() {
    let mut config = config();
    config.mqtt_redirect = Some(noroshi_gateway::Redirect { servers: "a:1883 b:1883".into(), moved: true });
    let node = Node::start(config).await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::clean("d1")).await;
    client.next().await;
    let order =
        noroshi_gateway::drain::Order { rate_per_second: 100, spread: Duration::ZERO, deadline: None };
    node.gateway.drain_devices(order).expect("begun");
    assert_eq!(client.next().await, "disconnect 0x9d a:1883 b:1883");
}
