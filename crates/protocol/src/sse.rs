//! Server-sent events (HTML Living Standard §9.2): the stream for `EventSource`. A message is the same JSON
//! object as on the native WebSocket.
//!
//! Invariant: `id:` is written only for `stored` messages, so a client can always resume from its
//! `Last-Event-ID`. No input can break out of its `data:` line.

use noroshi_types::{Invalid, Message, NotificationId, When};

use crate::http::Head;
use crate::native;

/// Appends the head of the endless response. Any origin may read it, since tokens are never sent in cookies.
pub fn push_response_head(out: &mut Vec<u8>, gzip: bool) {
    // X-Accel-Buffering: a buffering reverse proxy would never deliver an endless response.
    let coding = if gzip { "Content-Encoding: gzip\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n{coding}Vary: Accept-Encoding\r\n\
         Cache-Control: no-store\r\nX-Accel-Buffering: no\r\nAccess-Control-Allow-Origin: *\r\n\
         Connection: close\r\n\r\n"
    );
    out.extend_from_slice(head.as_bytes());
}

/// Appends the client's reconnect delay.
pub fn push_retry(out: &mut Vec<u8>, retry_ms: u64) {
    out.extend_from_slice(format!("retry: {retry_ms}\n\n").as_bytes());
}

/// A message, encoded once for all recipients.
pub fn event(message: &Message) -> Vec<u8> {
    let json = native::message_json(message);
    let mut out = Vec::with_capacity(json.len() + 72); // "event: msg", "id: " with a UUID, "data: "
    out.extend_from_slice(b"event: msg\n");
    if message.when == When::Stored {
        out.extend_from_slice(format!("id: {}\n", message.id).as_bytes());
    }
    push_data(&mut out, &json);
    out
}

/// Appends an event of another kind (`ready`, `recovered`, `error`, `close`) with the native JSON.
/// `event` must not contain a line break.
pub fn named(event: &str, json: &[u8], out: &mut Vec<u8>) {
    for part in [b"event: ", event.as_bytes(), b"\n"] {
        out.extend_from_slice(part);
    }
    push_data(out, json);
}

/// A comment line, which keeps proxies and sockets alive and is ignored by clients.
pub fn keep_alive() -> &'static [u8] {
    b": keep-alive\n\n"
}

/// The `Last-Event-ID` header, or the query parameter `last_event_id` for clients that cannot set headers.
pub fn last_event_id(head: &Head<'_>) -> Result<Option<NotificationId>, Invalid> {
    let given = head.header("last-event-id").map(Into::into).or_else(|| head.query_value("last_event_id"));
    // An EventSource whose id was reset sends an empty one, or none.
    given.filter(|id| !id.is_empty()).map(|id| NotificationId::parse(&id)).transpose()
}

/// A line break would end the field, so each line gets its own field; the client joins them again.
fn push_data(out: &mut Vec<u8>, json: &[u8]) {
    for line in json.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use noroshi_types::{AppId, JsonText, Timestamp, Urgency};

    use super::*;
    use crate::http;

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    fn message(when: When) -> Message {
        Message {
            id: NotificationId::parse(ID).unwrap(),
            app: AppId(1),
            when,
            urgency: Urgency::Normal,
            topic: None,
            notification: None,
            data: Some(JsonText::from_valid("{\n\"a\":\r\n\n1\r}")),
            sent_at: Timestamp(0),
            expires_at: Timestamp(1),
            push_waits: false,
            waits_for_use: false,
            category: None,
        }
    }

    /// Interprets a stream as `EventSource` does: HTML Living Standard §9.2.6, for whole events.
    fn interpret(stream: &str) -> Vec<(String, String, String)> {
        let (mut events, mut event, mut data, mut id) =
            (Vec::new(), String::new(), Vec::new(), String::new());
        for line in stream.replace("\r\n", "\n").split(['\n', '\r']) {
            match line.split_once(':').map(|(name, value)| (name, value.strip_prefix(' ').unwrap_or(value))) {
                Some(("event", value)) => event = value.to_owned(),
                Some(("data", value)) => data.push(value.to_owned()),
                Some(("id", value)) => id = value.to_owned(),
                None if line.is_empty() && !data.is_empty() => {
                    events.push((
                        std::mem::take(&mut event),
                        std::mem::take(&mut data).join("\n"),
                        id.clone(),
                    ));
                }
                Some(_) | None => {}
            }
        }
        events
    }

    #[test]
    fn only_stored_messages_have_an_id() {
        let json = r#"{"t":"msg","id":"01890a5d-ac96-774b-bcce-b302099a8057","data":{ "a":   1 },"#;
        let stored = String::from_utf8(event(&message(When::Stored))).unwrap();
        let expected = format!(
            "event: msg\nid: {ID}\ndata: {json}\"ack\":true,\"sent_at\":\"1970-01-01T00:00:00.000Z\"}}\n\n"
        );
        assert_eq!(stored, expected);
        for when in [When::Active, When::Connected] {
            let passing = String::from_utf8(event(&message(when))).unwrap();
            assert_eq!(
                passing,
                format!("event: msg\ndata: {json}\"sent_at\":\"1970-01-01T00:00:00.000Z\"}}\n\n")
            );
        }
    }

    #[test]
    fn line_breaks_do_not_end_an_event() {
        let mut out = Vec::new();
        named("ready", b"{\n\"a\":\r\n1,\r\"event: x\":2}\n\n", &mut out);
        named("close", b"{}", &mut out);
        let events = interpret(std::str::from_utf8(&out).unwrap());
        assert_eq!(events.len(), 2, "{events:?}");
        let json: serde_json::Value = serde_json::from_str(&events[0].1).unwrap();
        assert_eq!(json, serde_json::json!({"a": 1, "event: x": 2}));
        assert_eq!(events[1], ("close".to_owned(), "{}".to_owned(), String::new()));
    }

    #[test]
    fn stream_starts_with_its_head_and_keeps_alive() {
        let mut out = Vec::new();
        push_response_head(&mut out, false);
        push_retry(&mut out, 1500);
        let head = String::from_utf8(out).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"), "{head}");
        assert!(head.ends_with("\r\n\r\nretry: 1500\n\n"), "{head}");
        assert!(!head.contains("Content-Encoding"), "{head}");
        let mut compressed = Vec::new();
        push_response_head(&mut compressed, true);
        assert!(String::from_utf8(compressed).unwrap().contains("\r\nContent-Encoding: gzip\r\n"));
        let stream = [keep_alive(), &event(&message(When::Stored)), keep_alive()].concat();
        let events = interpret(std::str::from_utf8(&stream).unwrap());
        assert_eq!(events.len(), 1);
        assert_eq!((&*events[0].0, &*events[0].2), ("msg", ID));
    }

    #[test]
    fn client_sends_its_last_event_id() {
        let check = |query: &str, header: &str| {
            let text = format!("GET /v1/events{query} HTTP/1.1\r\n{header}\r\n");
            let (head, _) = http::parse(text.as_bytes(), &http::Limits::default()).unwrap().unwrap();
            last_event_id(&head)
        };
        let id = NotificationId::parse(ID).unwrap();
        assert_eq!(check("", ""), Ok(None));
        assert_eq!(check("", "Last-Event-ID: \r\n"), Ok(None));
        assert_eq!(check("", &format!("Last-Event-ID: {ID}\r\n")), Ok(Some(id)));
        assert_eq!(check(&format!("?last_event_id={ID}"), ""), Ok(Some(id)));
        assert!(check("", "Last-Event-ID: 12\r\n").is_err());
    }
}
