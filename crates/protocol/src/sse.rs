//! Server-sent events (HTML Living Standard §9.2): the stream that `EventSource` reads. A message is the
//! same JSON object as on the native WebSocket.
//!
//! Invariant: `id:` is written only for messages kept as `stored`, so a `Last-Event-ID` always names a
//! place that can be resumed from. No input can break out of its `data:` line.

use noroshi_types::{Invalid, Message, NotificationId, When};

use crate::http::Head;
use crate::native;

/// Appends the head of the endless response. `retry_ms` is how long the client waits before it comes back.
/// The token never travels in a cookie, so any origin may read.
pub fn push_response_head(out: &mut Vec<u8>, retry_ms: u64) {
    // X-Accel-Buffering: a reverse proxy that collects an endless answer would deliver nothing.
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n\
         X-Accel-Buffering: no\r\nAccess-Control-Allow-Origin: *\r\nConnection: close\r\n\r\nretry: {retry_ms}\n\n"
    );
    out.extend_from_slice(head.as_bytes());
}

/// A message, encoded once and shared by a fan-out.
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

/// A comment line: heard by proxies and sockets, ignored by clients.
pub fn keep_alive() -> &'static [u8] {
    b": keep-alive\n\n"
}

/// The `Last-Event-ID` header, or the query value `last_event_id` for clients that cannot set it.
pub fn last_event_id(head: &Head<'_>) -> Result<Option<NotificationId>, Invalid> {
    let given = head.header("last-event-id").map(Into::into).or_else(|| head.query_value("last_event_id"));
    // An EventSource whose id was reset sends an empty one, or none.
    given.filter(|id| !id.is_empty()).map(|id| NotificationId::parse(&id)).transpose()
}

/// A line break would end the field: each line gets its own, and the client joins them again.
fn push_data(out: &mut Vec<u8>, json: &[u8]) {
    for line in json.split(|byte| matches!(byte, b'\n' | b'\r')) {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.push(b'\n');
}
