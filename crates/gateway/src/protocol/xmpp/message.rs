//! Messages to an XMPP client.

use noroshi_protocol::xmpp::Delivery;
use noroshi_types::Presence;

use super::{DELAYED, Xmpp, framing_of};
use crate::protocol::adapter::Offered;
use crate::protocol::context::Encoding;
use crate::wire::dispatch::Dispatch;

impl Xmpp {
    pub(super) fn offer_message(&mut self, encoding: &Encoding<'_>, dispatch: &Dispatch) -> Offered {
        let message = &dispatch.message;
        let is_own = message.topic.as_ref().is_none_or(|place| place.topic.is_everyone());
        let is_open = self.conversation.is_open();
        // RFC 6121 §4.5: an unavailable client gets no messages for the device itself; XEP-0160 §3: it gets them when
        // it is available again.
        if !is_open || (is_own && self.conversation.presence() == Presence::Offline) {
            self.passed_over |= message.wants_ack();
            return Offered::Pass { confirmed: false };
        }
        if self.repeats && self.conversation.is_unconfirmed(message.id) {
            return Offered::Pass { confirmed: false };
        }
        let config = &encoding.config.xmpp.protocol;
        let delayed = encoding.now.saturating_since(message.sent_at) >= DELAYED;
        let bytes = dispatch.xmpp(config, framing_of(encoding.framing), delayed);
        match self.conversation.deliver(config, message.id, message.wants_ack(), bytes) {
            Delivery::Write => Offered::Send { shared: bytes.clone(), confirmed: false },
            Delivery::Full => Offered::Full,
        }
    }
}
