//! What a client publishes, at every quality of service.

use noroshi_types::CloseReason;

use super::dialogue::reason_string;
use super::peer::{Did, Peer, publish};
use crate::mqtt::*;

fn ack(packet_id: u16, reason: ReasonCode) -> Ack<'static> {
    Ack { packet_id, reason, properties: Properties::default() }
}

fn answer(did: Did) -> Answer {
    match did {
        Did::Publish { answer: Some(answer), .. } | Did::RenewToken { answer: Some(answer), .. } => answer,
        did => panic!("{did:?}"),
    }
}

#[test]
fn at_most_once_is_not_answered() {
    let mut peer = Peer::open(Version::V5);
    let did = peer.say(Packet::Publish(Publish { retain: true, ..publish(0, 0, "a/b", b"x") }));
    let expected =
        Did::Publish { topic: "a/b".to_owned(), payload: b"x".to_vec(), retain: true, answer: None };
    assert_eq!(did, expected);
    peer.hears(&[]);
    assert_eq!(peer.conversation.held_bytes(), 0);
}

#[test]
fn acknowledgements_go_out_in_order() {
    let mut peer = Peer::open(Version::V5);
    let say = |peer: &mut Peer, qos, id| answer(peer.say(Packet::Publish(publish(qos, id, "a", b""))));
    let (one, two, three) = (say(&mut peer, 1, 5), say(&mut peer, 2, 6), say(&mut peer, 1, 7));
    peer.conversation.published(three, Ok(()), &mut peer.out).unwrap();
    peer.conversation.published(two, Ok(()), &mut peer.out).unwrap();
    peer.hears(&[]);
    peer.conversation.published(one, Err(PublishRefused::OverQuota), &mut peer.out).unwrap();
    let why =
        reason_string("too much waits to be stored, the topic is full, or the app has used up its quota");
    peer.hears(&[
        Packet::PubAck(Ack { properties: why.properties(), ..ack(5, ReasonCode::QuotaExceeded) }),
        Packet::PubRec(Ack::success(6)),
        Packet::PubAck(Ack::success(7)),
    ]);
    peer.say(Packet::PubRel(Ack::success(6)));
    peer.hears(&[Packet::PubComp(Ack::success(6))]);
    assert_eq!(peer.conversation.held_bytes(), 0);
    peer.conversation.published(one, Ok(()), &mut peer.out).unwrap();
    peer.hears(&[]);
}

#[test]
fn a_refusal_says_what_is_at_fault() {
    let check = |topic: &str, refused: PublishRefused, code: ReasonCode, why: &str| {
        let mut peer = Peer::open(Version::V5);
        let did = peer.say(Packet::Publish(publish(1, 1, topic, b"x")));
        let one = answer(did);
        peer.conversation.published(one, Err(refused), &mut peer.out).unwrap();
        let why = reason_string(why);
        peer.hears(&[Packet::PubAck(Ack { properties: why.properties(), ..ack(1, code) })]);
    };
    let token = "the new token is not valid for this session, which keeps its old one";
    check("$noroshi/token", PublishRefused::BadToken, ReasonCode::NotAuthorized, token);
    let token = "the new token has expired; the session keeps its old one";
    check("$noroshi/token", PublishRefused::TokenExpired, ReasonCode::NotAuthorized, token);
    let size = "the payload is over the size limit of what clients may publish";
    check("a", PublishRefused::TooBig, ReasonCode::QuotaExceeded, size);
    check(
        "a",
        PublishRefused::NotAllowed,
        ReasonCode::NotAuthorized,
        "publishing to this topic is not allowed",
    );
}

