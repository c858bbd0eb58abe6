//! What the session core asks of a protocol that keeps a conversation of its own: one value behind one
//! pointer in the connection, which native connections do not have.
//!
//! A protocol lives in a file of its own ([`crate::protocol::mqtt`], [`crate::protocol::socket_io`], [`crate::protocol::xmpp`]) and is
//! reached from here alone: bytes in
//! ([`Shard::feed_talk`], [`Shard::feed_talk_message`]), the session that began ([`Shard::begin_talk`]), messages
//! out ([`Talk::offer`]), what time brings ([`Shard::handle_talk_due`]), the last word
//! ([`Shard::say_last_word`]) and the end ([`Shard::end_talk`]). Everything else, from admission to drain, is
//! the core's and the same for all.
//!
//! Invariant: a conversation says what it sends by `Shard::send` or through [`crate::fanout::offering`], so that the
//! order in which it counted is the order on the wire.

use std::collections::HashSet;

use bytes::Bytes;
use noroshi_protocol::mqtt::Owed;
use noroshi_protocol::socket_io::encode;
use noroshi_protocol::ws::Input;
use noroshi_store::Place;
use noroshi_types::{CloseReason, NotificationId, Timestamp, Topic};

use crate::config::Config;
use crate::protocol::mqtt::Mqtt;
use crate::protocol::polling::Exchange;
use crate::protocol::socket_io::SocketIo;
use crate::protocol::xmpp::Xmpp;
use crate::session::login::Begun;
use crate::shard::Shard;
use crate::wire::Framing;
use crate::wire::dispatch::Dispatch;

/// The conversation of a connection.
pub(crate) enum Talk {
    Mqtt(Mqtt),
    SocketIo(SocketIo),
    /// Of a connection that serves a session which is another slot's ([`crate::protocol::polling`]).
    Exchange(Exchange),
    Xmpp(Xmpp),
}

/// What a conversation needs to know to encode a message.
pub(crate) struct Context<'a> {
    pub(crate) config: &'a Config,
    pub(crate) framing: Framing,
    pub(crate) now: Timestamp,
}

/// Why a message is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It was published, now or while the session was away.
    Published,
    /// Its topic retains it.
    Retained,
}

/// What a conversation does with a message.
pub(crate) enum Offered {
    /// The connection's own bytes were appended to the head; `shared` follows them. `confirmed`: nobody will
    /// confirm it, so that it was sent is all there is to know.
    Send { shared: Bytes, confirmed: bool },
    /// Not for this connection. `confirmed`: and never will be.
    Pass { confirmed: bool },
    /// No room until something is confirmed: then `Shard::make_room` has it offered again.
    Full,
}

/// How a connection hears a topic's message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Heard {
    pub(crate) by_wildcard: bool,
    /// The topic was subscribed to by its name after the message.
    pub(crate) before_name: bool,
}

impl Talk {
    /// Appends what is the connection's own of a message to `head`.
    pub(crate) fn offer(
        &mut self,
        context: &Context<'_>,
        dispatch: &Dispatch,
        cause: Cause,
        head: &mut Vec<u8>,
    ) -> Offered {
        match self {
            Talk::Mqtt(mqtt) => mqtt.offer(context, dispatch, cause, head),
            Talk::SocketIo(socket_io) => socket_io.offer(context, dispatch, cause, head),
            Talk::Exchange(_) => Offered::Pass { confirmed: false },
            Talk::Xmpp(xmpp) => xmpp.offer(context, dispatch),
        }
    }

    /// Appends what is said behind messages that were offered together.
    pub(crate) fn follow(&mut self, config: &Config, out: &mut Vec<u8>) {
        match self {
            Talk::Mqtt(_) | Talk::SocketIo(_) | Talk::Exchange(_) => {}
            Talk::Xmpp(xmpp) => xmpp.follow(config, out),
        }
    }

    /// The session's backlog was written, all of it. The device has what is returned.
    pub(crate) fn caught_up(&mut self) -> Vec<NotificationId> {
        match self {
            Talk::Mqtt(mqtt) => return mqtt.caught_up(),
            Talk::SocketIo(_) | Talk::Exchange(_) => {}
            Talk::Xmpp(xmpp) => xmpp.caught_up(),
        }
        Vec::new()
    }

    /// Of what the session had in flight only this is still there.
    pub(crate) fn looked_for(&mut self, found: &HashSet<Owed>) {
        if let Talk::Mqtt(mqtt) = self {
            mqtt.looked_for(found);
        }
    }

    /// How a topic's message at a place in the order of commits is heard.
    pub(crate) fn heard(&self, topic: &Topic, at: Place) -> Heard {
        match self {
            Talk::Mqtt(mqtt) => mqtt.heard(topic, at),
            Talk::SocketIo(_) | Talk::Exchange(_) | Talk::Xmpp(_) => Heard::default(),
        }
    }

    /// What was accepted up to here was heard by filters with wildcards; `None` where there are none.
    pub(crate) fn heard_by_wildcard(&self) -> Option<Place> {
        match self {
            Talk::Mqtt(mqtt) => mqtt.heard_by_wildcard(),
            _ => None,
        }
    }

    /// Whether what the topics of a log-in retain is wanted.
    pub(crate) fn wants_retained(&self) -> bool {
        match self {
            Talk::Mqtt(mqtt) => mqtt.wants_retained(),
            Talk::SocketIo(_) | Talk::Exchange(_) => true,
            Talk::Xmpp(xmpp) => xmpp.wants_retained(),
        }
    }

    /// Frames that the device may send for each message it gets.
    pub(crate) fn frames_granted(&self) -> u32 {
        match self {
            // PUBREC and PUBCOMP, and PUBCOMP once more where packet ids were forgotten.
            Talk::Mqtt(_) => 3,
            // A receipt and a count.
            Talk::Xmpp(_) => 2,
            Talk::SocketIo(_) | Talk::Exchange(_) => 1,
        }
    }

