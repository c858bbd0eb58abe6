//! What the client is sent: messages at the quality of service of its subscriptions (§3.3.4, §4.3), within
//! its receive maximum and packet size, and what it confirms.
//!
//! A device has a QoS 1 message when its PUBACK comes, and a QoS 2 message when its PUBREC does: from then on
//! the message must not be sent again ([MQTT-4.3.3-6]), so it must not come back from an inbox either. What is
//! left of the handshake, PUBREL and PUBCOMP, is about the packet id alone and kept with the session. Where that was lost,
//! with the node that had it, the client may hold packet ids without PUBREL, and would take a new message for the one
//! that it has (§4.3.3). So PUBREL goes before each message with QoS 2 there.
//!
//! The service keeps one position for a device in a topic's log. So it is told of a message when every message that was
//! sent before it from the same log is confirmed, in whatever order the client confirms: QoS 1 and QoS 2 have separate
//! orders ([MQTT-4.6.0-2], [MQTT-4.6.0-3]), and what is not sent at all is between them.

use bytes::Bytes;
use noroshi_types::{NotificationId, Timestamp};

use super::{Conversation, Phase};
use crate::mqtt::action::{Action, Owed, in_flight};
use crate::mqtt::flight::{Sent, Stage};
use crate::mqtt::frame::var_int_bytes;
use crate::mqtt::outgoing::{Life, Outgoing, expiry_bytes, push_expiry};
use crate::mqtt::packet::flags;
use crate::mqtt::property::push_property;
use crate::mqtt::writer::{push_text, push_u16, push_var_int};
use crate::mqtt::{
    Ack, Config, Packet, PacketType, Properties, Property, Qos, ReasonCode, Value, Version, Violation,
};

/// Why a message comes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was published, now or while the session was away.
    Published,
    /// A subscription was made and this is what its topic retains.
    Retained,
}

/// What became of a message at one connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// What was written to `out`, if anything, and `shared` behind it are the packet. `confirmed`: nobody
    /// will confirm it (QoS 0), so that it was sent is all there is to know.
    Send { shared: Bytes, confirmed: bool },
    /// No subscription matches, or it is the client's own and it does not want that.
    NotForIt,
    /// It is on its way already.
    InFlight,
    /// Too much is unconfirmed: to be offered again when an action says that there is room.
    Full,
    /// Over the client's maximum packet size: as if it had been delivered ([MQTT-3.1.2-25]).
    TooBig,
    /// Its life is over.
    Expired,
}

/// What the matching subscriptions say together ([MQTT-3.3.4-2]).
struct Granted {
    qos: Qos,
    retain_as_published: bool,
    /// Bytes of the subscription identifiers.
    id_bytes: usize,
}

/// A PUBLISH's own part.
struct Head {
    dup: bool,
    qos: Qos,
    retain: bool,
    /// Its topic retains it.
    retained: bool,
    packet_id: u16,
    alias: Option<u16>,
    /// The alias stands for the topic.
    alias_known: bool,
    id_bytes: usize,
    life: Life,
}

impl Conversation {
    /// Writes a message's own part for this connection to `out`; the shared one is returned. Both have to be
    /// sent, one behind the other.
    pub fn deliver(
        &mut self,
        config: &Config,
        outgoing: &Outgoing,
        cause: Cause,
        now: Timestamp,
        out: &mut Vec<u8>,
    ) -> Delivery {
        let retained = cause == Cause::Retained;
        let known = self.flight.as_ref().and_then(|flight| {
            let at = flight.known(outgoing.id, retained)?;
            Some((at, flight.sent[at]))
        });
        let again = known.filter(|(_, sent)| sent.resend);
        // What was begun is finished, whatever was unsubscribed since ([MQTT-3.10.4-3]).
        let begun =
            again.map(|(_, sent)| Granted { qos: sent.stage.qos(), retain_as_published: false, id_bytes: 0 });
        let granted = self.granted(outgoing).or(begun);
        let Some(granted) = granted.filter(|_| self.phase == Phase::Open) else {
            return Delivery::NotForIt;
        };
        let life = outgoing.life(now);
        if life == Life::Over {
            self.drop_sent(again);
            return Delivery::Expired; // [MQTT-3.3.2-5]
        }
        let mut head = Head {
            dup: false,
            qos: granted.qos.min(outgoing.qos),
            // §3.3.1.3
            retain: retained || granted.retain_as_published && outgoing.retain,
            retained,
            packet_id: 0,
            alias: None,
            alias_known: false,
            id_bytes: granted.id_bytes,
            life,
        };
        match known {
            Some((_, sent)) if sent.resend => {
                (head.dup, head.qos, head.packet_id) = (true, sent.stage.qos(), sent.packet_id);
            }
            Some(_) if !retained => return Delivery::InFlight,
            _ => {}
        }
        if !self.has_room(config, outgoing, &head) {
            self.window_full = true;
            return Delivery::Full;
        }
        self.choose_alias(config, outgoing, &mut head);
        if self.packet_bytes(outgoing, &head) > self.packet_bytes_max as usize {
            self.drop_sent(again);
            return Delivery::TooBig;
        }
        self.send(outgoing, head, out)
    }

