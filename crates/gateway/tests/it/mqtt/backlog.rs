//! What an MQTT client receives that reconnects, acknowledges late, reads slowly or changes its subscriptions: each message
//! once, in order.

use std::time::Duration;

use noroshi_gateway::Config;
use noroshi_protocol::mqtt::{Ack, Packet, Properties, Qos, Subscribe};
use noroshi_store::Backlog;
use noroshi_types::When;
use tokio::net::TcpSocket;

use super::{Asked, Client, config, node, node_with, retained};
use crate::node::{topic, user};

#[tokio::test]
async fn in_flight_messages_stay_within_the_clients_limit() {
    const COUNT: usize = 300;
    let node = node().await;
    node.device("d1", "u1", &["news"]).await;
    let asked = Asked { receive_maximum: 4, ..Asked::lasting("d1") };
    let mut client = Client::connect(&node, asked).await;
    client.next().await;
    for n in 0..COUNT / 2 {
        node.publish(topic("news"), When::Stored, &n.to_string()).await;
    }
    drop(client);
    node.until_sessions(0).await;
    for n in COUNT / 2..COUNT {
        node.publish(topic("news"), When::Stored, &n.to_string()).await;
    }
    let mut client = Client::connect(&node, asked).await;
    client.next().await;
    let mut unacked = std::collections::VecDeque::new();
    for n in 0..COUNT {
        let said = client.next().await;
        let (text, id) = said.rsplit_once(" #").expect("an id");
        assert_eq!(text.trim_start_matches("again "), format!("news {n} qos1"));
        unacked.push_back(id.parse::<u16>().expect("an id"));
        assert!(unacked.len() <= 4, "{unacked:?}");
        if unacked.len() == 4 || n % 3 == 0 {
            for id in unacked.drain(..) {
                client.send(Packet::PubAck(Ack::success(id))).await;
            }
        }
    }
    for id in unacked {
        client.send(Packet::PubAck(Ack::success(id))).await;
    }
    client.is_quiet().await;
}

/// Messages of a page that waited for room were acknowledged by then: they had been sent before the page was read.
#[tokio::test]
async fn messages_acknowledged_while_a_page_waits_are_not_redelivered() {
    let node = node().await;
    node.device("d1", "u1", &["t"]).await;
    let asked = Asked { receive_maximum: 4, ..Asked::lasting("d1") };
    let mut client = Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("t", Qos::ExactlyOnce)]).await;
    assert_eq!(client.next().await, "suback [2]");
    let twice = r#"{"mqtt":{"text":"1","qos":2}}"#;
    node.publish(topic("t"), When::Stored, twice).await;
    node.publish(user("u1"), When::Stored, "\"own\"").await;
    for data in ["2", "3", "4"] {
        node.publish(topic("t"), When::Stored, data).await;
    }
    for heard in ["t 1 qos2 #1", "t 2 qos1 #2", "t 3 qos1 #3", "t 4 qos1 #4"] {
        assert_eq!(client.next().await, heard);
    }
    // 4 may be in flight, so nothing of the page that this reads has room.
    client.subscribe(&[("$noroshi/inbox", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1]");
    client.is_quiet().await;
    // The service receives the second acknowledgement with the first.
    client.send(Packet::PubAck(Ack::success(2))).await;
    client.send(Packet::PubRec(Ack::success(1))).await;
    client.send(Packet::PubAck(Ack::success(3))).await;
    let mut heard = [client.next().await, client.next().await];
    heard.sort();
    assert_eq!(heard, ["$noroshi/inbox \"own\" qos1 #5", "pubrel #1"]);
    client.is_quiet().await;
}

/// A name that ends leaves what it brought to no filter with wildcards, which reads logs from before that.
#[tokio::test]
async fn messages_of_an_ended_name_are_not_redelivered() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let asked = Asked { receive_maximum: 1, ..Asked::lasting("d1") };
    let mut client = Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("w/#", Qos::AtLeastOnce), ("w/a", Qos::AtLeastOnce)]).await;
    assert_eq!(client.next().await, "suback [1, 1]");
    drop(client);
    node.until_sessions(0).await;
    for (name, data) in [("w/x", "1"), ("w/a", "2"), ("w/a", "3"), ("w/x", "4")] {
        node.publish(topic(name), When::Stored, data).await;
    }
    let mut client = Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 true");
    for (heard, packet_id) in [("w/a 2 qos1 #1", 1), ("w/a 3 qos1 #2", 2)] {
        assert_eq!(client.next().await, heard);
        client.send(Packet::PubAck(Ack::success(packet_id))).await;
    }
    assert_eq!(client.next().await, "w/x 1 qos1 #3");
    let filters = Subscribe::encode_bare(&["w/a"]);
    client.send(Packet::Unsubscribe(Subscribe::bare(8, Properties::default(), &filters))).await;
    assert_eq!(client.next().await, "unsuback [0]");
    drop(client);
    node.until_sessions(0).await;
    let mut client = Client::connect(&node, asked).await;
    assert_eq!(client.next().await, "connack 0x00 true");
    for (heard, packet_id) in [("again w/x 1 qos1 #3", 3), ("w/x 4 qos1 #4", 4)] {
        assert_eq!(client.next().await, heard);
        client.send(Packet::PubAck(Ack::success(packet_id))).await;
    }
    client.is_quiet().await;
}

