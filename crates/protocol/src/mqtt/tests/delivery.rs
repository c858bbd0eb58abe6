//! Messages to the client, and its acknowledgements.

use noroshi_types::{JsonText, Message, Timestamp, Topic, When};

use super::peer::{NOW, Outcome, Peer, connect, each_frame, options, outgoing, publish, published};
use crate::mqtt::*;

/// What `out` holds, each PUBLISH as (flags, topic, packet id, subscription identifiers, alias, expiry, payload).
type Received = (u8, String, u16, Vec<u32>, Option<u32>, Option<u32>, Vec<u8>);

fn received(peer: &mut Peer) -> Vec<Received> {
    let mut heard = Vec::new();
    let version = peer.version;
    each_frame(&std::mem::take(&mut peer.out), |frame| {
        let Packet::Publish(publish) = Packet::parse(version, frame).unwrap() else { panic!("{frame:?}") };
        let ids = publish.properties.iter().filter_map(|(property, value)| match value {
            Value::VarInt(id) if property == Property::SubscriptionIdentifier => Some(id),
            _ => None,
        });
        heard.push((
            frame.flags,
            publish.topic.to_owned(),
            publish.packet_id,
            ids.collect(),
            publish.properties.number(Property::TopicAlias),
            publish.properties.number(Property::MessageExpiryInterval),
            publish.payload.to_vec(),
        ));
    });
    heard
}