    /// What was to be sent again is not.
    fn drop_sent(&mut self, again: Option<(usize, Sent)>) {
        if let Some((at, _)) = again {
            self.flight().sent.remove(at);
            self.settle();
        }
    }

    /// A message that nobody will confirm has been dealt with. True if the service can be told now; else it is told with
    /// what was sent before from the same log.
    pub fn passes(&mut self, config: &Config, outgoing: &Outgoing) -> bool {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.is_open(outgoing.log)) else {
            return true;
        };
        let (id, log) = (outgoing.id, outgoing.log);
        let is_full = flight.sent.len() >= 2 * usize::from(config.in_flight_max);
        let last = flight.sent.iter_mut().rfind(|sent| sent.log == log);
        match last.filter(|sent| is_full && sent.stage == Stage::Done) {
            // The position behind both.
            Some(last) => last.id = id,
            None => {
                let (stage, resend, retained, unsure) = (Stage::Done, false, false, false);
                flight.sent.push(Sent {
                    id,
                    log,
                    packet_id: 0,
                    stage,
                    resend,
                    retained,
                    waits: true,
                    unsure,
                });
            }
        }
        false
    }

    /// What was sent and not confirmed, in the order in which it was sent.
    pub fn in_flight(&self) -> impl Iterator<Item = Owed> {
        self.flight.iter().flat_map(|flight| in_flight(&flight.sent))
    }

    /// Of these, what was sent with QoS 2: the client may have it although it was not confirmed.
    pub fn sent_exactly_once(&self) -> Vec<NotificationId> {
        let sent = self.flight.iter().flat_map(|flight| flight.sent.iter());
        sent.filter(|sent| sent.stage == Stage::Rec).map(|sent| sent.id).collect()
    }

    /// Whether one more may be unconfirmed.
    fn has_room(&self, config: &Config, outgoing: &Outgoing, head: &Head) -> bool {
        let Some(flight) = &self.flight else { return true };
        let is_counted = head.qos > Qos::AtMostOnce;
        // Those of earlier connections, and those that wait for others of their log, have a bound too.
        let is_kept = !head.dup && (is_counted || flight.is_open(outgoing.log));
        // [MQTT-3.3.4-7]
        (!is_counted || flight.sent_count() < usize::from(self.window))
            && (!is_kept || flight.sent.len() < 2 * usize::from(config.in_flight_max))
    }

    fn granted(&self, outgoing: &Outgoing) -> Option<Granted> {
        let subscriptions = self.subscriptions.as_ref()?;
        let mut granted: Option<Granted> = None;
        for subscription in subscriptions.hearing(outgoing) {
            let options = subscription.options;
            // [MQTT-3.8.3-3]
            if options.no_local() && outgoing.from == Some(self.origin) {
                continue;
            }
            let granted = granted.get_or_insert(Granted {
                qos: Qos::AtMostOnce,
                retain_as_published: false,
                id_bytes: 0,
            });
            granted.qos = granted.qos.max(options.qos());
            granted.retain_as_published |= options.retain_as_published();
            granted.id_bytes += if subscription.id > 0 { 1 + var_int_bytes(subscription.id) } else { 0 };
        }
        granted
    }

    /// A topic that comes often is named once (§3.3.2.3.4). Which alias is decided here, that it is set when
    /// the packet is written.
    fn choose_alias(&self, config: &Config, outgoing: &Outgoing, head: &mut Head) {
        if self.version == Version::V3 || self.send_aliases == 0 {
            return;
        }
        let set = self.flight.as_ref().map_or(&[][..], |flight| &flight.sent_aliases);
        let found = set.iter().position(|topic| *topic == outgoing.topic);
        let most = usize::from(self.send_aliases.min(config.send_aliases_max));
        let at = found.or((set.len() < most).then_some(set.len()));
        head.alias = at.and_then(|at| u16::try_from(at + 1).ok());
        head.alias_known = found.is_some();
    }

    fn packet_bytes(&self, outgoing: &Outgoing, head: &Head) -> usize {
        let rest = self.rest_bytes(outgoing, head);
        1 + var_int_bytes(u32::try_from(rest).unwrap_or(u32::MAX)) + rest
    }

    /// All behind the fixed header.
    fn rest_bytes(&self, outgoing: &Outgoing, head: &Head) -> usize {
        let (shared, shared_properties) = outgoing.shared_bytes(self.version);
        let properties = head.property_bytes();
        let length = match self.version {
            Version::V3 => 0,
            Version::V5 => var_int_bytes((properties + shared_properties) as u32) + properties,
        };
        2 + head.topic(outgoing).len() + head.packet_id_bytes() + length + shared
    }

    fn send(&mut self, outgoing: &Outgoing, mut head: Head, out: &mut Vec<u8>) -> Delivery {
        let confirmed = outgoing.wants_ack && head.qos == Qos::AtMostOnce;
        let version = self.version;
        if head.is_plain()
            && let Some(shared) = outgoing.whole(version, head.life)
        {
            return Delivery::Send { shared, confirmed };
        }
        if head.qos > Qos::AtMostOnce {
            head.packet_id = self.count_sent(outgoing, &head);
        }
        if self.sent(head.packet_id).is_some_and(|(_, sent)| sent.unsure) {
            Packet::PubRel(Ack::success(head.packet_id)).encode(version, out);
        }
        if head.alias.is_some() && !head.alias_known {
            self.flight().sent_aliases.push(outgoing.topic.clone());
        }
        out.push((PacketType::Publish as u8) << 4 | flags(head.dup, head.qos, head.retain));
        push_var_int(out, u32::try_from(self.rest_bytes(outgoing, &head)).unwrap_or(u32::MAX));
        push_text(out, head.topic(outgoing));
        if head.qos > Qos::AtMostOnce {
            push_u16(out, head.packet_id);
        }
        if version == Version::V5 {
            self.push_properties(outgoing, &head, out);
        }
        Delivery::Send { shared: outgoing.shared(version), confirmed }
    }

    /// The packet id it is sent with.
    fn count_sent(&mut self, outgoing: &Outgoing, head: &Head) -> u16 {
        let (last, unsure) = (self.last_packet_id, self.forgot_ids && head.qos == Qos::ExactlyOnce);
        let flight = self.flight();
        if head.dup {
            if let Some(at) = flight.find(head.packet_id) {
                flight.sent[at].resend = false;
            }
            return head.packet_id;
        }
        let packet_id = flight.next_packet_id(last);
        let stage = if head.qos == Qos::ExactlyOnce { Stage::Rec } else { Stage::Ack };
        let (id, retained) = (outgoing.id, head.retained);
        let log = if retained { 0 } else { outgoing.log };
        flight.sent.push(Sent { id, log, packet_id, stage, resend: false, retained, waits: false, unsure });
        self.last_packet_id = packet_id;
        packet_id
    }

    fn push_properties(&self, outgoing: &Outgoing, head: &Head, out: &mut Vec<u8>) {
        let (_, shared_properties) = outgoing.shared_bytes(Version::V5);
        push_var_int(out, (head.property_bytes() + shared_properties) as u32);
        push_expiry(out, head.life);
        if let Some(alias) = head.alias {
            push_property(out, Property::TopicAlias, Value::U16(alias));
        }
        let ids = self.subscriptions.iter().flat_map(|list| list.hearing(outgoing));
        let heard = ids.filter(|one| !(one.options.no_local() && outgoing.from == Some(self.origin)));
        for id in heard.map(|subscription| subscription.id).filter(|id| *id > 0) {
            push_property(out, Property::SubscriptionIdentifier, Value::VarInt(id)); // [MQTT-3.3.4-4]
        }
    }

    /// What was in flight was looked for: what `is_there` denies is no more (it expired, or made room).
    pub fn looked_for(&mut self, is_there: impl Fn(Owed) -> bool) {
        if let Some(flight) = &mut self.flight {
            flight
                .sent
                .retain(|sent| !sent.resend || is_there(Owed { id: sent.id, retained: sent.retained }));
        }
    }

    /// Everything that was kept for the session came by: what was in flight and did not is no more. The device has what
    /// is returned, and that was not said before.
    pub fn caught_up(&mut self) -> Vec<NotificationId> {
        self.looked_for(|_| false);
        let ids = self.flight.as_mut().map(|flight| flight.take_told()).unwrap_or_default();
        self.settle();
        ids
    }

    pub(super) fn handle_puback<'a>(&mut self, ack: Ack<'_>) -> Result<Action<'a>, Violation> {
        let Some((at, sent)) = self.sent(ack.packet_id) else { return Ok(Action::None) };
        match sent.stage {
            // Also if it is refused: [MQTT-4.4.0-2].
            Stage::Ack => Ok(self.end_sent(at)),
            Stage::Rec | Stage::Comp | Stage::Done => Err(Violation::AckMismatch),
        }
    }

    pub(super) fn handle_pubrec<'a>(
        &mut self,
        ack: Ack<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Action<'a>, Violation> {
        let packet_id = ack.packet_id;
        let Some((at, sent)) = self.sent(packet_id) else {
            // Of a session that is not known any more; the client goes on in either case.
            let reason = ReasonCode::PacketIdentifierNotFound;
            let release = Ack { packet_id, reason, properties: Properties::default() };
            return Ok(if ack.reason.is_error() {
                Action::None
            } else {
                self.say(Packet::PubRel(release), out)
            });
        };
        match sent.stage {
            Stage::Ack | Stage::Done => Err(Violation::AckMismatch),
            Stage::Rec | Stage::Comp if ack.reason.is_error() => Ok(self.end_sent(at)),
            Stage::Rec => {
                let flight = self.flight();
                let stage = Stage::Comp;
                flight.sent[at] = Sent { stage, resend: false, waits: !sent.retained, ..sent };
                let ids = flight.take_told();
                match self.say(Packet::PubRel(Ack::success(packet_id)), out) {
                    Action::None if !ids.is_empty() => Ok(Action::Settled { ids, room: false }),
                    action => Ok(action),
                }
            }
            Stage::Comp => Ok(self.say(Packet::PubRel(Ack::success(packet_id)), out)),
        }
    }

    pub(super) fn handle_pubcomp<'a>(&mut self, ack: Ack<'_>) -> Result<Action<'a>, Violation> {
        let Some((at, sent)) = self.sent(ack.packet_id) else { return Ok(Action::None) };
        match sent.stage {
            Stage::Comp => Ok(self.end_sent(at)),
            // Of the PUBREL before the message.
            Stage::Rec if self.forgot_ids => {
                self.flight().sent[at].unsure = false;
                Ok(Action::None)
            }
            Stage::Ack | Stage::Rec | Stage::Done => Err(Violation::AckMismatch),
        }
    }

    fn sent(&self, packet_id: u16) -> Option<(usize, Sent)> {
        let flight = self.flight.as_ref()?;
        flight.find(packet_id).map(|at| (at, flight.sent[at]))
    }

    /// Its packet id is free, and the device has it.
    fn end_sent<'a>(&mut self, at: usize) -> Action<'a> {
        let flight = self.flight();
        let sent = flight.sent[at];
        let waits = sent.waits || sent.is_open() && !sent.retained;
        flight.sent[at] = Sent { stage: Stage::Done, packet_id: 0, resend: false, waits, ..sent };
        let ids = flight.take_told();
        let left = flight.sent_count();
        // Half a window at once, rather than one message after the other.
        let room = self.window_full && left <= usize::from(self.window) / 2;
        self.window_full &= !room;
        self.settle();
        match ids.is_empty() && !room {
            true => Action::None,
            false => Action::Settled { ids, room },
        }
    }
}

impl Head {
    /// Nothing in it is the connection's own.
    fn is_plain(&self) -> bool {
        self.qos == Qos::AtMostOnce && !self.retain && self.alias.is_none() && self.id_bytes == 0
    }

    fn topic<'o>(&self, outgoing: &'o Outgoing) -> &'o str {
        if self.alias_known { "" } else { &outgoing.topic }
    }

    fn packet_id_bytes(&self) -> usize {
        if self.qos > Qos::AtMostOnce { 2 } else { 0 }
    }

    /// Of its own properties, without the length in front.
    fn property_bytes(&self) -> usize {
        expiry_bytes(self.life) + if self.alias.is_some() { 3 } else { 0 } + self.id_bytes
    }
}
