//! Events that a device may emit, parsed strictly: each corresponds to a frame of the native protocol and
//! takes one argument, the frame's object without `t`. For a frame with a single field, its value suffices:
//! `emit("ack", id)`, `emit("subscribe", ["a", "b"])`, `emit("presence", "idle")`.

use super::packet::Event;
use crate::native::client_frame::{ClientFrame, parse_fields};
use crate::native::frame_type::Kind;

/// Why an event is rejected: a stable code and a text for the client's developer.
pub(super) type Refused = (&'static str, String);

pub(super) fn read(event: &Event<'_>) -> Result<ClientFrame, Refused> {
    // The frame's type, the field whose value suffices, and whether that is a list.
    let (kind, field, is_list) = match &*event.name {
        "subscribe" => (Kind::Sub, "topics", true),
        "unsubscribe" => (Kind::Unsub, "topics", true),
        "ack" => (Kind::Ack, "ids", true),
        "presence" => (Kind::Presence, "state", false),
        "token" => (Kind::Token, "token", false),
        name => {
            let shown = &name[..name.floor_char_boundary(64)];
            return Err(("unknown_event", format!("unknown event `{shown}`")));
        }
    };
    let bad = |text: String| ("bad_event", text);
    let Some(argument) = event.args.single() else {
        return Err(bad(format!("`{}` takes exactly one argument", event.name)));
    };
    let wrapped = match argument.as_bytes().first() {
        Some(b'"') if is_list => Some(format!(r#"{{"{field}":[{argument}]}}"#)),
        Some(b'"') => Some(format!(r#"{{"{field}":{argument}}}"#)),
        Some(b'[') if is_list => Some(format!(r#"{{"{field}":{argument}}}"#)),
        _ => None,
    };
    parse_fields(kind, wrapped.as_deref().unwrap_or(argument)).map_err(|error| bad(error.to_string()))
}

#[cfg(test)]
mod tests {
    use noroshi_types::{Epoch, NotificationId, Position, Presence, Since, Topic, limits};

    use super::*;
    use crate::socket_io::{Limits, Packet};

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn parse(array: &str) -> Result<ClientFrame, Refused> {
        let text = format!("2{array}");
        read(&Packet::parse(&text, &Limits::default()).unwrap().event().unwrap())
    }

    #[track_caller]
    fn check(array: &str, expected: ClientFrame) {
        assert_eq!(parse(array), Ok(expected), "{array}");
    }

    #[track_caller]
    fn refused(array: &str, code: &str, text: &str) {
        assert_eq!(parse(array), Err((code, text.to_owned())).map_err(|(_, text)| (leaked(code), text)));
    }

    fn leaked(code: &str) -> &'static str {
        if code == "bad_event" { "bad_event" } else { "unknown_event" }
    }

    #[test]
    fn every_event_is_parsed() {
        let topics = || vec![Topic::parse("a").unwrap(), Topic::parse("b").unwrap()];
        let sub = |since| ClientFrame::Sub { topics: topics(), since };
        check(r#"["subscribe",{"topics":["a","b"]}]"#, sub(vec![]));
        check(r#"["subscribe",["a","b"]]"#, sub(vec![]));
        check(
            r#"["subscribe",{"topics":["a","b"],"since":{"b":{"epoch":"0000002a","offset":41}}}]"#,
            sub(vec![(topics()[1].clone(), Since::Position(Position { epoch: Epoch(42), offset: 41 }))]),
        );
        check(r#"["subscribe","a"]"#, ClientFrame::Sub { topics: topics()[..1].to_vec(), since: vec![] });
        check(r#"["unsubscribe" , "a"]"#, ClientFrame::Unsub { topics: topics()[..1].to_vec() });
        check(r#"["unsubscribe",{"topics":["a","b"]}]"#, ClientFrame::Unsub { topics: topics() });
        let id = NotificationId::parse(ID).unwrap();
        for ack in [format!("\"{ID}\""), format!("[\"{ID}\"]"), format!("{{\"ids\":[\"{ID}\"]}}")] {
            check(&format!("[\"ack\",{ack}]"), ClientFrame::Ack { ids: vec![id] });
        }
        check(r#"["presence","idle"]"#, ClientFrame::Presence(Presence::Idle));
        check(r#"["presence",{"state":"active"}]"#, ClientFrame::Presence(Presence::Active));
        assert!(
            matches!(parse(r#"["token","abc"]"#), Ok(ClientFrame::Token { token }) if token.as_str() == "abc")
        );
    }

    #[test]
    fn errors_name_the_problem() {
        refused(r#"["publish",{}]"#, "unknown_event", "unknown event `publish`");
        refused("[1,{}]", "unknown_event", "unknown event `1`");
        refused(r#"["subscribe"]"#, "bad_event", "`subscribe` takes exactly one argument");
        refused(r#"["subscribe","a","b"]"#, "bad_event", "`subscribe` takes exactly one argument");
        refused(r#"["subscribe",1]"#, "bad_event", "a frame must be a JSON object");
        refused(r#"["presence",["idle"]]"#, "bad_event", "a frame must be a JSON object");
        refused(r#"["subscribe",{}]"#, "bad_event", "`topics` is missing");
        refused(r#"["ack",{"t":"ack","ids":[]}]"#, "bad_event", "unknown field `t`");
        refused(r#"["ack",{"x":1}]"#, "bad_event", "unknown field `x`");
        refused(r#"["ack","n1"]"#, "bad_event", "`ids[0]`: a notification id must be a UUID");
        refused(r#"["presence","offline"]"#, "bad_event", r#"`state` must be "active" or "idle""#);
        let many = vec![format!("\"{ID}\""); limits::ACK_IDS_MAX + 1].join(",");
        refused(&format!("[\"ack\",[{many}]]"), "bad_event", "`ids` has more than 1000 entries");
        refused(
            r#"["subscribe",{"_placeholder":true,"num":0}]"#,
            "bad_event",
            "unknown field `_placeholder`",
        );
    }
}