#[test]
fn exactly_once_publishes_once() {
    for version in [Version::V3, Version::V5] {
        let mut peer = Peer::open(version);
        let message = Packet::Publish(publish(2, 1, "a", b"x"));
        let again = Packet::Publish(Publish { dup: true, ..publish(2, 1, "a", b"x") });
        let one = answer(peer.say(message));
        assert_eq!(peer.say(again), Did::Nothing, "the first is not answered yet");
        peer.hears(&[]);
        peer.conversation.published(one, Ok(()), &mut peer.out).unwrap();
        peer.hears(&[Packet::PubRec(Ack::success(1))]);
        for packet in [again, message] {
            assert_eq!(peer.say(packet), Did::Nothing);
            peer.hears(&[Packet::PubRec(Ack::success(1))]);
        }
        // QoS 1 has the same numbers, and is another message.
        let other = answer(peer.say(Packet::Publish(publish(1, 1, "a", b"y"))));
        peer.conversation.published(other, Ok(()), &mut peer.out).unwrap();
        peer.hears(&[Packet::PubAck(Ack::success(1))]);
        assert_eq!(peer.say(Packet::PubRel(Ack::success(1))), Did::Nothing);
        peer.hears(&[Packet::PubComp(Ack::success(1))]);
        peer.say(Packet::PubRel(Ack::success(1)));
        peer.hears(&[Packet::PubComp(ack(1, ReasonCode::PacketIdentifierNotFound))]);
        answer(peer.say(message));
    }
}

#[test]
fn what_is_refused_is_not_kept() {
    let mut peer = Peer::open(Version::V5);
    let one = answer(peer.say(Packet::Publish(publish(2, 1, "a", b"x"))));
    peer.conversation.published(one, Err(PublishRefused::Unavailable), &mut peer.out).unwrap();
    let why = reason_string("it could not be stored now; publish it again later");
    peer.hears(&[Packet::PubRec(Ack {
        properties: why.properties(),
        ..ack(1, ReasonCode::UnspecifiedError)
    })]);
    answer(peer.say(Packet::Publish(publish(2, 1, "a", b"x"))));
}

#[test]
fn mqtt_3_is_acknowledged_or_closed() {
    let mut peer = Peer::open(Version::V3);
    let one = answer(peer.say(Packet::Publish(publish(1, 1, "a", b"x"))));
    peer.conversation.published(one, Err(PublishRefused::NotAllowed), &mut peer.out).unwrap();
    peer.hears(&[Packet::PubAck(Ack::success(1))]);
    let two = answer(peer.say(Packet::Publish(publish(1, 2, "a", b"x"))));
    let result = peer.conversation.published(two, Err(PublishRefused::Unavailable), &mut peer.out);
    assert_eq!(result, Err(CloseReason::Internal), "so that the client sends it again");
    peer.hears(&[]);
}

#[test]
fn topics_that_cannot_be_are_refused() {
    let long = "x".repeat(256);
    for (topic, code) in [("$SYS/a", 0x87), ("$noroshi/inbox", 0x87), ("a\tb", 0x90), (long.as_str(), 0x90)] {
        let mut peer = Peer::open(Version::V5);
        assert_eq!(peer.say(Packet::Publish(publish(1, 1, topic, b""))), Did::Nothing);
        assert_eq!((peer.out[0], peer.out[4]), (0x40, code), "{topic}");
        peer.out.clear();
        assert_eq!(peer.say(Packet::Publish(publish(0, 0, topic, b""))), Did::Nothing);
        peer.hears(&[]);
        let mut peer = Peer::open(Version::V3);
        assert_eq!(peer.say(Packet::Publish(publish(2, 1, topic, b""))), Did::Nothing);
        peer.hears(&[Packet::PubRec(Ack::success(1))]);
    }
}

#[test]
fn text_is_checked_where_it_is_said_to_be() {
    let mut list = PropertyList::new();
    list.push(Property::PayloadFormatIndicator, Value::Byte(1));
    let mut peer = Peer::open(Version::V5);
    let message = Publish { properties: list.properties(), ..publish(1, 1, "a", b"\xFF") };
    assert_eq!(peer.say(Packet::Publish(message)), Did::Nothing);
    assert_eq!((peer.out[0], peer.out[4]), (0x40, 0x99));
    assert_eq!(peer.conversation.held_bytes(), 0);
    answer(peer.say(Packet::Publish(Publish { payload: b"\xC3\xA9", ..message })));
}

