//! Log-in, subscriptions, and every end of a connection.

use noroshi_types::{CloseReason, Presence};

use super::peer::{Outcome, Peer, connect, encoded, options, publish};
use crate::mqtt::*;

fn list(properties: &[(Property, Value<'_>)]) -> PropertyList {
    let mut list = PropertyList::new();
    properties.iter().for_each(|(property, value)| list.push(*property, *value));
    list
}

fn connack(reason: ReasonCode, properties: &PropertyList) -> Packet<'_> {
    Packet::ConnAck(ConnAck { session_present: false, reason, properties: properties.properties() })
}

fn disconnect(reason: ReasonCode, properties: &PropertyList) -> Packet<'_> {
    Packet::Disconnect(Notice { reason, properties: properties.properties() })
}

pub(super) fn reason_string(text: &str) -> PropertyList {
    list(&[(Property::ReasonString, Value::Text(text))])
}

#[test]
fn device_logs_in_with_its_token() {
    for version in [Version::V3, Version::V5] {
        let mut peer = Peer::with(version, Config::default());
        let log_in = Connect { username: Some("d1"), password: Some(b"token"), ..connect(version) };
        let did = peer.send(Packet::Connect(log_in));
        let (device, token) = (Some("d1".to_owned()), Some("token".to_owned()));
        assert_eq!(did, Outcome::LogIn { device, token, app: None, expiry_s: 0 });
        assert!(!peer.conversation.is_open());
        peer.conversation.logged_in(
            &peer.config,
            LoggedIn { device: "d1", ..LoggedIn::default() },
            &mut peer.out,
        );
        let told = match version {
            Version::V3 => PropertyList::new(),
            Version::V5 => list(&[
                (Property::ReceiveMaximum, Value::U16(64)),
                (Property::MaximumPacketSize, Value::U32(65_536)),
                (Property::TopicAliasMaximum, Value::U16(16)),
            ]),
        };
        peer.expect_packets(&[connack(ReasonCode::Success, &told)]);
        assert!(peer.conversation.is_open());
        assert_eq!(peer.conversation.idle_timeout_ms(), Some(90_000));
        assert_eq!(peer.send(Packet::PingReq), Outcome::Nothing);
        peer.expect_packets(&[Packet::PingResp]);
    }
}

#[test]
fn client_identifier_names_the_device_without_a_user_name() {
    let name = |username, client_id| {
        let mut peer = Peer::with(Version::V5, Config::default());
        let connect = Connect { username, client_id, password: Some(b"t"), ..connect(Version::V5) };
        match peer.send(Packet::Connect(connect)) {
            Outcome::LogIn { device, .. } => Ok(device),
            did => {
                assert_eq!(
                    did,
                    Outcome::Refused("the user name or client identifier is not a valid device id")
                );
                Err(peer.out[3])
            }
        }
    };
    assert_eq!(name(Some("d1"), "c1"), Ok(Some("d1".to_owned())));
    assert_eq!(name(Some(""), "c1"), Ok(Some("c1".to_owned())));
    assert_eq!(name(None, "c1"), Ok(Some("c1".to_owned())));
    assert_eq!(name(None, ""), Ok(None), "the token says who it is");
    assert_eq!(name(Some("a\tb"), "c1"), Err(0x86));
    assert_eq!(name(None, "a\tb"), Err(0x85));
}

#[test]
fn missing_token_is_rejected() {
    for password in [None, Some(&b""[..]), Some(b"\xFF")] {
        let mut peer = Peer::with(Version::V5, Config::default());
        let did = peer.send(Packet::Connect(Connect { password, ..connect(Version::V5) }));
        let why = "the password must be the device's token";
        assert_eq!(did, Outcome::Refused(why));
        let said = reason_string(why);
        peer.expect_packets(&[connack(ReasonCode::BadUserNameOrPassword, &said)]);
        let mut peer = Peer::with(Version::V3, Config::default());
        let connect = Connect { username: Some("d1"), password, ..connect(Version::V3) };
        assert_eq!(peer.send(Packet::Connect(connect)), Outcome::Refused(why));
        assert_eq!(peer.out, [0x20, 2, 0, 4]);
    }
}

