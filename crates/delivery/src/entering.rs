//! Log-ins: one read of the store for all of the last few milliseconds and, in a cluster, the taking of
//! each device for this node ([`crate::cluster`]).

use std::sync::Arc;

use noroshi_store::{LoggedIn, Login, LoginRefused};

use crate::cluster;
use crate::delivery::{Delivery, Error};

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
        let (store, clock, peers) = (self.store.clone(), self.clock.clone(), self.peers().cloned());
        self.runtime.spawn(async move {
            match peers {
                Some(peers) => reply(cluster::login::log_in(&*store, &peers, &clock, entering).await),
                None => {
                    let logins = entering.into_iter().map(|entering| entering.login).collect();
                    reply(store.log_in(logins).await.map(alone).map_err(Error::from));
                }
            }
        });
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