#[test]
fn more_than_the_receive_maximum_ends_it() {
    let mut peer = Peer::open(Version::V5);
    for id in 1..=10 {
        let done = answer(peer.say(Packet::Publish(publish(2, id, "a", b""))));
        peer.conversation.published(done, Ok(()), &mut peer.out).unwrap();
        answer(peer.say(Packet::Publish(publish(1, id, "a", b""))));
    }
    peer.out.clear();
    assert!(matches!(peer.say(Packet::Publish(publish(0, 0, "a", b""))), Did::Publish { .. }));
    assert_eq!(peer.say(Packet::Publish(publish(2, 3, "a", b""))), Did::Nothing, "an old one is none more");
    peer.out.clear();
    let did = peer.say(Packet::Publish(publish(1, 99, "a", b"")));
    assert_eq!(did, Did::Close(CloseReason::BadMessage));
    assert_eq!((peer.out[0], peer.out[2]), (0xE0, 0x93));
}

#[test]
fn mqtt_3_has_a_bound_too() {
    let mut peer = Peer::open(Version::V3);
    let mut id = 0;
    let did = loop {
        id += 1;
        match peer.say(Packet::Publish(publish(2, id, "a", b""))) {
            Did::Publish { answer: Some(answer), .. } => {
                peer.conversation.published(answer, Ok(()), &mut peer.out).unwrap();
            }
            did => break did,
        }
    };
    assert_eq!((did, id), (Did::Close(CloseReason::RateLimited), 1_025));
    assert!(peer.conversation.held_bytes() < 6_000, "{}", peer.conversation.held_bytes());
}

#[test]
fn topic_aliases_stand_for_topics() {
    let mut peer = Peer::open(Version::V5);
    let mut say = |topic: &str, alias: u16| {
        let mut list = PropertyList::new();
        list.push(Property::TopicAlias, Value::U16(alias));
        let message = Publish { properties: list.properties(), ..publish(1, 1, topic, b"") };
        let did = peer.say(Packet::Publish(message));
        if let Did::Publish { answer: Some(answer), .. } = did {
            peer.conversation.published(answer, Ok(()), &mut peer.out).unwrap();
        }
        let last = std::mem::take(&mut peer.out);
        match did {
            Did::Publish { topic, .. } => Ok(topic),
            Did::Nothing => Err(last[4]),
            did => {
                assert_eq!(did, Did::Close(CloseReason::BadMessage));
                Err(last[2])
            }
        }
    };
    assert_eq!(say("a", 1), Ok("a".to_owned()));
    assert_eq!(say("b", 10), Ok("b".to_owned()));
    assert_eq!(say("", 1), Ok("a".to_owned()));
    assert_eq!(say("c", 1), Ok("c".to_owned()));
    assert_eq!(say("", 1), Ok("c".to_owned()));
    assert_eq!(say("", 10), Ok("b".to_owned()));
    let long = "x".repeat(9_000);
    assert_eq!(say(&long, 2), Err(0x90));
    assert_eq!(say("", 2), Err(0x87), "kept as one that cannot be published to");
    assert_eq!(say("", 3), Err(0x82), "not set");
    let mut peer = Peer::open(Version::V5);
    let mut list = PropertyList::new();
    list.push(Property::TopicAlias, Value::U16(11));
    let message = Publish { properties: list.properties(), ..publish(0, 0, "a", b"") };
    assert_eq!(peer.say(Packet::Publish(message)), Did::Close(CloseReason::BadMessage));
    assert_eq!(peer.out[2], 0x94, "above the maximum");
}

#[test]
fn subscription_identifiers_are_the_servers() {
    let mut peer = Peer::open(Version::V5);
    let mut list = PropertyList::new();
    list.push(Property::SubscriptionIdentifier, Value::VarInt(1));
    let message = Publish { properties: list.properties(), ..publish(0, 0, "a", b"") };
    assert_eq!(peer.say(Packet::Publish(message)), Did::Close(CloseReason::BadMessage));
    assert_eq!(peer.out[2], 0x82);
}