#[test]
fn anonymous_clients_are_accepted_if_allowed() {
    let mut peer = Peer::new(Version::V5);
    let did = peer.send(Packet::Connect(Connect { client_id: "", ..connect(Version::V5) }));
    assert_eq!(did, Outcome::LogIn { device: None, token: None, app: None, expiry_s: 0 });
    let session = LoggedIn { device: "made-up", ..LoggedIn::default() };
    peer.conversation.logged_in(&peer.config, session, &mut peer.out);
    let told = list(&[
        (Property::ReceiveMaximum, Value::U16(20)),
        (Property::MaximumPacketSize, Value::U32(65_536)),
        (Property::AssignedClientIdentifier, Value::Text("made-up")),
        (Property::TopicAliasMaximum, Value::U16(10)),
    ]);
    peer.expect_packets(&[connack(ReasonCode::Success, &told)]);
}

#[test]
fn changed_values_are_announced_in_connack() {
    let config = Config { keep_alive_max_s: 50, session_expiry_max_s: 100, ..Config::conformance() };
    for (asked_s, keep_alive_s) in [(u32::MAX, 60), (u32::MAX, 0)] {
        let mut peer = Peer::with(Version::V5, config.clone());
        let asked = list(&[(Property::SessionExpiryInterval, Value::U32(asked_s))]);
        let connect = Connect { keep_alive_s, properties: asked.properties(), ..connect(Version::V5) };
        assert!(matches!(peer.send(Packet::Connect(connect)), Outcome::LogIn { expiry_s: 100, .. }));
        peer.conversation.logged_in(&peer.config, LoggedIn::default(), &mut peer.out);
        let told = list(&[
            (Property::SessionExpiryInterval, Value::U32(100)),
            (Property::ReceiveMaximum, Value::U16(20)),
            (Property::MaximumPacketSize, Value::U32(65_536)),
            (Property::TopicAliasMaximum, Value::U16(10)),
            (Property::ServerKeepAlive, Value::U16(50)),
        ]);
        peer.expect_packets(&[connack(ReasonCode::Success, &told)]);
        assert_eq!(peer.conversation.idle_timeout_ms(), Some(75_000));
    }
    // MQTT 3.1.1 has no such property; the client keeps its own value.
    let mut peer = Peer::with(Version::V3, config);
    peer.log_in(&Connect { keep_alive_s: 0, ..connect(Version::V3) }, LoggedIn::default());
    assert_eq!(peer.conversation.idle_timeout_ms(), None);
    let kept = Connect { clean_start: false, ..connect(Version::V3) };
    assert!(matches!(
        Peer::new(Version::V3).send(Packet::Connect(kept)),
        Outcome::LogIn { expiry_s: 2_419_200, .. }
    ));
}

#[test]
fn unsupported_versions_are_rejected_in_their_own_format() {
    let check = |body: &[u8], expected: &[u8]| {
        let mut peer = Peer::new(Version::V3);
        let did = peer.send_bytes(&[&[0x10, body.len() as u8], body].concat());
        assert!(matches!(did, Outcome::Close(_)), "{did:?}");
        match expected {
            [] => assert!(peer.out.is_empty(), "{:?}", peer.out),
            expected => assert!(peer.out.starts_with(expected), "{:02x?}", peer.out),
        }
    };
    check(b"\x00\x06MQIsdp\x04\x02\x00\x3C\x00\x01c", &[0x20, 2, 0, 1]);
    check(b"\x00\x04MQTT\x03\x02\x00\x3C\x00\x01c", &[0x20, 2, 0, 1]);
    check(b"\x00\x04MQTT\x84\x02\x00\x3C\x00\x01c", &[0x20, 2, 0, 1]);
    check(b"\x00\x04MQTT\x06\x02\x00\x3C\x00\x00\x01c", &[0x20]);
    check(b"\x00\x04HTTP\x04\x02\x00\x3C\x00\x01c", &[]);
    // Malformed: MQTT 3.1.1 has no CONNACK for it ([MQTT-3.1.4-1]).
    check(b"\x00\x04MQTT\x04\x03\x00\x3C\x00\x01c", &[]);
    check(b"\x00\x04MQTT\x04\x06\x00\x3C\x00\x01c\x00\x00\x00\x00", &[]); // an empty will topic
    check(b"\x00\x04MQTT\x04\x06\x00\x3C\x00\x01c\x00\x03w/#\x00\x00", &[]);
    check(b"\x00\x04MQTT\x04\x00\x00\x3C\x00\x00", &[0x20, 2, 0, 2]); // no client identifier
    check(b"", &[]);
    let v5 = |code: u8, body: &[u8]| {
        let mut peer = Peer::new(Version::V5);
        peer.send_bytes(&[&[0x10, body.len() as u8], body].concat());
        assert_eq!((peer.out[0], peer.out[2], peer.out[3]), (0x20, 0, code), "{:02x?}", peer.out);
    };
    v5(0x84, b"\x00\x04MQTT\x06\x02\x00\x3C\x00\x00\x01c");
    v5(0x81, b"\x00\x04MQTT\x05\x03\x00\x3C\x00\x00\x01c");
    v5(0x82, b"\x00\x04MQTT\x05\x02\x00\x3C\x03\x21\x00\x00\x00\x01c");
    v5(0x81, b"\x00\x04MQTT\x05\x06\x00\x3C\x00\x00\x01c\x00\x00\x02w#\x00\x00");
    v5(0x8C, b"\x00\x04MQTT\x05\x02\x00\x3C\x04\x15\x00\x01m\x00\x01c");
}

