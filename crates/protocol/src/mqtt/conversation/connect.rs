//! Establishes a session: CONNECT (§3.1), CONNACK (§3.2), and packets in between.

use noroshi_types::{DeviceId, Topic};

use super::{Conversation, Phase};
use crate::app_name;
use crate::mqtt::action::{Action, LogIn, LogInRefused, LoggedIn, OfferedWill, Will};
use crate::mqtt::flight::Stage;
use crate::mqtt::topic::published_topic;
use crate::mqtt::{
    Ack, Config, ConnAck, Connect, Frame, LastWill, Packet, PacketType, Properties, Property, PropertyList,
    Publication, Qos, ReasonCode, Value, Version, Violation,
};

/// State that exists only until the connection is open.
#[derive(Debug)]
pub(super) struct Opening {
    clean_start: bool,
    /// The client sent no identifier.
    assign_id: bool,
    /// As requested.
    session_expiry_s: u32,
    will: Option<RawWill>,
    /// Raw packets received after CONNECT.
    early: Vec<u8>,
}

#[derive(Debug)]
struct RawWill {
    topic: Topic,
    qos: Qos,
    retain: bool,
    properties: Box<[u8]>,
    payload: Box<[u8]>,
}

impl Opening {
    pub(super) fn held_bytes(&self) -> usize {
        let will = self.will.as_ref().map_or(0, |will| will.properties.len() + will.payload.len());
        size_of::<Self>() + will + self.early.capacity()
    }
}

