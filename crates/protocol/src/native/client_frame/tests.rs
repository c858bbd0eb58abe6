//! Every valid frame, and every kind of error with its exact message, since client developers read them. One
//! test puts a secret into every place where a value can occur and checks that no message contains it.

use noroshi_types::{Epoch, Position, limits};
use proptest::prelude::*;

use super::*;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn topic(name: &str) -> Topic {
    Topic::parse(name).unwrap()
}

#[track_caller]
fn check(text: &str, expected: ClientFrame) {
    assert_eq!(parse_client_frame(text), Ok(expected));
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    assert_eq!(
        parse_client_frame(text).map_err(|error| error.to_string()),
        Err(expected.to_owned()),
        "{text}"
    );
}

#[test]
fn every_valid_frame_is_parsed() {
    let id = NotificationId::parse(ID).unwrap();
    check(r#"{"t":"connect","token":"abc"}"#, ClientFrame::Connect { token: Token::new("abc") });
    check(r#"{"token":"a\u0062c","t":"token"}"#, ClientFrame::Token { token: Token::new("abc") });
    check(&format!(r#"{{"t":"ack","ids":["{ID}","{ID}"]}}"#), ClientFrame::Ack { ids: vec![id, id] });
    check(r#"{"t":"ack","ids":[]}"#, ClientFrame::Ack { ids: vec![] });
    check(r#"{"t":"presence","state":"active"}"#, ClientFrame::Presence(Presence::Active));
    check(r#"{"t":"presence","state":"idle"}"#, ClientFrame::Presence(Presence::Idle));
    check(r#"{"t":"unsub","topics":["news"]}"#, ClientFrame::Unsub { topics: vec![topic("news")] });
    check(" {\n\"t\" : \"ping\" }\n", ClientFrame::Ping);
    check(
        r#"{"t":"sub","since":{"news":{"epoch":"0000002a","offset":41}},"topics":["news","日本","news"]}"#,
        ClientFrame::Sub {
            topics: vec![topic("news"), topic("日本")],
            since: vec![(topic("news"), Since::Position(Position { epoch: Epoch(42), offset: 41 }))],
        },
    );
    check(
        r#"{"t":"sub","topics":["news"],"since":{"news":null}}"#,
        ClientFrame::Sub { topics: vec![topic("news")], since: vec![(topic("news"), Since::Now)] },
    );
    let plain = ClientFrame::Sub { topics: vec![topic("news")], since: vec![] };
    check(r#"{"t":"sub","topics":["news"]}"#, plain);
}

#[test]
fn json_errors_state_their_position() {
    check_error("", "not JSON: EOF while parsing a value at line 1 column 0");
    check_error(r#"{"t":"ping""#, "not JSON: EOF while parsing an object at line 1 column 11");
    check_error(r#"{"t":"ping"} x"#, "not JSON: trailing characters at line 1 column 14");
    check_error(r#"{"t":"ping",}"#, "not JSON: trailing comma at line 1 column 13");
    for other in ["[]", "1", "null", r#""ping""#] {
        check_error(other, "a frame must be a JSON object");
    }
}

#[test]
fn unknown_types_and_fields_are_rejected() {
    check_error("{}", "`t` is missing");
    check_error(r#"{"t":"publish"}"#, "`t`: unknown frame type `publish`");
    check_error(r#"{"t":"ping","x":1}"#, "unknown field `x`");
    check_error(r#"{"t":"ping","t":"ping"}"#, "`t` occurs twice");
    check_error(r#"{"t":"ping","ids":[]}"#, "`ids` does not belong to a frame of type `ping`");
    check_error(
        r#"{"t":"unsub","topics":[],"since":{}}"#,
        "`since` does not belong to a frame of type `unsub`",
    );
    check_error(&format!(r#"{{"{}":1}}"#, "日".repeat(100)), &format!("unknown field `{}`", "日".repeat(21)));
}

#[test]
fn missing_fields_and_wrong_types_are_rejected() {
    check_error(r#"{"t":"connect"}"#, "`token` is missing");
    check_error(r#"{"t":"token"}"#, "`token` is missing");
    check_error(r#"{"t":"ack"}"#, "`ids` is missing");
    check_error(r#"{"t":"presence"}"#, "`state` is missing");
    check_error(r#"{"t":"sub"}"#, "`topics` is missing");
    check_error(r#"{"t":"unsub"}"#, "`topics` is missing");
    check_error(r#"{"t":1}"#, "`t` must be a string, the type of the frame");
    check_error(r#"{"t":"ack","ids":"x"}"#, "`ids` must be an array of notification ids");
    check_error(r#"{"t":"ack","ids":[1]}"#, "`ids` must be an array of notification ids");
    check_error(r#"{"t":"ack","ids":null}"#, "`ids` must be an array of notification ids");
    check_error(
        &format!(r#"{{"t":"ack","ids":["{ID}","n1"]}}"#),
        "`ids[1]`: a notification id must be a UUID",
    );
    check_error(r#"{"t":"presence","state":"offline"}"#, r#"`state` must be "active" or "idle""#);
    check_error(r#"{"t":"sub","topics":{"a":1}}"#, "`topics` must be an array of strings");
    check_error(
        r#"{"t":"sub","topics":["a","$everyone"]}"#,
        "`topics[1]`: a topic must not start with '$', which is reserved",
    );
    check_error(r#"{"t":"connect","token":""}"#, "`token` is empty");
}

#[test]
fn since_contains_a_position_per_topic() {
    let since = |since: &str, expected: &str| {
        check_error(&format!(r#"{{"t":"sub","topics":["a"],"since":{since}}}"#), expected);
    };
    let shape = "`since` must be an object of topics, each with a string `epoch` and a whole number `offset`, or with `null`";
    since("[]", shape);
    since(r#"{"a":41}"#, shape);
    since(r#"{"a":{"epoch":42,"offset":1}}"#, shape);
    since(r#"{"a":{"epoch":"0000002a","offset":-1}}"#, shape);
    since(r#"{"a":{"epoch":"0000002a","offset":1.5}}"#, shape);
    since(r#"{"a":{"epoch":"2a","offset":1}}"#, "`since`: an epoch must be 8 hex digits");
    since(r#"{"a":{"offset":1}}"#, "`epoch` is missing in `since`");
    since(r#"{"a":{"epoch":"0000002a"}}"#, "`offset` is missing in `since`");
    since(r#"{"a":{"epoch":"0000002a","offset":1,"x":1}}"#, "unknown field `x` in `since`");
    since(r#"{"a#":{}}"#, "`since`: a topic must not contain control characters, '+' or '#'");
    let place = r#"{"epoch":"0000002a","offset":1}"#;
    let stray = "`since` names a topic twice, or a topic that is not in `topics`";
    since(&format!(r#"{{"b":{place}}}"#), stray);
    since(&format!(r#"{{"a":{place},"a":{place}}}"#), stray);
}

#[test]
fn lists_are_limited() {
    let list = |item: &str, count: usize| vec![format!("\"{item}\""); count].join(",");
    let ack = |count| format!(r#"{{"t":"ack","ids":[{}]}}"#, list(ID, count));
    assert!(parse_client_frame(&ack(limits::ACK_IDS_MAX)).is_ok());
    check_error(&ack(limits::ACK_IDS_MAX + 1), "`ids` has more than 1000 entries");
    let unsub = |count| format!(r#"{{"t":"unsub","topics":[{}]}}"#, list("a", count));
    assert!(parse_client_frame(&unsub(limits::TOPICS_PER_DEVICE_MAX)).is_ok());
    check_error(&unsub(limits::TOPICS_PER_DEVICE_MAX + 1), "`topics` has more than 1000 entries");
    let since = vec![r#""a":{"epoch":"0000002a","offset":1}"#; 1001].join(",");
    check_error(
        &format!(r#"{{"t":"sub","topics":["a"],"since":{{{since}}}}}"#),
        "`since` has more than 1000 entries",
    );
}

#[test]
fn errors_never_contain_values() {
    for wrong in [
        r#"{"t":"connect","token":["s3cret"]}"#,
        r#"{"t":"ack","ids":"s3cret"}"#,
        r#"{"t":"ack","ids":["s3cret"]}"#,
        r#"{"t":"presence","state":"s3cret"}"#,
        r#"{"t":"sub","topics":"s3cret"}"#,
        r#"{"t":"sub","topics":["$s3cret"]}"#,
        r#"{"t":"sub","topics":[],"since":"s3cret"}"#,
        r#"{"t":"sub","topics":[],"since":{"a":{"epoch":"s3cret"}}}"#,
        r#"{"t":"connect","token":"s3cret"#,
        r#"{"t":"connect","token":"s3cret\x"}"#,
        r#"{"t":"ping","token":"s3cret"}"#,
        r#""s3cret""#,
    ] {
        let error = parse_client_frame(wrong).expect_err(wrong);
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
    let frame = parse_client_frame(r#"{"t":"connect","token":"s3cret"}"#).unwrap();
    assert_eq!(format!("{frame:?}"), "Connect { token: Token(…) }");
}

proptest! {
    #[test]
    fn any_text_parses_or_fails(
        text in r#"[{}\[\]":,a-c0-9 ]{0,30}|\{"(t|token|ids|state|topics|since)":("(ping|sub|ack)"|\[("a")?\]|\{("a":\{\})?\}|1)(,"t":"(sub|ack)")?\}"#,
    ) {
        let _ = parse_client_frame(&text);
    }

    #[test]
    fn subscriptions_round_trip(names in proptest::collection::hash_set("[a-z\"\\\\日]{1,8}", 0..8), offset: u64) {
        let topics: Vec<_> = names.iter().map(|name| topic(name)).collect();
        let since: serde_json::Map<_, _> = names
            .iter()
            .map(|name| (name.clone(), serde_json::json!({"epoch": "0000002a", "offset": offset})))
            .collect();
        let frame = serde_json::json!({"t": "sub", "topics": names, "since": since}).to_string();
        let Ok(ClientFrame::Sub { topics: read, since }) = parse_client_frame(&frame) else {
            panic!("a subscription: {frame}")
        };
        prop_assert_eq!(&read, &topics);
        prop_assert_eq!(since.len(), topics.len());
        let expected = Since::Position(Position { epoch: Epoch(42), offset });
        prop_assert!(since.iter().all(|(_, position)| *position == expected));
    }
}
