//! State that outlives a connection: wills and resumed sessions.

use noroshi_types::{CloseReason, Topic};

use super::peer::{Outcome, Peer, connect, each_frame, encoded, options, outgoing, publish};
use crate::mqtt::*;

fn expiry(seconds: u32) -> PropertyList {
    let mut list = PropertyList::new();
    list.push(Property::SessionExpiryInterval, Value::U32(seconds));
    list
}

fn with_will(properties: Properties<'_>, will_properties: Properties<'_>) -> Peer {
    let will = LastWill {
        qos: Qos::AtLeastOnce,
        retain: true,
        properties: will_properties,
        topic: "state/c1",
        payload: b"gone",
    };
    let mut peer = Peer::new(Version::V5);
    let connect = Connect { properties, will: Some(will), ..connect(Version::V5) };
    peer.log_in(&connect, LoggedIn { origin: 7, ..LoggedIn::default() });
    peer
}

fn leave(reason: ReasonCode, properties: Properties<'_>) -> Packet<'_> {
    Packet::Disconnect(Notice { reason, properties })
}

#[test]
fn abnormal_end_leaves_the_will() {
    let mut list = PropertyList::new();
    list.push(Property::WillDelayInterval, Value::U32(30));
    list.push(Property::MessageExpiryInterval, Value::U32(60));
    list.push(Property::ContentType, Value::Text("text/plain"));
    let vanished = with_will(Properties::default(), list.properties()).conversation.part();
    let will = vanished.will.unwrap();
    assert_eq!((will.topic.as_str(), will.qos, will.retain), ("state/c1", Qos::AtLeastOnce, true));
    assert_eq!((will.delay_s, will.expiry_s, will.has_payload), (30, Some(60), true));
    assert_eq!(
        will.data.as_str(),
        r#"{"mqtt":{"text":"gone","qos":1,"retain":true,"expires":true,"content_type":"text/plain","from":"0000000000000007"}}"#
    );
    let none = Properties::default();
    let mut peer = with_will(none, none);
    assert_eq!(peer.send(leave(ReasonCode::Success, none)), Outcome::Close(CloseReason::PeerClosed));
    assert_eq!(peer.conversation.part().will, None);
    for reason in [ReasonCode::DisconnectWithWill, ReasonCode::UnspecifiedError] {
        let mut peer = with_will(none, none);
        assert_eq!(peer.send(leave(reason, none)), Outcome::Close(CloseReason::PeerClosed));
        assert!(peer.conversation.part().will.is_some());
    }
    let mut peer = with_will(none, none);
    peer.conversation.close(CloseReason::PingTimeout, None, &mut peer.out);
    assert!(peer.conversation.part().will.is_some());
}

#[test]
fn rejected_client_leaves_no_will() {
    let will = LastWill {
        qos: Qos::AtMostOnce,
        retain: false,
        properties: Properties::default(),
        topic: "w",
        payload: b"",
    };
    let mut peer = Peer::new(Version::V3);
    peer.send(Packet::Connect(Connect { will: Some(will), clean_start: false, ..connect(Version::V3) }));
    peer.conversation.close(CloseReason::Unauthorized, None, &mut peer.out);
    let end = peer.conversation.part();
    assert!(end.will.is_none() && end.saved.is_none());
    let mut peer = Peer::new(Version::V5);
    let will = LastWill { topic: "$SYS/w", ..will };
    peer.send(Packet::Connect(Connect { will: Some(will), ..connect(Version::V5) }));
    assert_eq!((peer.out[0], peer.out[3]), (0x20, 0x90), "a topic that cannot be");
}

#[test]
fn packet_ids_in_doubt_are_released_before_reuse() {
    let list = expiry(60);
    let lasting = Connect { clean_start: false, properties: list.properties(), ..connect(Version::V5) };
    let subscription = Subscription {
        filter: TopicFilter::parse("t").unwrap(),
        options: options(2),
        id: 0,
        is_of_client: true,
        since: 0,
        retained_due: false,
    };
    let session = |session_present, saved| LoggedIn {
        session_present,
        subscriptions: vec![subscription.clone()],
        saved,
        ..LoggedIn::default()
    };
    // The node that had the session was killed; the client holds packet id 1.
    let mut peer = Peer::new(Version::V5);
    peer.log_in(&lasting, session(true, None));
    peer.out.clear();
    let expect_delivery = |peer: &mut Peer, id: u8, packet: Publish<'_>, released: bool| {
        peer.delivers(&outgoing(id, "t", r#""text":"x","qos":2"#));
        let release = Packet::PubRel(Ack::success(packet.packet_id));
        let packets = [release, Packet::Publish(packet)];
        peer.expect_packets(if released { &packets } else { &packets[1..] });
    };
    expect_delivery(&mut peer, 1, publish(2, 1, "t", b"x"), true);
    assert_eq!(peer.send(Packet::PubComp(Ack::success(1))), Outcome::Nothing, "the answer to the release");
    peer.send(Packet::PubRec(Ack::success(1)));
    peer.expect_packets(&[Packet::PubRel(Ack::success(1))]);
    // With QoS 1, clients ignore the packet ids that they hold.
    peer.delivers(&outgoing(2, "t", r#""text":"x","qos":1"#));
    peer.expect_packets(&[Packet::Publish(publish(1, 2, "t", b"x"))]);
    // The next connection releases the id with PUBREC, resends the rest, and does not know the others.
    let saved = peer.conversation.part().saved;
    let mut peer = Peer::new(Version::V5);
    peer.log_in(&lasting, session(true, saved));
    peer.out.clear();
    expect_delivery(&mut peer, 3, publish(2, 3, "t", b"x"), true);
    expect_delivery(&mut peer, 4, publish(2, 4, "t", b"x"), true);
    peer.send(Packet::PubComp(Ack::success(4)));
    // The resent message is preceded by another PUBREL, as the first may have been lost with it; the other
    // one is not.
    let saved = peer.conversation.part().saved;
    let mut peer = Peer::new(Version::V5);
    peer.log_in(&lasting, session(true, saved));
    peer.out.clear();
    expect_delivery(&mut peer, 3, Publish { dup: true, ..publish(2, 3, "t", b"x") }, true);
    expect_delivery(&mut peer, 4, Publish { dup: true, ..publish(2, 4, "t", b"x") }, false);
    // A session that never left this node knows all of its packet ids.
    let mut peer = Peer::new(Version::V5);
    peer.log_in(&lasting, session(false, None));
    peer.out.clear();
    expect_delivery(&mut peer, 1, publish(2, 1, "t", b"x"), false);
    assert!(matches!(peer.send(Packet::PubComp(Ack::success(1))), Outcome::Close(_)));
}

#[test]
fn rejected_will_has_its_own_reason() {
    for (why, version, said) in [
        (LogInRefused::Will, Version::V3, 5),
        (LogInRefused::Will, Version::V5, 0x87),
        // Not "server unavailable", which asks the client to retry.
        (LogInRefused::WillTooBig, Version::V3, 5),
        (LogInRefused::WillTooBig, Version::V5, 0x97),
    ] {
        let mut peer = Peer::new(version);
        peer.send(Packet::Connect(connect(version)));
        peer.conversation.refuse_log_in(why, &mut peer.out);
        peer.conversation.close(CloseReason::Unauthorized, None, &mut peer.out);
        assert_eq!((peer.out[0], peer.out[3]), (0x20, said), "and only that");
        assert_eq!(peer.out.len(), usize::from(peer.out[1]) + 2);
        let text = why.text().as_bytes();
        assert_eq!(peer.out.windows(text.len()).any(|part| part == text), version == Version::V5);
    }
}

#[test]
fn will_size_is_known_before_the_log_in() {
    let mut list = PropertyList::new();
    list.push(Property::UserProperty, Value::Pair("k", "\u{1}\u{1}"));
    let will = LastWill {
        qos: Qos::AtLeastOnce,
        retain: false,
        properties: list.properties(),
        topic: "w",
        payload: b"gone",
    };
    let mut peer = Peer::new(Version::V5);
    let anonymous = Config { anonymous: true, ..Config::default() };
    let asks = Packet::Connect(Connect { will: Some(will), ..connect(Version::V5) });
    let mut offered = None;
    each_frame(&encoded(Version::V5, &[asks]), |frame| {
        if let Action::LogIn(log_in) = peer.conversation.receive(&anonymous, frame, &mut peer.out) {
            offered = log_in.will;
        }
    });
    let topic = Topic::parse("w").unwrap();
    let properties_bytes = list.properties().as_bytes().len();
    assert_eq!(offered, Some(OfferedWill { topic, payload_bytes: 4, properties_bytes }));
    let data = r#"{"mqtt":{"text":"gone","qos":1,"user":[["k","\u0001\u0001"]],"from":"0000000000000000"}}"#;
    assert_eq!(peer.conversation.will_data_bytes(), data.len(), "with what escapes add");
}

#[test]
fn disconnect_may_change_the_session_expiry() {
    let open = |seconds| {
        let mut peer = Peer::new(Version::V5);
        let asked = expiry(seconds);
        peer.log_in(&Connect { properties: asked.properties(), ..connect(Version::V5) }, LoggedIn::default());
        peer
    };
    for (first, then, kept) in [(10, 0, 0), (10, 20, 20), (10, u32::MAX, 2_419_200), (0, 0, 0)] {
        let mut peer = open(first);
        let did = peer.send(leave(ReasonCode::Success, expiry(then).properties()));
        assert_eq!(did, Outcome::Close(CloseReason::PeerClosed));
        let end = peer.conversation.part();
        assert_eq!((end.session_expiry_s, end.saved.is_some()), (kept, kept > 0));
    }
    let mut peer = open(0);
    peer.out.clear();
    let did = peer.send(leave(ReasonCode::Success, expiry(1).properties()));
    assert_eq!(did, Outcome::Close(CloseReason::BadMessage), "a session that was to end at once cannot stay");
    assert_eq!(peer.out[2], 0x82);
    let mut list = PropertyList::new();
    list.push(Property::ServerReference, Value::Text("x"));
    let mut peer = open(0);
    assert_eq!(
        peer.send(leave(ReasonCode::Success, list.properties())),
        Outcome::Close(CloseReason::BadMessage)
    );
}

/// Three sent messages, one unacknowledged per QoS and one half finished, and one received message half
/// finished.
fn interrupted(version: Version) -> ConnectionEnd {
    let mut peer = Peer::new(version);
    let asked = expiry(60);
    let properties = if version == Version::V5 { asked.properties() } else { Properties::default() };
    let connect = Connect { clean_start: false, properties, ..connect(version) };
    peer.log_in(&connect, LoggedIn::default());
    peer.subscribe(&[("a", options(2))]);
    for (id, qos) in [(1, 1), (2, 2), (3, 2), (4, 1)] {
        peer.delivers(&outgoing(id, "a", &format!(r#""text":"x","qos":{qos}"#)));
    }
    assert_eq!(
        peer.send(Packet::PubRec(Ack::success(3))),
        Outcome::Nothing,
        "those before it are not acknowledged"
    );
    let Outcome::Publish { answer: Some(answer), .. } = peer.send(Packet::Publish(publish(2, 9, "b", b"")))
    else {
        panic!("a message")
    };
    peer.conversation.published(answer, Ok(()), &mut peer.out).unwrap();
    peer.conversation.part()
}

fn resumed(version: Version, end: ConnectionEnd, clean_start: bool) -> Peer {
    let mut peer = Peer::new(version);
    let asked = expiry(60);
    let properties = if version == Version::V5 { asked.properties() } else { Properties::default() };
    let ConnectionEnd { subscriptions, saved, .. } = end;
    let session = LoggedIn { session_present: true, subscriptions, saved, ..LoggedIn::default() };
    peer.log_in(&Connect { clean_start, properties, ..connect(version) }, session);
    peer
}

#[test]
fn session_resumes_where_it_stopped() {
    for version in [Version::V3, Version::V5] {
        let mut peer = resumed(version, interrupted(version), false);
        assert_eq!(peer.out[2], 1, "session present");
        let connack_bytes = 2 + usize::from(peer.out[1]);
        peer.out.drain(..connack_bytes);
        peer.expect_packets(&[Packet::PubRel(Ack::success(3))]);
        // The backlog contains the unacknowledged messages: they keep their packet ids and have DUP set.
        peer.delivers(&outgoing(1, "a", r#""text":"x","qos":1"#));
        peer.delivers(&outgoing(2, "a", r#""text":"x","qos":2"#));
        peer.delivers(&outgoing(5, "a", r#""text":"x","qos":1"#));
        peer.expect_packets(&[
            Packet::Publish(Publish { dup: true, ..publish(1, 1, "a", b"x") }),
            Packet::Publish(Publish { dup: true, ..publish(2, 2, "a", b"x") }),
            Packet::Publish(publish(1, 5, "a", b"x")),
        ]);
        // The third is offered too: the service was not informed that the client has it.
        let third = outgoing(3, "a", r#""text":"x","qos":2"#);
        assert_eq!(peer.deliver(&third, Cause::Published), Delivery::InFlight);
        // The fourth was not offered again: it expired.
        assert_eq!(peer.conversation.caught_up(), []);
        assert_eq!(peer.send(Packet::PubAck(Ack::success(4))), Outcome::Nothing);
        assert_eq!(peer.send(Packet::PubRec(Ack::success(2))), Outcome::Nothing);
        assert_eq!(peer.send(Packet::PubComp(Ack::success(3))), Outcome::Nothing);
        let told = Outcome::Settled { ids: vec![1, 2, 3], room: false };
        assert_eq!(peer.send(Packet::PubAck(Ack::success(1))), told, "in the order of the log");
        peer.out.clear();
        // A message that was received before is not published again.
        assert_eq!(peer.send(Packet::Publish(publish(2, 9, "b", b""))), Outcome::Nothing);
        peer.send(Packet::PubRel(Ack::success(9)));
        peer.expect_packets(&[Packet::PubRec(Ack::success(9)), Packet::PubComp(Ack::success(9))]);
    }
}

#[test]
fn clean_start_discards_the_session() {
    let mut peer = resumed(Version::V5, interrupted(Version::V5), true);
    assert_eq!(peer.out[2], 0, "no session");
    peer.out.clear();
    peer.send(Packet::PubRel(Ack::success(9)));
    let reason = ReasonCode::PacketIdentifierNotFound;
    peer.expect_packets(&[Packet::PubComp(Ack { packet_id: 9, reason, properties: Properties::default() })]);
}

#[test]
fn resent_messages_count_against_the_new_receive_maximum() {
    let ConnectionEnd { subscriptions, saved, .. } = interrupted(Version::V5);
    let mut list = expiry(60);
    list.push(Property::ReceiveMaximum, Value::U16(2));
    let mut peer = Peer::new(Version::V5);
    let session = LoggedIn { session_present: true, subscriptions, saved, ..LoggedIn::default() };
    let connect = Connect { clean_start: false, properties: list.properties(), ..connect(Version::V5) };
    peer.log_in(&connect, session);
    // One is half finished already.
    peer.delivers(&outgoing(1, "a", r#""text":"x","qos":1"#));
    let second = outgoing(2, "a", r#""text":"x","qos":2"#);
    assert_eq!(peer.deliver(&second, Cause::Published), Delivery::Full);
    assert_eq!(peer.send(Packet::PubComp(Ack::success(3))), Outcome::Settled { ids: vec![], room: true });
    peer.delivers(&second);
}

#[test]
fn message_published_after_the_connection_ended_is_a_duplicate() {
    let mut peer = Peer::new(Version::V3);
    peer.log_in(&Connect { clean_start: false, ..connect(Version::V3) }, LoggedIn::default());
    let message = publish(2, 4, "b", b"");
    let Outcome::Publish { answer: Some(answer), .. } = peer.send(Packet::Publish(message)) else {
        panic!("a message")
    };
    let mut end = peer.conversation.part();
    end.saved.as_mut().unwrap().published(answer);
    let mut peer = resumed(Version::V3, end, false);
    peer.out.clear();
    assert_eq!(peer.send(Packet::Publish(Publish { dup: true, ..message })), Outcome::Nothing);
    peer.expect_packets(&[Packet::PubRec(Ack::success(4))]);
}