impl Conversation {
    pub(super) fn receive_first<'a>(
        &mut self,
        config: &Config,
        frame: Frame<'a>,
        out: &mut Vec<u8>,
    ) -> Action<'a> {
        if frame.packet_type != PacketType::Connect {
            self.phase = Phase::Over; // [MQTT-3.1.0-1]
            let violation = Violation::NotConnected;
            return Action::Close { reason: violation.close_reason(), violation: Some(violation) };
        }
        let connect = Packet::parse(Version::V5, frame).and_then(|packet| match packet {
            Packet::Connect(connect) => self.handle_connect(config, connect, out),
            _ => Err(Violation::NotConnected),
        });
        connect.unwrap_or_else(|violation| {
            self.refuse_connect(violation, Connect::names_mqtt(frame.body), out);
            Action::Close { reason: violation.close_reason(), violation: Some(violation) }
        })
    }

    /// `level` is the protocol level that the client requested, if the protocol is MQTT.
    fn refuse_connect(&mut self, violation: Violation, level: Option<u8>, out: &mut Vec<u8>) {
        self.phase = Phase::Over;
        // Bridges set the highest bit of 3 or 4.
        self.version = match level {
            Some(level @ 5..0x80) if level == 5 || violation == Violation::ProtocolLevel => Version::V5,
            _ => Version::V3,
        };
        let code = violation.reason_code();
        // Malformed packets of MQTT 3.1.1 get no answer ([MQTT-3.1.4-1]), nor do other protocols.
        let answered = self.version == Version::V5 || code.connect_return_code() != 3;
        if level.is_some() && answered {
            self.push_connack(code, Some(violation.text()), None, out);
        }
    }

    fn handle_connect<'a>(
        &mut self,
        config: &Config,
        connect: Connect<'a>,
        out: &mut Vec<u8>,
    ) -> Result<Action<'a>, Violation> {
        (self.version, self.is_mqtt31) = (connect.version, connect.is_mqtt31);
        let properties = connect.properties;
        let number = |property, default| properties.number(property).unwrap_or(default);
        self.packet_bytes_max = number(Property::MaximumPacketSize, u32::MAX);
        self.problem_information = number(Property::RequestProblemInformation, 1) == 1;
        if connect.version == Version::V3 && connect.client_id.is_empty() && !connect.clean_start {
            return Err(Violation::NoClientId); // MQTT 3.1.1 [MQTT-3.1.3-8]
        }
        if properties.text(Property::AuthenticationMethod).is_some() {
            return Err(Violation::AuthMethod); // [MQTT-4.12.0-1]
        }
        let will = connect.will.map(raw_will).transpose()?;
        let (username, named_app) = match connect.username.map(app_name::split_user) {
            Some((device, app)) => (Some(device).filter(|device| !device.is_empty()), app),
            None => (None, None),
        };
        let has_name = username.is_some();
        let device = username.or(Some(connect.client_id));
        let device = device.filter(|device| !device.is_empty());
        if device.is_some_and(|device| DeviceId::parse(device).is_err()) {
            let code = match has_name {
                true => ReasonCode::BadUserNameOrPassword,
                false => ReasonCode::ClientIdentifierNotValid,
            };
            return Ok(self.refuse(code, "the user name or client identifier is not a valid device id", out));
        }
        let password = connect.password.map(std::str::from_utf8);
        let token = match password {
            Some(Ok(token)) if !token.is_empty() => Some(token),
            _ if config.anonymous => None,
            _ => {
                let code = ReasonCode::BadUserNameOrPassword;
                return Ok(self.refuse(code, "the password must be the device's token", out));
            }
        };
        let requested_expiry_s = match connect.version {
            Version::V5 => number(Property::SessionExpiryInterval, 0),
            // Without a clean session, MQTT 3.1.1 keeps the session indefinitely (§3.1.2.4).
            Version::V3 => {
                if connect.clean_start {
                    0
                } else {
                    u32::MAX
                }
            }
        };
        let narrow = |number: u32| u16::try_from(number).unwrap_or(u16::MAX);
        let receive_maximum = narrow(number(Property::ReceiveMaximum, u32::from(u16::MAX)));
        self.window = receive_maximum.min(config.in_flight_max).max(1);
        self.send_aliases = narrow(number(Property::TopicAliasMaximum, 0)).min(config.send_aliases_max);
        self.session_expiry_s = requested_expiry_s.min(config.session_expiry_max_s);
        self.keep_alive_s = connect.keep_alive_s;
        self.phase = Phase::LoggingIn;
        let (clean_start, client_id) = (connect.clean_start, connect.client_id);
        let offered = will.as_ref().map(RawWill::offered);
        self.opening = Some(Box::new(Opening {
            clean_start,
            assign_id: client_id.is_empty(),
            session_expiry_s: requested_expiry_s,
            will,
            early: Vec::new(),
        }));
        let app = properties.user().find(|(name, _)| *name == "app").map(|(_, app)| app).or(named_app);
        let session_expiry_s = self.session_expiry_s;
        let will = offered;
        Ok(Action::LogIn(LogIn { device, token, app, client_id, clean_start, session_expiry_s, will }))
    }

    fn refuse<'a>(&mut self, code: ReasonCode, text: &'static str, out: &mut Vec<u8>) -> Action<'a> {
        self.phase = Phase::Over;
        self.push_connack(code, Some(text), None, out);
        Action::Refused(text)
    }

    /// The length of the notification `data` that the will of a log-in would become; 0 without a will. This
    /// encodes the will, so callers check authenticated clients only.
    pub fn will_data_bytes(&self) -> usize {
        let will = self.opening.as_ref().and_then(|opening| opening.will.as_ref());
        will.map_or(0, |will| will.publication().data(0).as_str().len())
    }

    /// Rejects a log-in for a more specific reason than a close reason. The connection is over.
    pub fn refuse_log_in(&mut self, refused: LogInRefused, out: &mut Vec<u8>) {
        if self.phase == Phase::LoggingIn {
            self.phase = Phase::Over;
            let code = match (refused.reason_code(), self.version) {
                // 3.1.1 would get "server unavailable" instead, and retry the same.
                (ReasonCode::QuotaExceeded, Version::V3) => ReasonCode::NotAuthorized,
                (code, _) => code,
            };
            self.push_connack(code, Some(refused.text()), None, out);
        }
    }

    /// A client may send before CONNACK (§3.1.4); these packets are buffered and processed afterwards.
    pub(super) fn buffer_early<'a>(
        &mut self,
        config: &Config,
        frame: Frame<'_>,
    ) -> Result<Action<'a>, Violation> {
        let Some(opening) = &mut self.opening else { return Ok(Action::None) };
        // A header takes at most five bytes.
        if opening.early.len() + frame.body.len() + 5 > config.early_bytes_max {
            return Err(Violation::EarlyPackets);
        }
        frame.encode(&mut opening.early);
        Ok(Action::None)
    }

    /// Completes the log-in: writes CONNACK. Returns the buffered packets, which the caller must pass to
    /// `receive` now.
    pub fn logged_in(&mut self, config: &Config, session: LoggedIn<'_>, out: &mut Vec<u8>) -> Vec<u8> {
        let Some(opening) = self.opening.take().filter(|_| self.phase == Phase::LoggingIn) else {
            return Vec::new();
        };
        let session_present = session.session_present && !opening.clean_start;
        let properties = self.connack_properties(config, &opening, session.device);
        // MQTT 3.1 §3.2: the byte is reserved.
        let told_present = session_present && !self.is_mqtt31;
        let connack = ConnAck {
            session_present: told_present,
            reason: ReasonCode::Success,
            properties: properties.properties(),
        };
        let packet = Packet::ConnAck(connack);
        // These properties are required: a client without them would break a limit.
        if !self.push(&packet, out) {
            self.phase = Phase::Over;
            return Vec::new();
        }
        self.phase = Phase::Open;
        self.origin = session.origin;
        self.will = opening.will.map(|will| Box::new(will.will(session.origin)));
        for subscription in session.subscriptions {
            let list = self.subscriptions.get_or_insert_default();
            list.put(subscription, config.subscriptions_max);
        }
        match session.saved.filter(|_| session_present) {
            Some(saved) => self.resume(*saved, out),
            None => self.forgot_ids = session_present,
        }
        opening.early
    }

    /// [MQTT-4.4.0-1]: continues in-flight handshakes with their packet ids. PUBREL is sent again now,
    /// messages when they are delivered again, in the order of [`Conversation::in_flight`].
    fn resume(&mut self, saved: crate::mqtt::action::Saved, out: &mut Vec<u8>) {
        (self.last_packet_id, self.forgot_ids) = (saved.last_packet_id, saved.forgot_ids);
        if saved.sent.is_empty() && saved.unreleased.is_empty() {
            return;
        }
        let flight = self.flight.get_or_insert_default();
        flight.unreleased = saved.unreleased;
        flight.sent = saved.sent;
        for sent in &mut flight.sent {
            sent.resend = sent.is_open();
            if sent.stage == Stage::Comp {
                Packet::PubRel(Ack::success(sent.packet_id)).encode(self.version, out);
            }
        }
    }

    /// Properties that tell the client our limits and the values that differ from its request.
    fn connack_properties(&mut self, config: &Config, opening: &Opening, device: &str) -> PropertyList {
        let mut list = PropertyList::new();
        if self.version == Version::V3 {
            return list;
        }
        if opening.session_expiry_s != self.session_expiry_s {
            list.push(Property::SessionExpiryInterval, Value::U32(self.session_expiry_s));
        }
        list.push(Property::ReceiveMaximum, Value::U16(config.receive_maximum));
        list.push(Property::MaximumPacketSize, Value::U32(config.packet_bytes_max));
        if opening.assign_id {
            list.push(Property::AssignedClientIdentifier, Value::Text(device));
        }
        if config.topic_alias_maximum > 0 {
            list.push(Property::TopicAliasMaximum, Value::U16(config.topic_alias_maximum));
        }
        let max_s = config.keep_alive_max_s;
        if max_s > 0 && (self.keep_alive_s == 0 || self.keep_alive_s > max_s) {
            self.keep_alive_s = max_s;
            list.push(Property::ServerKeepAlive, Value::U16(max_s));
        }
        list
    }
}

