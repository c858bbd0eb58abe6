//! Encodes frames of the service as JSON. The field order is fixed so that frames can be compared as text,
//! and every object is one line whatever the provider's JSON. A message gets its own buffer, created once for
//! all recipients; small frames are appended to the connection's output.

use noroshi_types::{
    CloseReason, DeviceId, ItemsNotice, JsonText, Message, Position, Recovered, SessionId, Topic,
};

/// `{"t":"msg",…}`; the same bytes for every recipient.
pub fn message_json(message: &Message) -> Vec<u8> {
    let carried =
        [&message.notification, &message.data].into_iter().flatten().map(JsonText::len).sum::<usize>();
    // The fixed fields with a UUID and a time take 150 bytes; a topic adds its name and 60 more.
    let topic = message.topic.as_ref().map_or(0, |place| place.topic.as_str().len() + 60);
    let mut out = Vec::with_capacity(150 + carried + topic);
    out.extend_from_slice(br#"{"t":"msg","#);
    push_message_fields(&mut out, message);
    out.push(b'}');
    out
}

/// The fields of a message that all JSON-based protocols share: `"id":…` to `"sent_at":…`, without braces.
pub(crate) fn push_message_fields(out: &mut Vec<u8>, message: &Message) {
    out.extend_from_slice(format!(r#""id":"{}""#, message.id).as_bytes());
    if let Some(place) = &message.topic {
        out.extend_from_slice(br#","topic":"#);
        push_string(out, place.topic.as_str());
        let position = format!(r#","epoch":"{}","offset":{}"#, place.position.epoch, place.position.offset);
        out.extend_from_slice(position.as_bytes());
    }
    if let Some(notification) = &message.notification {
        out.extend_from_slice(br#","notification":"#);
        push_carried(out, notification);
    }
    if let Some(data) = &message.data {
        out.extend_from_slice(br#","data":"#);
        push_carried(out, data);
    }
    if message.wants_ack() {
        out.extend_from_slice(br#","ack":true"#);
    }
    out.extend_from_slice(format!(r#","sent_at":"{}""#, message.sent_at).as_bytes());
}

/// `ping_s` is the interval of the service's pings.
pub fn ready(out: &mut Vec<u8>, device: &DeviceId, session: SessionId, ping_s: u64) {
    out.extend_from_slice(br#"{"t":"ready","device":"#);
    push_string(out, device.as_str());
    out.extend_from_slice(format!(r#","session":"{session}","ping_s":{ping_s}}}"#).as_bytes());
}

/// Follows the messages that a `since` requested.
pub fn recovered(out: &mut Vec<u8>, recovered: &Recovered) {
    out.extend_from_slice(br#"{"t":"recovered","#);
    push_recovered_fields(out, recovered);
    out.push(b'}');
}

/// The fields of `recovered` that all JSON-based protocols share, without braces.
pub(crate) fn push_recovered_fields(out: &mut Vec<u8>, recovered: &Recovered) {
    let Recovered { topic, complete, position } = recovered;
    out.extend_from_slice(br#""topic":"#);
    push_string(out, topic.as_str());
    out.extend_from_slice(format!(r#","complete":{complete}"#).as_bytes());
    if let Some(Position { epoch, offset }) = position {
        out.extend_from_slice(format!(r#","epoch":"{epoch}","offset":{offset}"#).as_bytes());
    }
}

/// Items of the user's notification centre were added or changed. `unread` and `categories` count after the change.
pub fn items(out: &mut Vec<u8>, notice: &ItemsNotice) {
    out.extend_from_slice(br#"{"t":"items","#);
    push_items_fields(out, notice);
    out.push(b'}');
}

/// The fields of a report of items that all JSON-based protocols share, without braces.
pub(crate) fn push_items_fields(out: &mut Vec<u8>, notice: &ItemsNotice) {
    let ItemsNotice { event, ids, more, unread } = notice;
    out.extend_from_slice(format!(r#""event":"{}","ids":["#, event.as_str()).as_bytes());
    for (index, id) in ids.iter().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        out.extend_from_slice(format!(r#"{comma}"{id}""#).as_bytes());
    }
    out.push(b']');
    if *more {
        out.extend_from_slice(br#","more":true"#);
    }
    out.extend_from_slice(format!(r#","unread":{},"categories":{{"#, unread.total).as_bytes());
    for (index, (category, count)) in unread.listed().enumerate() {
        let comma = if index == 0 { "" } else { "," };
        // A name needs no escapes.
        out.extend_from_slice(format!(r#"{comma}"{category}":{count}"#).as_bytes());
    }
    out.push(b'}');
}

/// `code` is a stable name; `message` is for people.
pub fn error(out: &mut Vec<u8>, code: &str, message: &str) {
    out.extend_from_slice(br#"{"t":"error","code":"#);
    push_string(out, code);
    out.extend_from_slice(br#","message":"#);
    push_string(out, message);
    out.push(b'}');
}

/// An error for one topic; `reason` is a stable name too.
pub fn topic_error(out: &mut Vec<u8>, code: &str, topic: &Topic, reason: &str, message: &str) {
    error(out, code, message);
    out.pop();
    out.extend_from_slice(br#","topic":"#);
    push_string(out, topic.as_str());
    out.extend_from_slice(br#","reason":"#);
    push_string(out, reason);
    out.push(b'}');
}

/// Precedes every close that the service initiates; `after_ms` is the reconnect delay.
pub fn close(out: &mut Vec<u8>, reason: CloseReason, after_ms: u64) {
    let (name, reconnect) = (reason.as_str(), reason.may_reconnect());
    let text = format!(r#"{{"t":"close","reason":"{name}","reconnect":{reconnect},"after_ms":{after_ms}}}"#);
    out.extend_from_slice(text.as_bytes());
}

pub fn pong(out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"t":"pong"}"#);
}

fn push_string(out: &mut Vec<u8>, text: &str) {
    serde_json::to_writer(out, text).expect("writing a string to memory cannot fail");
}

/// JSON strings contain no raw line breaks (RFC 8259 §7), so line breaks in a provider's text are between
/// tokens, where a space is equivalent.
fn push_carried(out: &mut Vec<u8>, json: &JsonText) {
    let start = out.len();
    out.extend_from_slice(json.as_str().as_bytes());
    for byte in &mut out[start..] {
        if matches!(byte, b'\n' | b'\r') {
            *byte = b' ';
        }
    }
}
