//! The in-flight state of a connection: messages sent and not acknowledged, messages received and not finished,
//! and topic aliases in both directions. It is bounded, and does not exist while empty.

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_types::NotificationId;

use super::{Qos, ReasonCode};

/// An in-flight message with its packet id and stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) id: NotificationId,
    /// The log that contains it ([`super::Outgoing`]); 0: none.
    pub(super) log: u32,
    pub(super) packet_id: u16,
    pub(super) stage: Stage,
    /// Sent on an earlier connection of the session: to be sent again when it is delivered again.
    pub(super) resend: bool,
    /// Sent as a retained message: its receipt does not advance the position in the topic's log.
    pub(super) retained: bool,
    /// The client acknowledged it, but the service was not informed yet.
    pub(super) unreported: bool,
    /// The client may hold its packet id for another message: it has not answered the preceding PUBREL.
    pub(super) id_in_doubt: bool,
}

impl Sent {
    /// Whether the client has not acknowledged it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Ack | Stage::Rec)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// QoS 1: completed by PUBACK.
    Ack,
    /// QoS 2: PUBREC is next.
    Rec,
    /// QoS 2: PUBREL was sent; completed by PUBCOMP.
    Comp,
    /// The packet id is free; the service has not been informed yet.
    Done,
}

impl Stage {
    pub(super) fn qos(self) -> Qos {
        match self {
            Stage::Ack => Qos::AtLeastOnce,
            Stage::Rec | Stage::Comp => Qos::ExactlyOnce,
            Stage::Done => Qos::AtMostOnce,
        }
    }
}

/// A received message whose PUBACK or PUBREC was not sent: it waits for the service's result, or for earlier
/// messages ([MQTT-4.6.0-2], [MQTT-4.6.0-3]).
#[derive(Debug)]
pub(super) struct Received {
    pub(super) packet_id: u16,
    pub(super) qos: Qos,
    pub(super) answer: Option<Verdict>,
}

/// The outcome of a received message: a reason code, and an explanation for people.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    pub(super) code: ReasonCode,
    /// Empty if the code is not an error.
    pub(super) text: &'static str,
}

impl Verdict {
    pub(super) const SUCCESS: Verdict = Verdict { code: ReasonCode::Success, text: "" };
}

#[derive(Debug, Default)]
pub(super) struct Flight {
    /// In sending order; at most twice [`super::Config::in_flight_max`].
    pub(super) sent: Vec<Sent>,
    /// Together with `unreleased` at most the receive maximum.
    pub(super) received: VecDeque<Received>,
    /// QoS 2 messages with PUBREC sent and PUBREL pending; sorted.
    pub(super) unreleased: Vec<u16>,
    /// Aliases set by the client, indexed by alias minus 1; at most the announced maximum. `None` where
    /// unset.
    pub(super) aliases: Vec<Option<Box<str>>>,
    /// Aliases set for the client, indexed by alias minus 1.
    pub(super) sent_aliases: Vec<Arc<str>>,
}

