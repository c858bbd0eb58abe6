//! Messages to a Socket.IO client.

use noroshi_protocol::engine_io::Outgoing;
use noroshi_protocol::socket_io::Variant;

use super::{App, SocketIo};
use crate::protocol::adapter::{Cause, Offered};
use crate::protocol::context::Encoding;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

impl SocketIo {
    pub(super) fn offer_message(
        &mut self,
        encoding: &Encoding<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        let conversation = match &mut self.app {
            App::Device(conversation) if conversation.is_open() => conversation,
            _ => return Offered::Pass { confirmed: false },
        };
        let variant = conversation.variant();
        // A retained message has no offset: a client that resumed behind it would miss the messages before it.
        let (notification, ack_id) = match (cause, variant) {
            (Cause::Retained, Variant::Offsets) => (dispatch.socket_io(Variant::Acks), None),
            _ => {
                let notification = dispatch.socket_io(variant);
                (notification, conversation.deliver(notification))
            }
        };
        let shared = match (encoding.framing, ack_id) {
            (Framing::Polling, ack_id) => match notification.packet(ack_id) {
                Outgoing::Text(bytes) | Outgoing::Binary(bytes) => bytes,
            },
            (_, None) => notification.frame().clone(),
            (_, Some(ack_id)) => {
                notification.push_head(ack_id, head);
                notification.tail()
            }
        };
        Offered::Send { shared, confirmed: false }
    }
}
