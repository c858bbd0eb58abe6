//! Messages from the client: PUBLISH (§3.3), its handshakes (§4.3), topic aliases and the receive maximum.
//!
//! A QoS 2 message is published when it arrives; its packet id is kept until PUBREL, and a PUBLISH with the
//! same id is a duplicate. Acknowledgements are sent in the order in which the messages arrived, whatever the
//! order of the service's results.

use noroshi_types::{CloseReason, Presence, Topic};

use super::{Conversation, Phase};
use crate::mqtt::action::{Action, Answer, PublishRefused};
use crate::mqtt::config::V3_RECEIVE_MAXIMUM;
use crate::mqtt::flight::{Received, Verdict};
use crate::mqtt::topic::{PRESENCE_TOPIC, TOKEN_TOPIC, UnpublishableName, published_topic};
use crate::mqtt::{
    Ack, Config, Packet, Properties, Property, PropertyList, Publication, Publish, Qos, ReasonCode, Value,
    Version, Violation,
};

/// The meaning of a topic name.
enum Destination {
    Topic(Topic),
    Presence,
    Token,
    Refused(Verdict),
}

const BAD_NAME: Verdict = Verdict {
    code: ReasonCode::TopicNameInvalid,
    text: "the topic name is empty, longer than the server allows, or contains control characters",
};
const NOT_TEXT: Verdict = Verdict {
    code: ReasonCode::PayloadFormatInvalid,
    text: "the payload is declared as text but is not valid UTF-8",
};
const BAD_TOKEN: Verdict =
    Verdict { code: ReasonCode::PayloadFormatInvalid, text: "this topic accepts only a token as text" };
const BAD_PRESENCE: Verdict =
    Verdict { code: ReasonCode::PayloadFormatInvalid, text: "this topic accepts only `active` or `idle`" };

impl PublishRefused {
    fn verdict(self) -> Verdict {
        Verdict { code: self.reason_code(), text: self.text() }
    }
}

impl Destination {
    fn of(name: &str) -> Self {
        match name {
            PRESENCE_TOPIC => Destination::Presence,
            TOKEN_TOPIC => Destination::Token,
            name => match published_topic(name) {
                Ok(topic) => Destination::Topic(topic),
                Err(UnpublishableName::Reserved) => {
                    Destination::Refused(PublishRefused::NotAllowed.verdict())
                }
                Err(UnpublishableName::BadName) => Destination::Refused(BAD_NAME),
            },
        }
    }
}

