//! A notification as a stanza, with the same bytes for every connection of a framing: it has no `to` (RFC
//! 6120 §8.1.1.1 permits this for servers), so a fan-out encodes it once. Acknowledgement requests, which
//! belong to one connection, are separate elements.
//!
//! A device's own notifications are messages from the service with subject and body; those of topics are
//! PubSub events (XEP-0060 §12). Both contain the native JSON object in our own payload element.

use std::borrow::Cow;

use bytes::Bytes;
use noroshi_types::{Message, When};
use serde::Deserialize;

use super::config::{Config, Framing};
use super::namespace as ns;
use super::xml::write::{push_empty, push_end, push_escaped, push_start, push_text};
use crate::{native, ws};

/// Appends one top-level element, framed.
pub(super) fn push_framed(out: &mut Vec<u8>, framing: Framing, build: impl FnOnce(&mut Vec<u8>)) {
    match framing {
        Framing::Stream => build(out),
        Framing::WebSocket => {
            let mut element = Vec::new();
            build(&mut element);
            ws::push_frame(out, ws::Opcode::Text, &element);
        }
    }
}

impl Framing {
    /// The value of `xmlns` that a stanza needs: frames inherit nothing (RFC 7395 §3.3.3).
    pub(super) fn client(self) -> &'static str {
        match self {
            Framing::Stream => "",
            Framing::WebSocket => ns::CLIENT,
        }
    }

    /// The value of `xmlns:stream`.
    pub(super) fn stream(self) -> &'static str {
        match self {
            Framing::Stream => "",
            Framing::WebSocket => ns::STREAM,
        }
    }
}

/// A message, encoded once for all recipients. `delayed`: it was stored, so the stanza states when it was
/// sent (XEP-0203).
pub fn message(config: &Config, framing: Framing, message: &Message, delayed: bool) -> Bytes {
    let mut out = Vec::with_capacity(1_024);
    push_framed(&mut out, framing, |out| push_message(out, config, framing, message, delayed));
    out.into()
}

pub(super) fn push_message(
    out: &mut Vec<u8>,
    config: &Config,
    framing: Framing,
    message: &Message,
    delayed: bool,
) {
    let id = message.id.to_string();
    // A message to everyone is not an event of a topic.
    let topic = message.topic.as_ref().map(|place| &place.topic).filter(|topic| !topic.is_everyone());
    let from = if topic.is_some() { &config.pubsub } else { &config.domain };
    // RFC 6121 §5.2.2: headlines are not stored for offline recipients.
    let kind = if topic.is_some() || message.when != When::Stored { "headline" } else { "" };
    let attributes = [("xmlns", framing.client()), ("from", from), ("type", kind), ("id", &id)];
    push_start(out, "message", &attributes);
    push_shown(out, message);
    match topic {
        None => push_payload(out, message),
        Some(topic) => {
            push_start(out, "event", &[("xmlns", ns::PUBSUB_EVENT)]);
            push_start(out, "items", &[("node", topic.as_str())]);
            push_item(out, message);
            push_end(out, "items");
            push_end(out, "event");
        }
    }
    if message.wants_ack() {
        push_empty(out, "request", &[("xmlns", ns::RECEIPTS)]);
    }
    if delayed {
        let stamp = message.sent_at.to_string();
        push_empty(out, "delay", &[("xmlns", ns::DELAY), ("from", &config.domain), ("stamp", &stamp)]);
    }
    push_end(out, "message");
}

/// A topic's message as a PubSub item.
pub(super) fn push_item(out: &mut Vec<u8>, message: &Message) {
    push_start(out, "item", &[("id", &message.id.to_string())]);
    push_payload(out, message);
    push_end(out, "item");
}

fn push_payload(out: &mut Vec<u8>, message: &Message) {
    push_start(out, "notification", &[("xmlns", ns::NOTIFICATION)]);
    push_start(out, "json", &[("xmlns", ns::JSON)]);
    let json = native::message_json(message);
    push_escaped(out, &xml_safe(&String::from_utf8_lossy(&json)));
    push_end(out, "json");
    push_end(out, "notification");
}

/// XML excludes U+FFFE and U+FFFF; in JSON they only occur in strings, where an escape is equivalent.
fn xml_safe(json: &str) -> Cow<'_, str> {
    match json.contains(['\u{FFFE}', '\u{FFFF}']) {
        true => Cow::Owned(json.replace('\u{FFFE}', "\\ufffe").replace('\u{FFFF}', "\\uffff")),
        false => Cow::Borrowed(json),
    }
}

