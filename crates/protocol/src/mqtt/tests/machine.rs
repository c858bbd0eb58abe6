//! Random packets and random results of the service, in any order: no panic, output that can be parsed,
//! nothing after the closing packet, and bounded memory.

use std::collections::HashSet;

use noroshi_types::{CloseReason, Timestamp};
use proptest::prelude::*;

use super::peer::{NOW, each_frame, options, outgoing};
use crate::mqtt::*;

#[derive(Debug, Clone)]
enum Step {
    /// A packet selected by number, with ids, a topic and flags.
    Packet {
        kind: u8,
        id: u16,
        topic: u8,
        bits: u8,
    },
    /// Arbitrary bytes with a valid length in the header.
    Bytes {
        first: u8,
        body: Vec<u8>,
    },
    LogIn {
        present: bool,
    },
    Answer {
        at: usize,
        refused: Option<bool>,
    },
    Deliver {
        id: u8,
        topic: u8,
        bits: u8,
        retained: bool,
        late_ms: u16,
    },
    CaughtUp,
    /// The connection breaks and the session is resumed.
    Reconnect,
    Close(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let packet = (0_u8..15, 0_u16..6, 0_u8..12, any::<u8>())
        .prop_map(|(kind, id, topic, bits)| Step::Packet { kind, id, topic, bits });
    let bytes = (any::<u8>(), prop::collection::vec(any::<u8>(), 0..30))
        .prop_map(|(first, body)| Step::Bytes { first, body });
    let deliver = (0_u8..9, 0_u8..12, any::<u8>(), any::<bool>(), any::<u16>()).prop_map(
        |(id, topic, bits, retained, late_ms)| Step::Deliver { id, topic, bits, retained, late_ms },
    );
    prop_oneof![
        40 => packet,
        2 => bytes,
        10 => any::<bool>().prop_map(|present| Step::LogIn { present }),
        15 => (0_usize..4, any::<Option<bool>>()).prop_map(|(at, refused)| Step::Answer { at, refused }),
        30 => deliver,
        3 => Just(Step::CaughtUp),
        3 => Just(Step::Reconnect),
        1 => (0_u8..17).prop_map(Step::Close),
    ]
}

const TOPICS: [&str; 12] = [
    "a",
    "b",
    "a/b",
    "",
    "+",
    "#",
    "a/#",
    "$noroshi/inbox",
    "$noroshi/presence",
    "$SYS",
    "$share/g/a",
    "+/+",
];

/// A packet of a client, valid or not.
fn packet(version: Version, kind: u8, id: u16, topic: &str, bits: u8) -> Vec<u8> {
    let mut list = PropertyList::new();
    if version == Version::V5 && bits & 1 != 0 {
        match kind {
            1 => list.push(Property::ReceiveMaximum, Value::U16(3)),
            3 => list.push(Property::TopicAlias, Value::U16(u16::from(bits >> 5))),
            8 => list.push(Property::SubscriptionIdentifier, Value::VarInt(u32::from(bits))),
            14 => list.push(Property::SessionExpiryInterval, Value::U32(u32::from(bits))),
            _ => list.push(Property::UserProperty, Value::Pair("a", "b")),
        }
    }
    if kind == 1 && version == Version::V5 && bits & 2 != 0 {
        list.push(Property::SessionExpiryInterval, Value::U32(60));
        list.push(Property::TopicAliasMaximum, Value::U16(2));
    }
    let properties = list.properties();
    let qos = Qos::from_bits(bits >> 1 & 3).unwrap_or_default();
    let ack = Ack {
        packet_id: id,
        reason: if bits & 16 != 0 { ReasonCode::UnspecifiedError } else { ReasonCode::Success },
        properties,
    };
    let filters = Subscribe::encode_filters(&[(topic, options(qos as u8))]);
    let names = Subscribe::encode_bare(&[topic]);
    let will = LastWill { qos, retain: false, properties: Properties::default(), topic: "w", payload: b"" };
    let (reason, reasons) = (ReasonCode::Success, &[0][..]);
    let packet = match kind {
        1 | 0 => Packet::Connect(Connect {
            version,
            is_mqtt31: version == Version::V3 && bits & 4 != 0,
            clean_start: bits & 8 != 0,
            keep_alive_s: u16::from(bits),
            properties,
            client_id: if bits & 32 == 0 { "c" } else { "" },
            will: (bits & 64 != 0).then_some(will),
            username: None,
            password: None,
        }),
        2 => Packet::ConnAck(ConnAck { session_present: false, reason, properties: Properties::default() }),
        3 => Packet::Publish(Publish {
            dup: bits & 8 != 0,
            qos,
            retain: bits & 16 != 0,
            topic,
            packet_id: id,
            properties,
            payload: b"active",
        }),
        4 => Packet::PubAck(ack),
        5 => Packet::PubRec(ack),
        6 => Packet::PubRel(Ack::success(id)),
        7 => Packet::PubComp(Ack::success(id)),
        8 => Packet::Subscribe(Subscribe::new(id, properties, &filters)),
        9 => Packet::SubAck(SubAck { packet_id: id, properties, reasons }),
        10 => Packet::Unsubscribe(Subscribe::bare(id, properties, &names)),
        11 => Packet::UnsubAck(SubAck { packet_id: id, properties, reasons }),
        12 => Packet::PingReq,
        13 => Packet::PingResp,
        _ => Packet::Disconnect(Notice { reason, properties }),
    };
    let mut bytes = Vec::new();
    packet.encode(version, &mut bytes);
    bytes
}

struct Machine {
    config: Config,
    version: Version,
    conversation: Conversation,
    answers: Vec<Answer>,
    /// The closing packet was written on this connection.
    over: bool,
    saved: Option<Box<Saved>>,
    subscriptions: Vec<Subscription>,
    /// Packet ids that the client has not acknowledged, from the client's view.
    in_flight: HashSet<u16>,
}

impl Machine {
    fn new(version: Version) -> Self {
        let config =
            Config { receive_maximum: 4, in_flight_max: 3, subscriptions_max: 5, ..Config::conformance() };
        Self {
            config,
            version,
            conversation: Conversation::new(),
            answers: Vec::new(),
            over: false,
            saved: None,
            subscriptions: Vec::new(),
            in_flight: HashSet::new(),
        }
    }

