//! Messages from a client, at every quality of service.

use noroshi_types::CloseReason;

use super::dialogue::reason_string;
use super::peer::{Outcome, Peer, publish};
use crate::mqtt::*;

fn ack(packet_id: u16, reason: ReasonCode) -> Ack<'static> {
    Ack { packet_id, reason, properties: Properties::default() }
}

fn answer(did: Outcome) -> Answer {
    match did {
        Outcome::Publish { answer: Some(answer), .. } | Outcome::RenewToken { answer: Some(answer), .. } => {
            answer
        }
        did => panic!("{did:?}"),
    }
}

#[test]
fn qos_0_is_not_acknowledged() {
    let mut peer = Peer::open(Version::V5);
    let did = peer.send(Packet::Publish(Publish { retain: true, ..publish(0, 0, "a/b", b"x") }));
    let expected =
        Outcome::Publish { topic: "a/b".to_owned(), payload: b"x".to_vec(), retain: true, answer: None };
    assert_eq!(did, expected);
    peer.expect_packets(&[]);
    assert_eq!(peer.conversation.held_bytes(), 0);
}

#[test]
fn acknowledgements_are_sent_in_order() {
    let mut peer = Peer::open(Version::V5);
    let send = |peer: &mut Peer, qos, id| answer(peer.send(Packet::Publish(publish(qos, id, "a", b""))));
    let (one, two, three) = (send(&mut peer, 1, 5), send(&mut peer, 2, 6), send(&mut peer, 1, 7));
    peer.conversation.published(three, Ok(()), &mut peer.out).unwrap();
    peer.conversation.published(two, Ok(()), &mut peer.out).unwrap();
    peer.expect_packets(&[]);
    peer.conversation.published(one, Err(PublishRefused::OverQuota), &mut peer.out).unwrap();
    let why =
        reason_string("too many messages are pending, the topic is full, or the app has exhausted its quota");
    peer.expect_packets(&[
        Packet::PubAck(Ack { properties: why.properties(), ..ack(5, ReasonCode::QuotaExceeded) }),
        Packet::PubRec(Ack::success(6)),
        Packet::PubAck(Ack::success(7)),
    ]);
    peer.send(Packet::PubRel(Ack::success(6)));
    peer.expect_packets(&[Packet::PubComp(Ack::success(6))]);
    assert_eq!(peer.conversation.held_bytes(), 0);
    peer.conversation.published(one, Ok(()), &mut peer.out).unwrap();
    peer.expect_packets(&[]);
}

#[test]
fn rejections_explain_the_reason() {
    let check = |topic: &str, refused: PublishRefused, code: ReasonCode, why: &str| {
        let mut peer = Peer::open(Version::V5);
        let did = peer.send(Packet::Publish(publish(1, 1, topic, b"x")));
        let one = answer(did);
        peer.conversation.published(one, Err(refused), &mut peer.out).unwrap();
        let why = reason_string(why);
        peer.expect_packets(&[Packet::PubAck(Ack { properties: why.properties(), ..ack(1, code) })]);
    };
    let token = "the new token is invalid for this session, which keeps its old one";
    check("$noroshi/token", PublishRefused::BadToken, ReasonCode::NotAuthorized, token);
    let token = "the new token has expired; the session keeps its old one";
    check("$noroshi/token", PublishRefused::TokenExpired, ReasonCode::NotAuthorized, token);
    let size = "the payload exceeds the size limit for published messages";
    check("a", PublishRefused::TooBig, ReasonCode::QuotaExceeded, size);
    check(
        "a",
        PublishRefused::NotAllowed,
        ReasonCode::NotAuthorized,
        "publishing to this topic is not allowed",
    );
}