/// MQTT 3.1 §2.1 sets DUP on resent PUBREL, SUBSCRIBE and UNSUBSCRIBE, and its CONNACK has no flags.
#[test]
fn mqtt_3_1_is_served_as_3_1_1() {
    let mut peer = Peer::new(Version::V3);
    let kept = Connect { is_mqtt31: true, clean_start: false, ..connect(Version::V3) };
    let session = LoggedIn { session_present: true, ..LoggedIn::default() };
    peer.log_in(&kept, session);
    assert_eq!(peer.out, [0x20, 2, 0, 0], "whether a session was present is not told");
    peer.out.clear();
    assert_eq!(peer.send_bytes(b"\x8A\x06\x00\x01\x00\x01a\x01"), Outcome::Subscribe(1));
    let request = peer.subscribe.take().expect("asked");
    peer.conversation.subscribed(&peer.config, request, 0, &mut peer.out).expect("goes on");
    assert_eq!(peer.out, [0x90, 3, 0, 1, 1]);
    peer.out.clear();
    assert_eq!(peer.send_bytes(b"\xAA\x05\x00\x02\x00\x01a"), Outcome::Unsubscribe(1));
    let request = peer.unsubscribe.take().expect("asked");
    peer.conversation.unsubscribed(request, &mut peer.out).expect("goes on");
    assert_eq!(peer.send_bytes(b"\x6A\x02\x00\x03"), Outcome::Nothing);
    assert_eq!(peer.out, [0xB0, 2, 0, 2, 0x70, 2, 0, 3]);
    // The later versions forbid it.
    for packet in [&b"\x8A\x06\x00\x01\x00\x01a\x01"[..], b"\x6A\x02\x00\x03"] {
        for version in [Version::V3, Version::V5] {
            assert!(matches!(Peer::open(version).send_bytes(packet), Outcome::Close(_)), "{version:?}");
        }
    }
}

#[test]
fn problem_information_is_omitted_on_request() {
    let asked = list(&[(Property::RequestProblemInformation, Value::Byte(0))]);
    let unwilling = Connect { properties: asked.properties(), ..connect(Version::V5) };
    for (connect, explained) in [(unwilling, false), (connect(Version::V5), true)] {
        let has_text = |peer: &mut Peer, text: &str| {
            let said = std::mem::take(&mut peer.out);
            assert!(!said.is_empty());
            said.windows(text.len()).any(|window| window == text.as_bytes())
        };
        // CONNACK, PUBACK, DISCONNECT.
        let mut peer = Peer::new(Version::V5);
        peer.send(Packet::Connect(connect));
        peer.conversation.close(CloseReason::Overloaded, None, &mut peer.out);
        assert_eq!(has_text(&mut peer, CloseReason::Overloaded.explain()), explained);
        let mut peer = Peer::new(Version::V5);
        peer.log_in(&connect, LoggedIn::default());
        peer.out.clear();
        peer.send(Packet::Publish(publish(1, 1, "$SYS/x", b"")));
        assert_eq!(has_text(&mut peer, "publishing to this topic"), explained);
        peer.conversation.close(CloseReason::Drain, None, &mut peer.out);
        assert_eq!(has_text(&mut peer, CloseReason::Drain.explain()), explained);
    }
}

