//! Messages to an MQTT client.

use noroshi_protocol::mqtt::{Cause as Why, Delivery, filter_matches, is_topic_name};
use noroshi_protocol::ws::{self, Opcode};
use noroshi_store::Place;
use noroshi_types::Topic;

use super::Mqtt;
use crate::protocol::adapter::{Cause, Matched, Offered};
use crate::protocol::context::Encoding;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

impl Mqtt {
    pub(super) fn offer_message(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        // It closes: the message stays where it is, and the parked session counts it as not sent.
        if !self.conversation.is_open() {
            return if dispatch.is_ordered() { Offered::Full } else { Offered::Pass { confirmed: false } };
        }
        let outgoing = dispatch.mqtt();
        let why = match cause {
            Cause::Published => Why::Published,
            Cause::Retained => Why::Retained,
        };
        let begin = head.len();
        let delivery = match is_topic_name(outgoing.topic()) {
            true => self.conversation.deliver(&encoding.config.mqtt, outgoing, why, encoding.now, head),
            // Not a valid topic name in MQTT.
            false => Delivery::NoMatch,
        };
        // A retained message has no known position in the topic's log.
        let is_published = cause == Cause::Published;
        let mut passes = |wanted: bool| {
            wanted && is_published && self.conversation.passes(&encoding.config.mqtt, outgoing)
        };
        match delivery {
            Delivery::Send { shared, confirmed } => {
                frame_head(encoding.framing, head, begin, shared.len());
                Offered::Send { shared, confirmed: passes(confirmed) }
            }
            // A client never wants a topic's message that it rejects now (No Local). A message to the device itself
            // waits for a subscription.
            Delivery::NoMatch => {
                let topic = dispatch.message.topic.as_ref().filter(|place| !place.topic.is_everyone());
                Offered::Pass { confirmed: passes(topic.is_some()) }
            }
            Delivery::InFlight => Offered::Pass { confirmed: false },
            Delivery::TooBig | Delivery::Expired => Offered::Pass { confirmed: passes(true) },
            Delivery::Full => Offered::Full,
        }
    }

    pub(super) fn matched_by(&self, topic: &Topic, at: Place) -> Matched {
        let (mut matched, name) = (Matched::default(), topic.as_str());
        for held in self.conversation.subscriptions() {
            match held.filter.has_wildcards() {
                true => {
                    matched.by_wildcard |= held.since < at.0 && filter_matches(held.filter.as_str(), name)
                }
                false => matched.before_name |= held.since >= at.0 && held.filter.as_str() == name,
            }
        }
        matched
    }
}

/// Inserts the WebSocket frame head of a packet.
fn frame_head(framing: Framing, head: &mut Vec<u8>, begin: usize, shared_bytes: usize) {
    if framing.is_websocket() {
        let packet_bytes = head.len() - begin + shared_bytes;
        let mut frame = Vec::with_capacity(10);
        ws::push_frame_head(&mut frame, Opcode::Binary, packet_bytes);
        head.splice(begin..begin, frame);
    }
}
