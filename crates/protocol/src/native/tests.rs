//! The frames of the service, compared byte by byte with the contract, and parsed by our own clients. The
//! exact text matters: third-party clients depend on every field, and a fan-out is compared by its bytes.

use noroshi_types::{
    AppId, CloseReason, DeviceId, Epoch, JsonText, Message, NotificationId, Position, Recovered, SessionId,
    Timestamp, Topic, TopicPosition, Urgency, When,
};
use proptest::prelude::*;

use super::*;

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

fn message() -> Message {
    Message {
        id: NotificationId::parse(ID).unwrap(),
        app: AppId(1),
        when: When::Connected,
        urgency: Urgency::Normal,
        topic: None,
        notification: None,
        data: None,
        sent_at: Timestamp(1_700_000_000_123),
        expires_at: Timestamp(1_800_000_000_000),
        push_waits: false,
        waits_for_use: false,
        category: None,
    }
}

fn place(topic: Topic) -> Option<TopicPosition> {
    Some(TopicPosition { topic, position: Position { epoch: Epoch(0xABCD), offset: 42 } })
}

#[track_caller]
fn check(message: &Message, expected: &str) {
    assert_eq!(String::from_utf8(message_json(message)).unwrap(), expected);
}

#[track_caller]
fn check_written(write: impl FnOnce(&mut Vec<u8>), expected: &str) {
    let mut out = b"before ".to_vec();
    write(&mut out);
    assert_eq!(String::from_utf8(out).unwrap(), format!("before {expected}"));
}

