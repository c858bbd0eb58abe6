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

use noroshi_cluster::{Cluster, Epoch, Take, Taken};
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

/// What came of a batch.
struct Entry {
    entered: Vec<Entered>,
    displaced: Vec<Displaced>,
    /// The directory did not answer: sessions begin that it does not know.
    unregistered: bool,
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
    let Entry { entered, displaced, unregistered } = enter(store, &peers.cluster, entering).await?;
    for Displaced { epoch, app, device, generation } in displaced {
        peers.tell(To::One(epoch), Record::Replaced { app, device, below: generation });
    }
    if unregistered {
        peers.sweeps.unregistered(peers.places.before(Instant::now(), clock.now()));
    }
    Ok(entered)
}

struct Batch<'a> {
    store: &'a dyn Store,
    cluster: &'a Cluster,
    entry: Entry,
}

async fn enter(store: &dyn Store, cluster: &Cluster, entering: Vec<Entering>) -> Result<Entry, Error> {
    let entry = Entry { entered: Vec::new(), displaced: Vec::new(), unregistered: false };
    let mut batch = Batch { store, cluster, entry };
    let count = entering.len();
    let mut answers: Vec<Option<Entered>> = std::iter::repeat_with(|| None).take(count).collect();
    let mut open: Vec<(usize, Entering)> = entering.into_iter().enumerate().collect();
    for attempt in 0..ATTEMPTS_MAX {
        if open.is_empty() {
            break;
        }
        open = batch.attempt(open, attempt > 0, &mut answers).await?;
    }
    if !open.is_empty() {
        batch.forget(&open).await;
        return Err(Error::Overloaded);
    }
    // Every place was filled when its log-in left `open`.
    batch.entry.entered = answers.into_iter().flatten().collect();
    Ok(batch.entry)
}

/// A log-in that the store let pass.
struct Passed {
    place: usize,
    entering: Entering,
    logged_in: LoggedIn,
}

impl Batch<'_> {
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
                    gone.push((place, entering));
                }
            }
        }
        if taken {
            self.forget(&gone).await;
        }
        let passed = self.take(passed, answers).await;
        self.look_again(passed, answers).await
    }

    /// Those that are this node's now, in order.
    async fn take(&mut self, passed: Vec<Passed>, answers: &mut [Option<Entered>]) -> Vec<Passed> {
        if passed.is_empty() {
            return passed;
        }
        let takes = passed.iter().map(|passed| self.entry_of(passed)).collect();
        let taken = match self.cluster.members.epoch() {
            Some(epoch) => self.cluster.directory.take(epoch, takes).await,
            None => Err(noroshi_cluster::Error::Lost),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::debug!(%error, count = passed.len(), "devices are let in without the directory");
                self.entry.unregistered = true;
                return passed;
            }
        };
        let mut ours = Vec::with_capacity(passed.len());
        for (passed, taken) in passed.into_iter().zip(taken) {
            let Entering { login, generation } = &passed.entering;
            match taken {
                Taken::Now { previous } => {
                    let elsewhere =
                        previous.filter(|holder| Some(holder.epoch) != self.cluster.members.epoch());
                    self.entry.displaced.extend(elsewhere.map(|holder| Displaced {
                        epoch: holder.epoch,
                        app: login.app,
                        device: login.device.clone(),
                        generation: *generation,
                    }));
                    ours.push(passed);
                }
                Taken::Unknown => {
                    self.entry.unregistered = true;
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

    /// What these log-ins may have taken is given back; what stays names a session that nobody finds here.
    async fn forget(&self, gone: &[(usize, Entering)]) {
        let Some(epoch) = self.cluster.members.epoch().filter(|_| !gone.is_empty()) else { return };
        let takes = gone.iter().map(|(_, Entering { login, generation })| Take {
            device: self.cluster.keys.device(login.app, &login.device),
            user: login.user.as_ref().map(|user| self.cluster.keys.user(login.app, user)),
            generation: *generation,
        });
        if let Err(error) = self.cluster.directory.forget(epoch, takes.collect()).await {
            tracing::debug!(%error, "devices that did not log in stay in the directory");
        }
    }
}
