//! What is under way on one connection: messages sent and not confirmed, messages received and not
//! finished, and topic aliases both ways. All of it is bounded, and none of it exists while nothing is
//! under way.

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_types::NotificationId;

use super::{Qos, ReasonCode};

/// A message's packet id and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) id: NotificationId,
    /// The log that it comes from ([`super::Outgoing`]); 0 is none.
    pub(super) log: u32,
    pub(super) packet_id: u16,
    pub(super) stage: Stage,
    /// Sent on an earlier connection of the session: to be sent again when it comes by.
    pub(super) resend: bool,
    /// Sent because its topic retains it: that the client has it says nothing about the topic's log.
    pub(super) retained: bool,
    /// The client confirmed it, and the service has not been told.
    pub(super) waits: bool,
    /// The client may hold its packet id for another message: it did not answer the PUBREL that went before.
    pub(super) unsure: bool,
}

impl Sent {
    /// Whether the client has not confirmed it.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Ack | Stage::Rec)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// QoS 1: PUBACK ends it.
    Ack,
    /// QoS 2: PUBREC is next.
    Rec,
    /// QoS 2: PUBREL was sent, PUBCOMP ends it.
    Comp,
    /// It has no packet id any more, and waits for the service to be told.
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

/// A received message whose PUBACK or PUBREC has not gone out: it waits for the service's answer, or for
/// those before it ([MQTT-4.6.0-2], [MQTT-4.6.0-3]).
#[derive(Debug)]
pub(super) struct Received {
    pub(super) packet_id: u16,
    pub(super) qos: Qos,
    pub(super) answer: Option<Verdict>,
}

/// What is to be said of a received message: a code, and for people why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Verdict {
    pub(super) code: ReasonCode,
    /// Nothing where the code is no error.
    pub(super) text: &'static str,
}

impl Verdict {
    pub(super) const SUCCESS: Verdict = Verdict { code: ReasonCode::Success, text: "" };
}

#[derive(Debug, Default)]
pub(super) struct Flight {
    /// In the order they were sent; at most twice [`super::Config::in_flight_max`].
    pub(super) sent: Vec<Sent>,
    /// At most the receive maximum, together with `unreleased`.
    pub(super) received: VecDeque<Received>,
    /// QoS 2 messages whose PUBREC went out and whose PUBREL has not come; ordered.
    pub(super) unreleased: Vec<u16>,
    /// What the client set, by alias less 1; at most the maximum told. `None` between set ones.
    pub(super) aliases: Vec<Option<Box<str>>>,
    /// What was set towards the client, by alias less 1.
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

    /// Those that count against the client's receive maximum on this connection.
    pub(super) fn sent_count(&self) -> usize {
        self.sent.iter().filter(|sent| !sent.resend && sent.stage != Stage::Done).count()
    }

    /// Where a message is that was sent for the same reason: first one to be sent again.
    pub(super) fn known(&self, id: NotificationId, retained: bool) -> Option<usize> {
        let find = |resend| {
            let is_it = |sent: &Sent| sent.id == id && sent.retained == retained && sent.resend == resend;
            self.sent.iter().position(is_it)
        };
        find(true).or_else(|| find(false))
    }

    /// Whether a message of this log was sent and is not confirmed.
    pub(super) fn is_open(&self, log: u32) -> bool {
        log != 0 && self.sent.iter().any(|sent| sent.log == log && sent.is_open())
    }

    /// Takes out what the service can be told. A device has one position in a log, so a message counts as confirmed when
    /// every message sent before it from the same log is confirmed too.
    pub(super) fn take_told(&mut self) -> Vec<NotificationId> {
        let (mut open, mut ids) = (Vec::new(), Vec::new());
        self.sent.retain_mut(|sent| {
            let follows = sent.log != 0 && open.contains(&sent.log);
            if sent.is_open() && sent.log != 0 && !follows {
                open.push(sent.log);
            }
            if sent.waits && !follows {
                ids.push(sent.id);
                sent.waits = false;
            }
            sent.stage != Stage::Done || sent.waits
        });
        ids
    }

    /// A packet id that no message has; `last` is the one given before. There is one, since fewer than
    /// 65,535 are out.
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

    /// Whether it is neither finished nor to be published again (§4.3).
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

    /// Whether it was there.
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
        Sent { id, log, packet_id, stage, resend, retained, waits: false, unsure: false }
    }

    #[test]
    fn a_log_is_confirmed_in_its_order() {
        let mut flight = Flight::default();
        let id = |number: u16| NotificationId::from_bytes([number as u8; 16]);
        for (number, log) in [(1, 7), (2, 0), (3, 7), (4, 8), (5, 7)] {
            flight.sent.push(sent(id(number), number, log));
        }
        let confirm = |flight: &mut Flight, number: u16| {
            let at = flight.find(number).expect("in flight");
            (flight.sent[at].stage, flight.sent[at].waits) = (Stage::Done, true);
            flight.take_told()
        };
        assert_eq!(confirm(&mut flight, 2), [id(2)], "of no log");
        assert_eq!(confirm(&mut flight, 3), []);
        assert_eq!(confirm(&mut flight, 4), [id(4)], "of another log");
        assert_eq!((flight.find(3), flight.sent_count(), flight.is_open(7)), (None, 2, true));
        assert_eq!(confirm(&mut flight, 1), [id(1), id(3)]);
        assert_eq!(confirm(&mut flight, 5), [id(5)]);
        assert!(flight.is_empty());
    }

    #[test]
    fn packet_ids_go_round_and_pass_those_in_use() {
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
    fn aliases_are_numbered_from_one() {
        let mut flight = Flight::default();
        flight.set_alias(3, "a");
        flight.set_alias(1, "b");
        flight.set_alias(3, "c");
        let heard: Vec<_> = (0..5).map(|alias| flight.alias(alias)).collect();
        assert_eq!(heard, [None, Some("b"), None, Some("c"), None]);
    }
}
