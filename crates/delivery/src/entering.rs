//! Log-ins: one read of the store for all of the last few milliseconds and, in a cluster, the taking of
//! each device for this node ([`crate::cluster`]).

use std::sync::Arc;

use noroshi_store::{LoggedIn, Login, LoginRefused};

use crate::cluster;
use crate::delivery::{Delivery, Error};
use crate::quota::{Admission, OverQuota};

/// A device whose token was verified.
#[derive(Debug, Clone)]
pub struct Entering {
    pub login: Login,
    /// Of its connection: of two of one device the greater one stays.
    pub generation: u64,
}

/// What came of a log-in.
#[derive(Debug)]
pub enum Entered {
    In {
        logged_in: Box<LoggedIn>,
        /// Something was kept for it after it was read: it has to be read once more.
        behind: bool,
    },
    Refused(LoginRefused),
    /// The app has no room for the device, or for what it subscribes to.
    OverQuota(OverQuota),
    /// Whether the app has room could not be found out in time.
    Unavailable,
    /// Another node has it under a generation of at least this one, by another clock: to be asked again
    /// under a greater one.
    Outrun(u64),
}

impl Delivery {
    /// Logs in a batch of devices, with answers in order. For the gateway: called on shards, never waits,
    /// answers through `reply` on another thread.
    pub fn log_in(
        self: &Arc<Self>,
        entering: Vec<Entering>,
        reply: impl FnOnce(Result<Vec<Entered>, Error>) + Send + 'static,
    ) {
        // What an app JWT says of a device may make or change it.
        let changing = entering.iter().map(|entering| &entering.login).filter(|login| login.create);
        let changing: Vec<_> = changing.map(|login| (login.app, login.device.clone())).collect();
        let delivery = self.clone();
        let reply = move |entered| {
            changing.iter().for_each(|(app, device)| delivery.device_changed(*app, device));
            reply(entered);
        };
        let delivery = self.clone();
        self.runtime.spawn(async move {
            let is_limited = entering.iter().any(|one| delivery.quotas.limited(one.login.app).is_some());
            reply(match is_limited {
                true => delivery.enter_within_quotas(entering).await,
                false => delivery.enter(entering).await,
            });
        });
    }

    async fn enter(&self, entering: Vec<Entering>) -> Result<Vec<Entered>, Error> {
        match self.peers() {
            Some(peers) => cluster::login::log_in(&*self.store, peers, &self.clock, entering).await,
            None => {
                let logins = entering.into_iter().map(|entering| entering.login).collect();
                self.store.log_in(logins).await.map(alone).map_err(Error::from)
            }
        }
    }

    /// Who has no room does not get as far as the store.
    async fn enter_within_quotas(self: &Arc<Self>, entering: Vec<Entering>) -> Result<Vec<Entered>, Error> {
        let admitted = self.admit_log_ins(&entering).await;
        let mut admission = Admission::new(entering, admitted);
        let let_in = admission.take();
        let entered = if let_in.is_empty() { Vec::new() } else { self.enter(let_in).await? };
        let refuse = |error| match error {
            Error::OverQuota(over) => Entered::OverQuota(over),
            _ => Entered::Unavailable,
        };
        Ok(admission.finish(entered, |entered| matches!(entered, Entered::In { .. }), refuse))
    }
}

/// Of a node that has no others beside it: what the store answers is all there is.
fn alone(answers: Vec<Result<LoggedIn, LoginRefused>>) -> Vec<Entered> {
    let entered = |answer| match answer {
        Ok(logged_in) => Entered::In { logged_in: Box::new(logged_in), behind: false },
        Err(refused) => Entered::Refused(refused),
    };
    answers.into_iter().map(entered).collect()
}
