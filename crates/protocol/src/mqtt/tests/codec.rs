//! The specification's own examples, round trips, and packets split at every byte.

use std::ops::ControlFlow;

use proptest::prelude::*;

use super::peer::{connect, each_frame, encoded, options, publish};
use crate::mqtt::writer::push_var_int;
use crate::mqtt::*;

fn parsed(version: Version, bytes: &[u8], check: impl FnOnce(Packet<'_>)) {
    let mut check = Some(check);
    each_frame(bytes, |frame| {
        let packet = Packet::parse(version, frame).unwrap();
        check.take().expect("one packet")(packet);
    });
    assert!(check.is_none(), "no packet");
}

#[track_caller]
fn round_trip(version: Version, packet: Packet<'_>) {
    let bytes = encoded(version, &[packet]);
    parsed(version, &bytes, |read| {
        assert_eq!(read, packet);
        assert_eq!(read.packet_type(), packet.packet_type());
    });
    each_frame(&bytes, |frame| {
        let mut again = Vec::new();
        frame.encode(&mut again);
        assert_eq!(again, bytes);
    });
}

/// Table 1-1.
#[test]
fn variable_byte_integers_have_the_bounds_of_the_specification() {
    for (value, bytes) in [
        (0, &[0x00][..]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
        (2_097_151, &[0xFF, 0xFF, 0x7F]),
        (2_097_152, &[0x80, 0x80, 0x80, 0x01]),
        (VAR_INT_MAX, &[0xFF, 0xFF, 0xFF, 0x7F]),
    ] {
        let mut written = Vec::new();
        push_var_int(&mut written, value);
        assert_eq!(written, bytes);
        assert_eq!(frame::var_int(bytes), Ok(Some((value, bytes.len()))));
        assert_eq!(frame::var_int(&bytes[..bytes.len() - 1]), Ok(None));
        assert_eq!(frame::var_int_bytes(value), bytes.len());
    }
    assert_eq!(frame::var_int(&[0xFF, 0xFF, 0xFF, 0x80, 0x01]), Err(Violation::LengthTooLong));
    assert_eq!(frame::var_int(&[0xFF, 0xFF, 0xFF, 0xFF]), Err(Violation::LengthTooLong));
}

/// §1.5.4: "A" and U+2A6D4; and U+FEFF is a character (§1.5.4, [MQTT-1.5.4-3]).
#[test]
fn strings_are_utf8() {
    let text = [0x00, 0x05, 0x41, 0xF0, 0xAA, 0x9B, 0x94];
    assert_eq!(reader::Reader::new(&text).text(), Ok("A\u{2A6D4}"));
    assert_eq!(reader::Reader::new(&[0, 3, 0xEF, 0xBB, 0xBF]).text(), Ok("\u{FEFF}"));
    for (bytes, wrong) in [
        (&[0, 3, 0xED, 0xA0, 0x80][..], Violation::InvalidUtf8), // U+D800
        (&[0, 2, 0xC0, 0x80], Violation::InvalidUtf8),           // U+0000 in two bytes
        (&[0, 1, 0x00], Violation::NulInString),
        (&[0, 2, 0x41], Violation::Truncated),
        (&[0], Violation::Truncated),
    ] {
        assert_eq!(reader::Reader::new(bytes).text(), Err(wrong), "{bytes:02x?}");
    }
}

/// §3.1.2.12 of MQTT 5 with a payload, and the same figure of MQTT 3.1.1 (§3.1.2.3).
#[test]
fn connect_example_of_the_specification() {
    let mut bytes = vec![0x10, 0];
    bytes.extend_from_slice(b"\x00\x04MQTT\x05\xCE\x00\x0A\x05\x11\x00\x00\x00\x0A");
    bytes.extend_from_slice(b"\x00\x01c\x00\x00\x01w\x00\x02hi\x00\x01u\x00\x01p");
    bytes[1] = (bytes.len() - 2) as u8;
    let mut properties = PropertyList::new();
    properties.push(Property::SessionExpiryInterval, Value::U32(10));
    let will = LastWill {
        qos: Qos::AtLeastOnce,
        retain: false,
        properties: Properties::default(),
        topic: "w",
        payload: b"hi",
    };
    let expected = Connect {
        version: Version::V5,
        is_mqtt31: false,
        clean_start: true,
        keep_alive_s: 10,
        properties: properties.properties(),
        client_id: "c",
        will: Some(will),
        username: Some("u"),
        password: Some(b"p"),
    };
    parsed(Version::V3, &bytes, |packet| assert_eq!(packet, Packet::Connect(expected)));
    assert_eq!(encoded(Version::V5, &[Packet::Connect(expected)]), bytes);
    let mut older = vec![0x10, 0];
    older.extend_from_slice(b"\x00\x04MQTT\x04\xCE\x00\x0A\x00\x01c\x00\x01w\x00\x02hi\x00\x01u\x00\x01p");
    older[1] = (older.len() - 2) as u8;
    let expected = Connect { version: Version::V3, properties: Properties::default(), ..expected };
    parsed(Version::V3, &older, |packet| assert_eq!(packet, Packet::Connect(expected)));
}

/// §3.3.2.4: topic "a/b", packet identifier 10, no properties.
#[test]
fn publish_example_of_the_specification() {
    let five = b"\x32\x08\x00\x03a/b\x00\x0A\x00";
    parsed(Version::V5, five, |packet| assert_eq!(packet, Packet::Publish(publish(1, 10, "a/b", b""))));
    let three = b"\x32\x07\x00\x03a/b\x00\x0A";
    assert_eq!(encoded(Version::V3, &[Packet::Publish(publish(1, 10, "a/b", b""))]), three);
}

/// §3.8.3.2 and §3.10.3: filters "a/b" with QoS 1 and "c/d" with QoS 2.
#[test]
fn subscribe_and_unsubscribe_examples_of_the_specification() {
    let bytes = b"\x82\x0F\x00\x0A\x00\x00\x03a/b\x01\x00\x03c/d\x02";
    parsed(Version::V5, bytes, |packet| {
        let Packet::Subscribe(subscribe) = packet else { panic!("{packet:?}") };
        let filters: Vec<_> = subscribe.filters.iter().collect();
        assert_eq!(filters, [("a/b", options(1)), ("c/d", options(2))]);
        assert_eq!(subscribe.packet_id, 10);
    });
    let bytes = b"\xA2\x0C\x00\x0A\x00\x03a/b\x00\x03c/d";
    parsed(Version::V3, bytes, |packet| {
        let Packet::Unsubscribe(unsubscribe) = packet else { panic!("{packet:?}") };
        let filters: Vec<_> = unsubscribe.filters.iter().map(|(filter, _)| filter).collect();
        assert_eq!(filters, ["a/b", "c/d"]);
    });
}

#[test]
fn success_code_may_be_omitted() {
    let ack = Ack::success(10);
    assert_eq!(encoded(Version::V5, &[Packet::PubAck(ack)]), b"\x40\x02\x00\x0A");
    for bytes in [&b"\x40\x02\x00\x0A"[..], b"\x40\x03\x00\x0A\x00", b"\x40\x04\x00\x0A\x00\x00"] {
        parsed(Version::V5, bytes, |packet| assert_eq!(packet, Packet::PubAck(ack)));
    }
    let disconnect = Notice { reason: ReasonCode::Success, properties: Properties::default() };
    for bytes in [&b"\xE0\x00"[..], b"\xE0\x01\x00", b"\xE0\x02\x00\x00"] {
        parsed(Version::V5, bytes, |packet| assert_eq!(packet, Packet::Disconnect(disconnect)));
    }
    assert_eq!(encoded(Version::V3, &[Packet::Disconnect(disconnect)]), b"\xE0\x00");
}

/// A valid value of the property's type.
fn value(property: Property) -> Value<'static> {
    use Property::*;
    match property {
        PayloadFormatIndicator | RequestProblemInformation | RequestResponseInformation => Value::Byte(1),
        MaximumQos | RetainAvailable | WildcardSubscriptionAvailable => Value::Byte(0),
        SubscriptionIdentifierAvailable | SharedSubscriptionAvailable => Value::Byte(1),
        ServerKeepAlive | ReceiveMaximum | TopicAliasMaximum | TopicAlias => Value::U16(300),
        MessageExpiryInterval | SessionExpiryInterval | WillDelayInterval | MaximumPacketSize => {
            Value::U32(70_000)
        }
        SubscriptionIdentifier => Value::VarInt(VAR_INT_MAX),
        CorrelationData | AuthenticationData => Value::Binary(b"\x00\xFF"),
        UserProperty => Value::Pair("n", "v"),
        ContentType | ResponseTopic | AssignedClientIdentifier | AuthenticationMethod => Value::Text("t/u"),
        ResponseInformation | ServerReference | ReasonString => Value::Text("狼煙"),
    }
}

/// Table 2-4, inverted: the properties that each packet may have.
#[test]
fn properties_are_accepted_only_in_their_packets() {
    use Property::*;
    let message =
        [PayloadFormatIndicator, MessageExpiryInterval, ContentType, ResponseTopic, CorrelationData];
    let check = |holder: property::Holder, allowed: &[Property]| {
        for property in Property::ALL {
            let mut list = PropertyList::new();
            if *property == AuthenticationData {
                list.push(AuthenticationMethod, Value::Text("m"));
            }
            list.push(*property, value(*property));
            let mut bytes = Vec::new();
            list.properties().write(&mut bytes);
            let read = Properties::read(&mut reader::Reader::new(&bytes), holder);
            match allowed.contains(property) || *property == UserProperty {
                true => assert_eq!(read, Ok(list.properties()), "{property:?} in {holder:?}"),
                false => assert_eq!(read, Err(Violation::UnknownProperty), "{property:?} in {holder:?}"),
            }
            assert_eq!(list.properties().iter().last(), Some((*property, value(*property))));
        }
    };
    let packet = property::Holder::Packet;
    check(
        packet(PacketType::Connect),
        &[
            SessionExpiryInterval,
            AuthenticationMethod,
            AuthenticationData,
            RequestProblemInformation,
            RequestResponseInformation,
            ReceiveMaximum,
            TopicAliasMaximum,
            MaximumPacketSize,
        ],
    );
    check(
        packet(PacketType::ConnAck),
        &[
            SessionExpiryInterval,
            AssignedClientIdentifier,
            ServerKeepAlive,
            AuthenticationMethod,
            AuthenticationData,
            ResponseInformation,
            ServerReference,
            ReasonString,
            ReceiveMaximum,
            TopicAliasMaximum,
            MaximumQos,
            RetainAvailable,
            MaximumPacketSize,
            WildcardSubscriptionAvailable,
            SubscriptionIdentifierAvailable,
            SharedSubscriptionAvailable,
        ],
    );
    check(packet(PacketType::Publish), &[&message[..], &[SubscriptionIdentifier, TopicAlias]].concat());
    check(property::Holder::Will, &[&message[..], &[WillDelayInterval]].concat());
    for ack in [PacketType::PubAck, PacketType::PubRec, PacketType::PubRel, PacketType::PubComp] {
        check(packet(ack), &[ReasonString]);
    }
    check(packet(PacketType::Subscribe), &[SubscriptionIdentifier]);
    check(packet(PacketType::SubAck), &[ReasonString]);
    check(packet(PacketType::Unsubscribe), &[]);
    check(packet(PacketType::UnsubAck), &[ReasonString]);
    check(packet(PacketType::Disconnect), &[SessionExpiryInterval, ServerReference, ReasonString]);
    check(packet(PacketType::Auth), &[AuthenticationMethod, AuthenticationData, ReasonString]);
}

#[test]
fn only_two_properties_repeat() {
    use Property::*;
    for property in Property::ALL {
        let mut list = PropertyList::new();
        list.push(*property, value(*property));
        list.push(*property, value(*property));
        let mut bytes = Vec::new();
        list.properties().write(&mut bytes);
        let holders = [
            PacketType::Connect,
            PacketType::ConnAck,
            PacketType::Publish,
            PacketType::Subscribe,
            PacketType::Disconnect,
        ];
        let holders = holders.map(property::Holder::Packet).into_iter().chain([property::Holder::Will]);
        for holder in holders {
            let read = Properties::read(&mut reader::Reader::new(&bytes), holder);
            let repeats = *property == UserProperty
                || *property == SubscriptionIdentifier
                    && holder == property::Holder::Packet(PacketType::Publish);
            let refused = matches!(read, Err(Violation::RepeatedProperty | Violation::UnknownProperty));
            assert_eq!(refused, !repeats, "{property:?} in {holder:?}: {read:?}");
        }
    }
}

#[test]
fn announced_length_is_not_allocated() {
    let mut decoder = Decoder::new();
    let mut none = |_: Frame<'_>| ControlFlow::Continue(());
    // 200 MB announced, 1 byte sent.
    decoder.feed(&[0x30, 0xFF, 0xFF, 0xFF, 0x5F, 1], usize::MAX, &mut none).unwrap();
    assert!(decoder.held_bytes() < 64, "{}", decoder.held_bytes());
    let mut strict = Decoder::new();
    assert_eq!(strict.feed(&[0x30, 0xFF, 0x07], 1_025, &mut none), Err(Violation::TooBig), "1,026 bytes");
    assert!(strict.is_idle());
    assert_eq!(strict.feed(&[0x30, 0xFE, 0x07], 1_025, &mut none), Ok(()), "1,025 bytes");
    // Violations are found before the length is known.
    assert_eq!(Decoder::new().feed(&[0x01], 9, &mut none), Err(Violation::ReservedType));
    assert_eq!(Decoder::new().feed(&[0x80], 9, &mut none), Err(Violation::ReservedFlags));
}

#[test]
fn buffer_never_exceeds_the_packet() {
    let mut packet = vec![0x30, 0x80, 0x20];
    packet.resize(3 + 4_096, b'x');
    let mut decoder = Decoder::new();
    for piece in packet.chunks(7) {
        decoder.feed(piece, 5_000, &mut |_| ControlFlow::Continue(())).unwrap();
        assert!(decoder.held_bytes() <= packet.len() + 64);
    }
    assert!(decoder.is_idle() && decoder.held_bytes() == 0);
}

/// Renders a stream of packets as text, since frames do not outlive the buffer.
fn feed(bytes: &[u8], piece: usize) -> (Vec<String>, Result<(), Violation>) {
    let mut decoder = Decoder::new();
    let mut heard = Vec::new();
    for piece in bytes.chunks(piece.max(1)) {
        let result = decoder.feed(piece, 300, &mut |frame| {
            heard.push(format!("{frame:?} {:?} {:?}", frame.body, Packet::parse(Version::V5, frame)));
            ControlFlow::Continue(())
        });
        if result.is_err() {
            return (heard, result);
        }
    }
    (heard, Ok(()))
}

proptest! {
    #[test]
    fn splits_do_not_change_the_packets(
        types in prop::collection::vec((any::<u8>(), prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        tail in prop::collection::vec(any::<u8>(), 0..8),
        piece in 1_usize..20,
    ) {
        let mut bytes = Vec::new();
        for (first, body) in types {
            bytes.push(first);
            bytes.push(body.len() as u8);
            bytes.extend(body);
        }
        bytes.extend(tail);
        let whole = feed(&bytes, usize::MAX);
        prop_assert_eq!(feed(&bytes, piece), whole.clone());
        prop_assert_eq!(feed(&bytes, 1), whole);
    }

    #[test]
    fn packets_round_trip(
        text in "[^\0+#]{1,30}", more in "[^\0]{0,30}", binary in prop::collection::vec(any::<u8>(), 0..200),
        id in 1_u16.., number: u32, flag: bool, qos in 0_u8..3, reason: u8, raw_options: u8,
    ) {
        let mut list = PropertyList::new();
        list.push(Property::UserProperty, Value::Pair(&text, &more));
        let user = list.properties();
        let mut list = PropertyList::new();
        list.push(Property::UserProperty, Value::Pair(&more, ""));
        list.push(Property::MessageExpiryInterval, Value::U32(number));
        list.push(Property::CorrelationData, Value::Binary(&binary));
        list.push(Property::SubscriptionIdentifier, Value::VarInt(number % VAR_INT_MAX + 1));
        let of_message = list.properties();
        let none = Properties::default();
        let subscribe_options = SubscribeOptions::from_u8(raw_options).unwrap_or(options(qos));
        for version in [Version::V3, Version::V5] {
            let properties = if version == Version::V5 { user } else { none };
            let packet_id = if qos == 0 { 0 } else { id };
            round_trip(version, Packet::Publish(Publish {
                dup: flag && qos > 0, retain: flag,
                properties: if version == Version::V5 { of_message } else { none },
                ..publish(qos, packet_id, &text, &binary)
            }));
            let will = LastWill {
                qos: Qos::from_bits(qos).unwrap(), retain: flag, properties, topic: &text, payload: &binary,
            };
            round_trip(version, Packet::Connect(Connect {
                is_mqtt31: flag && version == Version::V3, clean_start: flag, client_id: &more, properties, will: flag.then_some(will),
                username: Some(&more), password: flag.then_some(&binary), ..connect(version)
            }));
            let filters = Subscribe::encode_filters(&[(&text, if version == Version::V5 { subscribe_options } else { options(qos) })]);
            round_trip(version, Packet::Subscribe(Subscribe::new(id, properties, &filters)));
            let filters = Subscribe::encode_bare(&[&text, &text]);
            round_trip(version, Packet::Unsubscribe(Subscribe::bare(id, properties, &filters)));
            round_trip(version, Packet::SubAck(SubAck { packet_id: id, properties, reasons: &[0x80, qos] }));
            round_trip(version, Packet::PingReq);
            round_trip(version, Packet::PingResp);
            let success = ReasonCode::Success;
            round_trip(version, Packet::ConnAck(ConnAck { session_present: flag, reason: success, properties }));
            round_trip(version, Packet::PubAck(Ack::success(id)));
        }
        round_trip(Version::V3, Packet::UnsubAck(SubAck { packet_id: id, properties: none, reasons: &[] }));
        round_trip(Version::V5, Packet::UnsubAck(SubAck { packet_id: id, properties: user, reasons: &[0x11] }));
        if let Some(reason) = ReasonCode::from_u8(reason) {
            let ack = Ack { packet_id: id, reason, properties: user };
            let disconnect = Notice { reason, properties: user };
            for packet in [
                Packet::PubAck(ack), Packet::PubRec(ack), Packet::PubRel(ack), Packet::PubComp(ack),
                Packet::Disconnect(disconnect), Packet::Auth(Notice { reason, properties: user }),
                Packet::ConnAck(ConnAck { session_present: false, reason, properties: user }),
            ] {
                if reason.is_allowed_in(packet.packet_type()) {
                    round_trip(Version::V5, packet);
                }
            }
        }
    }

    #[test]
    fn filters_match_level_by_level(filter in "[ab+]{0,2}(/[ab+]{0,2}){0,4}(/#)?", name in "[ab]{0,2}(/[ab]{0,2}){0,5}") {
        fn levels_match(filter: &[&str], name: &[&str]) -> bool {
            match (filter, name) {
                (["#"], _) | ([], []) => true,
                ([wanted, filter @ ..], [level, name @ ..]) => {
                    (*wanted == "+" || wanted == level) && levels_match(filter, name)
                }
                _ => false,
            }
        }
        let (wanted, levels): (Vec<_>, Vec<_>) = (filter.split('/').collect(), name.split('/').collect());
        prop_assert_eq!(filter_matches(&filter, &name), levels_match(&wanted, &levels));
    }
}

#[test]
fn one_packet_at_a_time_is_consumed_wherever_the_input_is_cut() {
    let input = [0xC0, 0, 0x30, 3, 0, 1, b'a', 0xC0, 0];
    for cut in 0..=input.len() {
        let (mut decoder, mut bodies, mut ends) = (Decoder::new(), Vec::new(), Vec::new());
        let mut at = 0;
        for piece in [&input[..cut], &input[cut..]] {
            let mut rest = piece;
            while !rest.is_empty() {
                let before = bodies.len();
                let consumed = decoder.feed_one(rest, 9, |frame| bodies.push(frame.body.to_vec())).unwrap();
                (at, rest) = (at + consumed, &rest[consumed..]);
                ends.extend((bodies.len() > before).then_some(at));
            }
        }
        assert_eq!((ends, decoder.is_idle()), (vec![2, 7, 9], true), "cut at {cut}");
        assert_eq!(bodies, [vec![], vec![0, 1, b'a'], vec![]], "cut at {cut}");
    }
}
