//! Whatever a client sends and whenever the service answers: the output consists of whole packets that a
//! client of the version can parse, nothing follows the closing packet, packet ids in use are not reused, and
//! memory is bounded. The first byte chooses how the conversation starts; each further byte outside of a
//! packet is a result of the service, a message, or a disconnect and reconnect.

#![no_main]

use std::collections::HashSet;
use std::ops::ControlFlow;

use libfuzzer_sys::fuzz_target;
use noroshi_protocol::mqtt::{
    Action, Answer, Cause, Config, Conversation, Decoder, Delivery, Frame, LoggedIn, Outgoing, Packet,
    PublishRefused, Saved, Subscription,
};
use noroshi_types::{
    AppId, CloseReason, Epoch, JsonText, Message, NotificationId, Position, Timestamp, Topic, TopicPosition,
    Urgency, When,
};

/// CONNECT and SUBSCRIBE `#` with QoS 2 of both versions, so that the fuzzer need not find them.
const GREETINGS: [&[u8]; 3] = [
    b"",
    b"\x10\x0D\x00\x04MQTT\x04\x00\x00\x3C\x00\x01c\x82\x06\x00\x01\x00\x01#\x02",
    b"\x10\x16\x00\x04MQTT\x05\x00\x00\x3C\x08\x11\x00\x00\x00\x3C\x22\x00\x02\x00\x01c\x82\x07\x00\x01\x00\x00\x01#\x02",
];

struct Node {
    config: Config,
    conversation: Conversation,
    answers: Vec<Answer>,
    saved: Option<Box<Saved>>,
    subscriptions: Vec<Subscription>,
    in_flight: HashSet<u16>,
    over: bool,
}

impl Node {
    fn receive(&mut self, frame: Frame<'_>) {
        let version = self.conversation.version();
        match Packet::parse(version, frame) {
            Ok(Packet::PubAck(ack) | Packet::PubComp(ack)) => {
                self.in_flight.remove(&ack.packet_id);
            }
            Ok(Packet::PubRec(ack)) if ack.reason.is_error() => {
                self.in_flight.remove(&ack.packet_id);
            }
            _ => {}
        }
        let mut out = Vec::new();
        let mut over = false;
        match self.conversation.receive(&self.config, frame, &mut out) {
            Action::LogIn(_) => {
                self.check(&out);
                out.clear();
                let saved = self.saved.take();
                let subscriptions = std::mem::take(&mut self.subscriptions);
                let session =
                    LoggedIn { device: "d", origin: 1, session_present: true, subscriptions, saved };
                self.conversation.logged_in(&self.config, session, &mut out);
            }
            Action::Publish { publication, answer } => {
                publication.data(1);
                self.answers.extend(answer);
            }
            Action::RenewToken { answer, .. } => self.answers.extend(answer),
            Action::Subscribe(request) => {
                over = self.conversation.subscribed(&self.config, request, 1, &mut out).is_err();
            }
            Action::Unsubscribe(request) => over = self.conversation.unsubscribed(request, &mut out).is_err(),
            Action::Refused(_) | Action::Close { .. } => over = true,
            Action::None | Action::Settled { .. } | Action::Presence(_) => {}
        }
        self.check(&out);
        self.over |= over;
    }

    fn turn(&mut self, byte: u8) {
        let mut out = Vec::new();
        match byte % 8 {
            0 | 1 if !self.answers.is_empty() => {
                let answer = self.answers.remove(usize::from(byte / 8) % self.answers.len());
                let result = if byte % 8 == 0 { Ok(()) } else { Err(PublishRefused::Unavailable) };
                let ended = self.conversation.published(answer, result, &mut out).is_err();
                self.check(&out);
                self.over |= ended;
                return;
            }
            2..=5 => {
                let outgoing = outgoing(byte);
                let (cause, now) = (Cause::Published, Timestamp(u64::from(byte)));
                if let Delivery::Send { shared, .. } =
                    self.conversation.deliver(&self.config, &outgoing, cause, now, &mut out)
                {
                    out.extend_from_slice(&shared);
                }
            }
            6 => drop(self.conversation.caught_up()),
            7 => {
                let reason = CloseReason::ALL[usize::from(byte / 8) % CloseReason::ALL.len()];
                self.conversation.close(reason, None, &mut out);
                self.check(&out);
                self.subscriptions = self.conversation.subscriptions().cloned().collect();
                self.saved = std::mem::take(&mut self.conversation).part().saved;
                (self.over, self.in_flight) = (false, HashSet::new());
                self.answers.clear();
                return;
            }
            _ => {}
        }
        self.check(&out);
    }

    fn check(&mut self, out: &[u8]) {
        assert!(!self.over || out.is_empty(), "output after the closing packet");
        let version = self.conversation.version();
        let mut decoder = Decoder::new();
        let read = decoder.feed(out, usize::MAX, &mut |frame| {
            match Packet::parse(version, frame).expect("a packet that can be read") {
                Packet::Connect(_) | Packet::Subscribe(_) | Packet::Unsubscribe(_) | Packet::PingReq => {
                    panic!("a client's packet")
                }
                Packet::Publish(publish) if publish.packet_id > 0 => {
                    assert!(self.in_flight.insert(publish.packet_id), "a packet id in use");
                    assert!(self.in_flight.len() <= 3);
                }
                _ => {}
            }
            ControlFlow::Continue(())
        });
        assert!(read.is_ok() && decoder.is_idle());
        assert!(self.conversation.held_bytes() < 64 << 10, "{} held", self.conversation.held_bytes());
    }
}

fn outgoing(byte: u8) -> Outgoing {
    let position = Position { epoch: Epoch(1), offset: u64::from(byte) };
    Outgoing::new(&Message {
        id: NotificationId::from_bytes([byte / 16; 16]),
        app: AppId(1),
        when: When::Stored,
        urgency: Urgency::Normal,
        topic: Some(TopicPosition {
            topic: Topic::from_trusted(["a", "b/c"][usize::from(byte % 2)]),
            position,
        }),
        notification: None,
        data: Some(JsonText::from_valid(format!(r#"{{"mqtt":{{"text":"x","qos":{}}}}}"#, byte % 3))),
        sent_at: Timestamp(0),
        expires_at: Timestamp(200),
        push_waits: false,
        waits_for_use: false,
    })
}

fuzz_target!(|bytes: &[u8]| {
    let [first, bytes @ ..] = bytes else { return };
    let config =
        Config { receive_maximum: 4, in_flight_max: 3, subscriptions_max: 20, ..Config::conformance() };
    let mut node = Node {
        config,
        conversation: Conversation::new(),
        answers: Vec::new(),
        saved: None,
        subscriptions: Vec::new(),
        in_flight: HashSet::new(),
        over: false,
    };
    let greeting = GREETINGS[usize::from(*first) % GREETINGS.len()];
    let feed = |node: &mut Node, bytes: &[u8]| {
        let mut decoder = Decoder::new();
        let result = decoder.feed(bytes, 4096, &mut |frame| {
            node.receive(frame);
            ControlFlow::Continue(())
        });
        if let Err(violation) = result {
            let mut out = Vec::new();
            node.conversation.violate(violation, &mut out);
            node.check(&out);
            node.over = true;
        }
    };
    feed(&mut node, greeting);
    // A length, then as many bytes of wire, then one byte for the service.
    let mut rest = bytes;
    while let [length, after @ ..] = rest {
        let (wire, after) = after.split_at(after.len().min(usize::from(length % 64)));
        feed(&mut node, wire);
        let [turn, after @ ..] = after else { break };
        node.turn(*turn);
        rest = after;
    }
});
