//! Asking other nodes about their sessions.
//!
//! The directory says whom to ask; each is asked once, all at once, and waited for until the answer is there
//! or [`crate::cluster::Config::answer`] has passed. An answer that lacks a node's part is given all the same, and counted.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_cluster::{Epoch, SessionKey};
use noroshi_types::{AppId, DeviceId, Presence, Topic, UserId};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::cluster::Peers;
use crate::cluster::route::Holders;
use crate::cluster::wire::{Answer, Frame, Question, Record};
use crate::delivery::Delivery;
use crate::edge::Session;

/// Devices in one question for generations.
const GENERATIONS_MAX: usize = 500;

#[derive(Default)]
pub(crate) struct Asks {
    last: AtomicU64,
    /// Guards the map only. As many as are waited for: requests of the API are bounded.
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

impl Asks {
    fn open(&self) -> (u64, oneshot::Receiver<Answer>) {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        let (answered, answer) = oneshot::channel();
        self.open.lock().insert(number, answered);
        (number, answer)
    }

    pub(crate) fn answered(&self, number: u64, answer: Answer) {
        let asker = self.open.lock().remove(&number);
        if let Some(asker) = asker {
            // It may have given up.
            let _ = asker.send(answer);
        }
    }

    fn forget(&self, numbers: &[u64]) {
        let mut open = self.open.lock();
        numbers.iter().for_each(|number| drop(open.remove(number)));
    }
}

/// Takes questions back that nobody waits for any more, also where the asker was dropped.
struct Asked<'a> {
    asks: &'a Asks,
    numbers: Vec<u64>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.asks.forget(&self.numbers);
    }
}

impl Peers {
    /// Asks nodes; answers in order, none from those that did not answer in time.
    async fn ask(&self, questions: Vec<(Epoch, Question)>) -> Vec<Option<Answer>> {
        let mut asked = Asked { asks: &self.asks, numbers: Vec::new() };
        let (mut frames, mut answers) = (Vec::new(), Vec::new());
        for (epoch, question) in questions {
            let (number, answer) = self.asks.open();
            asked.numbers.push(number);
            frames.push((epoch, Frame::from(&Record::Ask { number, question }).into_bytes()));
            answers.push(answer);
        }
        let until = tokio::time::Instant::now() + self.config.answer;
        let sent = tokio::time::timeout_at(until, self.cluster.bus.send(frames)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.metrics.unanswered.inc_by(answers.len() as u64);
            return answers.iter().map(|_| None).collect();
        }
        let mut got = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = tokio::time::timeout_at(until, answer).await.ok().and_then(Result::ok);
            self.metrics.unanswered.inc_by(u64::from(answer.is_none()));
            got.push(answer);
        }
        got
    }

    /// Who else holds each key; nobody where the directory does not answer.
    async fn elsewhere(&self, keys: Vec<SessionKey>) -> Vec<Holders> {
        let count = keys.len();
        self.located_elsewhere(keys).await.unwrap_or_else(|| vec![Holders::new(); count])
    }

    /// Who else holds each key. `None` if the directory does not answer.
    async fn located_elsewhere(&self, keys: Vec<SessionKey>) -> Option<Vec<Holders>> {
        let count = keys.len();
        let own = self.cluster.members.epoch();
        let located = tokio::time::timeout(self.config.answer, self.cluster.directory.locate(keys)).await;
        match located {
            Ok(Ok(mut located)) if located.len() == count => {
                located.iter_mut().for_each(|holders| holders.retain(|epoch| Some(*epoch) != own));
                Some(located)
            }
            _ => {
                self.metrics.unanswered.inc();
                None
            }
        }
    }

    /// Asks about the things that the directory says others hold; adds what they have to `sessions`.
    async fn add_sessions<T: Clone>(
        &self,
        things: &[T],
        keys: Vec<SessionKey>,
        question: impl Fn(Vec<T>) -> Question,
        sessions: &mut [Vec<Session>],
    ) {
        let asked = by_node(&self.elsewhere(keys).await);
        if asked.is_empty() {
            return;
        }
        let of = |places: &[usize]| places.iter().map(|at| things[*at].clone()).collect();
        let questions = asked.iter().map(|(epoch, places)| (*epoch, question(of(places)))).collect();
        for ((_, places), answer) in asked.iter().zip(self.ask(questions).await) {
            let Some(Answer::Sessions(found)) = answer else { continue };
            for (at, found) in places.iter().zip(found) {
                let known = &mut sessions[*at];
                for session in found {
                    // A device that moves between two nodes may be seen at both.
                    if known.iter().all(|known| known.device != session.device) {
                        known.push(session);
                    }
                }
            }
        }
    }
}

/// The indexes of what each node holds.
fn by_node(holders: &[Holders]) -> Vec<(Epoch, Vec<usize>)> {
    let mut nodes: Vec<(Epoch, Vec<usize>)> = Vec::new();
    for (at, holders) in holders.iter().enumerate() {
        for epoch in holders {
            match nodes.iter_mut().find(|(other, _)| other == epoch) {
                Some((_, places)) => places.push(at),
                None => nodes.push((*epoch, vec![at])),
            }
        }
    }
    nodes
}

/// What is known of a device's connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Connected {
    /// The session of this generation has it.
    As(u64),
    No,
    /// The directory or the node that has the session did not answer.
    Unknown,
}

fn connected(generation: u64) -> Connected {
    match generation {
        0 => Connected::No,
        generation => Connected::As(generation),
    }
}

