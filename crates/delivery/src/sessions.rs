//! Sessions on all nodes: where a device or user is connected, and changes that reach open connections.
//!
//! Reads and changes the sessions of this node through the edge, and those of other nodes through the cluster. Knows no
//! subscriptions and tokens of the store: see [`crate::devices`].

use std::sync::Arc;

use noroshi_cluster::Epoch;
use noroshi_types::{AppId, CloseReason, DeviceId, Presence, Topic, UserId};

use crate::cluster::outbox::{Item, To};
use crate::cluster::question::by_node;
use crate::cluster::wire::{Answer, Question, Record};
use crate::cluster::{Nodes, Peers};
use crate::context::Context;
use crate::edge::Session;
use crate::freshness::Freshness;

/// Devices in one question for generations.
const GENERATIONS_MAX: usize = 500;

/// Whether a device is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connected {
    /// By the session of this generation.
    As(u64),
    No,
    /// The directory, or the node that has the session, did not answer.
    Unknown,
}

impl From<u64> for Connected {
    fn from(generation: u64) -> Self {
        match generation {
            0 => Connected::No,
            generation => Connected::As(generation),
        }
    }
}

pub struct Sessions {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) freshness: Arc<Freshness>,
}

impl Sessions {
    /// The generation of each device's session on any node, in order.
    pub(crate) async fn generations(&self, app: AppId, devices: &[DeviceId]) -> Vec<Connected> {
        let local = self.context.local_generations(app, devices);
        let mut known: Vec<Connected> = local.into_iter().map(Connected::from).collect();
        let Some(peers) = self.nodes.peers() else { return known };
        let missing: Vec<usize> = (0..devices.len()).filter(|at| known[*at] == Connected::No).collect();
        for missing in missing.chunks(GENERATIONS_MAX) {
            ask_generations(peers, app, devices, missing, &mut known).await;
        }
        known
    }

    /// The sessions of each user on all nodes, in order.
    pub async fn of_users(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        let mut sessions = self.context.local_sessions(app, users);
        if let Some(peers) = self.nodes.peers() {
            let keys = users.iter().map(|user| peers.cluster.keys.user(app, user)).collect();
            let question = |users| Question::Sessions { app, users };
            peers.questions.add_sessions(users, keys, question, &mut sessions).await;
        }
        sessions
    }

    /// The session of each device on any node, in order.
    pub async fn of_devices(&self, app: AppId, devices: &[DeviceId]) -> Vec<Option<Session>> {
        let local = |device| self.context.local_session(app, device);
        let mut sessions: Vec<Option<Session>> = devices.iter().map(local).collect();
        let Some(peers) = self.nodes.peers() else { return sessions };
        let missing: Vec<usize> = (0..devices.len()).filter(|at| sessions[*at].is_none()).collect();
        if missing.is_empty() {
            return sessions;
        }
        let asked: Vec<DeviceId> = missing.iter().map(|at| devices[*at].clone()).collect();
        let keys = asked.iter().map(|device| peers.cluster.keys.device(app, device)).collect();
        let mut found = vec![Vec::new(); asked.len()];
        let question = |devices| Question::Devices { app, devices };
        peers.questions.add_sessions(&asked, keys, question, &mut found).await;
        for (at, found) in missing.into_iter().zip(found) {
            sessions[at] = found.into_iter().next();
        }
        sessions
    }

    pub async fn of_device(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.of_devices(app, std::slice::from_ref(device)).await.pop().flatten()
    }

    /// The session on another node, if the device is not connected here.
    pub async fn elsewhere(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        match self.nodes.peers().is_none() || self.context.local_session(app, device).is_some() {
            true => None,
            false => self.of_device(app, device).await,
        }
    }