#[test]
fn connect_must_be_first_and_only_once() {
    let mut peer = Peer::new(Version::V5);
    assert_eq!(peer.send(Packet::PingReq), Outcome::Close(CloseReason::BadMessage));
    assert!(peer.out.is_empty());
    let mut peer = Peer::open(Version::V5);
    assert_eq!(peer.send(Packet::Connect(connect(Version::V5))), Outcome::Close(CloseReason::BadMessage));
    let why = reason_string("a second CONNECT");
    peer.expect_packets(&[disconnect(ReasonCode::ProtocolError, &why)]);
    assert_eq!(peer.send(Packet::PingReq), Outcome::Nothing, "nothing follows the last word");
    peer.expect_packets(&[]);
    let mut peer = Peer::open(Version::V3);
    assert_eq!(peer.send(Packet::Connect(connect(Version::V3))), Outcome::Close(CloseReason::BadMessage));
    peer.expect_packets(&[]);
}

#[test]
fn packets_before_connack_are_processed_after_it() {
    let mut peer = Peer::new(Version::V5);
    peer.send(Packet::Connect(connect(Version::V5)));
    let early = [Packet::PingReq, Packet::Publish(publish(0, 0, "a", b"x"))];
    for packet in early {
        assert_eq!(peer.send(packet), Outcome::Nothing);
    }
    peer.expect_packets(&[]);
    let kept = peer.conversation.logged_in(&peer.config, LoggedIn::default(), &mut peer.out);
    assert_eq!(kept, encoded(Version::V5, &early));
    let mut peer = Peer::new(Version::V5);
    peer.send(Packet::Connect(connect(Version::V5)));
    let payload = [0; 4_000];
    let large = Packet::Publish(publish(0, 0, "a", &payload));
    let dids: Vec<_> = (0..5).map(|_| peer.send(large)).collect();
    assert_eq!(dids[4], Outcome::Close(CloseReason::RateLimited), "16 KiB are enough");
    let why = reason_string("too many bytes were sent before CONNACK");
    peer.expect_packets(&[connack(ReasonCode::QuotaExceeded, &why)]);
    assert!(peer.conversation.held_bytes() < 20_000);
}

#[test]
fn filters_are_granted_or_rejected_individually() {
    let asked = [
        ("a/b", options(2)),
        ("a/#/b", options(1)),
        ("$share/g/a", options(2)),
        ("$SYS/#", options(1)),
        ("test/nosubscribe", options(1)),
        ("+/c", options(0)),
        ("$noroshi/inbox", options(1)),
    ];
    let filters = Subscribe::encode_filters(&asked);
    for (version, reasons) in
        [(Version::V3, [2, 0x80, 2, 0x80, 0x80, 0, 1]), (Version::V5, [2, 0x8F, 2, 0x8F, 0x87, 0, 1])]
    {
        let mut peer = Peer::open(version);
        let subscribe = Packet::Subscribe(Subscribe::new(9, Properties::default(), &filters));
        assert_eq!(peer.send_only(subscribe), Outcome::Subscribe(5));
        let mut request = peer.subscribe.take().unwrap();
        request
            .refuse(|filter| (filter.as_str() == "test/nosubscribe").then_some(SubscribeRefused::NotAllowed));
        assert!(!peer.conversation.receives_inbox());
        let made = peer.conversation.subscribed(&peer.config, request, 0, &mut peer.out).unwrap();
        let made: Vec<_> = made.iter().map(|made| made.filter.as_str()).collect();
        assert_eq!(made, ["a/b", "$share/g/a", "+/c", "$noroshi/inbox"]);
        let properties = Properties::default();
        peer.expect_packets(&[Packet::SubAck(SubAck { packet_id: 9, properties, reasons: &reasons })]);
        assert!(peer.conversation.receives_inbox());
        assert_eq!(peer.conversation.subscriptions().count(), 4);
        let asked = ["a/b", "a/b", "$noroshi/inbox", "#", "+/c", "$SYS/#", "##", "$share/g/a", "$share/h/a"];
        let filters = Subscribe::encode_bare(&asked);
        let unsubscribe = Packet::Unsubscribe(Subscribe::bare(10, properties, &filters));
        assert_eq!(peer.send(unsubscribe), Outcome::Unsubscribe(7));
        let reasons = &[0, 0x11, 0, 0x11, 0, 0x11, 0x11, 0, 0x11];
        peer.expect_packets(&[Packet::UnsubAck(SubAck { packet_id: 10, properties, reasons })]);
        assert!(!peer.conversation.receives_inbox());
        assert_eq!(peer.conversation.held_bytes(), 0, "nothing is left");
    }
}

