//! A device of the model that speaks Socket.IO over a WebSocket: durable topics, and topics of the connection.
//!
//! With offsets it is recovered behind the last message it received, so nothing comes twice, acknowledged or not. Without
//! offsets, unacknowledged messages come again, and topics of the connection do not deliver messages that were published
//! while the device had no connection.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::ledger::{Account, INBOX};
use super::native::number;
use super::random::Random;
use super::{Came, Entry, Scene, Speaker, TOPICS, YEARS};
use crate::socket_io::Socket;

/// A message that is not acknowledged.
struct Open {
    number: usize,
    id: String,
    /// What its callback answers to, without offsets.
    ack: Option<u64>,
}

pub(crate) struct Device {
    durable: Vec<&'static str>,
    /// Of the connection.
    own: Vec<&'static str>,
    offsets: bool,
    link: Option<Socket>,
    /// The session it had, and the offset of the last message it received.
    last: (Value, Option<Value>),
    open: VecDeque<Open>,
    /// Messages below this number may have expired, and been behind its offset.
    stale_below: usize,
    /// Of the last message it received.
    last_number: Option<usize>,
}

impl Device {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (durable, own) = TOPICS.into_iter().partition(|_| random.chance(50));
        let (offsets, last) = (random.chance(60), (Value::Null, None));
        Self {
            durable,
            own,
            offsets,
            link: None,
            last,
            open: VecDeque::new(),
            stale_below: 0,
            last_number: None,
        }
    }

    fn is_stale(&self) -> bool {
        self.last_number.is_none_or(|last| last + 1 < self.stale_below)
    }

    fn take(&mut self, scene: &mut Scene<'_>, packet: &str) -> Came {
        let Some(rest) = packet.strip_prefix("42") else { return Err(format!("{packet} was not asked for")) };
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let args: Vec<Value> = serde_json::from_str(&rest[digits..]).expect("JSON");
        if args[0] != "notification" {
            return Err(format!("{packet} instead of a notification"));
        }
        let number = number(&args[1])?;
        scene.receive(number, args[1]["topic"].as_str().unwrap_or(INBOX), false)?;
        if self.offsets {
            self.last_number = Some(number);
            self.last.1 = Some(args.get(2).cloned().ok_or_else(|| format!("no offset: {packet}"))?);
            scene.acknowledge(number, false);
        }
        let id = args[1]["id"].as_str().expect("an id").to_owned();
        self.open.push_back(Open { number, id, ack: rest[..digits].parse().ok() });
        Ok(())
    }
}

#[async_trait::async_trait]
impl Speaker for Device {
    fn describe(&self) -> String {
        let Self { durable, own, offsets, .. } = self;
        format!("Socket.IO, offsets: {offsets}, durable {durable:?}, of the connection {own:?}")
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn topics(&self) -> Vec<&'static str> {
        self.durable.clone()
    }

    async fn connect(&mut self, scene: &mut Scene<'_>, _entry: Entry) -> Came {
        let before = self.link.take();
        let mut socket = Socket::session(scene.node, "/socket.io/").await;
        socket.send_at_once();
        let token = scene.node.token_for(scene.name, YEARS);
        let mut asked = json!({"token": token, "topics": self.own, "offsets": self.offsets});
        let (pid, offset) = &self.last;
        let recovers = offset.is_some();
        if let Some(offset) = offset {
            (asked["pid"], asked["offset"]) = (pid.clone(), offset.clone());
        }
        socket.say(&format!("40{asked}")).await;
        let answer = socket.next().await;
        let connected = answer.strip_prefix("40").ok_or_else(|| format!("not connected: {answer}"))?;
        let connected: Value = serde_json::from_str(connected).expect("JSON");
        drop(before);
        let recovered = connected["pid"] == *pid;
        scene.note_step(format!("asked for {pid} behind {offset:?}, recovered: {recovered}, {connected}"));
        if recovered && !recovers || recovers && !recovered && !self.is_stale() {
            return Err(format!("recovered: {recovered}"));
        }
        if !recovered {
            self.own.iter().for_each(|topic| scene.account().unsubscribe(topic));
        }
        self.last.0 = connected["pid"].clone();
        if !self.offsets {
            self.open.clear();
        }
        self.link = Some(socket);
        scene.hears(&TOPICS);
        Ok(())
    }

    async fn leave(&mut self, scene: &mut Scene<'_>, politely: bool) {
        if let Some(mut socket) = self.link.take().filter(|_| politely) {
            socket.say("41").await;
        }
        self.is_cut(scene);
    }

    fn is_cut(&mut self, scene: &mut Scene<'_>) {
        self.link = None;
        if self.last.1.is_none() {
            self.own.iter().for_each(|topic| scene.account().unsubscribe(topic));
        }
    }

    fn may_lack_messages(&mut self, next: usize) {
        self.stale_below = next;
    }

    async fn read(&mut self, scene: &mut Scene<'_>) -> Came {
        let Some(socket) = &mut self.link else { return Err("it is not connected".to_owned()) };
        socket.say(r#"421["presence","active"]"#).await;
        let mut came = Vec::new();
        loop {
            match socket.next().await {
                answer if answer == r#"431[{"ok":true}]"# => break,
                packet => came.push(packet),
            }
        }
        came.iter().try_for_each(|packet| self.take(scene, packet))
    }

    async fn acknowledge(&mut self, scene: &mut Scene<'_>, count: usize) {
        let Some(socket) = &mut self.link else { return };
        let count = count.min(self.open.len());
        let by_callback = scene.random.chance(50);
        let mut ids = Vec::new();
        for Open { number, id, ack } in self.open.drain(..count) {
            match ack.filter(|_| by_callback) {
                Some(ack) => socket.say(&format!("43{ack}[]")).await,
                None => ids.push(id),
            }
            scene.acknowledge(number, false);
        }
        for ids in ids.chunks(50) {
            socket.say(&format!("42{}", json!(["ack", ids]))).await;
        }
    }

    fn is_done(&self, _account: &Account) -> bool {
        self.open.is_empty()
    }
}