/// The text for clients that do not know our payload.
fn push_shown(out: &mut Vec<u8>, message: &Message) {
    #[derive(Deserialize)]
    struct Shown {
        title: Option<String>,
        body: Option<String>,
    }
    let shown = message.notification.as_ref().map(|json| serde_json::from_str::<Shown>(json.as_str()));
    let Some(Ok(Shown { title, body })) = shown else { return };
    match (title, body) {
        (Some(title), Some(body)) => {
            push_text(out, "subject", &[], &title);
            push_text(out, "body", &[], &body);
        }
        (Some(only), None) | (None, Some(only)) => push_text(out, "body", &[], &only),
        (None, None) => {}
    }
}

#[cfg(test)]
pub(super) mod tests {
    use noroshi_types::{
        AppId, Epoch, JsonText, NotificationId, Position, Timestamp, Topic, TopicPosition, Urgency,
    };
    use proptest::prelude::*;

    use super::*;
    use crate::xmpp::xml::{Limits, Scope, parse_element};

    pub(in crate::xmpp) const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    pub(in crate::xmpp) fn notification(when: When, topic: Option<&str>, json: &str) -> Message {
        let position = Position { epoch: Epoch(1), offset: 2 };
        Message {
            id: NotificationId::parse(ID).unwrap(),
            app: AppId(1),
            when,
            urgency: Urgency::Normal,
            topic: topic.map(|topic| TopicPosition { topic: Topic::from_trusted(topic), position }),
            notification: Some(JsonText::from_valid(json)),
            data: None,
            sent_at: Timestamp(0),
            expires_at: Timestamp(1),
            push_waits: false,
            waits_for_use: false,
            category: None,
        }
    }

    fn text(framing: Framing, it: &Message, delayed: bool) -> String {
        String::from_utf8(message(&Config::new("x.example"), framing, it, delayed).to_vec()).unwrap()
    }

    #[test]
    fn device_notification_is_a_message() {
        let own = notification(When::Stored, None, r#"{"title":"A & B","body":"<c>"}"#);
        let json = r#"{"t":"msg","id":"01890a5d-ac96-774b-bcce-b302099a8057","notification":{"title":"A &amp; B","body":"&lt;c&gt;"},"ack":true,"sent_at":"1970-01-01T00:00:00.000Z"}"#;
        assert_eq!(
            text(Framing::Stream, &own, true),
            format!(
                "<message from='x.example' id='{ID}'><subject>A &amp; B</subject><body>&lt;c&gt;</body>\
                 <notification xmlns='urn:noroshi:notification:0'><json xmlns='urn:xmpp:json:0'>{json}</json>\
                 </notification><request xmlns='urn:xmpp:receipts'/><delay xmlns='urn:xmpp:delay' \
                 from='x.example' stamp='1970-01-01T00:00:00.000Z'/></message>"
            )
        );
    }

    #[test]
    fn topic_message_is_an_event() {
        let live = notification(When::Connected, Some("news"), "{}");
        let said = text(Framing::Stream, &live, false);
        let begin = format!(
            "<message from='pubsub.x.example' type='headline' id='{ID}'><event \
             xmlns='http://jabber.org/protocol/pubsub#event'><items node='news'><item id='{ID}'><notification"
        );
        assert!(said.starts_with(&begin), "{said}");
        assert!(said.ends_with("</item></items></event></message>"), "{said}");
        let everyone = text(Framing::Stream, &notification(When::Stored, Some("$everyone"), "{}"), false);
        assert!(everyone.starts_with("<message from='x.example' id="), "{everyone}");
    }

    #[test]
    fn websocket_frame_declares_its_namespaces() {
        let framed = message(
            &Config::new("x.example"),
            Framing::WebSocket,
            &notification(When::Stored, None, "{}"),
            false,
        );
        assert_eq!(framed[..2], [0x81, 126]);
        assert!(framed[4..].starts_with(b"<message xmlns='jabber:client' from="));
    }

    proptest! {
        #[test]
        fn provider_text_round_trips(title in any::<String>(), body in any::<String>()) {
            let json = serde_json::json!({ "title": title, "body": body }).to_string();
            let said = text(Framing::Stream, &notification(When::Stored, None, &json), false);
            let (scope, limits) = (Scope::default(), Limits::default());
            let tree = parse_element(&said, Some(&scope), &limits).unwrap();
            let payload = tree.root().child(ns::NOTIFICATION, "notification").unwrap();
            let json = payload.child(ns::JSON, "json").unwrap().text().into_owned();
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(json["notification"]["title"].as_str(), Some(&*title));
            prop_assert_eq!(json["notification"]["body"].as_str(), Some(&*body));
        }
    }
}
