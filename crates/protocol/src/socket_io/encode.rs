//! Encodes packets of the service as whole Engine.IO packets (`4` and the Socket.IO packet). Embedded JSON
//! must be one line of valid JSON; texts are escaped here.
//!
//! The field order is fixed, so that packets can be compared as text.

use noroshi_types::{CloseReason, ItemsNotice, Recovered, Topic};

use super::packet::{Kind, MAIN};
use crate::engine_io::Outgoing;
use crate::native::encode::{push_items_fields, push_recovered_fields};

/// Appends `4<kind>[<attachments>-][<namespace>,][<id>]`.
pub fn push_head(out: &mut Vec<u8>, kind: Kind, attachments: usize, namespace: &str, id: Option<u64>) {
    out.extend_from_slice(&[b'4', kind as u8]);
    if kind.is_binary() {
        out.extend_from_slice(format!("{attachments}-").as_bytes());
    }
    if namespace != MAIN {
        out.extend_from_slice(namespace.as_bytes());
        out.push(b',');
    }
    if let Some(id) = id {
        out.extend_from_slice(id.to_string().as_bytes());
    }
}

/// A packet without attachments with a JSON payload.
pub fn packet(kind: Kind, namespace: &str, id: Option<u64>, payload: &str) -> Outgoing {
    let mut out = Vec::with_capacity(24 + namespace.len() + payload.len());
    push_head(&mut out, kind, 0, namespace, id);
    out.extend_from_slice(payload.as_bytes());
    Outgoing::Text(out.into())
}

