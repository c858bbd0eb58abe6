//! A table of malformed packets and their violations, in both versions where both define the rule.

use super::peer::each_frame;
use crate::mqtt::Violation::*;
use crate::mqtt::*;

#[track_caller]
fn check(version: Version, bytes: &[u8], expected: Violation) {
    let mut heard = None;
    each_frame(bytes, |frame| {
        heard = Some(Packet::parse(version, frame).map(|packet| format!("{packet:?}")))
    });
    assert_eq!(heard, Some(Err(expected)), "{bytes:02x?}");
}

/// Wraps a body of less than 128 bytes in a packet.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    [&[first, body.len() as u8], body].concat()
}

#[test]
fn connect() {
    let connect = |rest: &[u8]| packet(0x10, &[b"\x00\x04MQTT", rest].concat());
    let three = |rest: &[u8], wrong| check(Version::V3, &connect(&[b"\x04", rest].concat()), wrong);
    let five = |rest: &[u8], wrong| check(Version::V3, &connect(&[b"\x05", rest].concat()), wrong);
    check(Version::V3, &packet(0x10, b"\x00\x06MQIsdq\x03\x02\x00\x3C\x00\x01c"), ProtocolName);
    check(Version::V3, &packet(0x10, b"\x00\x06MQIsdp\x04\x02\x00\x3C\x00\x01c"), ProtocolLevel);
    check(Version::V3, &packet(0x10, b"\x00\x06MQIsdp\x05\x02\x00\x3C\x00\x01c"), ProtocolLevel);
    check(Version::V3, &packet(0x10, b"\x00\x04MQTt\x04\x02\x00\x3C\x00\x01c"), ProtocolName);
    check(Version::V3, &connect(b"\x03\x02\x00\x3C\x00\x01c"), ProtocolLevel);
    check(Version::V3, &connect(b"\x06\x02\x00\x3C\x00\x01c"), ProtocolLevel);
    check(Version::V3, &connect(b"\x84\x02\x00\x3C\x00\x01c"), ProtocolLevel);
    three(b"\x03\x00\x3C\x00\x01c", ConnectReserved);
    three(b"\x0A\x00\x3C\x00\x01c", WillFlags); // will QoS without a will
    three(b"\x22\x00\x3C\x00\x01c", WillFlags); // will retain without a will
    three(b"\x1E\x00\x3C\x00\x01c\x00\x01w\x00\x00", WillFlags); // will QoS 3
    three(b"\x42\x00\x3C\x00\x01c\x00\x01p", PasswordWithoutUser);
    three(b"\x06\x00\x3C\x00\x01c\x00\x02w#\x00\x00", WillTopicMalformed);
    three(b"\x06\x00\x3C\x00\x01c\x00\x00\x00\x00", WillTopicMalformed);
    three(b"\x02\x00\x3C\x00\x01\xFF", InvalidUtf8);
    three(b"\x02\x00\x3C\x00\x01\x00", NulInString);
    three(b"\x02\x00\x3C\x00\x01cx", TrailingBytes);
    three(b"\x82\x00\x3C\x00\x01c", Truncated); // the user name is missing
    three(b"\x02\x00", Truncated);
    five(b"\x02\x00\x3C\x03\x21\x00\x00\x00\x01c", PropertyValue); // receive maximum 0
    five(b"\x02\x00\x3C\x05\x27\x00\x00\x00\x00\x00\x01c", PropertyValue); // maximum packet size 0
    five(b"\x02\x00\x3C\x02\x17\x02\x00\x01c", PropertyValue);
    five(b"\x02\x00\x3C\x02\x19\x02\x00\x01c", PropertyValue);
    five(b"\x02\x00\x3C\x06\x22\x00\x01\x22\x00\x01\x00\x01c", RepeatedProperty);
    five(b"\x02\x00\x3C\x04\x16\x00\x01a\x00\x01c", AuthDataWithoutMethod);
    five(b"\x02\x00\x3C\x02\x01\x00\x00\x01c", UnknownProperty); // a property of another packet
    five(b"\x02\x00\x3C\x02\x7F\x00\x00\x01c", UnknownProperty);
    five(b"\x02\x00\x3C\x7F\x00\x01c", Truncated); // properties longer than the packet
    five(b"\x02\x00\x3C\x02\x22\x00\x00\x01c", Truncated); // a property longer than the properties
    five(b"\x02\x00\x3C\x80\x00\x00\x01c", LengthNotMinimal);
    five(b"\x02\x00\x3C\x80\x80\x80\x80\x00\x01c", LengthTooLong);
    five(b"\x06\x00\x3C\x00\x00\x01c\x05\x11\x00\x00\x00\x01\x00\x01w\x00\x00", UnknownProperty);
}

#[test]
fn publish() {
    for version in [Version::V3, Version::V5] {
        check(version, &packet(0x38, b"\x00\x01a\x00"), DupAtQosZero);
        check(version, &packet(0x30, b"\x00\x03a/+\x00"), TopicName);
        check(version, &packet(0x30, b"\x00\x01#\x00"), TopicName);
        check(version, &packet(0x32, b"\x00\x01a\x00\x00\x00"), NoPacketId);
        check(version, &packet(0x30, b"\x00\x00\x00"), NoTopic);
        check(version, &packet(0x30, b"\x00\x05a"), Truncated);
        check(version, &packet(0x32, b"\x00\x01a\x00"), Truncated);
        check(version, &packet(0x30, b"\x00\x02\xED\xA0"), InvalidUtf8);
    }
    let five = |body: &[u8], wrong| check(Version::V5, &packet(0x30, body), wrong);
    five(b"\x00\x01a\x03\x23\x00\x00", TopicAliasZero);
    five(b"\x00\x01a\x02\x01\x02", PropertyValue);
    five(b"\x00\x01a\x04\x08\x00\x01#", ResponseTopic);
    five(b"\x00\x01a\x03\x08\x00\x00", ResponseTopic);
    five(b"\x00\x01a\x02\x0B\x00", PropertyValue);
    five(b"\x00\x01a\x04\x01\x01\x01\x01", RepeatedProperty);
    five(b"\x00\x01a\x05\x11\x00\x00\x00\x01", UnknownProperty);
    five(b"\x00\x01a", Truncated); // the length of the properties is missing
    // A length that is not minimal: MQTT 3.1.1 does not forbid it.
    check(Version::V5, b"\x30\x83\x00\x00\x01a", LengthNotMinimal);
    each_frame(b"\x30\x83\x00\x00\x01a", |frame| assert!(Packet::parse(Version::V3, frame).is_ok()));
}