#[test]
fn retain_handling_is_respected() {
    let mut peer = Peer::open(Version::V5);
    let with = |handling| options(0).with_retain_handling(handling);
    for (handling, new, wanted) in [
        (RetainHandling::SendIfNew, true, true),
        (RetainHandling::SendIfNew, false, false),
        (RetainHandling::Send, false, true),
        (RetainHandling::DoNotSend, false, false),
    ] {
        peer.subscribe(&[("a", with(handling))]);
        let made = &peer.subscribed[0];
        assert_eq!((made.is_new, made.wants_retained), (new, wanted), "{handling:?}");
    }
}

#[test]
fn subscriptions_are_limited() {
    let mut peer = Peer::open(Version::V5);
    peer.config.subscriptions_max = 2;
    peer.subscribe(&[("a", options(0)), ("b", options(0))]);
    let filters = Subscribe::encode_filters(&[("a", options(1)), ("c", options(0))]);
    peer.send(Packet::Subscribe(Subscribe::new(2, Properties::default(), &filters)));
    let properties = Properties::default();
    peer.expect_packets(&[Packet::SubAck(SubAck { packet_id: 2, properties, reasons: &[1, 0x97] })]);
    let filters = Subscribe::encode_filters(&[("a", options(1)); 3]);
    let did = peer.send(Packet::Subscribe(Subscribe::new(2, properties, &filters)));
    assert_eq!(did, Outcome::Close(CloseReason::BadMessage));
}

#[test]
fn violations_are_reported_in_mqtt_5_and_close_mqtt_3() {
    let auth = Notice { reason: ReasonCode::ReAuthenticate, properties: Properties::default() };
    for (packet, code) in [
        (Packet::Auth(auth), ReasonCode::ProtocolError),
        (Packet::PingResp, ReasonCode::ProtocolError),
        (connack(ReasonCode::Success, &PropertyList::new()), ReasonCode::ProtocolError),
    ] {
        let mut peer = Peer::open(Version::V5);
        assert_eq!(peer.send(packet), Outcome::Close(CloseReason::BadMessage), "{packet:?}");
        assert_eq!(peer.out[2], code as u8);
    }
    let mut peer = Peer::open(Version::V5);
    assert_eq!(peer.send_bytes(&[0xC0, 1, 0]), Outcome::Close(CloseReason::ProtocolError));
    assert_eq!(peer.out[2], 0x81);
    let mut peer = Peer::open(Version::V5);
    peer.conversation.violate(Violation::TooBig, &mut peer.out);
    assert_eq!(peer.out[2], 0x95);
    let mut peer = Peer::open(Version::V3);
    assert_eq!(peer.send_bytes(&[0xC0, 1, 0]), Outcome::Close(CloseReason::ProtocolError));
    peer.expect_packets(&[]);
}

