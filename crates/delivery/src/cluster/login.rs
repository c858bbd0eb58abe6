//! A log-in among other nodes: read, take, look again.
//!
//! 1. The store's read says whose the device is, which its token need not know, and what waits for it.
//! 2. The directory takes the device for this node: from here on messages to it come here.
//! 3. The store is asked whether anything came between the two. A sender writes first and looks for the
//!    device then: whoever did not find it here had written before it was taken, so this second look sees it.
//!
//! Each is one round trip for the whole batch. What comes by topics needs none of this: every gateway hears
//! all topic messages, and the gateway's own stamps close the gap.
//!
//! The node that had the device before is told, so that its session ends. While the directory does not answer
//! devices are let in all the same: they hear what this node publishes, the sweep brings the rest, and they are
//! put into the directory when it is back.

use std::time::Instant;

use noroshi_cluster::{Cluster, Epoch, Holder, Take, Taken};
use noroshi_store::{LoggedIn, Login, Recheck, Rechecked, Store};
use noroshi_types::{AppId, DeviceId};

use crate::Clock;
use crate::cluster::Peers;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::delivery::Error;
use crate::entering::{Entered, Entering};

/// A device that changes again and again while it logs in is turned away.
const ATTEMPTS_MAX: usize = 4;

/// What a batch did besides its answers.
#[derive(Default)]
struct Effects {
    displaced: Vec<Displaced>,
    /// The directory did not answer: sessions begin that it does not know. Their lowest generation.
    unregistered: Option<u64>,
    /// In the directory, by any attempt.
    taken: Vec<Take>,
}

impl Effects {
    fn unregistered(&mut self, generation: u64) {
        self.unregistered = Some(self.unregistered.map_or(generation, |lowest| lowest.min(generation)));
    }
}

/// A session elsewhere whose device is here now.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Displaced {
    /// Where it was.
    epoch: Epoch,
    app: AppId,
    device: DeviceId,
    /// Sessions below this generation are to end.
    generation: u64,
}

/// Logs in a batch of devices, answers in order, and tells who has to be told.
pub(crate) async fn log_in(
    store: &dyn Store,
    peers: &Peers,
    clock: &Clock,
    entering: Vec<Entering>,
) -> Result<Vec<Entered>, Error> {
    let mut batch = Batch { store, cluster: &peers.cluster, effects: Effects::default() };
    let entered = batch.enter(entering).await;
    // Whatever became of the log-ins: what was taken in the directory was taken from these.
    let Effects { displaced, unregistered, .. } = batch.effects;
    for Displaced { epoch, app, device, generation } in displaced {
        peers.tell(To::One(epoch), Record::Replaced { app, device, below: generation });
    }
    // Without a lease there will be another one, for which all sessions are put in.
    if let Some(generation) = unregistered.filter(|_| peers.cluster.members.epoch().is_some()) {
        peers.sweeps.unregistered(peers.places.before(Instant::now(), clock.now()), generation);
    }
    entered
}

struct Batch<'a> {
    store: &'a dyn Store,
    cluster: &'a Cluster,
    effects: Effects,
}

/// A log-in that the store let pass.
struct Passed {
    place: usize,
    entering: Entering,
    logged_in: LoggedIn,
}