/// An event in the main namespace; `args` is the content of a JSON array, without the name.
fn event(name: &str, args: &str) -> Outgoing {
    packet(Kind::Event, MAIN, None, &format!(r#"["{name}",{args}]"#))
}

/// The positive answer to a CONNECT; `pid` lets a later connection recover this one.
pub fn connected(namespace: &str, sid: &str, pid: Option<&str>) -> Outgoing {
    let payload = match pid {
        Some(pid) => format!(r#"{{"sid":{},"pid":{}}}"#, string(sid), string(pid)),
        None => format!(r#"{{"sid":{}}}"#, string(sid)),
    };
    packet(Kind::Connect, namespace, None, &payload)
}

/// The negative answer to a CONNECT; clients do not retry automatically. `code` is a stable name, `message`
/// is for people.
pub fn connect_error(namespace: &str, message: &str, code: Option<&str>) -> Outgoing {
    let payload = match code {
        Some(code) => format!(r#"{{"message":{},"data":{{"code":{}}}}}"#, string(message), string(code)),
        None => format!(r#"{{"message":{}}}"#, string(message)),
    };
    packet(Kind::ConnectError, namespace, None, &payload)
}

/// Ends a namespace; clients do not reconnect automatically.
pub fn disconnect(namespace: &str) -> Outgoing {
    packet(Kind::Disconnect, namespace, None, "")
}

/// Follows the messages that a `since` requested.
pub fn recovered(recovered: &Recovered) -> Outgoing {
    let mut fields = Vec::new();
    push_recovered_fields(&mut fields, recovered);
    event("recovered", &format!("{{{}}}", String::from_utf8_lossy(&fields)))
}

/// Items of the user were added or changed.
pub fn items(notice: &ItemsNotice) -> Outgoing {
    let mut fields = Vec::new();
    push_items_fields(&mut fields, notice);
    event("items", &format!("{{{}}}", String::from_utf8_lossy(&fields)))
}

/// `code` is a stable name; `message` is for people.
pub fn error(code: &str, message: &str) -> Outgoing {
    event("error", &format!(r#"{{"code":{},"message":{}}}"#, string(code), string(message)))
}

/// An error for one topic; `reason` is a stable name too.
pub fn topic_error(code: &str, topic: &Topic, reason: &str, message: &str) -> Outgoing {
    let (code, message) = (string(code), string(message));
    let (topic, reason) = (string(topic.as_str()), string(reason));
    event("error", &format!(r#"{{"code":{code},"message":{message},"topic":{topic},"reason":{reason}}}"#))
}

/// Precedes every close that the service initiates; `after_ms` is the reconnect delay.
pub fn close(reason: CloseReason, after_ms: u64) -> Outgoing {
    let (name, reconnect) = (reason.as_str(), reason.may_reconnect());
    event("close", &format!(r#"{{"reason":"{name}","reconnect":{reconnect},"after_ms":{after_ms}}}"#))
}

/// The arguments of a client's acknowledgement callback.
pub fn ack(id: u64, result: Result<(), (&str, &str)>) -> Outgoing {
    let payload = match result {
        Ok(()) => r#"[{"ok":true}]"#.to_owned(),
        Err((code, message)) => {
            format!(r#"[{{"ok":false,"code":{},"message":{}}}]"#, string(code), string(message))
        }
    };
    packet(Kind::Ack, MAIN, Some(id), &payload)
}

/// A JSON string. Control characters, including the record separator, are escaped.
fn string(text: &str) -> String {
    serde_json::to_string(text).expect("a string always serializes to JSON")
}

#[cfg(test)]
mod tests {
    use noroshi_types::{Epoch, Position};

    use super::*;
    use crate::socket_io::{Limits, Packet};

    #[track_caller]
    fn check(packet: Outgoing, expected: &str) {
        assert_eq!(packet, Outgoing::Text(expected.to_owned().into()));
        assert!(Packet::parse(&expected[1..], &Limits::default()).is_ok());
    }

    #[test]
    fn decodes_the_examples_of_the_specification() {
        check(connected("/", "wZX3oN0bSVIhsaknAAAI", None), r#"40{"sid":"wZX3oN0bSVIhsaknAAAI"}"#);
        check(connected("/admin", "x", Some("y")), r#"40/admin,{"sid":"x","pid":"y"}"#);
        check(connect_error("/", "Not authorized", None), r#"44{"message":"Not authorized"}"#);
        check(disconnect("/"), "41");
        check(disconnect("/admin"), "41/admin,");
        check(packet(Kind::Event, "/", None, r#"["foo"]"#), r#"42["foo"]"#);
        check(packet(Kind::Event, "/admin", Some(13), r#"["foo"]"#), r#"42/admin,13["foo"]"#);
        check(packet(Kind::Ack, "/", Some(12), "[]"), "4312[]");
        let mut out = Vec::new();
        push_head(&mut out, Kind::BinaryAck, 1, "/", Some(15));
        assert_eq!(out, b"461-15");
    }

    #[test]
    fn events_of_the_service() {
        let topic = Topic::parse("a\"b").unwrap();
        let position = Some(Position { epoch: Epoch(42), offset: 7 });
        let report = Recovered { topic: topic.clone(), complete: true, position };
        let fields = r#""topic":"a\"b","complete":true,"epoch":"0000002a","offset":7"#;
        check(recovered(&report), &format!(r#"42["recovered",{{{fields}}}]"#));
        let mut unread = noroshi_types::ItemCounts::default();
        unread.add(noroshi_types::Label::parse("orders").ok(), 2);
        let event = noroshi_types::ItemEvent::Archived;
        let ids = vec![noroshi_types::NotificationId::from_bytes([0; 16])];
        check(
            items(&ItemsNotice { event, ids, more: false, unread }),
            r#"42["items",{"event":"archived","ids":["00000000-0000-0000-0000-000000000000"],"unread":2,"categories":{"orders":2}}]"#,
        );
        check(
            error("bad_event", "`x`\n\u{1e}"),
            r#"42["error",{"code":"bad_event","message":"`x`\n\u001e"}]"#,
        );
        check(
            close(CloseReason::Drain, 1500),
            r#"42["close",{"reason":"drain","reconnect":true,"after_ms":1500}]"#,
        );
        check(
            connect_error("/", "the token is not valid", Some("unauthorized")),
            r#"44{"message":"the token is not valid","data":{"code":"unauthorized"}}"#,
        );
        check(ack(7, Ok(())), r#"437[{"ok":true}]"#);
        check(ack(0, Err(("a", "b"))), r#"430[{"ok":false,"code":"a","message":"b"}]"#);
    }
}
