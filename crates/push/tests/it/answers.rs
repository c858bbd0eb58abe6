//! Collects answers, and waits for expected events.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use noroshi_push::{Answer, Answered};
use parking_lot::Mutex;

/// For events that take milliseconds on a healthy machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(crate) struct Answers(Mutex<BTreeMap<u32, Vec<Answer>>>);

impl Answered for Answers {
    fn answered(&self, index: u32, answer: Answer) {
        self.0.lock().entry(index).or_default().push(answer);
    }
}

impl Answers {
    pub(crate) fn count(&self) -> usize {
        self.0.lock().values().map(Vec::len).sum()
    }

    /// Waits for `count` answers, checks that each push has one, and returns them by index.
    pub(crate) async fn wait(&self, count: usize) -> BTreeMap<u32, Answer> {
        until("all answers", || self.count() >= count).await;
        let answers = self.0.lock();
        answers
            .iter()
            .map(|(index, answers)| match &answers[..] {
                [answer] => (*index, answer.clone()),
                more => panic!("push {index} was answered {} times: {more:?}", more.len()),
            })
            .collect()
    }

    pub(crate) async fn all_accepted(&self, count: u32) {
        let answers = self.wait(count as usize).await;
        assert!(answers.keys().copied().eq(0..count), "a push was not answered");
        let others: Vec<_> = answers.iter().filter(|(_, answer)| **answer != Answer::Accepted).collect();
        assert!(others.is_empty(), "{others:?}");
    }
}

pub(crate) fn reason(answer: &Answer) -> &'static str {
    match answer {
        Answer::Accepted => "accepted",
        Answer::Gone { reason, .. }
        | Answer::Suspect { reason }
        | Answer::Refused { reason }
        | Answer::Later { reason, .. } => reason,
        Answer::Unconfigured => "unconfigured",
        Answer::Expired => "expired",
    }
}

pub(crate) async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
