//! A device of the model that speaks the native protocol over a WebSocket. Its topics are those of its registration; it
//! confirms what it received first.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::ledger::{INBOX, Ledger};
use super::random::Random;
use super::{Speaker, TOPICS, YEARS};
use crate::node::{Client, Node};

pub(crate) struct Device {
    name: String,
    at: usize,
    topics: Vec<&'static str>,
    link: Option<Client>,
    /// Received on this connection and not confirmed.
    open: VecDeque<(Value, usize)>,
}

impl Device {
    pub(crate) fn new(at: usize, random: &mut Random) -> Self {
        let topics = TOPICS.into_iter().filter(|_| random.chance(50)).collect();
        Self { name: format!("d{at}"), at, topics, link: None, open: VecDeque::new() }
    }

    fn take(&mut self, ledger: &mut Ledger, frame: &Value) -> Result<(), String> {
        if frame["t"] != "msg" {
            return Ok(());
        }
        let data = &frame["data"];
        // What says how MQTT clients get it has it inside.
        let inside = || -> Option<u64> { data["mqtt"]["text"].as_str()?.parse().ok() };
        let number = data.as_u64().or_else(inside).ok_or_else(|| format!("no number: {frame}"))? as usize;
        let topic = frame["topic"].as_str().unwrap_or(INBOX);
        ledger.received(self.at, number, topic, false)?;
        self.open.push_back((frame["id"].clone(), number));
        Ok(())
    }
}

#[async_trait::async_trait]
impl Speaker for Device {
    fn name(&self) -> &str {
        &self.name
    }

    fn describe(&self) -> String {
        format!("{}: native, {:?}", self.name, self.topics)
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn expires(&self) -> bool {
        false
    }

    fn topics(&self) -> Vec<&'static str> {
        self.topics.clone()
    }

    async fn connect(
        &mut self,
        node: &Node,
        ledger: &mut Ledger,
        _clean: bool,
        _forgets: bool,
    ) -> Result<(), String> {
        let before = self.link.take();
        let token = node.token_for(&self.name, YEARS);
        let mut client = node.open(&format!("/v1/connect?token={token}")).await;
        let ready = client.next().await;
        drop(before);
        if ready["t"] != "ready" {
            return Err(format!("{ready} instead of ready"));
        }
        self.open.clear();
        self.link = Some(client);
        let account = &mut ledger.accounts[self.at];
        account.begin_session();
        for filter in self.topics.iter().chain([&INBOX]) {
            account.ask(filter);
            account.subscribe(filter);
        }
        Ok(())
    }

    async fn leave(&mut self, _politely: bool) {
        self.link = None;
    }

    fn is_cut(&mut self) {
        self.link = None;
    }

    fn forget(&mut self) {}

    fn may_lack_messages(&mut self) {}

    async fn read(&mut self, ledger: &mut Ledger) -> Result<(), String> {
        let Some(client) = &mut self.link else { return Err("it is not connected".to_owned()) };
        let frames = client.sync().await;
        frames.iter().try_for_each(|frame| self.take(ledger, frame))
    }

    async fn confirm(&mut self, ledger: &mut Ledger, count: usize, random: &mut Random) {
        let Some(client) = &mut self.link else { return };
        let count = count.min(self.open.len());
        if count == 0 {
            return;
        }
        let (ids, numbers): (Vec<Value>, Vec<usize>) = self.open.drain(..count).unzip();
        // At once, or each by itself.
        for ids in if random.chance(50) { vec![ids] } else { ids.into_iter().map(|id| vec![id]).collect() } {
            for ids in ids.chunks(50) {
                client.send(json!({"t": "ack", "ids": ids})).await;
            }
        }
        numbers.into_iter().for_each(|number| ledger.accounts[self.at].confirm(number, false));
    }

    async fn change_subscriptions(
        &mut self,
        _ledger: &mut Ledger,
        _random: &mut Random,
    ) -> (String, Result<(), String>) {
        ("keeps its topics".to_owned(), Ok(()))
    }

    fn has_all(&self, ledger: &Ledger) -> bool {
        ledger.accounts[self.at].owes_nothing() && self.open.is_empty()
    }

    fn take_missing(&mut self) -> Vec<usize> {
        Vec::new()
    }
}
