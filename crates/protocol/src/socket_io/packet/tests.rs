//! Packets: the specification's examples, vectors of the JavaScript parser, rejections of that parser and
//! ours, hostile numbers and lengths, round trips.

use proptest::prelude::*;

use super::*;
use crate::engine_io::Outgoing;
use crate::socket_io::encode;

const LIMITS: Limits = Limits { namespace_bytes: 20, attachments: 10, binary_bytes: 1000 };

fn parse(text: &str) -> Result<Packet<'_>, PacketError> {
    Packet::parse(text, &LIMITS)
}

#[track_caller]
fn check(
    text: &str,
    kind: Kind,
    attachments: usize,
    namespace: &str,
    id: Option<u64>,
    payload: Option<&str>,
) {
    assert_eq!(parse(text), Ok(Packet { kind, attachments, namespace, id, payload }));
}

#[test]
fn decodes_the_examples_of_the_specification() {
    use Kind::*;
    check("0", Connect, 0, "/", None, None);
    check(
        r#"0{"sid":"wZX3oN0bSVIhsaknAAAI"}"#,
        Connect,
        0,
        "/",
        None,
        Some(r#"{"sid":"wZX3oN0bSVIhsaknAAAI"}"#),
    );
    check("0/admin,", Connect, 0, "/admin", None, None);
    check(r#"0/admin,{"sid":"x"}"#, Connect, 0, "/admin", None, Some(r#"{"sid":"x"}"#));
    let error = r#"{"message":"Not authorized"}"#;
    check(&format!("4{error}"), ConnectError, 0, "/", None, Some(error));
    check(r#"2["foo"]"#, Event, 0, "/", None, Some(r#"["foo"]"#));
    check(r#"2/admin,["bar"]"#, Event, 0, "/admin", None, Some(r#"["bar"]"#));
    let one = r#"["baz",{"_placeholder":true,"num":0}]"#;
    check(&format!("51-{one}"), BinaryEvent, 1, "/", None, Some(one));
    let two = r#"["baz",{"_placeholder":true,"num":0},{"_placeholder":true,"num":1}]"#;
    check(&format!("52-/admin,{two}"), BinaryEvent, 2, "/admin", None, Some(two));
    check(r#"212["foo"]"#, Event, 0, "/", Some(12), Some(r#"["foo"]"#));
    check("312[]", Ack, 0, "/", Some(12), Some("[]"));
    check(r#"2/admin,13["foo"]"#, Event, 0, "/admin", Some(13), Some(r#"["foo"]"#));
    check(r#"3/admin,13["bar"]"#, Ack, 0, "/admin", Some(13), Some(r#"["bar"]"#));
    let ack = r#"["bar",{"_placeholder":true,"num":0}]"#;
    check(&format!("61-15{ack}"), BinaryAck, 1, "/", Some(15), Some(ack));
    check("1", Disconnect, 0, "/", None, None);
    check("1/admin,", Disconnect, 0, "/admin", None, None);
    // The comma may be omitted if nothing follows.
    check("0/random", Connect, 0, "/random", None, None);
    check("1/custom", Disconnect, 0, "/custom", None, None);
}

const fn packet(
    kind: Kind,
    attachments: usize,
    namespace: &'static str,
    id: Option<u64>,
    payload: Option<&'static str>,
) -> Packet<'static> {
    Packet { kind, attachments, namespace, id, payload }
}

const SAID: &str = r#"["say \"hi\"\n\u001e",null,[[]],"42[\"x\"]"]"#;
const AUTH: &str = "{\"pid\":\"p\",\"offset\":\"o\",\"token\":\"é\u{2028}\"}";
const DEEP: &str = r#"["bin",{"a":[{"_placeholder":true,"num":0},{"b":{"_placeholder":true,"num":1}}]},{"_placeholder":true,"num":2}]"#;
const ONE: &str = r#"[{"_placeholder":true,"num":0},"x"]"#;

/// The output of `socket.io-parser` 4.2.7 before the JSON, and its input.
const WRITTEN_BY_JAVASCRIPT: [(&str, Packet<'static>); 17] = [
    ("0", packet(Kind::Connect, 0, "/", None, None)),
    ("0", packet(Kind::Connect, 0, "/", None, Some(r#"{"token":"123"}"#))),
    ("0/admin,", packet(Kind::Connect, 0, "/admin", None, Some(AUTH))),
    ("0/a-b_c/d?x=1,", packet(Kind::Connect, 0, "/a-b_c/d?x=1", None, None)),
    ("1", packet(Kind::Disconnect, 0, "/", None, None)),
    ("1/admin,", packet(Kind::Disconnect, 0, "/admin", None, None)),
    ("2", packet(Kind::Event, 0, "/", None, Some(r#"["a",1,{}]"#))),
    ("2/test,1", packet(Kind::Event, 0, "/test", Some(1), Some(r#"["a",1,{}]"#))),
    ("20", packet(Kind::Event, 0, "/", Some(0), Some(SAID))),
    ("29007199254740991", packet(Kind::Event, 0, "/", Some(ACK_ID_MAX), Some(r#"["日本",1.5e+300,0,true]"#))),
    ("2", packet(Kind::Event, 0, "/", None, Some(r#"[7,"number name"]"#))),
    ("2", packet(Kind::Event, 0, "/", None, Some(r#"["lone","\ud800"]"#))),
    ("3/back,123", packet(Kind::Ack, 0, "/back", Some(123), Some(r#"["a",1,{}]"#))),
    ("30", packet(Kind::Ack, 0, "/", Some(0), Some("[]"))),
    ("4/admin,", packet(Kind::ConnectError, 0, "/admin", None, Some(r#"{"message":"x","data":{"code":1}}"#))),
    ("53-/deep,23", packet(Kind::BinaryEvent, 3, "/deep", Some(23), Some(DEEP))),
    ("61-7", packet(Kind::BinaryAck, 1, "/", Some(7), Some(ONE))),
];

#[test]
fn output_of_the_javascript_parser_round_trips() {
    for (head, packet) in WRITTEN_BY_JAVASCRIPT {
        let text = format!("{head}{}", packet.payload.unwrap_or_default());
        assert_eq!(Packet::parse(&text, &Limits::default()), Ok(packet));
        let mut written = Vec::new();
        encode::push_head(&mut written, packet.kind, packet.attachments, packet.namespace, packet.id);
        assert_eq!(String::from_utf8(written).unwrap(), format!("4{head}"));
    }
}

/// It also accepts packets that no client sends: a missing payload (SIO "Sending and receiving data"), an ack
/// without an id, a space or an exponent in a number. The specification permits none of these.
#[test]
fn input_only_the_javascript_parser_accepts_is_rejected() {
    for text in
        ["", "2", "3", "3[]", "312", "4", "2/", r#"2 ["x"]"#, "2\t[\"x\"]", r#"2 1["x"]"#, r#"51e0-["x"]"#]
    {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn event_has_a_name_and_arguments() {
    let event = |text: &str| {
        let packet = parse(text).unwrap();
        let event = packet.event().unwrap();
        (event.name.into_owned(), event.args.as_str().to_owned(), event.args.single().map(str::to_owned))
    };
    let check = |text: &str, name: &str, args: &str, single: Option<&str>| {
        assert_eq!(event(text), (name.to_owned(), args.to_owned(), single.map(str::to_owned)), "{text}");
    };
    check(r#"2["a"]"#, "a", "", None);
    check(r#"2["message",1,"2",{"3":[true]}]"#, "message", r#"1,"2",{"3":[true]}"#, None);
    check(r#"2[ "a" , {"b": "],"} ]"#, "a", r#"{"b": "],"}"#, Some(r#"{"b": "],"}"#));
    check("2[\"a\",\n7]", "a", "7", Some("7"));
    check(r#"2["\u0061\"",[1,2]]"#, "a\"", "[1,2]", Some("[1,2]"));
    check(r#"2[7,"x"]"#, "7", r#""x""#, Some(r#""x""#));
    check(r#"2[-1.5]"#, "-1.5", "", None);
    check(r#"2["lone","\ud800"]"#, "lone", r#""\ud800""#, Some(r#""\ud800""#));
    assert_eq!(parse("30[]").unwrap().event(), None);
    assert_eq!(parse(r#"30[1,"a"]"#).unwrap().args().as_str(), r#"1,"a""#);
    assert_eq!(parse("30[ ]").unwrap().args().as_str(), "");
}

#[test]
fn every_error_has_its_variant() {
    use PacketError::*;
    let check = |text: &str, error| assert_eq!(parse(text), Err(error), "{text:?}");
    for text in ["", "abc", "7[]", "-", "日", " 2", "\0"] {
        check(text, UnknownKind);
    }
    for text in [
        "5",
        r#"5["x"]"#,
        r#"5-["x"]"#,
        r#"5a-["x"]"#,
        r#"51.5-["x"]"#,
        r#"5 1-["x"]"#,
        r#"51e0-["x"]"#,
        r#"50-["x"]"#,
    ] {
        check(text, BadAttachments);
    }
    check(r#"5+1-["x"]"#, BadAttachments);
    check(r#"599999999999999999999999-["x"]"#, BadAttachments);
    check(r#"511-["x"]"#, TooManyAttachments);
    check("69007199254740991-1[]", TooManyAttachments);
    check(&format!("0/{},", "n".repeat(20)), LongNamespace);
    check(r#"29007199254740992["x"]"#, BadAckId);
    check(r#"212345678901234567890123["x"]"#, BadAckId);
    for text in ["012", "112", r#"412{"message":"x"}"#, "3[]", "61-[]"] {
        check(text, MisplacedAckId);
    }
    for text in [
        r#"2abc["x"]"#,
        r#"2-1["x"]"#,
        r#"21.5["x"]"#,
        r#"2["x""#,
        r#"2["x"]x"#,
        "2[,]",
        "2[1,]",
        "0{]",
        "2/a,b[1]",
        "2[\"\u{1e}\"]",
    ] {
        check(text, NotJson);
    }
    for text in [
        "2", "2{}", "2[]", "2[ ]", r#"2"x""#, "2null", "0[]", "0null", r#"0"x""#, "1[]", "1{}", "4",
        r#"4"x""#, "30{}", "312", "2/", "2/a",
    ] {
        check(text, BadPayload);
    }
    check(r#"2/a["x"]"#, BadPayload); // without a comma, everything is the namespace
    for text in ["2[null]", "2[{}]", "2[[]]", "2[true]", r#"2["\ud800"]"#] {
        check(text, BadEventName);
    }
    for name in RESERVED {
        check(&format!("2[\"{name}\",1]"), BadEventName);
    }
    check(r#"2["c\u006fnnect"]"#, BadEventName);
}

#[test]
fn deep_json_is_passed_through() {
    let deep = format!("2[\"a\",{}{}]", "[".repeat(50_000), "]".repeat(50_000));
    assert!(parse(&deep).is_ok());
}

#[test]
fn ids_are_limited_to_javascript_integers() {
    check(r#"29007199254740991["x"]"#, Kind::Event, 0, "/", Some(ACK_ID_MAX), Some(r#"["x"]"#));
    check(r#"2007["x"]"#, Kind::Event, 0, "/", Some(7), Some(r#"["x"]"#));
}

proptest! {
    #[test]
    fn packets_round_trip(
        kind in prop_oneof![Just(Kind::Event), Just(Kind::Ack), Just(Kind::BinaryEvent), Just(Kind::BinaryAck)],
        namespace in "(/[a-z0-9_/?=-]{0,10})",
        id in 0..=ACK_ID_MAX,
        attachments in 1usize..=10,
        name in "[a-z\"\\\\日]{1,8}x",
        arg in "\\PC{0,20}",
    ) {
        let attachments = if kind.is_binary() { attachments } else { 0 };
        let payload = serde_json::json!([name, {"a": arg}]).to_string();
        let mut text = Vec::new();
        encode::push_head(&mut text, kind, attachments, &namespace, Some(id));
        text.extend_from_slice(payload.as_bytes());
        let text = String::from_utf8(text).unwrap();
        let read = parse(&text[1..]).unwrap();
        prop_assert_eq!(read, Packet { kind, attachments, namespace: &namespace, id: Some(id), payload: Some(&payload) });
        if let Some(event) = read.event() {
            prop_assert_eq!(&*event.name, name.as_str());
            let arg: serde_json::Value = serde_json::from_str(event.args.single().unwrap()).unwrap();
            prop_assert_eq!(&arg["a"], &serde_json::Value::String(arg["a"].as_str().unwrap().to_owned()));
        }
    }

    #[test]
    fn any_text_parses_or_fails(
        text in r#"[0-7]{0,2}-?(/[a,]{0,3})?[0-9.]{0,3}([\[\]{}":,a\\ 0]{0,12}|\["a",[\[\]{}":,a\\ 0]{0,8}\])"#,
    ) {
        if let Ok(packet) = parse(&text) {
            // An accepted packet stays equal when it is encoded again.
            let mut again = Vec::new();
            encode::push_head(&mut again, packet.kind, packet.attachments, packet.namespace, packet.id);
            again.extend_from_slice(packet.payload.unwrap_or_default().as_bytes());
            prop_assert_eq!(Packet::parse(std::str::from_utf8(&again[1..]).unwrap(), &LIMITS), Ok(packet));
            let _ = (packet.event(), packet.args().single());
        }
    }
}

#[test]
fn own_packets_are_parsed() {
    let Outgoing::Text(text) = encode::connect_error("/a", "m", None) else { panic!("text") };
    check(
        std::str::from_utf8(&text[1..]).unwrap(),
        Kind::ConnectError,
        0,
        "/a",
        None,
        Some(r#"{"message":"m"}"#),
    );
}
