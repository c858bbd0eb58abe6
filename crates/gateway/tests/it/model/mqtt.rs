//! A device of the model that speaks MQTT: the messages that it received and did not acknowledge, and those that must come
//! again when its session continues.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use noroshi_protocol::mqtt::{
    Ack, Connect, Decoder, Frame, Notice, Packet, Properties, Property, PropertyList, Qos, ReasonCode,
    RetainHandling, Subscribe, SubscribeOptions, Value, Version,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::ledger::{Account, INBOX};
use super::random::Random;
use super::{Came, EXPIRY_S, Entry, Scene, Speaker, YEARS};
use crate::node::PATIENCE;

const FILTERS: [&str; 10] = ["a/1", "a/2", "b/1", "c", "a/+", "+/1", "b/#", "a/#", "#", INBOX];

/// Groups with a device for each half of the model's devices: no message is for two groups, so the device that acknowledges
/// it identifies the group.
const SHARES: [&str; 2] = ["$share/g/a/#", "$share/h/b/+"];

/// A packet of the server, as far as the model looks at it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Said {
    ConnAck { present: bool },
    Publish { dup: bool, topic: String, open: Open },
    PubRel(u16),
    Granted,
    Pong,
    Other,
}

struct Link {
    socket: TcpStream,
    decoder: Decoder,
    said: VecDeque<Said>,
}

/// A message with a packet id that is not free yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Open {
    packet_id: u16,
    number: usize,
    qos: Qos,
    /// Its topic retained it.
    retained: bool,
}

pub(crate) struct Device {
    version: Version,
    /// What it takes at once.
    window: u16,
    /// It acknowledges what it received first, for each quality of service ([MQTT-4.6.0-2], [MQTT-4.6.0-3]).
    in_order: bool,
    /// It has this shared subscription and no other.
    share: Option<&'static str>,
    link: Option<Link>,
    /// Received on this connection and not acknowledged, in the order in which they came.
    open: Vec<Open>,
    /// PUBREC was sent, PUBREL did not come.
    received: Vec<u16>,
    /// Messages with QoS 2 by packet id whose PUBREL did not come in this session (§4.3.3, method B): another message
    /// with such a packet id would be taken for them.
    held: BTreeMap<u16, usize>,
    /// PUBREL came and is not answered.
    released: Vec<u16>,
    /// Must be sent again with DUP and the same packet id, in this order ([MQTT-4.4.0-1], [MQTT-4.6.0-1]).
    again: VecDeque<Open>,
    /// Messages may have expired since it connected.
    is_stale: bool,
}

impl Device {
    pub(crate) fn new(random: &mut Random) -> Self {
        let version = if random.chance(50) { Version::V3 } else { Version::V5 };
        let window = if version == Version::V3 { 64 } else { [1, 3, 20, 64][random.below(4)] };
        Self {
            version,
            window,
            in_order: random.chance(70),
            share: None,
            link: None,
            open: Vec::new(),
            received: Vec::new(),
            held: BTreeMap::new(),
            released: Vec::new(),
            again: VecDeque::new(),
            is_stale: false,
        }
    }

    /// One of a group.
    pub(crate) fn member(random: &mut Random, at: usize) -> Self {
        Self { share: Some(SHARES[at % SHARES.len()]), ..Self::new(random) }
    }

    async fn subscribe(
        &mut self,
        scene: &mut Scene<'_>,
        filter: &'static str,
        (qos, retained): (Qos, bool),
    ) -> Came {
        let handling = if retained { RetainHandling::Send } else { RetainHandling::DoNotSend };
        let options = SubscribeOptions::new(qos);
        let options =
            if self.version == Version::V5 { options.with_retain_handling(handling) } else { options };
        let filters = Subscribe::encode_filters(&[(filter, options)]);
        self.send(Packet::Subscribe(Subscribe::new(7, Properties::default(), &filters))).await;
        // It may get messages of the filter from here on.
        scene.account().ask(filter);
        self.until(scene, &Said::Granted).await?;
        if scene.account().has_session() {
            scene.account().subscribe(filter);
            if self.share.is_some() {
                scene.ledger.join(scene.at, filter);
            }
        }
        Ok(())
    }

    async fn unsubscribe(&mut self, scene: &mut Scene<'_>, filter: &'static str) -> Came {
        let filters = Subscribe::encode_bare(&[filter]);
        self.send(Packet::Unsubscribe(Subscribe::bare(7, Properties::default(), &filters))).await;
        self.until(scene, &Said::Granted).await?;
        scene.account().unsubscribe(filter);
        if self.share.is_some() {
            scene.ledger.leave(scene.at);
        }
        Ok(())
    }

    async fn until(&mut self, scene: &mut Scene<'_>, end: &Said) -> Came {
        loop {
            match self.next().await? {
                said if said == *end => return Ok(()),
                said => self.take(scene, said)?,
            }
        }
    }