/// The store forgets the name's position while pages are read, which may have the name's messages or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_ends_between_pages_loses_nothing() {
    const COUNT: usize = 150;
    let node = node().await;
    // With the 50th acknowledgement there is room for the rest of the first page, and the second is read.
    for (round, behind) in [1, 10, 20, 30, 35, 40, 43, 45, 46, 47, 48, 49].into_iter().enumerate() {
        let device = format!("d{round}");
        node.device(&device, &device, &[]).await;
        let asked = Asked { receive_maximum: 50, ..Asked::lasting(&device) };
        let mut client = Client::connect(&node, asked).await;
        assert_eq!(client.next().await, "connack 0x00 false");
        let (name, filter) = (format!("w{round}/a"), format!("w{round}/#"));
        client.subscribe(&[(&filter, Qos::AtLeastOnce), (&name, Qos::AtLeastOnce)]).await;
        assert_eq!(client.next().await, "suback [1, 1]");
        drop(client);
        node.until_sessions(0).await;
        for n in 0..COUNT {
            node.publish(topic(&name), When::Stored, &n.to_string()).await;
        }
        let mut client = Client::connect(&node, asked).await;
        assert_eq!(client.next().await, "connack 0x00 true");
        let (mut heard, mut unacknowledged) = (Vec::<usize>::new(), Vec::new());
        let mut has_ended = false;
        while heard.len() < COUNT || !has_ended {
            let said = client.next().await;
            if said == "unsuback [0]" {
                has_ended = true;
                continue;
            }
            let (said, packet_id) =
                said.split_once(" qos1 #").unwrap_or_else(|| panic!("{said:?} at {heard:?}"));
            let number = said.strip_prefix(&name).and_then(|number| number.trim().parse().ok());
            heard.push(number.expect("a number"));
            unacknowledged.push(packet_id.parse().expect("an id"));
            if heard.len() < 50 {
                continue;
            }
            for (at, packet_id) in unacknowledged.drain(..).enumerate() {
                if (heard.len(), at) == (50, behind) {
                    let filters = Subscribe::encode_bare(&[&name]);
                    let properties = Properties::default();
                    client.send(Packet::Unsubscribe(Subscribe::bare(8, properties, &filters))).await;
                }
                client.send(Packet::PubAck(Ack::success(packet_id))).await;
            }
        }
        client.is_quiet().await;
        assert_eq!(heard, (0..COUNT).collect::<Vec<usize>>(), "each once, in order");
    }
}