impl Delivery {
    /// The generation of each device's session, in the order asked, wherever it is.
    pub(crate) async fn generations(&self, app: AppId, devices: &[DeviceId]) -> Vec<Connected> {
        let mut known: Vec<Connected> =
            self.generations_here(app, devices).into_iter().map(connected).collect();
        let Some(peers) = self.peers() else { return known };
        let missing: Vec<usize> = (0..devices.len()).filter(|at| known[*at] == Connected::No).collect();
        for missing in missing.chunks(GENERATIONS_MAX) {
            let key = |at: &usize| peers.cluster.keys.device(app, &devices[*at]);
            let Some(holders) = peers.located_elsewhere(missing.iter().map(key).collect()).await else {
                missing.iter().for_each(|at| known[*at] = Connected::Unknown);
                continue;
            };
            let nodes = by_node(&holders);
            let question = |(epoch, places): &(Epoch, Vec<usize>)| {
                let devices = places.iter().map(|place| devices[missing[*place]].clone()).collect();
                (*epoch, Question::Generations { app, devices })
            };
            let answers = peers.ask(nodes.iter().map(question).collect()).await;
            for ((_, places), answer) in nodes.iter().zip(answers) {
                let found = match answer {
                    Some(Answer::Counts(found)) if found.len() == places.len() => {
                        found.into_iter().map(connected).collect()
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
        known
    }

    pub(crate) fn generations_here(&self, app: AppId, devices: &[DeviceId]) -> Vec<u64> {
        let here = |device| self.edge().map_or(0, |edge| edge.generation(app, device));
        devices.iter().map(here).collect()
    }

    /// The sessions of each user, in the order asked, on all nodes.
    pub async fn sessions(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        let mut sessions = self.sessions_here(app, users);
        if let Some(peers) = self.peers() {
            let keys = users.iter().map(|user| peers.cluster.keys.user(app, user)).collect();
            let question = |users| Question::Sessions { app, users };
            peers.add_sessions(users, keys, question, &mut sessions).await;
        }
        sessions
    }

    pub(crate) fn sessions_here(&self, app: AppId, users: &[UserId]) -> Vec<Vec<Session>> {
        self.edge().map_or_else(|| vec![Vec::new(); users.len()], |edge| edge.sessions(app, users))
    }

    /// The session of each device, in the order asked, wherever it is.
    pub async fn device_sessions(&self, app: AppId, devices: &[DeviceId]) -> Vec<Option<Session>> {
        let here = |device| self.edge().and_then(|edge| edge.session(app, device));
        let mut sessions: Vec<Option<Session>> = devices.iter().map(here).collect();
        let Some(peers) = self.peers() else { return sessions };
        let missing: Vec<usize> = (0..devices.len()).filter(|at| sessions[*at].is_none()).collect();
        if missing.is_empty() {
            return sessions;
        }
        let asked: Vec<DeviceId> = missing.iter().map(|at| devices[*at].clone()).collect();
        let keys = asked.iter().map(|device| peers.cluster.keys.device(app, device)).collect();
        let mut found = vec![Vec::new(); asked.len()];
        let question = |devices| Question::Devices { app, devices };
        peers.add_sessions(&asked, keys, question, &mut found).await;
        for (at, found) in missing.into_iter().zip(found) {
            sessions[at] = found.into_iter().next();
        }
        sessions
    }

    pub async fn session(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.device_sessions(app, std::slice::from_ref(device)).await.pop().flatten()
    }

    /// At this node alone: nobody is asked.
    pub fn session_here(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        self.edge().and_then(|edge| edge.session(app, device))
    }

    /// At another node, if there are others and the device is not connected here.
    pub async fn session_elsewhere(&self, app: AppId, device: &DeviceId) -> Option<Session> {
        match self.peers().is_none() || self.session_here(app, device).is_some() {
            true => None,
            false => self.session(app, device).await,
        }
    }

    /// False if the device is not connected.
    pub async fn set_presence(&self, app: AppId, device: &DeviceId, presence: Presence) -> bool {
        if self.edge().is_some_and(|edge| edge.set_presence(app, device, presence)) {
            return true;
        }
        let Some(peers) = self.peers() else { return false };
        self.device_changed(app, device);
        let holders = peers.elsewhere(vec![peers.cluster.keys.device(app, device)]).await;
        let question = Question::SetPresence { app, device: device.clone(), presence };
        let questions = holders.into_iter().flatten().map(|epoch| (epoch, question.clone())).collect();
        peers.ask(questions).await.contains(&Some(Answer::Done(true)))
    }

    /// Connections that hear each topic now, on all nodes.
    pub async fn topic_sessions(&self, app: AppId, topics: &[Topic]) -> Vec<u64> {
        let here = |topic| self.edge().map_or(0, |edge| edge.topic_sessions(app, topic));
        let mut counts: Vec<u64> = topics.iter().map(here).collect();
        let Some(peers) = self.peers().filter(|_| !topics.is_empty()) else { return counts };
        let question = Question::TopicSessions { app, topics: topics.to_vec() };
        let gateways = peers.other_gateways();
        let questions = gateways.into_iter().map(|epoch| (epoch, question.clone())).collect();
        for answer in peers.ask(questions).await {
            if let Some(Answer::Counts(more)) = answer {
                counts.iter_mut().zip(more).for_each(|(count, more)| *count = count.saturating_add(more));
            }
        }
        counts
    }
}
