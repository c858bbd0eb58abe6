//! A scripted client and a scripted service around one conversation.

use std::ops::ControlFlow;

use noroshi_types::{
    AppId, Epoch, JsonText, Message, NotificationId, Position, Timestamp, Topic, TopicPosition, Urgency, When,
};

use crate::mqtt::*;

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Splits `bytes` into whole packets.
pub(super) fn each_frame(bytes: &[u8], mut each: impl FnMut(Frame<'_>)) {
    let mut decoder = Decoder::new();
    let fed = decoder.feed(bytes, usize::MAX, &mut |frame| {
        each(frame);
        ControlFlow::Continue(())
    });
    assert!(fed.is_ok() && decoder.is_idle(), "not whole packets: {bytes:02x?}");
}

pub(super) fn encoded(version: Version, packets: &[Packet<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    packets.iter().for_each(|packet| packet.encode(version, &mut bytes));
    bytes
}

/// The result of one packet, with borrowed parts rendered as text.
#[derive(Debug, PartialEq)]
pub(super) enum Outcome {
    Nothing,
    LogIn { device: Option<String>, token: Option<String>, app: Option<String>, expiry_s: u32 },
    Publish { topic: String, payload: Vec<u8>, retain: bool, answer: Option<Answer> },
    Subscribe(usize),
    Unsubscribe(usize),
    Settled { ids: Vec<u8>, room: bool },
    Presence(noroshi_types::Presence),
    RenewToken { token: String, answer: Option<Answer> },
    Refused(&'static str),
    Close(noroshi_types::CloseReason),
}

pub(super) struct Peer {
    pub(super) config: Config,
    pub(super) conversation: Conversation,
    pub(super) version: Version,
    /// Output of the service that no test has checked yet.
    pub(super) out: Vec<u8>,
    pub(super) subscribe: Option<SubscribeRequest>,
    pub(super) unsubscribe: Option<UnsubscribeRequest>,
    pub(super) subscribed: Vec<Subscribed>,
}

impl Peer {
    pub(super) fn new(version: Version) -> Self {
        Self::with(version, Config { keep_alive_max_s: 0, ..Config::conformance() })
    }

    pub(super) fn with(version: Version, config: Config) -> Self {
        Self {
            config,
            conversation: Conversation::new(),
            version,
            out: Vec::new(),
            subscribe: None,
            unsubscribe: None,
            subscribed: Vec::new(),
        }
    }

    /// A peer that is logged in without a previous session.
    pub(super) fn open(version: Version) -> Self {
        let mut peer = Self::new(version);
        peer.log_in(&connect(version), LoggedIn { origin: 7, ..LoggedIn::default() });
        peer.out.clear();
        peer
    }

    pub(super) fn log_in(&mut self, connect: &Connect<'_>, session: LoggedIn<'_>) {
        let did = self.send(Packet::Connect(*connect));
        assert!(matches!(did, Outcome::LogIn { .. }), "{did:?}");
        let early = self.conversation.logged_in(&self.config, session, &mut self.out);
        assert!(early.is_empty());
    }

    /// The client sends a packet; SUBSCRIBE and UNSUBSCRIBE are answered at once.
    pub(super) fn send(&mut self, packet: Packet<'_>) -> Outcome {
        let did = self.send_only(packet);
        if let Some(request) = self.subscribe.take() {
            self.subscribed =
                self.conversation.subscribed(&self.config, request, 0, &mut self.out).expect("goes on");
        }
        if let Some(request) = self.unsubscribe.take() {
            self.conversation.unsubscribed(request, &mut self.out).expect("goes on");
        }
        did
    }

    pub(super) fn send_only(&mut self, packet: Packet<'_>) -> Outcome {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes);
        self.send_bytes(&bytes)
    }

    /// Sends exactly one packet.
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Outcome {
        let mut did = None;
        each_frame(bytes, |frame| {
            let action = self.conversation.receive(&self.config, frame, &mut self.out);
            assert!(did.is_none(), "one packet");
            did = Some(match action {
                Action::None => Outcome::Nothing,
                Action::LogIn(log_in) => Outcome::LogIn {
                    device: log_in.device.map(str::to_owned),
                    token: log_in.token.map(str::to_owned),
                    app: log_in.app.map(str::to_owned),
                    expiry_s: log_in.session_expiry_s,
                },
                Action::Publish { publication, answer } => Outcome::Publish {
                    topic: publication.topic.to_string(),
                    payload: publication.payload.to_vec(),
                    retain: publication.retain,
                    answer,
                },
                Action::Subscribe(request) => {
                    let count = request.count();
                    self.subscribe = Some(request);
                    Outcome::Subscribe(count)
                }
                Action::Unsubscribe(request) => {
                    let count = request.filters().count();
                    self.unsubscribe = Some(request);
                    Outcome::Unsubscribe(count)
                }
                Action::Settled { ids, room } => {
                    Outcome::Settled { ids: ids.iter().map(|id| id.as_bytes()[0]).collect(), room }
                }
                Action::Presence(presence) => Outcome::Presence(presence),
                Action::RenewToken { token, answer } => {
                    Outcome::RenewToken { token: token.to_owned(), answer }
                }
                Action::Refused(why) => Outcome::Refused(why),
                Action::Close { reason, .. } => Outcome::Close(reason),
            });
        });
        did.expect("a packet")
    }

    pub(super) fn subscribe(&mut self, filters: &[(&str, SubscribeOptions)]) {
        let filters = Subscribe::encode_filters(filters);
        self.send(Packet::Subscribe(Subscribe::new(1, Properties::default(), &filters)));
        self.out.clear();
    }

    /// Compares all output since the last check.
    #[track_caller]
    pub(super) fn expect_packets(&mut self, packets: &[Packet<'_>]) {
        let expected = encoded(self.version, packets);
        assert_eq!(std::mem::take(&mut self.out), expected, "{packets:?}");
    }

    /// Delivers a message and returns the result; the bytes are in `out`.
    pub(super) fn deliver(&mut self, outgoing: &Outgoing, cause: Cause) -> Delivery {
        let delivery = self.conversation.deliver(&self.config, outgoing, cause, NOW, &mut self.out);
        if let Delivery::Send { shared, .. } = &delivery {
            self.out.extend_from_slice(shared);
        }
        delivery
    }

    #[track_caller]
    pub(super) fn delivers(&mut self, outgoing: &Outgoing) {
        let delivery = self.deliver(outgoing, Cause::Published);
        assert!(matches!(delivery, Delivery::Send { .. }), "{delivery:?}");
    }
}

pub(super) fn connect(version: Version) -> Connect<'static> {
    Connect {
        version,
        is_mqtt31: false,
        clean_start: true,
        keep_alive_s: 60,
        properties: Properties::default(),
        client_id: "c1",
        will: None,
        username: None,
        password: None,
    }
}

pub(super) fn publish<'a>(qos: u8, packet_id: u16, topic: &'a str, payload: &'a [u8]) -> Publish<'a> {
    Publish {
        dup: false,
        qos: Qos::from_bits(qos).unwrap(),
        retain: false,
        topic,
        packet_id,
        properties: Properties::default(),
        payload,
    }
}

pub(super) fn options(qos: u8) -> SubscribeOptions {
    SubscribeOptions::from_u8(qos).unwrap()
}

/// A message as a client published it: `mqtt` is the inside of its envelope.
pub(super) fn published(id: u8, topic: &str, mqtt: &str) -> Message {
    let position = Position { epoch: Epoch(1), offset: u64::from(id) };
    Message {
        id: NotificationId::from_bytes([id; 16]),
        app: AppId(1),
        when: When::Stored,
        urgency: Urgency::Normal,
        topic: Some(TopicPosition { topic: Topic::parse(topic).unwrap(), position }),
        notification: None,
        data: Some(JsonText::from_valid(format!(r#"{{"mqtt":{{{mqtt}}}}}"#))),
        sent_at: NOW,
        expires_at: Timestamp(NOW.0 + 10_000),
        push_waits: false,
        waits_for_use: false,
        category: None,
    }
}

pub(super) fn outgoing(id: u8, topic: &str, mqtt: &str) -> Outgoing {
    Outgoing::new(&published(id, topic, mqtt))
}