#[test]
fn message_contains_only_the_fields_that_apply() {
    check(&message(), &format!(r#"{{"t":"msg","id":"{ID}","sent_at":"2023-11-14T22:13:20.123Z"}}"#));
    let full = Message {
        when: When::Stored,
        topic: place(Topic::parse("news").unwrap()),
        notification: Some(JsonText::from_valid(r#"{"title":"狼煙 \"n\""}"#)),
        data: Some(JsonText::from_valid("[1, null]")),
        ..message()
    };
    check(
        &full,
        &format!(
            r#"{{"t":"msg","id":"{ID}","topic":"news","epoch":"0000abcd","offset":42,"notification":{{"title":"狼煙 \"n\""}},"data":[1, null],"ack":true,"sent_at":"2023-11-14T22:13:20.123Z"}}"#
        ),
    );
    let everyone = Message { topic: place(Topic::everyone()), data: full.data.clone(), ..message() };
    check(
        &everyone,
        &format!(
            r#"{{"t":"msg","id":"{ID}","topic":"$everyone","epoch":"0000abcd","offset":42,"data":[1, null],"sent_at":"2023-11-14T22:13:20.123Z"}}"#
        ),
    );
}

#[test]
fn items_are_reported_with_counts() {
    let label = |name: &str| noroshi_types::Label::parse(name).expect(name);
    let mut unread = noroshi_types::ItemCounts::default();
    unread.add(None, 1);
    unread.add(Some(label("news")), 2);
    unread.add(Some(label("orders")), 3);
    let id = NotificationId::parse(ID).unwrap();
    let mut notice = noroshi_types::ItemsNotice {
        event: noroshi_types::ItemEvent::Read,
        ids: vec![id, id],
        more: true,
        unread,
    };
    check_written(
        |out| items(out, &notice),
        &format!(
            r#"{{"t":"items","event":"read","ids":["{ID}","{ID}"],"more":true,"unread":6,"categories":{{"news":2,"orders":3}}}}"#
        ),
    );
    let mut text = Vec::new();
    items(&mut text, &notice);
    let text = String::from_utf8(text).unwrap();
    assert!(matches!(
        parse_server_frame(&text),
        Ok(ServerFrame::Items { event, unread: 6 }) if event == "read"
    ));
    (notice.ids, notice.more, notice.unread) = (Vec::new(), false, Default::default());
    check_written(
        |out| items(out, &notice),
        r#"{"t":"items","event":"read","ids":[],"unread":0,"categories":{}}"#,
    );
}

#[test]
fn topics_are_escaped() {
    let odd = Message { topic: place(Topic::parse(r#"a"b\c"#).unwrap()), ..message() };
    check(
        &odd,
        &format!(
            r#"{{"t":"msg","id":"{ID}","topic":"a\"b\\c","epoch":"0000abcd","offset":42,"sent_at":"2023-11-14T22:13:20.123Z"}}"#
        ),
    );
}

#[test]
fn message_is_one_line_for_any_provider_json() {
    let pretty = Message {
        notification: Some(JsonText::from_valid("{\r\n  \"title\": \"a\\nb\"\n}")),
        data: Some(JsonText::from_valid("[\n1,\r2\n]")),
        ..message()
    };
    check(
        &pretty,
        &format!(
            r#"{{"t":"msg","id":"{ID}","notification":{{    "title": "a\nb" }},"data":[ 1, 2 ],"sent_at":"2023-11-14T22:13:20.123Z"}}"#
        ),
    );
}

#[test]
fn other_frames_match_the_contract() {
    let device = DeviceId::parse(r#"d"1"#).unwrap();
    check_written(
        |out| ready(out, &device, SessionId(0xBEEF), 240),
        r#"{"t":"ready","device":"d\"1","session":"000000000000beef","ping_s":240}"#,
    );
    let news = Topic::parse("news").unwrap();
    let mut report = Recovered { topic: news.clone(), complete: true, position: None };
    check_written(|out| recovered(out, &report), r#"{"t":"recovered","topic":"news","complete":true}"#);
    report.position = Some(Position { epoch: Epoch(42), offset: 7 });
    check_written(
        |out| recovered(out, &report),
        r#"{"t":"recovered","topic":"news","complete":true,"epoch":"0000002a","offset":7}"#,
    );
    check_written(
        |out| error(out, "bad_frame", "`x`\n"),
        r#"{"t":"error","code":"bad_frame","message":"`x`\n"}"#,
    );
    check_written(
        |out| close(out, CloseReason::Drain, 1500),
        r#"{"t":"close","reason":"drain","reconnect":true,"after_ms":1500}"#,
    );
    check_written(
        |out| close(out, CloseReason::Replaced, 0),
        r#"{"t":"close","reason":"replaced","reconnect":false,"after_ms":0}"#,
    );
    check_written(pong, r#"{"t":"pong"}"#);
}

fn read<T>(write: impl FnOnce(&mut Vec<u8>), then: impl FnOnce(ServerFrame<'_>) -> T) -> T {
    let mut out = Vec::new();
    write(&mut out);
    then(parse_server_frame(std::str::from_utf8(&out).unwrap()).unwrap())
}

#[test]
fn clients_parse_every_frame() {
    let device = DeviceId::parse("d\"1").unwrap();
    read(
        |out| ready(out, &device, SessionId(1), 240),
        |frame| {
            assert!(matches!(frame, ServerFrame::Ready { device, session, ping_s: 240 }
                if device == "d\"1" && session == "0000000000000001"));
        },
    );
    let news = Topic::parse("news").unwrap();
    read(
        |out| recovered(out, &Recovered { topic: news, complete: false, position: None }),
        |frame| {
            assert!(matches!(frame, ServerFrame::Recovered { topic, complete: false } if topic == "news"))
        },
    );
    read(
        |out| error(out, "c", "m"),
        |frame| {
            assert!(matches!(frame, ServerFrame::Error { code, message } if code == "c" && message == "m"))
        },
    );
    read(
        |out| close(out, CloseReason::Expired, 9),
        |frame| {
            assert!(matches!(frame, ServerFrame::Close { reason, reconnect: false, after_ms: 9 }
                if reason == "expired"));
        },
    );
    read(pong, |frame| assert!(matches!(frame, ServerFrame::Pong)));
}

#[test]
fn clients_borrow_messages_and_ignore_unknown_fields() {
    let text = format!(r#"{{"t":"msg","new":[1],"id":"{ID}","data":{{"a":1}},"sent_at":"s"}}"#);
    let Ok(ServerFrame::Msg(msg)) = parse_server_frame(&text) else { panic!("a message") };
    assert!(matches!(msg.id, std::borrow::Cow::Borrowed(ID)));
    assert_eq!(msg.data.map(|data| data.get()), Some(r#"{"a":1}"#));
    assert!(!msg.ack && msg.topic.is_none() && msg.notification.is_none());
    assert!(matches!(parse_server_frame(r#"{"t":"poke"}"#), Ok(ServerFrame::Unknown(t)) if t == "poke"));
    assert!(matches!(parse_server_frame("{"), Err(ServerFrameError::Malformed(_))));
    let missing = parse_server_frame(r#"{"t":"msg","sent_at":"s"}"#).map(drop);
    assert_eq!(missing, Err(ServerFrameError::Missing { frame: "msg", field: "id" }));
}

proptest! {
    #[test]
    fn messages_round_trip(topic in proptest::option::of("[a-z\"\\\\/日]{1,20}"), value in "\\PC{0,40}", stored: bool) {
        let data = serde_json::to_string_pretty(&serde_json::json!({"a": [value, {}], "b": null})).unwrap();
        let sent = Message {
            when: if stored { When::Stored } else { When::Active },
            topic: topic.as_deref().and_then(|topic| place(Topic::parse(topic).unwrap())),
            data: Some(JsonText::from_valid(data.clone())),
            ..message()
        };
        let json = message_json(&sent);
        prop_assert!(!json.contains(&b'\n'));
        let Ok(ServerFrame::Msg(read)) = parse_server_frame(std::str::from_utf8(&json).unwrap()) else {
            panic!("a message")
        };
        prop_assert_eq!(read.topic.as_deref(), topic.as_deref());
        prop_assert_eq!(read.offset, topic.map(|_| 42));
        prop_assert_eq!(read.ack, stored);
        let data: serde_json::Value = serde_json::from_str(&data).unwrap();
        let read: serde_json::Value = serde_json::from_str(read.data.unwrap().get()).unwrap();
        prop_assert_eq!(read, data);
    }
}
