//! A device of the model that speaks the native protocol over a WebSocket. Its topics are those of its registration; it
//! acknowledges what it received first.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::ledger::{Account, INBOX};
use super::random::Random;
use super::{Came, Entry, Scene, Speaker, YEARS, some_topics};
use crate::node::Client;

pub(crate) struct Device {
    topics: Vec<&'static str>,
    link: Option<Client>,
    /// Received on this connection and not acknowledged.
    open: VecDeque<(Value, usize)>,
}

impl Device {
    pub(crate) fn new(random: &mut Random) -> Self {
        Self { topics: some_topics(random), link: None, open: VecDeque::new() }
    }

    fn take(&mut self, scene: &mut Scene<'_>, frame: &Value) -> Came {
        if frame["t"] != "msg" {
            return Ok(());
        }
        let number = number(frame)?;
        scene.receive(number, frame["topic"].as_str().unwrap_or(INBOX), false)?;
        self.open.push_back((frame["id"].clone(), number));
        Ok(())
    }
}

/// What a notification carries.
pub(crate) fn number(frame: &Value) -> Result<usize, String> {
    let data = &frame["data"];
    // Data for MQTT clients has the number inside.
    let inside = || -> Option<u64> { data["mqtt"]["text"].as_str()?.parse().ok() };
    let number = data.as_u64().or_else(inside).ok_or_else(|| format!("no number: {frame}"))?;
    Ok(number as usize)
}

#[async_trait::async_trait]
impl Speaker for Device {
    fn describe(&self) -> String {
        format!("native, {:?}", self.topics)
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn topics(&self) -> Vec<&'static str> {
        self.topics.clone()
    }

    async fn connect(&mut self, scene: &mut Scene<'_>, _entry: Entry) -> Came {
        let before = self.link.take();
        let token = scene.node.token_for(scene.name, YEARS);
        let mut client = scene.node.open(&format!("/v1/connect?token={token}")).await;
        client.send_at_once();
        let ready = client.next().await;
        drop(before);
        if ready["t"] != "ready" {
            return Err(format!("{ready} instead of ready"));
        }
        self.open.clear();
        self.link = Some(client);
        scene.hears(&self.topics);
        Ok(())
    }

    async fn leave(&mut self, _scene: &mut Scene<'_>, _politely: bool) {
        self.link = None;
    }

    fn is_cut(&mut self, _scene: &mut Scene<'_>) {
        self.link = None;
    }

    async fn read(&mut self, scene: &mut Scene<'_>) -> Came {
        let Some(client) = &mut self.link else { return Err("it is not connected".to_owned()) };
        let frames = client.sync().await;
        frames.iter().try_for_each(|frame| self.take(scene, frame))
    }

    async fn acknowledge(&mut self, scene: &mut Scene<'_>, count: usize) {
        let Some(client) = &mut self.link else { return };
        let count = count.min(self.open.len());
        let (ids, numbers): (Vec<Value>, Vec<usize>) = self.open.drain(..count).unzip();
        // All at once, or each in its own frame.
        let at_once = if scene.random.chance(50) { 50 } else { 1 };
        for ids in ids.chunks(at_once) {
            client.send(json!({"t": "ack", "ids": ids})).await;
        }
        numbers.into_iter().for_each(|number| scene.acknowledge(number, false));
    }

    fn is_done(&self, _account: &Account) -> bool {
        self.open.is_empty()
    }
}