#[test]
fn qos_2_publishes_once() {
    for version in [Version::V3, Version::V5] {
        let mut peer = Peer::open(version);
        let message = Packet::Publish(publish(2, 1, "a", b"x"));
        let again = Packet::Publish(Publish { dup: true, ..publish(2, 1, "a", b"x") });
        let one = answer(peer.send(message));
        assert_eq!(peer.send(again), Outcome::Nothing, "the first is not answered yet");
        peer.expect_packets(&[]);
        peer.conversation.published(one, Ok(()), &mut peer.out).unwrap();
        peer.expect_packets(&[Packet::PubRec(Ack::success(1))]);
        for packet in [again, message] {
            assert_eq!(peer.send(packet), Outcome::Nothing);
            peer.expect_packets(&[Packet::PubRec(Ack::success(1))]);
        }
        // QoS 1 uses the same packet ids, but this is another message.
        let other = answer(peer.send(Packet::Publish(publish(1, 1, "a", b"y"))));
        peer.conversation.published(other, Ok(()), &mut peer.out).unwrap();
        peer.expect_packets(&[Packet::PubAck(Ack::success(1))]);
        assert_eq!(peer.send(Packet::PubRel(Ack::success(1))), Outcome::Nothing);
        peer.expect_packets(&[Packet::PubComp(Ack::success(1))]);
        peer.send(Packet::PubRel(Ack::success(1)));
        peer.expect_packets(&[Packet::PubComp(ack(1, ReasonCode::PacketIdentifierNotFound))]);
        answer(peer.send(message));
    }
}

#[test]
fn rejected_messages_are_not_kept() {
    let mut peer = Peer::open(Version::V5);
    let one = answer(peer.send(Packet::Publish(publish(2, 1, "a", b"x"))));
    peer.conversation.published(one, Err(PublishRefused::Unavailable), &mut peer.out).unwrap();
    let why = reason_string("the message could not be stored; publish it again later");
    peer.expect_packets(&[Packet::PubRec(Ack {
        properties: why.properties(),
        ..ack(1, ReasonCode::UnspecifiedError)
    })]);
    answer(peer.send(Packet::Publish(publish(2, 1, "a", b"x"))));
}

#[test]
fn mqtt_3_rejection_is_acknowledged_or_closes() {
    let mut peer = Peer::open(Version::V3);
    let one = answer(peer.send(Packet::Publish(publish(1, 1, "a", b"x"))));
    peer.conversation.published(one, Err(PublishRefused::NotAllowed), &mut peer.out).unwrap();
    peer.expect_packets(&[Packet::PubAck(Ack::success(1))]);
    let two = answer(peer.send(Packet::Publish(publish(1, 2, "a", b"x"))));
    let result = peer.conversation.published(two, Err(PublishRefused::Unavailable), &mut peer.out);
    assert_eq!(result, Err(CloseReason::Internal), "so that the client sends it again");
    peer.expect_packets(&[]);
}

#[test]
fn invalid_topics_are_rejected() {
    let long = "x".repeat(256);
    for (topic, code) in [("$SYS/a", 0x87), ("$noroshi/inbox", 0x87), ("a\tb", 0x90), (long.as_str(), 0x90)] {
        let mut peer = Peer::open(Version::V5);
        assert_eq!(peer.send(Packet::Publish(publish(1, 1, topic, b""))), Outcome::Nothing);
        assert_eq!((peer.out[0], peer.out[4]), (0x40, code), "{topic}");
        peer.out.clear();
        assert_eq!(peer.send(Packet::Publish(publish(0, 0, topic, b""))), Outcome::Nothing);
        peer.expect_packets(&[]);
        let mut peer = Peer::open(Version::V3);
        assert_eq!(peer.send(Packet::Publish(publish(2, 1, topic, b""))), Outcome::Nothing);
        peer.expect_packets(&[Packet::PubRec(Ack::success(1))]);
    }
}

#[test]
fn declared_text_must_be_utf8() {
    let mut list = PropertyList::new();
    list.push(Property::PayloadFormatIndicator, Value::Byte(1));
    let mut peer = Peer::open(Version::V5);
    let message = Publish { properties: list.properties(), ..publish(1, 1, "a", b"\xFF") };
    assert_eq!(peer.send(Packet::Publish(message)), Outcome::Nothing);
    assert_eq!((peer.out[0], peer.out[4]), (0x40, 0x99));
    assert_eq!(peer.conversation.held_bytes(), 0);
    answer(peer.send(Packet::Publish(Publish { payload: b"\xC3\xA9", ..message })));
}

