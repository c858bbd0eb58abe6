//! A device of the model that speaks XMPP with stream management (XEP-0198): it acknowledges by counts of stanzas, and
//! resumes from what it acknowledged. Its topics are those of its registration.

use std::collections::VecDeque;

use serde_json::Value;

use super::ledger::{Account, INBOX};
use super::native::number;
use super::random::Random;
use super::{Came, Entry, Scene, Speaker, XMPP, YEARS, some_topics};
use crate::xmpp::{FEATURES, HEADER, Peer, between, resume};

const REQUEST: &str = "<r ";
const ENABLE: &str = "<enable xmlns='urn:xmpp:sm:3' resume='true'/>";

pub(crate) struct Device {
    topics: Vec<&'static str>,
    link: Option<Peer>,
    /// To resume by.
    id: Option<String>,
    /// Stanzas that came in this session, and those of them that are acknowledged.
    came: u32,
    told: u32,
    /// Messages that are not acknowledged, and how many stanzas had come with them.
    open: VecDeque<(u32, usize)>,
    /// Messages from before stanzas were counted. The first counted stanza acknowledges them, or an answer that counts all
    /// stanzas there were at the request.
    early: Vec<usize>,
    /// How many stanzas had come when an acknowledgement was last asked for.
    asked: Option<u32>,
    /// Pings, each with an id of its own.
    syncs: u64,
}

impl Device {
    pub(crate) fn new(random: &mut Random) -> Self {
        let (topics, open, early) = (some_topics(random), VecDeque::new(), Vec::new());
        Self { topics, link: None, id: None, came: 0, told: 0, open, early, asked: None, syncs: 0 }
    }

    /// Whole stanzas; `counted`: of those that stream management counts.
    async fn take(&mut self, scene: &mut Scene<'_>, heard: &str, counted: bool) -> Came {
        for stanza in stanzas(heard) {
            if stanza.starts_with(REQUEST) {
                self.asked = Some(self.came);
                continue;
            }
            self.came += u32::from(counted);
            if stanza.starts_with("<message") {
                let json = between(stanza, "<json xmlns='urn:xmpp:json:0'>", "</json>");
                let message: Value = serde_json::from_str(json).expect("JSON");
                let number = number(&message)?;
                scene.receive(number, message["topic"].as_str().unwrap_or(INBOX), false)?;
                match counted {
                    true => self.open.push_back((self.came, number)),
                    false => self.early.push(number),
                }
            } else if stanza.contains("urn:xmpp:ping")
                && let Some(peer) = &mut self.link
            {
                let id = between(stanza, "id='", "'");
                peer.say(&format!("<iq type='result' id='{id}' to='localhost'/>")).await;
            }
        }
        Ok(())
    }

    /// Whether the session continues; if not, a new one must begin.
    async fn resumes(&mut self, peer: &mut Peer) -> bool {
        let Some(id) = &self.id else { return false };
        let answer = peer.ask(&resume(id, self.told), "urn:xmpp:sm:3").await;
        let resumed = answer.contains("<resumed");
        peer.until(if resumed { "/>" } else { "</failed>" }).await;
        resumed
    }
}

/// Text divided where stanzas and requests begin; what is inside one has other names.
fn stanzas(heard: &str) -> impl Iterator<Item = &str> {
    let is_stanza = |at: &usize| {
        ["<message", "<iq", "<presence", REQUEST].iter().any(|name| heard[*at..].starts_with(name))
    };
    let begins: Vec<usize> = heard.match_indices('<').map(|(at, _)| at).filter(is_stanza).collect();
    let ends: Vec<usize> = begins.iter().skip(1).copied().chain([heard.len()]).collect();
    begins.into_iter().zip(ends).map(|(begin, end)| &heard[begin..end])
}

#[async_trait::async_trait]
impl Speaker for Device {
    fn describe(&self) -> String {
        format!("XMPP, {:?}", self.topics)
    }

    fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    fn topics(&self) -> Vec<&'static str> {
        self.topics.clone()
    }

    async fn connect(&mut self, scene: &mut Scene<'_>, _entry: Entry) -> Came {
        let before = self.link.take();
        let mut peer = Peer::dial(scene.node, XMPP).await;
        peer.send_at_once();
        peer.prove(scene.name, &scene.node.token_for(scene.name, YEARS)).await;
        scene.hears(&self.topics);
        peer.ask(HEADER, FEATURES).await;
        let resumed = self.resumes(&mut peer).await;
        drop(before);
        self.open.clear();
        self.early.clear();
        (self.came, self.asked) = (self.told, None);
        scene.note_step(format!("resumed: {resumed}, it has {}", self.told));
        if resumed {
            self.link = Some(peer);
            return Ok(());
        }
        (self.came, self.told) = (0, 0);
        peer.take_resource().await;
        let heard = peer.ask(ENABLE, "<enabled").await;
        let enabled = peer.until("/>").await;
        self.id = Some(between(&enabled, "id='", "'").to_owned());
        peer.say("<presence/>").await;
        self.link = Some(peer);
        self.take(scene, &heard, false).await
    }

    async fn leave(&mut self, _scene: &mut Scene<'_>, politely: bool) {
        if let Some(mut peer) = self.link.take().filter(|_| politely) {
            peer.say("</stream:stream>").await;
            self.id = None;
        }
    }

    fn is_cut(&mut self, _scene: &mut Scene<'_>) {
        self.link = None;
    }

    async fn read(&mut self, scene: &mut Scene<'_>) -> Came {
        let Some(peer) = &mut self.link else { return Err("it is not connected".to_owned()) };
        self.syncs += 1;
        let heard = peer.sync_as(&format!("sync-{}", self.syncs)).await;
        self.take(scene, &heard, true).await
    }

    async fn acknowledge(&mut self, scene: &mut Scene<'_>, count: usize) {
        let count = count.min(self.open.len());
        let told_before = self.told;
        for (at, number) in self.open.drain(..count) {
            self.told = at;
            scene.acknowledge(number, false);
        }
        if self.open.is_empty() {
            self.told = self.came;
        }
        let asked = self.asked.take();
        if self.told > 0 || asked == Some(self.told) {
            self.early.drain(..).for_each(|number| scene.acknowledge(number, false));
        }
        // An unrequested answer with an unchanged count could pass for the answer to a request that is in transit.
        if let Some(peer) = self.link.as_mut().filter(|_| asked.is_some() || self.told != told_before) {
            peer.say(&format!("<a xmlns='urn:xmpp:sm:3' h='{}'/>", self.told)).await;
            scene.note_step(format!("says that it has {}", self.told));
        }
    }

    fn is_done(&self, _account: &Account) -> bool {
        self.open.is_empty() && self.early.is_empty()
    }
}