impl RawWill {
    fn offered(&self) -> OfferedWill {
        OfferedWill {
            topic: self.topic.clone(),
            payload_bytes: self.payload.len(),
            properties_bytes: self.properties.len(),
        }
    }

    fn publication(&self) -> Publication<'_> {
        let properties = Properties::from_checked(&self.properties);
        Publication {
            topic: self.topic.clone(),
            payload: &self.payload,
            qos: self.qos,
            retain: self.retain,
            expiry_s: properties.number(Property::MessageExpiryInterval),
            properties,
        }
    }

    fn will(self, origin: u64) -> Will {
        let publication = self.publication();
        Will {
            data: publication.data(origin),
            qos: self.qos,
            retain: self.retain,
            has_payload: !self.payload.is_empty(),
            delay_s: publication.properties.number(Property::WillDelayInterval).unwrap_or(0),
            expiry_s: publication.expiry_s,
            topic: publication.topic,
        }
    }
}

fn raw_will(will: LastWill<'_>) -> Result<RawWill, Violation> {
    Ok(RawWill {
        topic: published_topic(will.topic).map_err(|_| Violation::WillTopic)?,
        qos: will.qos,
        retain: will.retain,
        properties: will.properties.as_bytes().into(),
        payload: will.payload.into(),
    })
}