#[test]
fn exceeding_the_receive_maximum_closes() {
    let mut peer = Peer::open(Version::V5);
    for id in 1..=10 {
        let done = answer(peer.send(Packet::Publish(publish(2, id, "a", b""))));
        peer.conversation.published(done, Ok(()), &mut peer.out).unwrap();
        answer(peer.send(Packet::Publish(publish(1, id, "a", b""))));
    }
    peer.out.clear();
    assert!(matches!(peer.send(Packet::Publish(publish(0, 0, "a", b""))), Outcome::Publish { .. }));
    assert_eq!(
        peer.send(Packet::Publish(publish(2, 3, "a", b""))),
        Outcome::Nothing,
        "an old one is none more"
    );
    peer.out.clear();
    let did = peer.send(Packet::Publish(publish(1, 99, "a", b"")));
    assert_eq!(did, Outcome::Close(CloseReason::BadMessage));
    assert_eq!((peer.out[0], peer.out[2]), (0xE0, 0x93));
}

#[test]
fn mqtt_3_in_flight_messages_are_bounded() {
    let mut peer = Peer::open(Version::V3);
    let mut id = 0;
    let did = loop {
        id += 1;
        match peer.send(Packet::Publish(publish(2, id, "a", b""))) {
            Outcome::Publish { answer: Some(answer), .. } => {
                peer.conversation.published(answer, Ok(()), &mut peer.out).unwrap();
            }
            did => break did,
        }
    };
    assert_eq!((did, id), (Outcome::Close(CloseReason::RateLimited), 1_025));
    assert!(peer.conversation.held_bytes() < 6_000, "{}", peer.conversation.held_bytes());
}

#[test]
fn topic_aliases_replace_topics() {
    let mut peer = Peer::open(Version::V5);
    let mut send = |topic: &str, alias: u16| {
        let mut list = PropertyList::new();
        list.push(Property::TopicAlias, Value::U16(alias));
        let message = Publish { properties: list.properties(), ..publish(1, 1, topic, b"") };
        let did = peer.send(Packet::Publish(message));
        if let Outcome::Publish { answer: Some(answer), .. } = did {
            peer.conversation.published(answer, Ok(()), &mut peer.out).unwrap();
        }
        let last = std::mem::take(&mut peer.out);
        match did {
            Outcome::Publish { topic, .. } => Ok(topic),
            Outcome::Nothing => Err(last[4]),
            did => {
                assert_eq!(did, Outcome::Close(CloseReason::BadMessage));
                Err(last[2])
            }
        }
    };
    assert_eq!(send("a", 1), Ok("a".to_owned()));
    assert_eq!(send("b", 10), Ok("b".to_owned()));
    assert_eq!(send("", 1), Ok("a".to_owned()));
    assert_eq!(send("c", 1), Ok("c".to_owned()));
    assert_eq!(send("", 1), Ok("c".to_owned()));
    assert_eq!(send("", 10), Ok("b".to_owned()));
    let long = "x".repeat(9_000);
    assert_eq!(send(&long, 2), Err(0x90));
    assert_eq!(send("", 2), Err(0x87), "kept as one that cannot be published to");
    assert_eq!(send("", 3), Err(0x82), "not set");
    let mut peer = Peer::open(Version::V5);
    let mut list = PropertyList::new();
    list.push(Property::TopicAlias, Value::U16(11));
    let message = Publish { properties: list.properties(), ..publish(0, 0, "a", b"") };
    assert_eq!(peer.send(Packet::Publish(message)), Outcome::Close(CloseReason::BadMessage));
    assert_eq!(peer.out[2], 0x94, "above the maximum");
}

#[test]
fn client_publish_must_not_have_a_subscription_identifier() {
    let mut peer = Peer::open(Version::V5);
    let mut list = PropertyList::new();
    list.push(Property::SubscriptionIdentifier, Value::VarInt(1));
    let message = Publish { properties: list.properties(), ..publish(0, 0, "a", b"") };
    assert_eq!(peer.send(Packet::Publish(message)), Outcome::Close(CloseReason::BadMessage));
    assert_eq!(peer.out[2], 0x82);
}