    fn step(&mut self, step: Step) {
        let mut out = Vec::new();
        match step {
            Step::Packet { kind, id, topic, bits } => {
                let topic = TOPICS[usize::from(topic)];
                // The builder cannot encode DUP at QoS 0; the reader rejects it.
                self.receive(&packet(self.version, kind, id, topic, bits), &mut out);
            }
            Step::Bytes { first, body } => {
                self.receive(&[&[first, body.len() as u8], &body[..]].concat(), &mut out);
            }
            Step::LogIn { present } => self.log_in(present, &mut out),
            Step::Answer { at, refused } => {
                if at < self.answers.len() {
                    let refused = refused.map(|now| match now {
                        true => PublishRefused::NotAllowed,
                        false => PublishRefused::Unavailable,
                    });
                    let answer = self.answers.remove(at);
                    let ended = self.conversation.published(answer, refused.map_or(Ok(()), Err), &mut out);
                    self.over |= ended.is_err();
                }
            }
            Step::Deliver { id, topic, bits, retained, late_ms } => {
                let topic = ["a", "b", "a/b", "c/d"][usize::from(topic % 4)];
                let mqtt = format!(r#""text":"x","qos":{},"expires":{}"#, bits % 3, bits & 64 != 0);
                let outgoing = outgoing(id, topic, &mqtt);
                let cause = if retained { Cause::Retained } else { Cause::Published };
                let now = Timestamp(NOW.0 + u64::from(late_ms));
                let delivery = self.conversation.deliver(&self.config, &outgoing, cause, now, &mut out);
                let mut passes = matches!(delivery, Delivery::TooBig | Delivery::Expired);
                match delivery {
                    Delivery::Send { shared, acknowledged } => {
                        out.extend_from_slice(&shared);
                        passes |= acknowledged;
                    }
                    _ => assert!(out.is_empty()),
                }
                if passes && !retained {
                    self.conversation.passes(&self.config, &outgoing);
                }
            }
            Step::CaughtUp => drop(self.conversation.caught_up()),
            Step::Reconnect => self.reconnect(),
            Step::Close(reason) => {
                let reason = CloseReason::ALL[usize::from(reason)];
                self.conversation.close(reason, None, &mut out);
                self.check(&out);
                self.over = true;
                return;
            }
        }
        self.check(&out);
    }

    fn receive(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut frames = Vec::new();
        let mut decoder = Decoder::new();
        let decoded = decoder.feed(bytes, 4_096, &mut |frame| {
            frames.push((frame.packet_type, frame.flags, frame.body.to_vec(), frame.minimal));
            std::ops::ControlFlow::Continue(())
        });
        for (packet_type, flags, body, minimal) in frames {
            let frame = Frame { packet_type, flags, body: &body, minimal };
            // The conversation processes an acknowledgement whatever its result.
            if let Ok(Packet::PubAck(ack) | Packet::PubComp(ack)) = Packet::parse(self.version, frame) {
                self.in_flight.remove(&ack.packet_id);
            }
            if let Ok(Packet::PubRec(ack)) = Packet::parse(self.version, frame)
                && ack.reason.is_error()
            {
                self.in_flight.remove(&ack.packet_id);
            }
            match self.conversation.receive(&self.config, frame, out) {
                Action::Publish { answer: Some(answer), .. }
                | Action::RenewToken { answer: Some(answer), .. } => self.answers.push(answer),
                Action::Subscribe(request) => {
                    self.over |= self.conversation.subscribed(&self.config, request, 0, out).is_err();
                }
                Action::Unsubscribe(request) => {
                    self.over |= self.conversation.unsubscribed(request, out).is_err();
                }
                Action::Refused(_) | Action::Close { .. } => {
                    self.check(out);
                    out.clear();
                    self.over = true;
                }
                _ => {}
            }
        }
        if let Err(violation) = decoded {
            self.conversation.violate(violation, out);
            self.check(out);
            out.clear();
            self.over = true;
        }
    }

    fn log_in(&mut self, present: bool, out: &mut Vec<u8>) {
        let saved = self.saved.take().filter(|_| present);
        let subscriptions = std::mem::take(&mut self.subscriptions);
        let subscriptions = if saved.is_some() { subscriptions } else { Vec::new() };
        let session = LoggedIn { device: "d", origin: 1, session_present: present, subscriptions, saved };
        let early = self.conversation.logged_in(&self.config, session, out);
        let mut rest = Vec::new();
        each_frame(&early, |frame| {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            rest.push(bytes);
        });
        for bytes in rest {
            self.receive(&bytes, out);
        }
    }

    fn reconnect(&mut self) {
        let conversation = std::mem::take(&mut self.conversation);
        let parting = conversation.part();
        assert_eq!(parting.saved.is_some(), parting.session_expiry_s > 0 && parting.saved.is_some());
        (self.saved, self.subscriptions) = (parting.saved, parting.subscriptions);
        self.answers.clear();
        self.in_flight.clear();
        self.over = false;
    }

    /// Checks that the output consists of whole server packets that a client of this version understands.
    fn check(&mut self, out: &[u8]) {
        assert!(!self.over || out.is_empty(), "after the last word: {out:02x?}");
        let version = self.conversation.version();
        each_frame(out, |frame| {
            let packet = Packet::parse(version, frame);
            let packet = packet.unwrap_or_else(|violation| panic!("{violation}: {out:02x?}"));
            match packet {
                Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
                    panic!("a client's packet: {packet:?}")
                }
                Packet::Publish(publish) if publish.packet_id > 0 => {
                    let new = self.in_flight.insert(publish.packet_id);
                    assert!(new, "packet id {} is in use", publish.packet_id);
                    assert!(self.in_flight.len() <= 3, "the window is 3");
                }
                _ => {}
            }
        });
        let held = self.conversation.held_bytes();
        assert!(held < 6_000, "{held} bytes held");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

    #[test]
    fn invariants_hold_for_any_conversation(five: bool, steps in prop::collection::vec(step(), 0..60)) {
        let mut machine = Machine::new(if five { Version::V5 } else { Version::V3 });
        // Half of the conversations start with a valid CONNECT.
        if steps.len() % 2 == 0 {
            machine.step(Step::Packet { kind: 1, id: 0, topic: 0, bits: 0b0000_0011 });
            machine.step(Step::LogIn { present: false });
            machine.step(Step::Packet { kind: 8, id: 1, topic: 5, bits: 0b0000_0100 });
        }
        for step in steps {
            machine.step(step);
        }
    }
}
