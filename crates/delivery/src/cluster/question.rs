//! Questions to other nodes about their sessions.
//!
//! The directory names the nodes. Each node gets one question, all at once, and the caller waits until every answer has
//! arrived or [`crate::cluster::Config::answer`] has passed. Missing answers are counted, and the caller gets the
//! others.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use noroshi_cluster::{Cluster, Epoch, SessionKey};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::oneshot;

use crate::cluster::route::Holders;
use crate::cluster::wire::{Answer, Frame, Question, Record};
use crate::edge::Session;

pub(crate) struct Questions {
    cluster: Cluster,
    timeout: Duration,
    /// Answers that did not arrive in time.
    unanswered: Counter,
    last: AtomicU64,
    /// Guards only the map. Bounded by the requests of the API, which wait for the answers.
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

impl Questions {
    pub(crate) fn new(cluster: Cluster, timeout: Duration, unanswered: Counter) -> Self {
        let (last, open) = (AtomicU64::new(0), Mutex::default());
        Self { cluster, timeout, unanswered, last, open }
    }

    /// An answer of another node arrived.
    pub(crate) fn answered(&self, number: u64, answer: Answer) {
        let asker = self.open.lock().remove(&number);
        if let Some(asker) = asker {
            // The caller may have given up.
            let _ = asker.send(answer);
        }
    }

    /// Queries the nodes. Returns their answers in order, `None` for each that timed out.
    pub(crate) async fn ask(&self, questions: Vec<(Epoch, Question)>) -> Vec<Option<Answer>> {
        let mut asked = PendingGuard { questions: self, numbers: Vec::new() };
        let (mut frames, mut answers) = (Vec::new(), Vec::new());
        for (epoch, question) in questions {
            let number = self.last.fetch_add(1, Ordering::Relaxed);
            let (answered, answer) = oneshot::channel();
            self.open.lock().insert(number, answered);
            asked.numbers.push(number);
            frames.push((epoch, Frame::from(&Record::Question { number, question }).into_bytes()));
            answers.push(answer);
        }
        let until = tokio::time::Instant::now() + self.timeout;
        let sent = tokio::time::timeout_at(until, self.cluster.bus.send(frames)).await;
        if !matches!(sent, Ok(Ok(()))) {
            self.unanswered.inc_by(answers.len() as u64);
            return answers.iter().map(|_| None).collect();
        }
        let mut got = Vec::with_capacity(answers.len());
        for answer in answers {
            let answer = tokio::time::timeout_at(until, answer).await.ok().and_then(Result::ok);
            self.unanswered.inc_by(u64::from(answer.is_none()));
            got.push(answer);
        }
        got
    }

    /// The other nodes that hold each key; none if the directory does not answer.
    pub(crate) async fn elsewhere(&self, keys: Vec<SessionKey>) -> Vec<Holders> {
        let count = keys.len();
        self.located_elsewhere(keys).await.unwrap_or_else(|| vec![Holders::new(); count])
    }

    /// The other nodes that hold each key. `None` if the directory does not answer.
    pub(crate) async fn located_elsewhere(&self, keys: Vec<SessionKey>) -> Option<Vec<Holders>> {
        let count = keys.len();
        let own = self.cluster.members.epoch();
        let located = tokio::time::timeout(self.timeout, self.cluster.directory.locate(keys)).await;
        match located {
            Ok(Ok(mut located)) if located.len() == count => {
                located.iter_mut().for_each(|holders| holders.retain(|epoch| Some(*epoch) != own));
                Some(located)
            }
            _ => {
                self.unanswered.inc();
                None
            }
        }
    }

    /// Asks the nodes that hold `things`, and adds the sessions they have to `sessions`.
    pub(crate) async fn add_sessions<T: Clone>(
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
                    // Two nodes may report a device that is moving between them.
                    if known.iter().all(|known| known.device != session.device) {
                        known.push(session);
                    }
                }
            }
        }
    }
}

/// Forgets its questions when it is dropped, also with a caller that was dropped.
struct PendingGuard<'a> {
    questions: &'a Questions,
    numbers: Vec<u64>,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        let mut open = self.questions.open.lock();
        self.numbers.iter().for_each(|number| drop(open.remove(number)));
    }
}

/// For each node, the indexes of the keys that it holds.
pub(crate) fn by_node(holders: &[Holders]) -> Vec<(Epoch, Vec<usize>)> {
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
