//! Collects the answers of one batch, in whatever order and from whichever threads they come.

use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_push::{Answer, Answered};
use noroshi_telemetry::Histogram;
use noroshi_telemetry::span::Open;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::campaign::progress::bucket;
use crate::push::flight::Aboard;
use crate::spans;

pub(crate) struct Gather {
    aboard: Arc<Aboard>,
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
    /// Spans of the first pushes, ended as they are answered.
    calls: Vec<Option<Open>>,
    latencies: Vec<(u16, u32)>,
}

impl Gather {
    pub(crate) fn new(
        aboard: Arc<Aboard>,
        since: Instant,
        answered_seconds: Histogram,
        pushes: usize,
        calls: Vec<Option<Open>>,
    ) -> Self {
        let answers = Answers { slots: vec![None; pushes], left: pushes, calls, latencies: Vec::new() };
        Self { aboard, since, answered_seconds, answers: Mutex::new(answers), complete: Notify::new() }
    }

    /// All answers in the order of the pushes, and how many took how long. Cancel-safe.
    pub(crate) async fn complete(&self) -> (Vec<Answer>, Vec<(u16, u32)>) {
        while self.answers.lock().left > 0 {
            self.complete.notified().await;
        }
        let Answers { slots, latencies, .. } = std::mem::take(&mut *self.answers.lock());
        (slots.into_iter().flatten().collect(), latencies)
    }
}

impl Answered for Gather {
    fn answered(&self, index: u32, answer: Answer) {
        let took = told_by_service(&answer).then(|| self.since.elapsed());
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
        self.aboard.land(1);
        if complete {
            self.complete.notify_one();
        }
    }
}

impl Answers {
    /// Answers of a batch fall into few buckets, most often the one before.
    fn count(&mut self, took: Duration) {
        let bucket = bucket(took);
        match self.latencies.iter_mut().rev().find(|(other, _)| *other == bucket) {
            Some((_, count)) => *count += 1,
            None => self.latencies.push((bucket, 1)),
        }
    }
}

fn told_by_service(answer: &Answer) -> bool {
    match answer {
        Answer::Accepted | Answer::Gone { .. } | Answer::Suspect { .. } | Answer::Refused { .. } => true,
        Answer::Later { .. } | Answer::Unconfigured | Answer::Expired => false,
    }
}