    /// The number of connections that subscribe to each topic, on all nodes.
    pub async fn of_topics(&self, app: AppId, topics: &[Topic]) -> Vec<u64> {
        let local = |topic| self.context.edge().map_or(0, |edge| edge.topic_sessions(app, topic));
        let mut counts: Vec<u64> = topics.iter().map(local).collect();
        let Some(peers) = self.nodes.peers().filter(|_| !topics.is_empty()) else { return counts };
        let question = Question::TopicSessions { app, topics: topics.to_vec() };
        let gateways = peers.other_gateways();
        let questions = gateways.into_iter().map(|epoch| (epoch, question.clone())).collect();
        for answer in peers.questions.ask(questions).await {
            if let Some(Answer::Counts(more)) = answer {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(more));
            }
        }
        counts
    }

    /// Returns false if the device is not connected.
    pub async fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool {
        if self.context.edge().is_some_and(|edge| edge.set_presence(app, device, presence)) {
            return true;
        }
        let Some(peers) = self.nodes.peers() else { return false };
        self.freshness.device_changed(app, device);
        let holders = peers.questions.elsewhere(vec![peers.cluster.keys.device(app, device)]).await;
        let question = Question::SetPresence { app, device: device.clone(), presence };
        let questions = holders.into_iter().flatten().map(|epoch| (epoch, question.clone())).collect();
        peers.questions.ask(questions).await.contains(&Some(Answer::Done(true)))
    }

    /// Durable subscriptions were created: open connections of the devices receive the topics from now on.
    pub async fn subscribed(&self, app: AppId, devices: &[(&DeviceId, &[Topic])]) {
        let subscribed = || devices.iter().filter(|(_, topics)| !topics.is_empty());
        if let Some(edge) = self.context.edge() {
            subscribed().for_each(|(device, topics)| edge.subscribe(app, device, topics));
        }
        let Some(peers) = self.nodes.peers().filter(|_| subscribed().next().is_some()) else { return };
        let item = |(device, topics): &(&DeviceId, &[Topic])| {
            let record = Record::Subscribe { app, device: (*device).clone(), topics: topics.to_vec() };
            Item::Record { to: peers.holders(app, device), record }
        };
        // Collected before they are queued, so that they leave together.
        let items: Vec<Item> = subscribed().map(item).collect();
        peers.handed_over(peers.outbox.push_all(items)).await;
    }

    /// A durable subscription was removed.
    pub(crate) async fn unsubscribed(&self, app: AppId, device: &DeviceId, topic: &Topic) {
        if let Some(edge) = self.context.edge() {
            edge.unsubscribe(app, device, topic);
        }
        if let Some(peers) = self.nodes.peers() {
            let (device, topics) = (device.clone(), vec![topic.clone()]);
            peers.send_now(peers.holders(app, &device), Record::Unsubscribe { app, device, topics }).await;
        }
    }

    /// Ends the connections of devices on all nodes. After [`CloseReason::Drain`] they connect again, and learn what has
    /// changed since their login, such as the device's user.
    pub async fn close(&self, app: AppId, devices: &[DeviceId], reason: CloseReason) {
        let mut last = None;
        for device in devices {
            if let Some(edge) = self.context.edge() {
                edge.close(app, device, reason);
            }
            let record = || Record::Close { app, device: device.clone(), reason };
            // Any node may keep state of a revoked device: a session that must not be resumed, a will.
            let to = |peers: &Peers| match reason {
                CloseReason::Revoked => To::Gateways,
                _ => peers.holders(app, device),
            };
            last = self.nodes.peers().map(|peers| peers.send(to(peers), record())).or(last);
        }
        self.nodes.handed_over(last).await;
    }

    /// Ends all connections of an app on all nodes, and removes its push credentials from other nodes.
    pub(crate) async fn close_app(&self, app: AppId) {
        let reason = CloseReason::Revoked;
        if let Some(edge) = self.context.edge() {
            edge.close_app(app, reason);
        }
        if let Some(peers) = self.nodes.peers() {
            peers.send(To::Senders, Record::CredentialsChanged { app });
            peers.send_now(To::Gateways, Record::CloseApp { app, reason }).await;
        }
    }
}

/// Asks other nodes for the generations of the devices at the indexes `missing`.
async fn ask_generations(
    peers: &Peers,
    app: AppId,
    devices: &[DeviceId],
    missing: &[usize],
    known: &mut [Connected],
) {
    let key = |at: &usize| peers.cluster.keys.device(app, &devices[*at]);
    let Some(holders) = peers.questions.located_elsewhere(missing.iter().map(key).collect()).await else {
        missing.iter().for_each(|at| known[*at] = Connected::Unknown);
        return;
    };
    let nodes = by_node(&holders);
    let question = |(epoch, places): &(Epoch, Vec<usize>)| {
        let devices = places.iter().map(|place| devices[missing[*place]].clone()).collect();
        (*epoch, Question::Generations { app, devices })
    };
    let answers = peers.questions.ask(nodes.iter().map(question).collect()).await;
    for ((_, places), answer) in nodes.iter().zip(answers) {
        let found = match answer {
            Some(Answer::Counts(found)) if found.len() == places.len() => {
                found.into_iter().map(Connected::from).collect()
            }
            _ => vec![Connected::Unknown; places.len()],
        };
        for (place, found) in places.iter().zip(found) {
            let known = &mut known[missing[*place]];
            // While a device moves between two nodes, the later session is the one that stays.
            *known = match (*known, found) {
                (Connected::As(one), Connected::As(other)) => Connected::As(one.max(other)),
                (Connected::As(one), _) => Connected::As(one),
                (Connected::Unknown, Connected::No) => Connected::Unknown,
                (_, found) => found,
            };
        }
    }
}
