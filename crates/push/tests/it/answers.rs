//! Collects answers, and waits for expected events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use noroshi_push::{Answer, Answered, Attempt};
use parking_lot::Mutex;

/// For events that take milliseconds on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Answers {
    answers: Mutex<BTreeMap<u32, Vec<Answer>>>,
    attempts: Mutex<BTreeMap<u32, Vec<Attempt>>>,
}

impl Answered for Answers {
    fn answered(&self, index: u32, answer: Answer) {
        self.answers.lock().entry(index).or_default().push(answer);
    }

    fn attempted(&self, index: u32, attempt: Attempt) {
        assert!(!self.answers.lock().contains_key(&index), "an attempt after the answer");
        self.attempts.lock().entry(index).or_default().push(attempt);
    }
}

impl Answers {
    pub(crate) fn count(&self) -> usize {
        self.answers.lock().values().map(Vec::len).sum()
    }

    /// Waits for `count` answers, checks that each push has one, and returns them by index.
    pub(crate) async fn wait(&self, count: usize) -> BTreeMap<u32, Answer> {
        until("all answers", || self.count() >= count).await;
        let answers = self.answers.lock();
        answers
            .iter()
            .map(|(index, answers)| match &answers[..] {
                [answer] => (*index, answer.clone()),
                more => panic!("push {index} was answered {} times: {more:?}", more.len()),
            })
            .collect()
    }

    pub(crate) fn attempts(&self, index: u32) -> Vec<Attempt> {
        self.attempts.lock().get(&index).cloned().unwrap_or_default()
    }

    pub(crate) async fn all_accepted(&self, count: u32) {
        let answers = self.wait(count as usize).await;
        assert!(answers.keys().copied().eq(0..count), "a push was not answered");
        let others: Vec<_> = answers.iter().filter(|(_, answer)| **answer != Answer::Accepted).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

pub(crate) fn reason(answer: &Answer) -> &'static str {
    answer.reason().unwrap_or("accepted")
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