/// What a client acknowledged is written together with others', some milliseconds later.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_read_behind_the_acknowledged_messages() {
    let node = node().await;
    let device = node.device("d1", "u1", &[]).await;
    let id = node.publish(user("u1"), When::Stored, "1").await;
    let (after, session_since, session_topics, now) = (None, None, Vec::new(), node.now());
    let asked = Backlog { app: node.app, device, after, session_topics, session_since, now };
    node.delivery.acks.push(node.app, device, vec![id]);
    let (tell, told) = tokio::sync::oneshot::channel();
    node.delivery.backlog(asked, move |page| {
        let _ = tell.send(page.expect("read").messages.len());
    });
    assert_eq!(told.await.expect("told"), 0);
}

/// More waits than a connection holds: it is read from the topics' logs, which no position of a durable
/// subscription tells.
#[tokio::test]
async fn nothing_is_lost_behind_a_wildcard() {
    const COUNT: usize = 300;
    let node = node().await;
    node.device("d1", "u1", &["news"]).await;
    for asked in [Asked::clean("d1"), Asked::lasting("d1")] {
        let mut client = Client::connect(&node, Asked { receive_maximum: 4, ..asked }).await;
        client.next().await;
        client.subscribe(&[("w/+", Qos::AtLeastOnce)]).await;
        client.next().await;
        for n in 0..COUNT {
            let name = if n % 3 == 0 { "news" } else { "w/1" };
            node.publish(topic(name), When::Stored, &n.to_string()).await;
        }
        let (mut news, mut wild) = (Vec::new(), Vec::new());
        while news.len() + wild.len() < COUNT {
            let said = client.next().await;
            let Some((text, id)) = said.rsplit_once(" qos1 #") else {
                panic!("{said:?} behind {} and {}", news.len(), wild.len());
            };
            let (name, number) = text.split_once(' ').expect("a number");
            let heard = if name == "news" { &mut news } else { &mut wild };
            heard.push(number.parse::<usize>().expect("a number"));
            client.send(Packet::PubAck(Ack::success(id.parse().expect("an id")))).await;
        }
        client.is_quiet().await;
        let expected = |rest: &dyn Fn(usize) -> bool| (0..COUNT).filter(|n| rest(n % 3)).collect::<Vec<_>>();
        assert_eq!(news, expected(&|rest| rest == 0), "each once, in order");
        assert_eq!(wild, expected(&|rest| rest != 0), "each once, in order");
        node.until_acknowledged("d1").await;
        drop(client);
        node.until_sessions(0).await;
    }
}