#[test]
fn every_close_reason_has_its_closing_packet() {
    let drain = ServerReference { servers: "other:1883", moved: false };
    let moved = ServerReference { servers: "other:1883", moved: true };
    let explained = |reason: CloseReason| reason_string(reason.explain());
    let elsewhere = list(&[
        (Property::ServerReference, Value::Text("other:1883")),
        (Property::ReasonString, Value::Text(CloseReason::Drain.explain())),
    ]);
    for (reason, reference, code, properties) in [
        (CloseReason::Replaced, None, ReasonCode::SessionTakenOver, explained(CloseReason::Replaced)),
        (CloseReason::Drain, None, ReasonCode::UseAnotherServer, explained(CloseReason::Drain)),
        (CloseReason::Drain, Some(&drain), ReasonCode::UseAnotherServer, elsewhere.clone()),
        (CloseReason::Drain, Some(&moved), ReasonCode::ServerMoved, elsewhere),
        (
            CloseReason::Revoked,
            Some(&drain),
            ReasonCode::AdministrativeAction,
            explained(CloseReason::Revoked),
        ),
        (CloseReason::PingTimeout, None, ReasonCode::KeepAliveTimeout, explained(CloseReason::PingTimeout)),
    ] {
        let mut peer = Peer::open(Version::V5);
        peer.conversation.close(reason, reference, &mut peer.out);
        peer.expect_packets(&[disconnect(code, &properties)]);
        peer.conversation.close(reason, reference, &mut peer.out);
        peer.expect_packets(&[]);
        let mut peer = Peer::open(Version::V3);
        peer.conversation.close(reason, reference, &mut peer.out);
        peer.expect_packets(&[]);
        assert!(!peer.conversation.is_open());
    }
    for (reason, code, older) in [
        (CloseReason::Unauthorized, 0x86, 4),
        (CloseReason::Revoked, 0x87, 5),
        (CloseReason::Overloaded, 0x89, 3),
        (CloseReason::Drain, 0x9C, 3),
    ] {
        for version in [Version::V3, Version::V5] {
            let mut peer = Peer::new(version);
            peer.send(Packet::Connect(connect(version)));
            peer.conversation.close(reason, None, &mut peer.out);
            let expected = if version == Version::V5 { code } else { older };
            assert_eq!((peer.out[0], peer.out[2], peer.out[3]), (0x20, 0, expected), "{reason:?}");
        }
    }
}

#[test]
fn replies_stay_below_the_clients_maximum() {
    let small = list(&[(Property::MaximumPacketSize, Value::U32(24))]);
    let mut peer = Peer::new(Version::V5);
    let connect = Connect { properties: small.properties(), ..connect(Version::V5) };
    peer.log_in(&connect, LoggedIn::default());
    assert!(peer.out.len() <= 24 && peer.conversation.is_open());
    peer.out.clear();
    peer.conversation.close(CloseReason::Replaced, None, &mut peer.out);
    assert_eq!(peer.out, [0xE0, 1, 0x8E], "without its explanation");
    // A SUBACK must be sent whole.
    let mut peer = Peer::new(Version::V5);
    peer.log_in(&connect, LoggedIn::default());
    peer.out.clear();
    let filters = Subscribe::encode_filters(&[("a", options(0)); 30]);
    peer.send_only(Packet::Subscribe(Subscribe::new(1, Properties::default(), &filters)));
    let request = peer.subscribe.take().unwrap();
    let result = peer.conversation.subscribed(&peer.config, request, 0, &mut peer.out);
    assert_eq!(result, Err(CloseReason::TooBig));
    peer.expect_packets(&[]);
}

#[test]
fn presence_and_tokens_use_their_own_topics() {
    for version in [Version::V3, Version::V5] {
        let mut peer = Peer::open(version);
        let to = |qos: u8, topic, payload| Packet::Publish(publish(qos, u16::from(qos), topic, payload));
        assert_eq!(peer.send(to(0, PRESENCE_TOPIC, b"idle")), Outcome::Presence(Presence::Idle));
        peer.expect_packets(&[]);
        assert_eq!(peer.send(to(1, PRESENCE_TOPIC, b"active")), Outcome::Presence(Presence::Active));
        peer.expect_packets(&[Packet::PubAck(Ack::success(1))]);
        assert_eq!(peer.send(to(0, PRESENCE_TOPIC, b"away")), Outcome::Nothing);
        let Outcome::RenewToken { token, answer } = peer.send(to(1, TOKEN_TOPIC, b"new")) else {
            panic!("a token")
        };
        assert_eq!(token, "new");
        peer.expect_packets(&[]);
        let refused = Err(PublishRefused::NotAllowed);
        peer.conversation.published(answer.unwrap(), refused, &mut peer.out).unwrap();
        assert_eq!(peer.out.len() > 4, version == Version::V5, "only MQTT 5 can be refused");
    }
}
