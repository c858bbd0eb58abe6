//! Collects the answers of one batch, in any order and from any thread, and passes on accepted pushes in parts before the
//! last answer.
//!
//! Counts latencies and ends spans as answers arrive. It does not interpret answers: `settlement` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_push::{Answer, Answered, Attempt};
use noroshi_telemetry::Histogram;
use noroshi_telemetry::span::Open;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::in_flight::PendingRecipients;
use super::unwritten::Unwritten;
use crate::campaign::latency::bucket;
use crate::spans;

pub(crate) struct AnswerCollector {
    recipients: Arc<PendingRecipients>,
    /// When the batch was dequeued.
    since: Instant,
    answered_seconds: Histogram,
    unwritten: Arc<Unwritten>,
    /// Guards the answers; under it only `unwritten` counts, so that its counts follow the order of the answers.
    answers: Mutex<Answers>,
    complete: Notify,
}

#[derive(Default)]
struct Answers {
    slots: Vec<Option<Answer>>,
    left: usize,
    /// Spans of the first pushes; each ends with its answer.
    calls: Vec<Option<Open>>,
    latencies: Vec<(u16, u32)>,
    /// Accepted pushes that no part has.
    accepted: Vec<u32>,
    /// Attempts that no part has. A push has at most two: its authorization is renewed once.
    attempts: Vec<(u32, Attempt)>,
    /// Not all pushes were handed over: the answers do not count.
    given_up: bool,
}

impl AnswerCollector {
    pub(crate) fn new(
        recipients: Arc<PendingRecipients>,
        (since, answered_seconds): (Instant, Histogram),
        unwritten: Arc<Unwritten>,
        pushes: usize,
        calls: Vec<Option<Open>>,
    ) -> Self {
        let answers = Answers { slots: vec![None; pushes], left: pushes, calls, ..Answers::default() };
        let answers = Mutex::new(answers);
        Self { recipients, since, answered_seconds, unwritten, answers, complete: Notify::new() }
    }

    /// The next accepted pushes to write. `None`: the last answer has arrived, or the batch was given up. Cancel-safe.
    pub(crate) async fn part(&self) -> Option<Vec<u32>> {
        loop {
            // Subscribes before it checks.
            let mut due = std::pin::pin!(self.unwritten.due());
            due.as_mut().enable();
            if self.is_complete() {
                return None;
            }
            tokio::select! {
                () = self.complete.notified() => continue,
                () = due => {}
            }
            let part = {
                let mut answers = self.answers.lock();
                if answers.left == 0 || answers.given_up {
                    return None;
                }
                std::mem::take(&mut answers.accepted)
            };
            if !part.is_empty() {
                self.unwritten.remove(part.len());
                return Some(part);
            }
        }
    }

    /// Waits for the last answer, or until the batch is given up. Cancel-safe.
    pub(crate) async fn complete(&self) {
        while !self.is_complete() {
            self.complete.notified().await;
        }
    }

    fn is_complete(&self) -> bool {
        let answers = self.answers.lock();
        answers.left == 0 || answers.given_up
    }

    pub(crate) fn give_up(&self) {
        self.answers.lock().given_up = true;
        self.complete.notify_one();
    }

    /// The attempts since the last call.
    pub(crate) fn take_attempts(&self) -> Vec<(u32, Attempt)> {
        std::mem::take(&mut self.answers.lock().attempts)
    }

    /// All answers in the order of the pushes, and their latencies by bucket. To be called when they are complete.
    pub(crate) fn take(&self) -> (Vec<Answer>, Vec<(u16, u32)>) {
        let (slots, latencies, accepted) = {
            let mut answers = self.answers.lock();
            let Answers { slots, latencies, accepted, .. } = &mut *answers;
            (std::mem::take(slots), std::mem::take(latencies), std::mem::take(accepted))
        };
        self.unwritten.remove(accepted.len());
        (slots.into_iter().flatten().collect(), latencies)
    }
}

impl Drop for AnswerCollector {
    fn drop(&mut self) {
        self.unwritten.remove(self.answers.get_mut().accepted.len());
    }
}

impl Answered for AnswerCollector {
    fn attempted(&self, index: u32, attempt: Attempt) {
        self.answers.lock().attempts.push((index, attempt));
    }

    fn answered(&self, index: u32, answer: Answer) {
        let took = is_by_service(&answer).then(|| self.since.elapsed());
        let accepted = answer == Answer::Accepted;
        let mut answers = self.answers.lock();
        let Some(None) = answers.slots.get(index as usize) else { return };
        let call = answers.calls.get_mut(index as usize).and_then(Option::take);
        spans::answered(call, &answer);
        answers.slots[index as usize] = Some(answer);
        answers.left -= 1;
        if accepted {
            answers.accepted.push(index);
            self.unwritten.add(answers.accepted.len() == 1);
        }
        let complete = answers.left == 0;
        if let Some(took) = took {
            answers.count(took);
        }
        drop(answers);
        if let Some(took) = took {
            self.answered_seconds.observe(took);
        }
        self.recipients.remove(1);
        if complete {
            self.complete.notify_one();
        }
    }
}

impl Answers {
    /// Searches from the end: answers of a batch fall into few buckets, mostly the last one.
    fn count(&mut self, took: Duration) {
        let bucket = bucket(took);
        match self.latencies.iter_mut().rev().find(|(other, _)| *other == bucket) {
            Some((_, count)) => *count += 1,
            None => self.latencies.push((bucket, 1)),
        }
    }
}

/// Whether the push service gave the answer, rather than this node.
fn is_by_service(answer: &Answer) -> bool {
    match answer {
        Answer::Accepted | Answer::Gone { .. } | Answer::Suspect { .. } | Answer::Refused { .. } => true,
        Answer::Later { .. } | Answer::Unconfigured | Answer::Expired => false,
    }
}
