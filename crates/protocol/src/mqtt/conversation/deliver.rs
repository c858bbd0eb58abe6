//! Messages to the client: at the QoS of its subscriptions (§3.3.4, §4.3), within its receive maximum and
//! packet size, and their acknowledgements.
//!
//! A device has received a QoS 1 message when its PUBACK arrives, and a QoS 2 message when its PUBREC does:
//! after that the message must not be sent again ([MQTT-4.3.3-6]), including from an inbox. The rest of the
//! handshake, PUBREL and PUBCOMP, concerns only the packet id and is kept with the session. If that state was
//! lost with its node, the client may hold packet ids without PUBREL, and would take a new message for the
//! one that it has (§4.3.3). Each QoS 2 message is then preceded by PUBREL.
//!
//! The service keeps one position per device in a topic's log. It therefore learns of an acknowledged message
//! only when all messages sent before it from the same log are acknowledged, in whatever order the client
//! acknowledges: QoS 1 and QoS 2 are ordered separately ([MQTT-4.6.0-2], [MQTT-4.6.0-3]), and messages that are
//! not sent at all lie in between.

use bytes::Bytes;
use noroshi_types::{NotificationId, Timestamp};

use super::{Conversation, Phase};
use crate::mqtt::action::{Action, UnacknowledgedMessage, in_flight};
use crate::mqtt::flight::{Sent, Stage};
use crate::mqtt::frame::var_int_bytes;
use crate::mqtt::outgoing::{Life, Outgoing, expiry_bytes, push_expiry};
use crate::mqtt::packet::flags;
use crate::mqtt::property::push_property;
use crate::mqtt::writer::{push_text, push_u16, push_var_int};
use crate::mqtt::{
    Ack, Config, Packet, PacketType, Properties, Property, Qos, ReasonCode, Value, Version, Violation,
};

/// Why a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// It was published, now or while the session was offline.
    Published,
    /// A subscription was made, and its topic retains the message.
    Retained,
}

/// The result of a delivery to one connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The packet consists of the bytes written to `out`, if any, followed by `shared`. `acknowledged`: the
    /// client will not acknowledge it (QoS 0), so it counts as received.
    Send { shared: Bytes, acknowledged: bool },
    /// No subscription matches, or the client published it and disabled that (No Local).
    NoMatch,
    /// It is already in flight.
    InFlight,
    /// Too many messages are unacknowledged: offer it again when an action reports `room`.
    Full,
    /// It exceeds the client's maximum packet size, and counts as delivered ([MQTT-3.1.2-25]).
    TooBig,
    /// It has expired.
    Expired,
}

/// The combined options of all matching subscriptions ([MQTT-3.3.4-2]).
struct Granted {
    qos: Qos,
    retain_as_published: bool,
    /// Encoded size of the subscription identifiers.
    id_bytes: usize,
}

/// The part of a PUBLISH that differs between connections.
struct Head {
    dup: bool,
    qos: Qos,
    retain: bool,
    /// It is a retained message.
    retained: bool,
    packet_id: u16,
    alias: Option<u16>,
    /// The client already knows the alias.
    alias_known: bool,
    id_bytes: usize,
    life: Life,
}

