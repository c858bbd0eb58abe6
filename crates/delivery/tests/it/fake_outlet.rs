//! Fake push services that answer as a test decides: at once, later, never, or by a script.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;

use noroshi_delivery::push::Outlet;
use noroshi_push::{Answer, Credential, Push};
use noroshi_types::{AppId, JsonText};

/// A push that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) token: String,
    pub(crate) notification: Option<JsonText>,
    pub(crate) id: uuid::Uuid,
}

#[derive(Default)]
pub(crate) struct FakeOutlet(Mutex<State>);

#[derive(Default)]
struct State {
    received: Vec<Received>,
    scripts: HashMap<String, VecDeque<Answer>>,
    /// Pushes that are answered when the test releases them.
    slow: HashSet<String>,
    all_slow: bool,
    /// How often a push to a token panics.
    failing: HashMap<String, usize>,
    held: Vec<Push>,
}

impl FakeOutlet {
    /// The next answers for a token; after them every push is accepted.
    pub(crate) fn script(&self, token: &str, answers: impl IntoIterator<Item = Answer>) {
        self.0.lock().expect("no panic").scripts.insert(token.to_owned(), answers.into_iter().collect());
    }

    pub(crate) fn hold(&self, token: &str) {
        self.0.lock().expect("no panic").slow.insert(token.to_owned());
    }

    /// The next pushes to a token panic.
    pub(crate) fn fail(&self, token: &str, times: usize) {
        self.0.lock().expect("no panic").failing.insert(token.to_owned(), times);
    }

    pub(crate) fn hold_all(&self, hold: bool) {
        self.0.lock().expect("no panic").all_slow = hold;
    }

    /// Takes all held pushes.
    pub(crate) fn release(&self) {
        self.release_with(&Answer::Accepted);
    }

    /// Answers all held pushes.
    pub(crate) fn release_with(&self, answer: &Answer) {
        let held = {
            let mut state = self.0.lock().expect("no panic");
            state.slow.clear();
            state.all_slow = false;
            std::mem::take(&mut state.held)
        };
        for push in held {
            push.reply.to.answered(push.reply.index, answer.clone());
        }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.0.lock().expect("no panic").received.clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().expect("no panic").received.len()
    }

    pub(crate) fn tokens(&self) -> Vec<String> {
        self.received().into_iter().map(|received| received.token).collect()
    }
}

#[async_trait::async_trait]
impl Outlet for FakeOutlet {
    async fn send(&self, push: Push) {
        let token: serde_json::Value = serde_json::from_str(push.token.json.as_str()).expect("JSON");
        let token = token["token"].as_str().expect("a token").to_owned();
        let notification = push.content.fields().notification.clone();
        let answer = {
            let mut state = self.0.lock().expect("no panic");
            state.received.push(Received { token: token.clone(), notification, id: push.id });
            if let Some(times) = state.failing.get_mut(&token).filter(|times| **times > 0) {
                *times -= 1;
                drop(state);
                panic!("a push that its sender cannot stand");
            }
            if state.all_slow || state.slow.contains(&token) {
                state.held.push(push);
                return;
            }
            state.scripts.get_mut(&token).and_then(VecDeque::pop_front).unwrap_or(Answer::Accepted)
        };
        push.reply.to.answered(push.reply.index, answer);
    }

    fn set_credentials(&self, _: AppId, _: Vec<Credential>) {}
}