/// Messages are written to it together with others, which receive everything. It may miss whole messages, never parts
/// of one.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_among_others_gets_whole_packets_in_order() {
    const COUNT: usize = 2_500;
    let hour = Duration::from_secs(3_600);
    let node = node_with(Config { shards: 1, send_stall: hour, ..config() }).await;
    let mut clients = Vec::new();
    for device in ["slow", "d1", "d2"] {
        node.device(device, "u1", &[]).await;
        let socket = TcpSocket::new_v4().expect("a socket");
        if device == "slow" {
            socket.set_recv_buffer_size(4_096).expect("set");
        }
        let socket = socket.connect(node.gateway.local_addrs()[1]).await.expect("connected");
        let mut client = Client::connect_by(&node, socket, Asked::clean(device)).await;
        client.next().await;
        client.subscribe(&[("$noroshi/inbox", Qos::AtMostOnce)]).await;
        assert_eq!(client.next().await, "suback [0]");
        clients.push(client);
    }
    let filler = "x".repeat(3_000);
    let mut numbers = Vec::new();
    let mut slow = clients.remove(0);
    let heard =
        |said: &str| said.trim_start_matches("$noroshi/inbox \"").split(' ').next()?.parse::<usize>().ok();
    for n in 0..COUNT {
        node.publish(user("u1"), When::Connected, &format!(r#""{n} {filler}""#)).await;
        for client in &mut clients {
            assert_eq!(heard(&client.next().await), Some(n));
        }
    }
    socket2::SockRef::from(&slow.socket).set_recv_buffer_size(1 << 20).expect("set");
    slow.send(Packet::PingReq).await;
    loop {
        let said = slow.next().await;
        match heard(&said) {
            Some(n) => numbers.push(n),
            None => break assert_eq!(said, "pong"),
        }
    }
    assert!(
        numbers.is_sorted() && !numbers.is_empty() && numbers.len() < COUNT,
        "{} of {COUNT}",
        numbers.len()
    );
}

/// What a topic retains is read while others publish to it.
#[tokio::test]
async fn a_retained_message_that_is_also_live_arrives_once() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    node.device("d2", "u2", &[]).await;
    for round in 0..40 {
        let name = format!("open/{round}/x");
        let filter = format!("open/{round}/#");
        let mut client = Client::connect(&node, Asked::clean("d1")).await;
        let mut publisher = Client::connect(&node, Asked::clean("d2")).await;
        client.next().await;
        publisher.next().await;
        let filters = [(filter.as_str(), Qos::AtLeastOnce)];
        tokio::join!(node.publish_request(retained(&name, "1")), client.subscribe(&filters));
        let mut heard = Vec::new();
        let note = |said: &str, heard: &mut Vec<String>| {
            if let Some((text, _)) = said.rsplit_once(" qos") {
                heard.push(text.rsplit(' ').next().unwrap_or_default().to_owned());
            }
        };
        // Messages that are published before SUBACK need not arrive.
        loop {
            let said = client.next().await;
            note(&said, &mut heard);
            if said.starts_with("suback") {
                break;
            }
        }
        let mut second = crate::node::request(topic(&name), When::Stored, "2");
        second.retain = round % 2 == 0;
        node.publish_request(second).await;
        while heard.last().is_none_or(|last| last != "2") {
            let said = client.next().await;
            note(&said, &mut heard);
        }
        client.is_quiet().await;
        assert!(heard == ["1", "2"] || heard == ["2"], "{heard:?}");
    }
}

#[tokio::test]
async fn a_session_resumes_where_it_was() {
    let node = node().await;
    node.device("d1", "u1", &[]).await;
    let mut client = Client::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(client.next().await, "connack 0x00 false");
    client.subscribe(&[("news", Qos::ExactlyOnce), ("w/#", Qos::AtLeastOnce)]).await;
    client.next().await;
    node.publish(topic("news"), When::Stored, "1").await;
    assert_eq!(client.next().await, "news 1 qos1 #1");
    // Taken over by the same device while it is in flight.
    let mut second = Client::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(second.next().await, "connack 0x00 true");
    assert_eq!(client.next().await, "disconnect 0x8e");
    assert_eq!(second.next().await, "again news 1 qos1 #1");
    second.send(Packet::PubAck(Ack::success(1))).await;
    second.is_quiet().await;
    node.until_acknowledged("d1").await;
    drop(second);
    node.until_sessions(0).await;
    node.publish(topic("w/1"), When::Stored, "2").await;
    node.publish(topic("news"), When::Stored, "3").await;
    let mut third = Client::connect(&node, Asked::lasting("d1")).await;
    assert_eq!(third.next().await, "connack 0x00 true");
    let mut said =
        [third.next().await, third.next().await].map(|said| said.split(" #").next().unwrap_or("").to_owned());
    said.sort();
    assert_eq!(said, ["news 3 qos1", "w/1 2 qos1"]);
    drop(third);
    let mut clean = Client::connect(&node, Asked::clean("d1")).await;
    assert_eq!(clean.next().await, "connack 0x00 false");
    node.publish(topic("news"), When::Stored, "4").await;
    clean.is_quiet().await;
    drop(clean);
}