impl Batch<'_> {
    /// All of them, or none: then what they took is given back.
    async fn enter(&mut self, entering: Vec<Entering>) -> Result<Vec<Entered>, Error> {
        let entered = self.try_enter(entering).await;
        if entered.is_err() {
            let taken = std::mem::take(&mut self.effects.taken);
            self.forget(taken).await;
        }
        entered
    }

    async fn try_enter(&mut self, entering: Vec<Entering>) -> Result<Vec<Entered>, Error> {
        let mut answers: Vec<Option<Entered>> =
            std::iter::repeat_with(|| None).take(entering.len()).collect();
        let mut open: Vec<(usize, Entering)> = entering.into_iter().enumerate().collect();
        for attempt in 0..ATTEMPTS_MAX {
            if open.is_empty() {
                break;
            }
            open = self.attempt(open, attempt > 0, &mut answers).await?;
        }
        if !open.is_empty() {
            return Err(Error::Overloaded);
        }
        // Every place was filled when its log-in left `open`.
        Ok(answers.into_iter().flatten().collect())
    }

    /// Answers what it can; what changed meanwhile is to be done anew. `taken`: an earlier attempt has.
    async fn attempt(
        &mut self,
        open: Vec<(usize, Entering)>,
        taken: bool,
        answers: &mut [Option<Entered>],
    ) -> Result<Vec<(usize, Entering)>, Error> {
        let logins: Vec<Login> = open.iter().map(|(_, entering)| entering.login.clone()).collect();
        let read = self.store.log_in(logins).await?;
        let (mut passed, mut gone) = (Vec::with_capacity(open.len()), Vec::new());
        for ((place, entering), answer) in open.into_iter().zip(read) {
            match answer {
                Ok(logged_in) => passed.push(Passed { place, entering, logged_in }),
                Err(why) => {
                    answers[place] = Some(Entered::Refused(why));
                    gone.push(self.named_by(&entering));
                }
            }
        }
        if taken {
            self.forget(gone).await;
        }
        let passed = self.take(passed, answers).await;
        self.look_again(passed, answers).await
    }

    /// Those that are this node's now, in order.
    async fn take(&mut self, passed: Vec<Passed>, answers: &mut [Option<Entered>]) -> Vec<Passed> {
        if passed.is_empty() {
            return passed;
        }
        let takes: Vec<Take> = passed.iter().map(|passed| self.entry_of(passed)).collect();
        self.effects.taken.extend_from_slice(&takes);
        let taken = match self.cluster.members.epoch() {
            Some(epoch) => self.cluster.directory.take(epoch, takes).await,
            None => Err(noroshi_cluster::Error::Lost),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::debug!(%error, count = passed.len(), "devices are let in without the directory");
                passed.iter().for_each(|passed| self.effects.unregistered(passed.entering.generation));
                return passed;
            }
        };
        let mut ours = Vec::with_capacity(passed.len());
        for (passed, taken) in passed.into_iter().zip(taken) {
            let Entering { login, generation } = &passed.entering;
            match taken {
                Taken::Now { previous } => {
                    self.displace(login, *generation, previous);
                    ours.push(passed);
                }
                Taken::Partly { previous } => {
                    self.displace(login, *generation, previous);
                    self.effects.unregistered(*generation);
                    ours.push(passed);
                }
                Taken::Unknown => {
                    self.effects.unregistered(*generation);
                    ours.push(passed);
                }
                Taken::Behind { generation } => answers[passed.place] = Some(Entered::Outrun(generation)),
            }
        }
        ours
    }

    async fn look_again(
        &self,
        taken: Vec<Passed>,
        answers: &mut [Option<Entered>],
    ) -> Result<Vec<(usize, Entering)>, Error> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let check = |passed: &Passed| {
            let LoggedIn { num, revision, as_of, .. } = passed.logged_in;
            Recheck { device: num, revision: Some(revision), since: as_of }
        };
        let rechecked = self.store.recheck(taken.iter().map(check).collect()).await?;
        let mut anew = Vec::new();
        for (Passed { place, entering, logged_in }, rechecked) in taken.into_iter().zip(rechecked) {
            let behind = match rechecked {
                Rechecked::Changed => {
                    anew.push((place, entering));
                    continue;
                }
                Rechecked::Newer => true,
                Rechecked::Same => false,
            };
            answers[place] = Some(Entered::In { logged_in: Box::new(logged_in), behind });
        }
        Ok(anew)
    }

    fn entry_of(&self, passed: &Passed) -> Take {
        let Entering { login, generation } = &passed.entering;
        let user = passed.logged_in.user.as_ref().map(|user| self.cluster.keys.user(login.app, user));
        let device = self.cluster.keys.device(login.app, &login.device);
        Take { device, user, generation: *generation }
    }

    /// What a log-in is called whose device was not read, or is gone.
    fn named_by(&self, Entering { login, generation }: &Entering) -> Take {
        let user = login.user.as_ref().map(|user| self.cluster.keys.user(login.app, user));
        let device = self.cluster.keys.device(login.app, &login.device);
        Take { device, user, generation: *generation }
    }

    /// The session that had the device, at another node, is to be told.
    fn displace(&mut self, login: &Login, generation: u64, previous: Option<Holder>) {
        let own = self.cluster.members.epoch();
        let elsewhere = previous.filter(|holder| Some(holder.epoch) != own);
        self.effects.displaced.extend(elsewhere.map(|holder| Displaced {
            epoch: holder.epoch,
            app: login.app,
            device: login.device.clone(),
            generation,
        }));
    }

    /// What log-ins may have taken that did not come about is given back; what stays names a session that nobody
    /// finds here.
    async fn forget(&self, takes: Vec<Take>) {
        let Some(epoch) = self.cluster.members.epoch().filter(|_| !takes.is_empty()) else { return };
        if let Err(error) = self.cluster.directory.forget(epoch, takes).await {
            tracing::debug!(%error, "devices that did not log in stay in the directory");
        }
    }
}