impl Flight {
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
            && self.received.is_empty()
            && self.unreleased.is_empty()
            && self.aliases.is_empty()
            && self.sent_aliases.is_empty()
    }

    pub(super) fn held_bytes(&self) -> usize {
        let aliases: usize = self.aliases.iter().flatten().map(|topic| topic.len()).sum();
        size_of::<Self>()
            + self.sent.capacity() * size_of::<Sent>()
            + self.received.capacity() * size_of::<Received>()
            + self.unreleased.capacity() * size_of::<u16>()
            + self.aliases.capacity() * size_of::<Option<Box<str>>>()
            + aliases
            + self.sent_aliases.capacity() * size_of::<Arc<str>>()
    }

    pub(super) fn find(&self, packet_id: u16) -> Option<usize> {
        self.sent.iter().position(|sent| sent.packet_id == packet_id && sent.stage != Stage::Done)
    }

    /// The number of messages that count against the client's receive maximum on this connection.
    pub(super) fn sent_count(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.resend && sent.stage != Stage::Done).count()
    }

    /// The position of a message that was sent for the same reason; prefers one to be sent again.
    pub(super) fn known(&self, id: NotificationId, retained: bool) -> Option<usize> {
        let find = |resend| {
            let is_it = |sent: &Sent| sent.id == id && sent.retained == retained && sent.resend == resend;
            self.sent.iter().position(is_it)
        };
        find(true).or_else(|| find(false))
    }

    /// Whether an unacknowledged message of this log exists.
    pub(super) fn is_open(&self, log: u32) -> bool {
        log != 0 && self.sent.iter().any(|sent| sent.log == log && sent.is_open())
    }

    /// Removes and returns the messages that can be reported to the service. A device has one position in a
    /// log, so a message counts as acknowledged once every message sent before it from the same log is acknowledged
    /// too.
    pub(super) fn take_acknowledged(&mut self) -> Vec<NotificationId> {
        let (mut open, mut ids) = (Vec::new(), Vec::new());
        self.sent.retain_mut(|sent| {
            let follows = sent.log != 0 && open.contains(&sent.log);
            if sent.is_open() && sent.log != 0 && !follows {
                open.push(sent.log);
            }
            if sent.unreported && !follows {
                ids.push(sent.id);
                sent.unreported = false;
            }
            sent.stage != Stage::Done || sent.unreported
        });
        ids
    }

    /// The next free packet id after `last`. One exists, since fewer than 65,535 are in use.
    pub(super) fn next_packet_id(&self, last: u16) -> u16 {
        let mut id = last;
        loop {
            id = id.checked_add(1).unwrap_or(1);
            if self.find(id).is_none() {
                return id;
            }
        }
    }

    pub(super) fn received_count(&self) -> usize {
        self.received.len() + self.unreleased.len()
    }

    /// Whether it is unfinished and must not be published again (§4.3).
    pub(super) fn has_received(&self, packet_id: u16, qos: Qos) -> bool {
        self.received.iter().any(|received| received.packet_id == packet_id && received.qos == qos)
    }

    pub(super) fn is_unreleased(&self, packet_id: u16) -> bool {
        self.unreleased.binary_search(&packet_id).is_ok()
    }

    pub(super) fn keep_unreleased(&mut self, packet_id: u16) {
        if let Err(at) = self.unreleased.binary_search(&packet_id) {
            self.unreleased.insert(at, packet_id);
        }
    }

    /// Returns whether it was present.
    pub(super) fn release(&mut self, packet_id: u16) -> bool {
        let found = self.unreleased.binary_search(&packet_id);
        found.is_ok_and(|at| {
            self.unreleased.remove(at);
            true
        })
    }

    pub(super) fn set_alias(&mut self, alias: u16, topic: &str) {
        let at = usize::from(alias) - 1;
        if self.aliases.len() <= at {
            self.aliases.resize(at + 1, None);
        }
        self.aliases[at] = Some(topic.into());
    }

    pub(super) fn alias(&self, alias: u16) -> Option<&str> {
        self.aliases.get(usize::from(alias).checked_sub(1)?)?.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(id: NotificationId, packet_id: u16, log: u32) -> Sent {
        let (stage, resend, retained) = (Stage::Ack, false, false);
        Sent { id, log, packet_id, stage, resend, retained, unreported: false, id_in_doubt: false }
    }

    #[test]
    fn messages_of_a_log_are_acknowledged_in_order() {
        let mut flight = Flight::default();
        let id = |number: u16| NotificationId::from_bytes([number as u8; 16]);
        for (number, log) in [(1, 7), (2, 0), (3, 7), (4, 8), (5, 7)] {
            flight.sent.push(sent(id(number), number, log));
        }
        let acknowledge = |flight: &mut Flight, number: u16| {
            let at = flight.find(number).expect("in flight");
            (flight.sent[at].stage, flight.sent[at].unreported) = (Stage::Done, true);
            flight.take_acknowledged()
        };
        assert_eq!(acknowledge(&mut flight, 2), [id(2)], "of no log");
        assert_eq!(acknowledge(&mut flight, 3), []);
        assert_eq!(acknowledge(&mut flight, 4), [id(4)], "of another log");
        assert_eq!((flight.find(3), flight.sent_count(), flight.is_open(7)), (None, 2, true));
        assert_eq!(acknowledge(&mut flight, 1), [id(1), id(3)]);
        assert_eq!(acknowledge(&mut flight, 5), [id(5)]);
        assert!(flight.is_empty());
    }

    #[test]
    fn packet_ids_wrap_around_and_skip_those_in_use() {
        let mut flight = Flight::default();
        assert_eq!(flight.next_packet_id(0), 1);
        assert_eq!(flight.next_packet_id(u16::MAX), 1);
        for packet_id in [1, 2, u16::MAX] {
            let id = NotificationId::from_bytes([0; 16]);
            flight.sent.push(sent(id, packet_id, 0));
        }
        assert_eq!(flight.next_packet_id(u16::MAX - 1), 3);
    }

    #[test]
    fn aliases_start_at_one() {
        let mut flight = Flight::default();
        flight.set_alias(3, "a");
        flight.set_alias(1, "b");
        flight.set_alias(3, "c");
        let heard: Vec<_> = (0..5).map(|alias| flight.alias(alias)).collect();
        assert_eq!(heard, [None, Some("b"), None, Some("c"), None]);
    }
}
