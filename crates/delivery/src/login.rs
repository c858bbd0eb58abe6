//! Logins of devices, in batches.
//!
//! One read of the store serves all logins of the last few milliseconds. With other nodes, each device is also
//! registered in the directory (`directory`). Quotas refuse new devices and subscriptions before the store is asked.
//! The gateway opens and ends sessions; this component only decides.

mod directory;

use std::sync::Arc;

use noroshi_store::{FirstRead, LoggedIn, Login, LoginRefused};
use noroshi_types::DeviceNum;

use crate::cluster::Nodes;
use crate::context::Context;
use crate::error::{Error, OverQuota};
use crate::freshness::Freshness;
use crate::quota::{Admission, Usage};
use crate::seen::Seen;

/// The login of a device whose token was verified.
#[derive(Debug, Clone)]
pub struct LoginAttempt {
    pub login: Login,
    /// The generation of its connection: of two connections of a device the greater one stays.
    pub generation: u64,
}

/// The result of a login.
#[derive(Debug)]
pub enum LoginResult {
    In {
        logged_in: Box<LoggedIn>,
        /// A message was stored for the device after it was read: its inbox must be read once more.
        behind: bool,
    },
    Refused(LoginRefused),
    /// The app has no room for the device, or for its subscriptions.
    OverQuota(OverQuota),
    /// The quotas of the app could not be read in time.
    Unavailable,
    /// Another node has the device under a generation of at least this one, by another clock. The caller retries with a
    /// greater one.
    GenerationTooLow(u64),
}

impl LoginResult {
    /// The device that logged in.
    fn device(&self) -> Option<DeviceNum> {
        match self {
            Self::In { logged_in, .. } => Some(logged_in.num),
            _ => None,
        }
    }
}

pub struct Logins {
    pub(crate) context: Arc<Context>,
    pub(crate) nodes: Arc<Nodes>,
    pub(crate) freshness: Arc<Freshness>,
    pub(crate) usage: Arc<Usage>,
    pub(crate) seen: Arc<Seen>,
}

impl Logins {
    /// Logs in a batch of devices, with answers in order. Called on shards; never waits, and answers through `reply` on
    /// another thread.
    pub fn log_in(
        self: &Arc<Self>,
        entering: Vec<LoginAttempt>,
        reply: impl FnOnce(Result<Vec<LoginResult>, Error>) + Send + 'static,
    ) {
        let seen = self.seen.clone();
        let reply = move |result: Result<Vec<LoginResult>, Error>| {
            seen.devices(result.iter().flatten().filter_map(LoginResult::device));
            reply(result);
        };
        let is_limited = entering.iter().any(|one| self.usage.limited(one.login.app).is_some());
        if is_limited || self.nodes.peers().is_some() {
            return self.enter_later(entering, is_limited, reply);
        }
        // Most devices that log in exist and stay as they are: one read, without a task.
        let generations: Vec<u64> = entering.iter().map(|entering| entering.generation).collect();
        let asked = entering.into_iter().map(|entering| entering.login).collect();
        let logins = self.clone();
        let done = move |read| match read {
            FirstRead::Answered(answers) => reply(Ok(without_directory(answers))),
            FirstRead::Failed(error) => reply(Err(error.into())),
            FirstRead::Unread(asked) => {
                let attempt = |(login, generation)| LoginAttempt { login, generation };
                let entering = asked.into_iter().zip(generations).map(attempt).collect();
                logins.enter_later(entering, false, reply);
            }
        };
        self.context.store.read_log_ins(asked, Box::new(done));
    }

    /// Logs in on the runtime.
    fn enter_later(
        self: &Arc<Self>,
        entering: Vec<LoginAttempt>,
        is_limited: bool,
        reply: impl FnOnce(Result<Vec<LoginResult>, Error>) + Send + 'static,
    ) {
        // An app JWT may create or change its device.
        let changing = entering.iter().map(|entering| &entering.login).filter(|login| login.create);
        let changing: Vec<_> = changing.map(|login| (login.app, login.device.clone())).collect();
        let logins = self.clone();
        self.context.runtime.spawn(async move {
            let entered = match is_limited {
                true => logins.enter_within_quotas(entering).await,
                false => logins.enter(entering).await,
            };
            changing.iter().for_each(|(app, device)| logins.freshness.device_changed(*app, device));
            reply(entered);
        });
    }

    async fn enter(&self, entering: Vec<LoginAttempt>) -> Result<Vec<LoginResult>, Error> {
        match self.nodes.peers() {
            Some(peers) => directory::log_in(&*self.context.store, peers, entering).await,
            None => {
                let logins = entering.into_iter().map(|entering| entering.login).collect();
                self.context.store.log_in(logins).await.map(without_directory).map_err(Error::from)
            }
        }
    }

    /// Refused logins never reach the store.
    async fn enter_within_quotas(&self, entering: Vec<LoginAttempt>) -> Result<Vec<LoginResult>, Error> {
        let logins: Vec<&Login> = entering.iter().map(|entering| &entering.login).collect();
        let admitted = self.usage.admit_logins(&logins).await;
        let mut admission = Admission::new(entering, admitted);
        let let_in = admission.take();
        let entered = if let_in.is_empty() { Vec::new() } else { self.enter(let_in).await? };
        let refuse = |error| match error {
            Error::OverQuota(over) => LoginResult::OverQuota(over),
            _ => LoginResult::Unavailable,
        };
        Ok(admission.finish(entered, |entered| matches!(entered, LoginResult::In { .. }), refuse))
    }
}

/// The results on a node without others, by the store's answers.
fn without_directory(answers: Vec<Result<LoggedIn, LoginRefused>>) -> Vec<LoginResult> {
    let entered = |answer| match answer {
        Ok(logged_in) => LoginResult::In { logged_in: Box::new(logged_in), behind: false },
        Err(refused) => LoginResult::Refused(refused),
    };
    answers.into_iter().map(entered).collect()
}
