//! A scripted client and a scripted service around one conversation.

use std::ops::ControlFlow;

use noroshi_types::{
    AppId, Epoch, JsonText, Message, NotificationId, Position, Timestamp, Topic, TopicPosition, Urgency, When,
};

use crate::mqtt::*;

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000);

/// Whole packets in `bytes`.
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

/// What one packet did, with what was borrowed made into text.
#[derive(Debug, PartialEq)]
pub(super) enum Did {
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
    /// What the service wrote and was not looked at.
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

    /// One that is logged in without a session of before.
    pub(super) fn open(version: Version) -> Self {
        let mut peer = Self::new(version);
        peer.log_in(&connect(version), LoggedIn { origin: 7, ..LoggedIn::default() });
        peer.out.clear();
        peer
    }

    pub(super) fn log_in(&mut self, connect: &Connect<'_>, session: LoggedIn<'_>) {
        let did = self.say(Packet::Connect(*connect));
        assert!(matches!(did, Did::LogIn { .. }), "{did:?}");
        let early = self.conversation.logged_in(&self.config, session, &mut self.out);
        assert!(early.is_empty());
    }

    /// The client says something; SUBSCRIBE and UNSUBSCRIBE are answered at once.
    pub(super) fn say(&mut self, packet: Packet<'_>) -> Did {
        let did = self.say_only(packet);
        if let Some(request) = self.subscribe.take() {
            self.subscribed =
                self.conversation.subscribed(&self.config, request, 0, &mut self.out).expect("goes on");
        }
        if let Some(request) = self.unsubscribe.take() {
            self.conversation.unsubscribed(request, &mut self.out).expect("goes on");
        }
        did
    }

    pub(super) fn say_only(&mut self, packet: Packet<'_>) -> Did {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes);
        self.say_bytes(&bytes)
    }

    /// Exactly one packet.
    pub(super) fn say_bytes(&mut self, bytes: &[u8]) -> Did {
        let mut did = None;
        each_frame(bytes, |frame| {
            let action = self.conversation.receive(&self.config, frame, &mut self.out);
            assert!(did.is_none(), "one packet");
            did = Some(match action {
                Action::None => Did::Nothing,
                Action::LogIn(log_in) => Did::LogIn {
                    device: log_in.device.map(str::to_owned),
                    token: log_in.token.map(str::to_owned),
                    app: log_in.app.map(str::to_owned),
                    expiry_s: log_in.session_expiry_s,
                },
                Action::Publish { publication, answer } => Did::Publish {
                    topic: publication.topic.to_string(),
                    payload: publication.payload.to_vec(),
                    retain: publication.retain,
                    answer,
                },
                Action::Subscribe(request) => {
                    let count = request.count();
                    self.subscribe = Some(request);
                    Did::Subscribe(count)
                }
                Action::Unsubscribe(request) => {
                    let count = request.filters().count();
                    self.unsubscribe = Some(request);
                    Did::Unsubscribe(count)
                }
                Action::Settled { ids, room } => {
                    Did::Settled { ids: ids.iter().map(|id| id.as_bytes()[0]).collect(), room }
                }
                Action::Presence(presence) => Did::Presence(presence),
                Action::RenewToken { token, answer } => Did::RenewToken { token: token.to_owned(), answer },
                Action::Refused(why) => Did::Refused(why),
                Action::Close { reason, .. } => Did::Close(reason),
            });
        });
        did.expect("a packet")
    }

    pub(super) fn subscribe(&mut self, filters: &[(&str, SubscribeOptions)]) {
        let filters = Subscribe::filters_of(filters);
        self.say(Packet::Subscribe(Subscribe::new(1, Properties::default(), &filters)));
        self.out.clear();
    }

    /// What the service wrote since it was looked at last is exactly this.
    #[track_caller]
    pub(super) fn hears(&mut self, packets: &[Packet<'_>]) {
        let expected = encoded(self.version, packets);
        assert_eq!(std::mem::take(&mut self.out), expected, "{packets:?}");
    }

    /// Delivers, and returns what became of it; the bytes are in `out`.
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
    }
}

pub(super) fn outgoing(id: u8, topic: &str, mqtt: &str) -> Outgoing {
    Outgoing::new(&published(id, topic, mqtt))
}