impl Conversation {
    /// Writes the connection's own part of a message to `out` and returns the shared part. The caller must
    /// send both, one after the other.
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
        // A started delivery is completed, even if the client unsubscribed since ([MQTT-3.10.4-3]).
        let in_progress =
            again.map(|(_, sent)| Granted { qos: sent.stage.qos(), retain_as_published: false, id_bytes: 0 });
        let granted = self.granted(outgoing).or(in_progress);
        let Some(granted) = granted.filter(|_| self.phase == Phase::Open) else {
            return Delivery::NoMatch;
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

    /// Drops a message that was to be sent again.
    fn drop_sent(&mut self, again: Option<(usize, Sent)>) {
        if let Some((at, _)) = again {
            self.flight().sent.remove(at);
            self.free_flight();
        }
    }

    /// Records a message that the client will not acknowledge. Returns true if the service may be informed
    /// now; otherwise it is informed together with earlier messages of the same log.
    pub fn passes(&mut self, config: &Config, outgoing: &Outgoing) -> bool {
        let Some(flight) = self.flight.as_mut().filter(|flight| flight.is_open(outgoing.log)) else {
            return true;
        };
        let (id, log) = (outgoing.id, outgoing.log);
        let is_full = flight.sent.len() >= 2 * usize::from(config.in_flight_max);
        let last = flight.sent.iter_mut().rfind(|sent| sent.log == log);
        match last.filter(|sent| is_full && sent.stage == Stage::Done) {
            // The position after both.
            Some(last) => last.id = id,
            None => {
                let (stage, resend, retained, id_in_doubt) = (Stage::Done, false, false, false);
                flight.sent.push(Sent {
                    id,
                    log,
                    packet_id: 0,
                    stage,
                    resend,
                    retained,
                    unreported: true,
                    id_in_doubt,
                });
            }
        }
        false
    }

    /// Messages sent and not acknowledged, in sending order.
    pub fn in_flight(&self) -> impl Iterator<Item = UnacknowledgedMessage> {
        self.flight.iter().flat_map(|flight| in_flight(&flight.sent))
    }

    /// The in-flight messages sent with QoS 2: the client may have received them without acknowledging.
    pub fn sent_exactly_once(&self) -> Vec<NotificationId> {
        let sent = self.flight.iter().flat_map(|flight| flight.sent.iter());
        sent.filter(|sent| sent.stage == Stage::Rec).map(|sent| sent.id).collect()
    }

    /// Whether another message may be unacknowledged.
    fn has_room(&self, config: &Config, outgoing: &Outgoing, head: &Head) -> bool {
        let Some(flight) = &self.flight else { return true };
        let is_counted = head.qos > Qos::AtMostOnce;
        // Messages of earlier connections, and those that wait for others of their log, are bounded too.
        let is_kept = !head.dup && (is_counted || flight.is_open(outgoing.log));
        // [MQTT-3.3.4-7]
        (!is_counted || flight.sent_count() < usize::from(self.window))
            && (!is_kept || flight.sent.len() < 2 * usize::from(config.in_flight_max))
    }

    fn granted(&self, outgoing: &Outgoing) -> Option<Granted> {
        let subscriptions = self.subscriptions.as_ref()?;
        let mut granted: Option<Granted> = None;
        for subscription in subscriptions.receiving(outgoing) {
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

    /// Names a frequent topic once (§3.3.2.3.4). The alias is chosen here and registered when the packet is
    /// written.
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

    /// Size of everything after the fixed header.
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
        let acknowledged = outgoing.wants_ack && head.qos == Qos::AtMostOnce;
        let version = self.version;
        if head.is_plain()
            && let Some(shared) = outgoing.whole(version, head.life)
        {
            return Delivery::Send { shared, acknowledged };
        }
        if head.qos > Qos::AtMostOnce {
            head.packet_id = self.count_sent(outgoing, &head);
        }
        if self.sent(head.packet_id).is_some_and(|(_, sent)| sent.id_in_doubt) {
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
        Delivery::Send { shared: outgoing.shared(version), acknowledged }
    }

    /// Registers the message and returns its packet id.
    fn count_sent(&mut self, outgoing: &Outgoing, head: &Head) -> u16 {
        let (last, id_in_doubt) = (self.last_packet_id, self.forgot_ids && head.qos == Qos::ExactlyOnce);
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
        flight.sent.push(Sent {
            id,
            log,
            packet_id,
            stage,
            resend: false,
            retained,
            unreported: false,
            id_in_doubt,
        });
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
        let ids = self.subscriptions.iter().flat_map(|list| list.receiving(outgoing));
        let receiving = ids.filter(|one| !(one.options.no_local() && outgoing.from == Some(self.origin)));
        for id in receiving.map(|subscription| subscription.id).filter(|id| *id > 0) {
            push_property(out, Property::SubscriptionIdentifier, Value::VarInt(id)); // [MQTT-3.3.4-4]
        }
    }

    /// Drops in-flight messages that `is_there` reports as gone (expired or evicted).
    pub fn retain_in_flight(&mut self, is_there: impl Fn(UnacknowledgedMessage) -> bool) {
        if let Some(flight) = &mut self.flight {
            flight.sent.retain(|sent| {
                !sent.resend || is_there(UnacknowledgedMessage { id: sent.id, retained: sent.retained })
            });
        }
    }

    /// All stored messages of the session were offered again: drops in-flight messages that were not among
    /// them. Returns messages that the device has received and that were not yet reported.
    pub fn caught_up(&mut self) -> Vec<NotificationId> {
        self.retain_in_flight(|_| false);
        let ids = self.flight.as_mut().map(|flight| flight.take_acknowledged()).unwrap_or_default();
        self.free_flight();
        ids
    }

    pub(super) fn handle_puback<'a>(&mut self, ack: Ack<'_>) -> Result<Action<'a>, Violation> {
        let Some((at, sent)) = self.sent(ack.packet_id) else { return Ok(Action::None) };
        match sent.stage {
            // Also if the client rejects it: [MQTT-4.4.0-2].
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
            // Belongs to a session that is no longer known; the client continues in either case.
            let reason = ReasonCode::PacketIdentifierNotFound;
            let release = Ack { packet_id, reason, properties: Properties::default() };
            return Ok(if ack.reason.is_error() {
                Action::None
            } else {
                self.push_or_close(Packet::PubRel(release), out)
            });
        };
        match sent.stage {
            Stage::Ack | Stage::Done => Err(Violation::AckMismatch),
            Stage::Rec | Stage::Comp if ack.reason.is_error() => Ok(self.end_sent(at)),
            Stage::Rec => {
                let flight = self.flight();
                let stage = Stage::Comp;
                flight.sent[at] = Sent { stage, resend: false, unreported: !sent.retained, ..sent };
                let ids = flight.take_acknowledged();
                match self.push_or_close(Packet::PubRel(Ack::success(packet_id)), out) {
                    Action::None if !ids.is_empty() => Ok(Action::Settled { ids, room: false }),
                    action => Ok(action),
                }
            }
            Stage::Comp => Ok(self.push_or_close(Packet::PubRel(Ack::success(packet_id)), out)),
        }
    }

    pub(super) fn handle_pubcomp<'a>(&mut self, ack: Ack<'_>) -> Result<Action<'a>, Violation> {
        let Some((at, sent)) = self.sent(ack.packet_id) else { return Ok(Action::None) };
        match sent.stage {
            Stage::Comp => Ok(self.end_sent(at)),
            // Completes the PUBREL that preceded the message.
            Stage::Rec if self.forgot_ids => {
                self.flight().sent[at].id_in_doubt = false;
                Ok(Action::None)
            }
            Stage::Ack | Stage::Rec | Stage::Done => Err(Violation::AckMismatch),
        }
    }

    fn sent(&self, packet_id: u16) -> Option<(usize, Sent)> {
        let flight = self.flight.as_ref()?;
        flight.find(packet_id).map(|at| (at, flight.sent[at]))
    }

    /// Frees the packet id; the device has received the message.
    fn end_sent<'a>(&mut self, at: usize) -> Action<'a> {
        let flight = self.flight();
        let sent = flight.sent[at];
        let unreported = sent.unreported || sent.is_open() && !sent.retained;
        flight.sent[at] = Sent { stage: Stage::Done, packet_id: 0, resend: false, unreported, ..sent };
        let ids = flight.take_acknowledged();
        let left = flight.sent_count();
        // Reports room for half a window at once, rather than after each message.
        let room = self.window_full && left <= usize::from(self.window) / 2;
        self.window_full &= !room;
        self.free_flight();
        match ids.is_empty() && !room {
            true => Action::None,
            false => Action::Settled { ids, room },
        }
    }
}

impl Head {
    /// Nothing in it differs between connections.
    fn is_plain(&self) -> bool {
        self.qos == Qos::AtMostOnce && !self.retain && self.alias.is_none() && self.id_bytes == 0
    }

    fn topic<'o>(&self, outgoing: &'o Outgoing) -> &'o str {
        if self.alias_known { "" } else { &outgoing.topic }
    }

    fn packet_id_bytes(&self) -> usize {
        if self.qos > Qos::AtMostOnce { 2 } else { 0 }
    }

    /// Size of the connection's own properties, without the length prefix.
    fn property_bytes(&self) -> usize {
        expiry_bytes(self.life) + if self.alias.is_some() { 3 } else { 0 } + self.id_bytes
    }
}