    fn take(&mut self, scene: &mut Scene<'_>, said: Said) -> Came {
        match said {
            Said::Publish { dup, topic, open } => {
                scene.note(open.number, format!("packet {}, {:?}, DUP: {dup}", open.packet_id, open.qos));
                scene.receive(open.number, &topic, open.retained)?;
                if open.qos > Qos::AtMostOnce {
                    self.take_open(scene, open, dup)?;
                }
            }
            Said::PubRel(packet_id) => {
                self.received.retain(|received| *received != packet_id);
                self.held.remove(&packet_id);
                if !self.released.contains(&packet_id) {
                    self.released.push(packet_id);
                }
            }
            Said::ConnAck { .. } | Said::Granted | Said::Pong | Said::Other => {}
        }
        Ok(())
    }

    fn take_open(&mut self, scene: &mut Scene<'_>, open: Open, dup: bool) -> Came {
        let is_it = |again: &Open| again.packet_id == open.packet_id;
        if let Some(at) = self.again.iter().position(is_it) {
            let due = missing(self.again.drain(..at), scene.account());
            let again = self.again.pop_front();
            if !due.is_empty() || !dup || again != Some(open) {
                return Err(format!("{open:?} (DUP: {dup}) where {due:?} and {again:?} had to come again"));
            }
        }
        if let Some(used) = self.open.iter().find(|used| used.packet_id == open.packet_id) {
            return Err(format!("{open:?} has the packet id of {used:?}"));
        }
        if open.qos == Qos::ExactlyOnce
            && let Some(held) = self.held.insert(open.packet_id, open.number)
            && held != open.number
        {
            return Err(format!("{open:?} has a packet id that is held for {held}"));
        }
        // Its PUBREC got lost on the way; §4.3.3 method B: it is answered again.
        self.received.retain(|received| *received != open.packet_id);
        self.open.push(open);
        match self.open.len() + self.received.len() > usize::from(self.window) {
            true => Err(format!("more than {} in flight", self.window)),
            false => Ok(()),
        }
    }

    async fn send(&mut self, packet: Packet<'_>) {
        let mut bytes = Vec::new();
        packet.encode(self.version, &mut bytes);
        if let Some(link) = &mut self.link {
            // One that is closed by the server is found when it is read.
            let _ = link.socket.write_all(&bytes).await;
        }
    }

    async fn next(&mut self) -> Result<Said, String> {
        let version = self.version;
        let Some(link) = &mut self.link else { return Err("it is not connected".to_owned()) };
        let mut chunk = [0; 16 << 10];
        while link.said.is_empty() {
            let read = tokio::time::timeout(PATIENCE, link.socket.read(&mut chunk)).await;
            let count = read.map_err(|_| "nothing came for long")?.unwrap_or(0);
            if count == 0 {
                return Err("the server closed the connection".to_owned());
            }
            let said = &mut link.said;
            let mut feed = |frame: Frame<'_>| {
                said.push_back(say(Packet::parse(version, frame).expect("a packet")));
                ControlFlow::Continue(())
            };
            link.decoder.feed(&chunk[..count], 1 << 20, &mut feed).expect("packets");
        }
        Ok(link.said.pop_front().unwrap_or(Said::Other))
    }
}

/// Messages that must come again and are not acknowledged. A message that was sent once more because its acknowledgement was
/// not written yet need not come again: the acknowledgement is written by now.
fn missing(again: impl Iterator<Item = Open>, account: &Account) -> Vec<usize> {
    again.map(|open| open.number).filter(|number| !account.has_acknowledged(*number)).collect()
}

