//! The event `notification`, encoded once for all connections that receive it. Its argument is the object of
//! the native `msg` frame without `t`.
//!
//! Connections differ in the ack id, and therefore in the length in the WebSocket header:
//! ```text
//!   no ack id       │ header │ 42 │ ["notification",{…}] │   one shared frame
//!   with an ack id  │ header'│ 42 │ 17 │ ["notification",{…}] │
//!                   └── head, own ──────┘ └──── tail, shared ──┘
//! ```
//! One buffer holds everything: packet and tail are slices of the shared frame.

use bytes::Bytes;
use noroshi_types::{Message, NotificationId, When};

use super::recovery::Offset;
use crate::engine_io::Outgoing;
use crate::native;
use crate::ws::{self, Opcode};

/// How a connection tracks its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Variant {
    /// Messages that need an acknowledgement are emitted with an ack id: the client's callback acknowledges them.
    #[default]
    Acks,
    /// Stored messages are emitted with an offset as last argument, and acknowledged by the event `ack`.
    Offsets,
}

/// `4` and `2`: an Engine.IO message, a Socket.IO event of the main namespace.
const EVENT: &[u8] = b"42";

/// A message as shared by all connections of a variant.
#[derive(Debug, Clone)]
pub struct Notification {
    pub id: NotificationId,
    asks: bool,
    packet_at: u8,
    frame: Bytes,
}

impl Notification {
    pub fn new(message: &Message, variant: Variant) -> Self {
        let mut packet = Vec::with_capacity(300);
        packet.extend_from_slice(EVENT);
        packet.extend_from_slice(br#"["notification",{"#);
        native::encode::push_message_fields(&mut packet, message);
        packet.push(b'}');
        if variant == Variant::Offsets && message.when == When::Stored {
            packet.extend_from_slice(format!(r#","{}""#, Offset::of(message)).as_bytes());
        }
        packet.push(b']');
        let frame = ws::text_frame(&packet);
        let asks = variant == Variant::Acks && message.wants_ack();
        let header_bytes = frame.len() - packet.len(); // 2 to 10
        Self { id: message.id, asks, packet_at: header_bytes as u8, frame }
    }

    /// Whether it needs an ack id, which [`super::Conversation::deliver`] assigns.
    pub fn asks(&self) -> bool {
        self.asks
    }

    /// The whole WebSocket frame, for use without an ack id.
    pub fn frame(&self) -> &Bytes {
        &self.frame
    }

    /// Appends the part before [`Notification::tail`] of the WebSocket frame with this ack id: at most 22
    /// bytes.
    pub fn push_head(&self, ack_id: u32, out: &mut Vec<u8>) {
        let digits = ack_id.checked_ilog10().unwrap_or(0) as usize + 1;
        let packet_bytes = self.frame.len() - usize::from(self.packet_at) + digits;
        ws::frame::push_header(out, Opcode::Text, packet_bytes, 0);
        out.extend_from_slice(EVENT);
        out.extend_from_slice(ack_id.to_string().as_bytes());
    }

    /// The part after the ack id: a cheap slice of the frame.
    pub fn tail(&self) -> Bytes {
        self.frame.slice(usize::from(self.packet_at) + EVENT.len()..)
    }

    /// The packet for polling clients; shared if there is no ack id.
    pub fn packet(&self, ack_id: Option<u32>) -> Outgoing {
        Outgoing::Text(match ack_id {
            None => self.frame.slice(usize::from(self.packet_at)..),
            Some(ack_id) => [EVENT, ack_id.to_string().as_bytes(), &self.tail()].concat().into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use noroshi_types::{AppId, Epoch, JsonText, Position, Timestamp, Topic, TopicPosition, Urgency};

    use super::*;
    use crate::ws::{Decoder, Input, Role};

    const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    pub(crate) fn message(when: When) -> Message {
        Message {
            id: NotificationId::parse(ID).unwrap(),
            app: AppId(1),
            when,
            urgency: Urgency::Normal,
            topic: None,
            notification: None,
            data: Some(JsonText::from_valid("[\n1]")),
            sent_at: Timestamp(0),
            expires_at: Timestamp(1),
            push_waits: false,
            waits_for_use: false,
            category: None,
        }
    }

    fn text(frame: &[u8]) -> String {
        let mut heard = Vec::new();
        let mut on = |input: Input<'_>| {
            if let Input::Text(text) = input {
                heard.push(text.to_owned());
            }
            ControlFlow::Continue(())
        };
        Decoder::new().feed(Role::Client, &mut frame.to_vec(), 1 << 20, &mut on).unwrap();
        assert_eq!(heard.len(), 1, "one whole frame");
        heard.remove(0)
    }

    const SENT: &str = r#""sent_at":"1970-01-01T00:00:00.000Z""#;

    #[test]
    fn unstored_message_is_one_shared_frame() {
        for variant in [Variant::Acks, Variant::Offsets] {
            let encoded = Notification::new(&message(When::Connected), variant);
            let expected = format!(r#"42["notification",{{"id":"{ID}","data":[ 1],{SENT}}}]"#);
            assert!(!encoded.asks());
            assert_eq!(text(encoded.frame()), expected);
            assert_eq!(encoded.packet(None), Outgoing::Text(expected.into()));
        }
    }

    #[test]
    fn message_with_acknowledgement_has_an_ack_id() {
        let encoded = Notification::new(&message(When::Stored), Variant::Acks);
        assert!(encoded.asks());
        for ack_id in [0, 9, 10, 4_294_967_295] {
            let mut frame = vec![];
            encoded.push_head(ack_id, &mut frame);
            assert!(frame.len() <= 22);
            frame.extend_from_slice(&encoded.tail());
            let expected =
                format!(r#"42{ack_id}["notification",{{"id":"{ID}","data":[ 1],"ack":true,{SENT}}}]"#);
            assert_eq!(text(&frame), expected);
            assert_eq!(encoded.packet(Some(ack_id)), Outgoing::Text(expected.into()));
        }
    }

    #[test]
    fn message_with_acknowledgement_may_have_an_offset() {
        let position = Position { epoch: Epoch(42), offset: 7 };
        let topic = Some(TopicPosition { topic: Topic::parse("news").unwrap(), position });
        let encoded =
            Notification::new(&Message { topic, data: None, ..message(When::Stored) }, Variant::Offsets);
        assert!(!encoded.asks());
        let expected = format!(
            r#"42["notification",{{"id":"{ID}","topic":"news","epoch":"0000002a","offset":7,"ack":true,{SENT}}},"{ID}.0000002a.7"]"#
        );
        assert_eq!(text(encoded.frame()), expected);
    }

    #[test]
    fn frames_of_every_length_have_the_right_header() {
        for bytes in [1, 100, 60_000, 70_000] {
            let data = Some(JsonText::from_valid(format!("\"{}\"", "x".repeat(bytes))));
            let encoded = Notification::new(&Message { data, ..message(When::Stored) }, Variant::Acks);
            let mut frame = Vec::new();
            encoded.push_head(12345, &mut frame);
            frame.extend_from_slice(&encoded.tail());
            assert!(text(&frame).starts_with("4212345[\"notification\",{"));
            assert!(text(encoded.frame()).starts_with("42[\"notification\",{"));
        }
    }
}