    /// The longest message of a WebSocket.
    pub(crate) fn message_bytes_max(&self, config: &Config) -> usize {
        match self {
            Talk::Mqtt(_) => config.mqtt.packet_bytes_max as usize,
            Talk::SocketIo(_) | Talk::Exchange(_) => config.socket_io.engine.payload_bytes_max,
            Talk::Xmpp(_) => config.xmpp.protocol.xml.element_bytes_max,
        }
    }

    /// Bytes that wait for a poll.
    pub(crate) fn queued_bytes(&self) -> usize {
        match self {
            Talk::SocketIo(socket_io) => socket_io.queued_bytes(),
            Talk::Mqtt(_) | Talk::Xmpp(_) | Talk::Exchange(_) => 0,
        }
    }

    /// A message that waits for a poll.
    pub(crate) fn queue(&mut self, packet: Bytes) {
        if let Talk::SocketIo(socket_io) = self {
            socket_io.queue(packet);
        }
    }
}

impl Shard {
    fn talk(&self, slot: u32) -> Option<&Talk> {
        self.connections.get(slot as usize)?.talk.as_deref()
    }

    /// Bytes of a connection whose framing is a bare stream.
    pub(crate) fn feed_talk(&mut self, slot: u32, bytes: &[u8]) {
        match self.talk(slot) {
            Some(Talk::Mqtt(_)) => self.feed_mqtt(slot, bytes),
            Some(Talk::Xmpp(_)) => self.feed_xmpp(slot, bytes),
            Some(Talk::Exchange(_)) => self.feed_exchange(slot, bytes),
            Some(Talk::SocketIo(_)) | None => {}
        }
    }

    /// A whole message of a WebSocket.
    pub(crate) fn feed_talk_message(&mut self, slot: u32, input: Input<'_>) {
        match (self.talk(slot), input) {
            (Some(Talk::Mqtt(_)), Input::Binary(bytes)) => self.feed_mqtt(slot, bytes),
            // [MQTT-6.0.0-1]
            (Some(Talk::Mqtt(_)), _) => self.begin_close(slot, CloseReason::BadMessage),
            (Some(Talk::SocketIo(_)), input) => self.feed_socket_io(slot, input),
            (Some(Talk::Exchange(_)), input) => self.feed_probe(slot, input),
            (Some(Talk::Xmpp(_)), Input::Text(text)) => self.hear_xmpp(slot, text),
            // RFC 7395 §3.2
            (Some(Talk::Xmpp(_)), _) => self.begin_close(slot, CloseReason::BadMessage),
            (None, _) => {}
        }
    }

    /// The log-in succeeded, the session is attached: the client is told. Bytes that
    /// came early are returned: they are fed behind the first page.
    pub(crate) fn begin_talk(&mut self, slot: u32, begun: &Begun) -> Vec<u8> {
        match self.talk(slot) {
            Some(Talk::Mqtt(_)) => self.begin_mqtt(slot, begun),
            Some(Talk::SocketIo(_)) => {
                self.begin_socket_io(slot, begun);
                Vec::new()
            }
            Some(Talk::Xmpp(_)) => {
                self.begin_xmpp(slot, begun);
                Vec::new()
            }
            Some(Talk::Exchange(_)) | None => Vec::new(),
        }
    }

    /// A position that the client had named for a topic was read from.
    pub(crate) fn tell_recovered(&mut self, slot: u32, topic: &Topic, complete: bool) {
        match self.talk(slot) {
            Some(Talk::SocketIo(_)) => self.send_packet(slot, encode::recovered(topic, complete)),
            // Their clients name none.
            Some(Talk::Mqtt(_) | Talk::Xmpp(_) | Talk::Exchange(_)) | None => {}
        }
    }

    /// The connection's own time has come (`Connection::ping_tick`).
    pub(crate) fn handle_talk_due(&mut self, slot: u32) {
        match self.talk(slot) {
            Some(Talk::Mqtt(_)) => self.handle_mqtt_due(slot),
            Some(Talk::SocketIo(_)) => self.handle_socket_io_due(slot),
            Some(Talk::Xmpp(_)) => self.handle_xmpp_due(slot),
            Some(Talk::Exchange(_)) | None => {
                if let Some(connection) = self.connection(slot) {
                    connection.ping_tick = u32::MAX;
                }
            }
        }
    }

    /// The server ends the connection, or does not let it in. It is `Phase::Closing` already.
    pub(crate) fn say_last_word(&mut self, slot: u32, reason: CloseReason, after_ms: u64) {
        match self.talk(slot) {
            Some(Talk::Mqtt(_)) => self.end_mqtt_word(slot, reason),
            Some(Talk::SocketIo(_)) => self.end_socket_io_word(slot, reason, after_ms),
            Some(Talk::Xmpp(_)) => self.end_xmpp_word(slot, reason),
            Some(Talk::Exchange(_)) | None => {}
        }
    }

    /// The connection leaves everything, however it ended: what its session leaves behind is taken out of it.
    pub(crate) fn end_talk(&mut self, slot: u32) {
        let Some(connection) = self.connection(slot) else { return };
        let Some(talk) = connection.talk.take() else { return };
        match *talk {
            Talk::Mqtt(mqtt) => self.part_mqtt(slot, mqtt),
            Talk::SocketIo(socket_io) => self.part_socket_io(slot, socket_io),
            Talk::Exchange(exchange) => self.part_exchange(slot, &exchange),
            Talk::Xmpp(xmpp) => self.part_xmpp(slot, xmpp),
        }
    }
}
