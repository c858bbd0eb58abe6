//! Collects the answers of one batch, in any order and from any thread.
//!
//! Counts latencies and ends spans as answers arrive. It does not interpret answers: `settlement` does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_push::{Answer, Answered};
use noroshi_telemetry::Histogram;
use noroshi_telemetry::span::Open;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::in_flight::PendingRecipients;
use crate::campaign::latency::bucket;
use crate::spans;

pub(crate) struct AnswerCollector {
    recipients: Arc<PendingRecipients>,
    /// When the batch was dequeued.
    since: Instant,
    answered_seconds: Histogram,
    /// Guards only the answers; nothing is called under it.
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
}

impl AnswerCollector {
    pub(crate) fn new(
        recipients: Arc<PendingRecipients>,
        since: Instant,
        answered_seconds: Histogram,
        pushes: usize,
        calls: Vec<Option<Open>>,
    ) -> Self {
        let answers = Answers { slots: vec![None; pushes], left: pushes, calls, latencies: Vec::new() };
        Self { recipients, since, answered_seconds, answers: Mutex::new(answers), complete: Notify::new() }
    }

    /// All answers in the order of the pushes, and their latencies by bucket. Cancel-safe.
    pub(crate) async fn complete(&self) -> (Vec<Answer>, Vec<(u16, u32)>) {
        while self.answers.lock().left > 0 {
            self.complete.notified().await;
        }
        let Answers { slots, latencies, .. } = std::mem::take(&mut *self.answers.lock());
        (slots.into_iter().flatten().collect(), latencies)
    }
}

impl Answered for AnswerCollector {
    fn answered(&self, index: u32, answer: Answer) {
        let took = is_by_service(&answer).then(|| self.since.elapsed());
        let mut answers = self.answers.lock();
        let Some(None) = answers.slots.get(index as usize) else { return };
        let call = answers.calls.get_mut(index as usize).and_then(Option::take);
        spans::answered(call, &answer);
        answers.slots[index as usize] = Some(answer);
        answers.left -= 1;
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