#[async_trait::async_trait]
impl Speaker for Device {
    fn describe(&self) -> String {
        let Self { version, window, in_order, .. } = self;
        format!("{version:?}, receive maximum {window}, acknowledges in order: {in_order}")
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn expires(&self) -> bool {
        self.version == Version::V5
    }

    async fn connect(&mut self, scene: &mut Scene<'_>, Entry { clean, forgets }: Entry) -> Came {
        let before = self.link.take();
        let socket = TcpStream::connect(scene.node.gateway.local_addrs()[1]).await.expect("connected");
        socket.set_nodelay(true).expect("set");
        self.link = Some(Link { socket, decoder: Decoder::new(), said: VecDeque::new() });
        let token = scene.node.token_for(scene.name, YEARS);
        let mut list = PropertyList::new();
        if self.version == Version::V5 {
            list.push(Property::SessionExpiryInterval, Value::U32(EXPIRY_S));
            list.push(Property::ReceiveMaximum, Value::U16(self.window));
        }
        let connect = Connect {
            is_mqtt31: false,
            version: self.version,
            clean_start: clean,
            keep_alive_s: 0,
            properties: list.properties(),
            client_id: "c",
            will: None,
            username: Some(scene.name),
            password: Some(token.as_bytes()),
        };
        self.send(Packet::Connect(connect)).await;
        let present = match self.next().await? {
            Said::ConnAck { present } => present,
            said => return Err(format!("{said:?} instead of CONNACK")),
        };
        drop(before);
        let account = scene.account();
        if present != (account.has_session() && !clean) {
            return Err(format!("session present: {present}, but {}", account.has_session()));
        }
        if !present {
            scene.ledger.end_session(scene.at);
            self.held.clear();
        }
        // With a clean session, 3.1.1 has none that outlasts the connection.
        if self.version == Version::V5 || !clean {
            scene.account().begin_session();
        }
        let open = std::mem::take(&mut self.open);
        let is_stale = std::mem::take(&mut self.is_stale);
        let late = std::mem::take(&mut self.again);
        // PUBREL comes again for these.
        (self.received, self.released) = (Vec::new(), Vec::new());
        if present && !forgets && !is_stale {
            // Messages that had not come yet follow those that came: they were sent later.
            self.again = open.into_iter().chain(late).collect();
        }
        Ok(())
    }

    async fn leave(&mut self, _scene: &mut Scene<'_>, politely: bool) {
        if politely {
            let (reason, properties) = (ReasonCode::Success, Properties::default());
            self.send(Packet::Disconnect(Notice { reason, properties })).await;
        }
        self.link = None;
    }

    fn is_cut(&mut self, _scene: &mut Scene<'_>) {
        self.link = None;
        self.forget();
    }

    fn forget(&mut self) {
        self.again.clear();
        self.open.clear();
        self.received.clear();
        self.released.clear();
    }

    fn may_lack_messages(&mut self, _next: usize) {
        self.again.clear();
        self.is_stale = true;
    }

    async fn read(&mut self, scene: &mut Scene<'_>) -> Came {
        self.send(Packet::PingReq).await;
        self.until(scene, &Said::Pong).await
    }

    async fn acknowledge(&mut self, scene: &mut Scene<'_>, count: usize) {
        for _ in 0..count {
            if !self.released.is_empty() && (self.open.is_empty() || scene.random.chance(50)) {
                let packet_id = self.released.remove(0);
                self.send(Packet::PubComp(Ack::success(packet_id))).await;
                continue;
            }
            if self.open.is_empty() {
                return;
            }
            let mut at = scene.random.below(self.open.len());
            if self.in_order {
                let qos = self.open[at].qos;
                at = self.open.iter().position(|open| open.qos == qos).unwrap_or(at);
            }
            let Open { packet_id, number, qos, retained } = self.open.remove(at);
            scene.acknowledge(number, retained);
            match qos {
                Qos::ExactlyOnce => {
                    self.received.push(packet_id);
                    self.send(Packet::PubRec(Ack::success(packet_id))).await;
                }
                Qos::AtLeastOnce | Qos::AtMostOnce => {
                    self.send(Packet::PubAck(Ack::success(packet_id))).await;
                }
            }
        }
    }

    fn is_done(&self, account: &Account) -> bool {
        self.open.is_empty() && missing(self.again.iter().copied(), account).is_empty()
    }

    fn take_missing(&mut self, account: &Account) -> Vec<usize> {
        missing(std::mem::take(&mut self.again).into_iter(), account)
    }

    async fn change_subscriptions(&mut self, scene: &mut Scene<'_>) -> (String, Came) {
        let filter = self.share.unwrap_or_else(|| scene.random.pick(&FILTERS));
        let holds = scene.account().filters.contains(filter);
        if holds && scene.random.chance(50) {
            return (format!("unsubscribes from {filter}"), self.unsubscribe(scene, filter).await);
        }
        // A message with QoS 2 that a member may have when its session ends goes to no other member ([MQTT-4.8.2-5]).
        let is_at_least = self.share.is_some() || scene.random.chance(50);
        let qos = if is_at_least { Qos::AtLeastOnce } else { Qos::ExactlyOnce };
        let retained = scene.random.chance(50);
        let what = format!("subscribes to {filter}, {qos:?}, wants retained: {retained}");
        (what, self.subscribe(scene, filter, (qos, retained)).await)
    }
}

fn say(packet: Packet<'_>) -> Said {
    match packet {
        Packet::ConnAck(ack) => Said::ConnAck { present: ack.session_present },
        Packet::Publish(publish) => {
            let json: serde_json::Value = serde_json::from_slice(publish.payload).expect("JSON");
            // A notification, or the payload as it was published.
            let number = json.get("data").unwrap_or(&json).as_u64().expect("a number") as usize;
            let (qos, packet_id, retained) = (publish.qos, publish.packet_id, publish.retain);
            let open = Open { packet_id, number, qos, retained };
            Said::Publish { dup: publish.dup, topic: publish.topic.to_owned(), open }
        }
        Packet::PubRel(ack) => Said::PubRel(ack.packet_id),
        Packet::SubAck(ack) | Packet::UnsubAck(ack) => {
            assert!(ack.reasons.iter().all(|reason| *reason < 0x80), "{:?}", ack.reasons);
            Said::Granted
        }
        Packet::PingResp => Said::Pong,
        _ => Said::Other,
    }
}