#[test]
fn acknowledgements() {
    for first in [0x40, 0x50, 0x62, 0x70] {
        for version in [Version::V3, Version::V5] {
            check(version, &packet(first, b"\x00\x00"), NoPacketId);
            check(version, &packet(first, b"\x00"), Truncated);
        }
        check(Version::V3, &packet(first, b"\x00\x01\x00"), TrailingBytes);
        check(Version::V5, &packet(first, b"\x00\x01\x01"), ReasonUnknown);
        check(Version::V5, &packet(first, b"\x00\x01\x00\x00x"), TrailingBytes);
        check(Version::V5, &packet(first, b"\x00\x01\x00\x02\x11\x00"), UnknownProperty);
    }
    check(Version::V5, &packet(0x40, b"\x00\x01\x92"), ReasonUnknown);
    check(Version::V5, &packet(0x62, b"\x00\x01\x80"), ReasonUnknown);
}

#[test]
fn subscriptions() {
    for (version, none) in [(Version::V3, &b""[..]), (Version::V5, b"\x00")] {
        let subscribe = |rest: &[u8]| packet(0x82, &[b"\x00\x01", none, rest].concat());
        check(version, &subscribe(b""), NoFilters);
        check(version, &subscribe(b"\x00\x00\x00"), EmptyFilter);
        check(version, &subscribe(b"\x00\x01a"), Truncated);
        check(version, &subscribe(b"\x00\x01a\x03"), SubscribeOptions);
        check(version, &subscribe(b"\x00\x01a\x00\x00\x01b\x40"), SubscribeOptions);
        check(version, &subscribe(b"\x00\x01a\x30"), SubscribeOptions);
        let unsubscribe = |rest: &[u8]| packet(0xA2, &[b"\x00\x01", none, rest].concat());
        check(version, &unsubscribe(b""), NoFilters);
        check(version, &unsubscribe(b"\x00\x00"), EmptyFilter);
        check(version, &unsubscribe(b"\x00\x02a"), Truncated);
        check(version, &packet(0x82, &[b"\x00\x00", none, b"\x00\x01a\x00"].concat()), NoPacketId);
        check(version, &packet(0xA2, &[b"\x00\x00", none, b"\x00\x01a"].concat()), NoPacketId);
        check(version, &packet(0x90, &[b"\x00\x01", none].concat()), NoReasons);
        check(version, &packet(0x90, &[b"\x00\x01", none, b"\x03"].concat()), ReasonUnknown);
    }
    check(Version::V3, &packet(0x82, b"\x00\x01\x00\x01a\x04"), SubscribeOptions); // options of MQTT 5
    check(Version::V5, &packet(0x82, b"\x00\x01\x00\x00\x0A$share/g/t\x04"), NoLocalShared);
    check(Version::V5, &packet(0x82, b"\x00\x01\x02\x0B\x00\x00\x01a\x00"), PropertyValue);
    check(Version::V5, &packet(0x82, b"\x00\x01\x04\x0B\x01\x0B\x01\x00\x01a\x00"), RepeatedProperty);
    check(Version::V5, &packet(0xA2, b"\x00\x01\x02\x0B\x01\x00\x01a"), UnknownProperty);
    check(Version::V3, &packet(0xB0, b"\x00\x01\x00"), TrailingBytes);
    check(Version::V5, &packet(0xB0, b"\x00\x01\x00\x01"), ReasonUnknown);
}

#[test]
fn the_others() {
    for version in [Version::V3, Version::V5] {
        check(version, &packet(0xC0, b"x"), TrailingBytes);
        check(version, &packet(0xD0, b"x"), TrailingBytes);
        check(version, &packet(0x20, b"\x02\x00\x00"), ConnAckFlags);
    }
    check(Version::V3, &packet(0xE0, b"\x00"), TrailingBytes);
    check(Version::V3, &packet(0xF0, b""), ReservedType);
    check(Version::V5, &packet(0xE0, b"\x01"), ReasonUnknown);
    check(Version::V5, &packet(0xE0, b"\x00\x02\x21\x00"), UnknownProperty);
    check(Version::V5, &packet(0xF0, b"\x80"), ReasonUnknown);
    check(Version::V5, &packet(0xF0, b"\x18\x03\x16\x00\x00"), AuthDataWithoutMethod);
    check(Version::V3, &packet(0x20, b"\x00\x06"), ReasonUnknown);
    check(Version::V3, &packet(0x20, b"\x01\x05"), ConnAckFlags);
    check(Version::V5, &packet(0x20, b"\x01\x80\x00"), ConnAckFlags);
    check(Version::V5, &packet(0x20, b"\x00\x92\x00"), ReasonUnknown);
    check(Version::V5, &packet(0x20, b"\x00\x00"), Truncated);
}