impl Conversation {
    pub(super) fn handle_publish<'a>(
        &mut self,
        config: &Config,
        publish: Publish<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Action<'a>, Violation> {
        let properties = publish.properties;
        if properties.number(Property::SubscriptionIdentifier).is_some() {
            return Err(Violation::SubscriptionIdInPublish); // [MQTT-3.3.4-6]
        }
        let destination = self.destination(config, &publish)?;
        let answer = Answer { packet_id: publish.packet_id, qos: publish.qos };
        if self.is_known(answer) {
            return Ok(self.acknowledge_again(answer, out));
        }
        self.reserve_answer(config, answer)?;
        let waits = (answer.qos > Qos::AtMostOnce).then_some(answer);
        let is_text = properties.number(Property::PayloadFormatIndicator) == Some(1);
        let text = std::str::from_utf8(publish.payload).ok();
        // §3.3.2.3.2
        let verdict = match (destination, text) {
            (_, None) if is_text => NOT_TEXT,
            (Destination::Topic(topic), _) => {
                let publication = Publication {
                    topic,
                    payload: publish.payload,
                    qos: publish.qos,
                    retain: publish.retain,
                    expiry_s: properties.number(Property::MessageExpiryInterval),
                    properties,
                };
                return Ok(Action::Publish { publication, answer: waits });
            }
            (Destination::Token, Some(token)) => return Ok(Action::RenewToken { token, answer: waits }),
            (Destination::Presence, Some("active")) => {
                return Ok(self.set_presence(Presence::Active, answer, out));
            }
            (Destination::Presence, Some("idle")) => {
                return Ok(self.set_presence(Presence::Idle, answer, out));
            }
            (Destination::Token, _) => BAD_TOKEN,
            (Destination::Presence, _) => BAD_PRESENCE,
            (Destination::Refused(verdict), _) => verdict,
        };
        Ok(self.answer(answer, verdict, out))
    }

    fn set_presence<'a>(&mut self, presence: Presence, answer: Answer, out: &mut Vec<u8>) -> Action<'a> {
        match self.answer(answer, Verdict::SUCCESS, out) {
            Action::None => Action::Presence(presence),
            action => action,
        }
    }

    /// §3.3.2.3.4
    fn destination(&mut self, config: &Config, publish: &Publish<'_>) -> Result<Destination, Violation> {
        let Some(alias) = publish.properties.number(Property::TopicAlias) else {
            return Ok(Destination::of(publish.topic));
        };
        let alias = u16::try_from(alias).ok().filter(|alias| *alias <= config.topic_alias_maximum);
        let alias = alias.ok_or(Violation::AliasOverMaximum)?; // [MQTT-3.3.2-9]
        if publish.topic.is_empty() {
            let name = self.flight.as_ref().and_then(|flight| flight.alias(alias));
            return name.map(Destination::of).ok_or(Violation::AliasUnknown);
        }
        let destination = Destination::of(publish.topic);
        // An invalid topic is stored as a short name that cannot be published to either.
        let kept = if let Destination::Refused(_) = destination { "$SYS" } else { publish.topic };
        self.flight().set_alias(alias, kept);
        Ok(destination)
    }

    /// Whether it is a duplicate of an unfinished message ([MQTT-4.3.3-10]).
    fn is_known(&self, answer: Answer) -> bool {
        let (id, qos) = (answer.packet_id, answer.qos);
        let Some(flight) = self.flight.as_ref().filter(|_| qos > Qos::AtMostOnce) else { return false };
        flight.has_received(id, qos) || qos == Qos::ExactlyOnce && flight.is_unreleased(id)
    }

    /// Repeats its PUBREC if that was sent; otherwise it follows later.
    fn acknowledge_again<'a>(&mut self, answer: Answer, out: &mut Vec<u8>) -> Action<'a> {
        let went_out = self.flight.as_ref().is_some_and(|flight| flight.is_unreleased(answer.packet_id));
        match went_out {
            true => self.push_or_close(Packet::PubRec(Ack::success(answer.packet_id)), out),
            false => Action::None,
        }
    }

    /// Reserves a place in the order of acknowledgements.
    fn reserve_answer(&mut self, config: &Config, answer: Answer) -> Result<(), Violation> {
        if answer.qos == Qos::AtMostOnce {
            return Ok(());
        }
        let unfinished = self.flight.as_ref().map_or(0, |flight| flight.received_count());
        match self.version {
            // [MQTT-3.3.4-9]
            Version::V5 if unfinished >= usize::from(config.receive_maximum) => {
                return Err(Violation::ReceiveMaximum);
            }
            Version::V3 if unfinished >= V3_RECEIVE_MAXIMUM => return Err(Violation::TooManyInFlight),
            Version::V3 | Version::V5 => {}
        }
        let Answer { packet_id, qos } = answer;
        self.flight().received.push_back(Received { packet_id, qos, answer: None });
        Ok(())
    }

    /// Records the outcome of a message and acknowledges it when its turn comes. An error ends the
    /// connection.
    pub fn published(
        &mut self,
        answer: Answer,
        result: Result<(), PublishRefused>,
        out: &mut Vec<u8>,
    ) -> Result<(), CloseReason> {
        let refused = result.err();
        // MQTT 3.1.1 has no negative acknowledgement: close, so that the client retries (its §3.3.5 allows
        // this).
        if self.version == Version::V3 && refused == Some(PublishRefused::Unavailable) {
            self.phase = Phase::Over;
            return Err(CloseReason::Internal);
        }
        match self.answer(answer, refused.map_or(Verdict::SUCCESS, PublishRefused::verdict), out) {
            Action::Close { reason, .. } => Err(reason),
            _ => Ok(()),
        }
    }

    /// Writes the acknowledgements whose turn has come.
    fn answer<'a>(&mut self, answer: Answer, verdict: Verdict, out: &mut Vec<u8>) -> Action<'a> {
        let Some(flight) = self.flight.as_mut().filter(|_| self.phase == Phase::Open) else {
            return Action::None;
        };
        let waiting = flight.received.iter_mut().find(|received| {
            (received.packet_id, received.qos) == (answer.packet_id, answer.qos) && received.answer.is_none()
        });
        if let Some(received) = waiting {
            received.answer = Some(verdict);
        }
        while let Some(flight) = &mut self.flight {
            let Some((received, Verdict { code, text })) = flight
                .received
                .pop_front_if(|received| received.answer.is_some())
                .and_then(|received| received.answer.map(|verdict| (received, verdict)))
            else {
                break;
            };
            // MQTT 3.1.1 [MQTT-3.3.5-2]: unpublished messages are acknowledged too.
            let code = if self.version == Version::V3 { ReasonCode::Success } else { code };
            if received.qos == Qos::ExactlyOnce && !code.is_error() {
                flight.keep_unreleased(received.packet_id);
            }
            let list = self.explanation(code, text);
            let ack = Ack { packet_id: received.packet_id, reason: code, properties: list.properties() };
            let packet = match received.qos {
                Qos::ExactlyOnce => Packet::PubRec(ack),
                Qos::AtLeastOnce | Qos::AtMostOnce => Packet::PubAck(ack),
            };
            if let close @ Action::Close { .. } = self.push_or_close(packet, out) {
                return close;
            }
        }
        self.free_flight();
        Action::None
    }

    /// [MQTT-3.1.2-29]: only if the client enabled problem information.
    fn explanation(&self, code: ReasonCode, text: &str) -> PropertyList {
        let mut list = PropertyList::new();
        if self.problem_information && code.is_error() {
            list.push(Property::ReasonString, Value::Text(text));
        }
        list
    }

    pub(super) fn handle_pubrel<'a>(
        &mut self,
        release: Ack<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Action<'a>, Violation> {
        let packet_id = release.packet_id;
        let released = self.flight.as_mut().is_some_and(|flight| flight.release(packet_id));
        self.free_flight();
        let reason = match released {
            true => ReasonCode::Success,
            false => ReasonCode::PacketIdentifierNotFound,
        };
        let complete = Ack { packet_id, reason, properties: Properties::default() };
        Ok(self.push_or_close(Packet::PubComp(complete), out))
    }
}
