//! Fake push services that answer as a test decides: at once, later, never, or by a script.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Mutex;

use bytes::Bytes;
use noroshi_delivery::push::Outlet;
use noroshi_push::{
    Answer, Attempt, ChannelAnswer, ChannelCall, ChannelError, Credential, CredentialStatus, Push, Record,
};
use noroshi_types::{AppId, JsonText, PushEnvironment, StoragePolicy, Timestamp};

/// A push that arrived.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) token: String,
    pub(crate) notification: Option<JsonText>,
    /// The fields for APNs, or the data.
    pub(crate) own: Option<JsonText>,
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
    /// Pushes after this many are held.
    slow_after: Option<usize>,
    /// How often a push to a token panics.
    failing: HashMap<String, usize>,
    held: Vec<Push>,
    /// Calls about channels.
    calls: Vec<ChannelCall>,
    /// The errors of the next calls.
    call_errors: VecDeque<ChannelError>,
}

impl FakeOutlet {
    /// The next answers for a token; after them every push is accepted.
    pub(crate) fn script(&self, token: &str, answers: impl IntoIterator<Item = Answer>) {
        self.0.lock().expect("no panic").scripts.insert(token.to_owned(), answers.into_iter().collect());
    }

    /// The next call about channels fails.
    pub(crate) fn fail_call(&self, error: ChannelError) {
        self.0.lock().expect("no panic").call_errors.push_back(error);
    }

    pub(crate) fn calls(&self) -> Vec<ChannelCall> {
        self.0.lock().expect("no panic").calls.clone()
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

    /// Holds all pushes but the first ones.
    pub(crate) fn hold_after(&self, pushes: usize) {
        self.0.lock().expect("no panic").slow_after = Some(pushes);
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
        let token = match push.content.to_channel() {
            Some(to) => to.channel.clone(),
            None => {
                let token: serde_json::Value = serde_json::from_str(push.token.json.as_str()).expect("JSON");
                token["token"].as_str().expect("a token").to_owned()
            }
        };
        let fields = push.content.fields();
        let notification = fields.notification.clone();
        let own = fields.own.iter().next().map(|(_, own)| own.clone()).or_else(|| fields.data.clone());
        let answer = {
            let mut state = self.0.lock().expect("no panic");
            state.received.push(Received { token: token.clone(), notification, own, id: push.id });
            if let Some(times) = state.failing.get_mut(&token).filter(|times| **times > 0) {
                *times -= 1;
                drop(state);
                panic!("a push that its sender cannot stand");
            }
            let late = state.slow_after.is_some_and(|first| state.received.len() > first);
            if state.all_slow || late || state.slow.contains(&token) {
                state.held.push(push);
                return;
            }
            state.scripts.get_mut(&token).and_then(VecDeque::pop_front).unwrap_or(Answer::Accepted)
        };
        let reason = answer.reason();
        if push.record == Record::All || push.record == Record::Failures && reason.is_some() {
            let attempt = Attempt {
                sent_at: Timestamp(1),
                took: Default::default(),
                origin: "https://fake".into(),
                path: format!("/{token}"),
                headers: Vec::new(),
                body: Bytes::new(),
                response: None,
                reason,
            };
            push.reply.to.attempted(push.reply.index, attempt);
        }
        push.reply.to.answered(push.reply.index, answer);
    }

    async fn send_with(&self, _: Credential, push: Push) {
        self.send(push).await;
    }

    fn set_credentials(&self, _: AppId, _: Vec<Credential>) {}

    fn status(&self, _: AppId) -> Vec<CredentialStatus> {
        Vec::new()
    }

    fn channel_bundle(&self, _: AppId, _: PushEnvironment) -> Option<String> {
        Some("com.example.app".to_owned())
    }

    /// Without a script, everything succeeds; a channel's id is `apple`.
    async fn call_channels(
        &self,
        _: AppId,
        _: PushEnvironment,
        _: Option<String>,
        call: &ChannelCall,
    ) -> Result<ChannelAnswer, ChannelError> {
        let mut state = self.0.lock().expect("no panic");
        state.calls.push(call.clone());
        state.call_errors.pop_front().map_or(Ok(()), Err)?;
        Ok(match call {
            ChannelCall::Create(_) => ChannelAnswer::Created("apple".to_owned()),
            ChannelCall::Read(_) => ChannelAnswer::Read(StoragePolicy::Latest),
            ChannelCall::Delete(_) => ChannelAnswer::Deleted,
            ChannelCall::List => ChannelAnswer::Listed(vec!["apple".to_owned(), "lost".to_owned()]),
        })
    }
}