#[test]
fn lower_qos_applies() {
    for version in [Version::V3, Version::V5] {
        for (asked, sent) in [(0, 0), (1, 1), (2, 2)] {
            for published in 0..=2 {
                let mut peer = Peer::open(version);
                peer.subscribe(&[("a", options(asked))]);
                let qos = sent.min(published);
                peer.delivers(&outgoing(1, "a", &format!(r#""text":"x","qos":{published}"#)));
                let message = publish(qos, u16::from(qos > 0), "a", b"x");
                peer.expect_packets(&[Packet::Publish(message)]);
            }
        }
    }
}

#[test]
fn shared_subscription_receives_only_its_copies() {
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[("$share/g/+", options(2)), ("$share/h/a", options(1))]);
    let message = outgoing(1, "a", r#""text":"x","qos":2"#);
    assert_eq!(peer.deliver(&message, Cause::Published), Delivery::NoMatch, "it was not assigned");
    let copy = |share: &str| {
        let fields = format!(r#""text":"x","qos":2,"topic":"a","share":"{share}""#);
        Outgoing::new(&Message { topic: None, ..published(2, "a", &fields) })
    };
    assert_eq!(peer.deliver(&copy("$share/other/a"), Cause::Published), Delivery::NoMatch);
    peer.subscribe(&[("a", options(0)), ("$noroshi/inbox", options(0))]);
    peer.delivers(&copy("$share/g/+"));
    peer.expect_packets(&[Packet::Publish(publish(2, 1, "a", b"x"))]);
    assert_eq!(peer.conversation.sent_exactly_once().len(), 1);
}

#[test]
fn unmatched_messages_are_not_sent() {
    let mut peer = Peer::open(Version::V5);
    let message = outgoing(1, "a", r#""text":"x""#);
    assert_eq!(peer.deliver(&message, Cause::Published), Delivery::NoMatch);
    peer.subscribe(&[("b", options(1)), ("a/+", options(1)), ("$noroshi/inbox", options(0))]);
    assert_eq!(peer.deliver(&message, Cause::Published), Delivery::NoMatch);
    let mut closed = Peer::new(Version::V5);
    assert_eq!(closed.deliver(&message, Cause::Published), Delivery::NoMatch);
}

#[test]
fn connections_without_specific_parts_share_the_packet() {
    let message = outgoing(1, "a", r#""text":"x""#);
    let shared = |version| {
        let mut peer = Peer::open(version);
        peer.subscribe(&[("a", options(1))]);
        match peer.deliver(&message, Cause::Published) {
            Delivery::Send { shared, acknowledged: true } => (shared.as_ptr(), peer.out.len() - shared.len()),
            delivery => panic!("{delivery:?}"),
        }
    };
    for version in [Version::V3, Version::V5] {
        let (one, another) = (shared(version), shared(version));
        assert_eq!(one, another);
        assert_eq!(one.1, 0, "no head");
    }
}

#[test]
fn overlapping_subscriptions_deliver_one_copy_with_all_identifiers() {
    let mut peer = Peer::open(Version::V5);
    for (id, filter, qos) in [(3, "a/#", 0), (300, "a/b", 2), (5, "+/b", 1), (9, "c", 1)] {
        let mut list = PropertyList::new();
        list.push(Property::SubscriptionIdentifier, Value::VarInt(id));
        let filters = Subscribe::encode_filters(&[(filter, options(qos))]);
        peer.send(Packet::Subscribe(Subscribe::new(1, list.properties(), &filters)));
    }
    peer.out.clear();
    peer.delivers(&outgoing(1, "a/b", r#""text":"x","qos":2"#));
    let heard = received(&mut peer);
    assert_eq!(heard, [(0b0100, "a/b".to_owned(), 1, vec![300, 5, 3], None, None, b"x".to_vec())]);
}

#[test]
fn no_local_suppresses_own_messages() {
    let own = outgoing(1, "a", r#""text":"x","from":"0000000000000007""#);
    let other = outgoing(2, "a", r#""text":"x","from":"0000000000000008""#);
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[("a", options(0).with_no_local())]);
    assert_eq!(peer.deliver(&own, Cause::Published), Delivery::NoMatch);
    peer.delivers(&other);
    peer.subscribe(&[("+", options(0))]);
    peer.delivers(&own);
}

#[test]
fn retain_flag_follows_cause_and_options() {
    let retained = outgoing(1, "a", r#""text":"x","retain":true"#);
    for (asked, live) in [(options(0), 0), (options(0).with_retain_as_published(), 1)] {
        let mut peer = Peer::open(Version::V5);
        peer.subscribe(&[("a", asked)]);
        peer.delivers(&retained);
        peer.deliver(&retained, Cause::Retained);
        peer.delivers(&outgoing(2, "a", r#""text":"x""#));
        let flags: Vec<_> = received(&mut peer).iter().map(|heard| heard.0).collect();
        assert_eq!(flags, [live, 1, 0]);
    }
}

#[test]
fn remaining_expiry_is_sent_in_seconds() {
    let message = outgoing(1, "a", r#""text":"x","expires":true"#);
    let endless = outgoing(2, "a", r#""text":"x""#);
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[("a", options(0))]);
    let at = |peer: &mut Peer, message: &Outgoing, ms: u64| {
        let (now, config) = (Timestamp(NOW.0 + ms), peer.config.clone());
        match peer.conversation.deliver(&config, message, Cause::Published, now, &mut peer.out) {
            Delivery::Send { shared, .. } => peer.out.extend_from_slice(&shared),
            delivery => return Err(delivery),
        }
        Ok(received(peer)[0].5)
    };
    assert_eq!(at(&mut peer, &message, 0), Ok(Some(10)));
    assert_eq!(at(&mut peer, &message, 999), Ok(Some(10)));
    assert_eq!(at(&mut peer, &message, 1_000), Ok(Some(9)), "not the bytes made first");
    assert_eq!(at(&mut peer, &message, 9_999), Ok(Some(1)));
    assert_eq!(at(&mut peer, &message, 10_000), Err(Delivery::Expired));
    assert_eq!(at(&mut peer, &endless, 10_000), Ok(None));
}

#[test]
fn properties_are_forwarded() {
    let mut list = PropertyList::new();
    list.push(Property::PayloadFormatIndicator, Value::Byte(1));
    list.push(Property::ContentType, Value::Text("text/plain"));
    list.push(Property::ResponseTopic, Value::Text("r"));
    list.push(Property::CorrelationData, Value::Binary(b"\xFF"));
    list.push(Property::UserProperty, Value::Pair("b", "1"));
    list.push(Property::UserProperty, Value::Pair("a", "2"));
    let message = outgoing(
        1,
        "a",
        r#""text":"x","format":true,"content_type":"text/plain","response_topic":"r","correlation":"/w==","user":[["b","1"],["a","2"]]"#,
    );
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[("a", options(0))]);
    peer.delivers(&message);
    let expected = Publish { properties: list.properties(), ..publish(0, 0, "a", b"x") };
    peer.expect_packets(&[Packet::Publish(expected)]);
    let mut peer = Peer::open(Version::V3);
    peer.subscribe(&[("a", options(0))]);
    peer.delivers(&message);
    peer.expect_packets(&[Packet::Publish(publish(0, 0, "a", b"x"))]);
}

#[test]
fn other_notifications_are_sent_as_the_native_object() {
    let message = Message {
        notification: Some(JsonText::from_valid(r#"{"title":"t"}"#)),
        data: Some(JsonText::from_valid("[1]")),
        ..published(1, "news", "")
    };
    let inbox = Message { topic: None, ..message.clone() };
    let mut everyone = message.clone();
    everyone.topic.as_mut().unwrap().topic = Topic::everyone();
    for (message, topic) in [(&message, "news"), (&inbox, INBOX_TOPIC), (&everyone, INBOX_TOPIC)] {
        let mut peer = Peer::open(Version::V5);
        peer.subscribe(&[(topic, options(2))]);
        peer.delivers(&Outgoing::new(message));
        let heard = received(&mut peer);
        assert_eq!((heard[0].0, heard[0].1.as_str(), heard[0].5), (0b0010, topic, Some(10)));
        assert_eq!(heard[0].6, crate::native::message_json(message));
    }
    let passing = Outgoing::new(&Message { when: When::Active, ..inbox });
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[(INBOX_TOPIC, options(2))]);
    let delivery = peer.deliver(&passing, Cause::Published);
    assert!(
        matches!(delivery, Delivery::Send { acknowledged: false, .. }),
        "nobody waits for it: {delivery:?}"
    );
}

#[test]
fn receive_maximum_of_the_client_is_respected() {
    let mut list = PropertyList::new();
    list.push(Property::ReceiveMaximum, Value::U16(2));
    let mut peer = Peer::new(Version::V5);
    let connect = Connect { properties: list.properties(), ..connect(Version::V5) };
    peer.log_in(&connect, LoggedIn::default());
    peer.subscribe(&[("+", options(2))]);
    let message = |id: u8, qos: u8| {
        // Each on a topic of its own, so they acknowledge in any order.
        outgoing(id, &id.to_string(), &format!(r#""text":"x","qos":{qos}"#))
    };
    peer.delivers(&message(1, 1));
    peer.delivers(&message(2, 2));
    assert_eq!(peer.deliver(&message(3, 1), Cause::Published), Delivery::Full);
    peer.delivers(&message(4, 0));
    assert_eq!(peer.deliver(&message(1, 1), Cause::Published), Delivery::InFlight);
    peer.out.clear();
    // QoS 2 counts until PUBCOMP (§4.9); the device has received it at PUBREC.
    assert_eq!(peer.send(Packet::PubRec(Ack::success(2))), Outcome::Settled { ids: vec![2], room: false });
    peer.expect_packets(&[Packet::PubRel(Ack::success(2))]);
    assert_eq!(peer.deliver(&message(3, 1), Cause::Published), Delivery::Full);
    assert_eq!(peer.send(Packet::PubComp(Ack::success(2))), Outcome::Settled { ids: vec![], room: true });
    peer.delivers(&message(3, 1));
    assert_eq!(peer.send(Packet::PubAck(Ack::success(1))), Outcome::Settled { ids: vec![1], room: false });
    assert_eq!(peer.send(Packet::PubAck(Ack::success(3))), Outcome::Settled { ids: vec![3], room: false });
}

#[test]
fn only_free_packet_ids_are_used() {
    let mut peer = Peer::open(Version::V5);
    peer.config.in_flight_max = 64;
    peer.subscribe(&[("a", options(1))]);
    for id in 1..=64 {
        peer.delivers(&outgoing(id, "a", r#""text":"x","qos":1"#));
    }
    let ids: Vec<_> = received(&mut peer).iter().map(|heard| heard.2).collect();
    assert_eq!(ids, (1..=64).collect::<Vec<_>>());
    assert_eq!(peer.deliver(&outgoing(65, "a", r#""text":"x","qos":1"#), Cause::Published), Delivery::Full);
    assert!(peer.conversation.held_bytes() < 3_500, "{}", peer.conversation.held_bytes());
}

#[test]
fn mismatched_acknowledgements_are_rejected() {
    let open = || {
        let mut peer = Peer::open(Version::V5);
        peer.subscribe(&[("a", options(2))]);
        peer.delivers(&outgoing(1, "a", r#""text":"x","qos":1"#));
        peer.delivers(&outgoing(2, "a", r#""text":"x","qos":2"#));
        peer.out.clear();
        peer
    };
    for wrong in [
        Packet::PubRec(Ack::success(1)),
        Packet::PubComp(Ack::success(1)),
        Packet::PubAck(Ack::success(2)),
        Packet::PubComp(Ack::success(2)),
    ] {
        assert!(matches!(open().send(wrong), Outcome::Close(_)), "{wrong:?}");
    }
    let mut peer = open();
    for unknown in [Packet::PubAck(Ack::success(9)), Packet::PubComp(Ack::success(9))] {
        assert_eq!(peer.send(unknown), Outcome::Nothing);
        peer.expect_packets(&[]);
    }
    peer.send(Packet::PubRec(Ack::success(9)));
    let reason = ReasonCode::PacketIdentifierNotFound;
    peer.expect_packets(&[Packet::PubRel(Ack { packet_id: 9, reason, properties: Properties::default() })]);
    // A message that the client rejects is not sent again either.
    let refused =
        |packet_id| Ack { packet_id, reason: ReasonCode::QuotaExceeded, properties: Properties::default() };
    assert_eq!(peer.send(Packet::PubAck(refused(1))), Outcome::Settled { ids: vec![1], room: false });
    assert_eq!(peer.send(Packet::PubRec(refused(2))), Outcome::Settled { ids: vec![2], room: false });
    peer.expect_packets(&[]);
    // A repeated PUBREC is answered again.
    peer.delivers(&outgoing(3, "a", r#""text":"x","qos":2"#));
    peer.out.clear();
    assert_eq!(peer.send(Packet::PubRec(Ack::success(3))), Outcome::Settled { ids: vec![3], room: false });
    assert_eq!(peer.send(Packet::PubRec(Ack::success(3))), Outcome::Nothing);
    peer.expect_packets(&[Packet::PubRel(Ack::success(3)), Packet::PubRel(Ack::success(3))]);
}

#[test]
fn messages_above_the_clients_maximum_are_dropped() {
    let message = outgoing(1, "a", r#""text":"0123456789","qos":1"#);
    // 2 bytes of header, 3 of topic, 2 of packet id, 1 of properties, 10 of payload.
    for (maximum, sent) in [(18, true), (17, false)] {
        let mut list = PropertyList::new();
        list.push(Property::MaximumPacketSize, Value::U32(maximum));
        let mut peer = Peer::new(Version::V5);
        let connect = Connect { properties: list.properties(), ..connect(Version::V5) };
        peer.config.topic_alias_maximum = 0;
        peer.log_in(&connect, LoggedIn::default());
        assert!(peer.conversation.is_open());
        peer.subscribe(&[("a", options(1))]);
        let delivery = peer.deliver(&message, Cause::Published);
        match sent {
            true => assert_eq!(peer.out.len(), 18),
            false => {
                assert_eq!(delivery, Delivery::TooBig);
                assert_eq!(peer.conversation.part().saved.map(|saved| saved.sent.len()), None);
            }
        }
    }
}

#[test]
fn frequent_topics_get_an_alias() {
    let mut list = PropertyList::new();
    list.push(Property::TopicAliasMaximum, Value::U16(2));
    let mut peer = Peer::new(Version::V5);
    let connect = Connect { properties: list.properties(), ..connect(Version::V5) };
    peer.log_in(&connect, LoggedIn::default());
    peer.subscribe(&[("#", options(0))]);
    for topic in ["a", "b", "a", "c", "b", "c"] {
        peer.delivers(&outgoing(1, topic, r#""text":"x""#));
    }
    let heard: Vec<_> = received(&mut peer).into_iter().map(|heard| (heard.1, heard.4)).collect();
    let heard: Vec<_> = heard.iter().map(|(topic, alias)| (topic.as_str(), *alias)).collect();
    let expected = [("a", Some(1)), ("b", Some(2)), ("", Some(1)), ("c", None), ("", Some(2)), ("c", None)];
    assert_eq!(heard, expected);
}

#[test]
fn long_packets_have_correct_lengths() {
    for bytes in [100, 120, 125, 130, 16_370, 16_380, 17_000] {
        let text = "x".repeat(bytes);
        for (qos, version) in [(0, Version::V3), (1, Version::V3), (0, Version::V5), (1, Version::V5)] {
            let mut peer = Peer::open(version);
            peer.subscribe(&[("a", options(qos))]);
            peer.delivers(&outgoing(1, "a", &format!(r#""text":"{text}","qos":1"#)));
            peer.expect_packets(&[Packet::Publish(publish(qos, u16::from(qos), "a", text.as_bytes()))]);
        }
    }
}

/// The service keeps one position per device in a log, so acknowledgements are reported in log order.
#[test]
fn unacknowledged_message_delays_reports_of_later_ones_in_its_log() {
    let mut peer = Peer::open(Version::V5);
    peer.config.in_flight_max = 2;
    peer.subscribe(&[("a", options(2)), ("b", options(1))]);
    let message = |id, topic, qos: u8| outgoing(id, topic, &format!(r#""text":"x","qos":{qos}"#));
    peer.delivers(&message(1, "a", 1));
    assert!(peer.conversation.passes(&peer.config, &message(2, "b", 0)), "of another log");
    assert!(!peer.conversation.passes(&peer.config, &message(3, "a", 0)));
    peer.delivers(&message(4, "a", 2));
    assert_eq!(peer.send(Packet::PubRec(Ack::success(2))), Outcome::Nothing);
    assert_eq!(peer.send(Packet::PubComp(Ack::success(2))), Outcome::Nothing);
    for id in 5..50 {
        assert!(!peer.conversation.passes(&peer.config, &message(id, "a", 0)));
    }
    assert!(peer.conversation.held_bytes() < 500, "{}", peer.conversation.held_bytes());
    // Nothing is sent that would need further state.
    assert_eq!(peer.deliver(&message(50, "a", 0), Cause::Published), Delivery::Full);
    let told = Outcome::Settled { ids: vec![1, 3, 4, 49], room: true };
    assert_eq!(peer.send(Packet::PubAck(Ack::success(1))), told, "in the order of the log");
    peer.delivers(&message(50, "a", 0));
}

#[test]
fn retained_copy_does_not_acknowledge_its_log() {
    let mut peer = Peer::open(Version::V5);
    peer.subscribe(&[("a", options(1))]);
    let message = |id: u8| outgoing(id, "a", r#""text":"x","qos":1"#);
    peer.deliver(&message(5), Cause::Retained);
    // The log delivers it too, after another one.
    peer.delivers(&message(4));
    peer.delivers(&message(5));
    assert_eq!(peer.send(Packet::PubAck(Ack::success(1))), Outcome::Nothing);
    assert_eq!(peer.send(Packet::PubAck(Ack::success(3))), Outcome::Nothing);
    assert_eq!(peer.send(Packet::PubAck(Ack::success(2))), Outcome::Settled { ids: vec![4, 5], room: false });
}
