//! A login with other nodes: read, take, look again.
//!
//! 1. A read of the store returns the device's user, which its token need not name, and its backlog.
//! 2. The directory assigns the device to this node: messages to it arrive here from now on.
//! 3. A second look at the store finds messages stored between the two. A sender writes first and looks up the device
//!    then: one that did not find it here had written before the assignment, so the second look finds the message.
//!
//! Each step is one round trip for the whole batch. Topic messages need none of this: every gateway receives all of
//! them, and the gateway's own stamps close the gap.
//!
//! The node that had the device before is notified, so that its session ends. If the directory does not answer, devices
//! log in anyway: they receive what this node publishes, a sweep finds the rest, and they are registered when the
//! directory is back.

use noroshi_cluster::{Cluster, Epoch, Holder, Take, Taken};
use noroshi_store::{LoggedIn, Login, Recheck, Rechecked, Store};
use noroshi_types::{AppId, DeviceId};

use super::{LoginAttempt, LoginResult};
use crate::cluster::Peers;
use crate::cluster::outbox::To;
use crate::cluster::wire::Record;
use crate::error::Error;

/// Attempts for a device that keeps changing while it logs in. Then the login is refused.
const ATTEMPTS_MAX: usize = 4;

/// The effects of a batch on other nodes and on the directory.
#[derive(Default)]
struct Effects {
    displaced: Vec<Displaced>,
    /// The lowest generation of the sessions that the directory does not know, because it did not answer.
    unregistered: Option<u64>,
    /// Registered in the directory by any attempt.
    taken: Vec<Take>,
}

impl Effects {
    fn unregistered(&mut self, generation: u64) {
        self.unregistered = Some(self.unregistered.map_or(generation, |lowest| lowest.min(generation)));
    }
}

/// A session on another node, whose device logs in here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Displaced {
    /// The node that has it.
    epoch: Epoch,
    app: AppId,
    device: DeviceId,
    /// Sessions below this generation end.
    generation: u64,
}

/// Logs in a batch of devices, with answers in order, and notifies the nodes that had them.
pub(crate) async fn log_in(
    store: &dyn Store,
    peers: &Peers,
    entering: Vec<LoginAttempt>,
) -> Result<Vec<LoginResult>, Error> {
    let mut batch = Batch { store, cluster: &peers.cluster, effects: Effects::default() };
    let entered = batch.enter(entering).await;
    // Also after an error: the directory has taken the devices from these nodes.
    let Effects { displaced, unregistered, .. } = batch.effects;
    for Displaced { epoch, app, device, generation } in displaced {
        peers.send(To::One(epoch), Record::Replaced { app, device, below: generation });
    }
    // Without a lease nothing is needed: all sessions are registered under the next one.
    if let Some(generation) = unregistered.filter(|_| peers.cluster.members.epoch().is_some()) {
        peers.unregistered(generation);
    }
    entered
}

struct Batch<'a> {
    store: &'a dyn Store,
    cluster: &'a Cluster,
    effects: Effects,
}

/// A login that the store accepted.
struct AcceptedLogin {
    place: usize,
    entering: LoginAttempt,
    logged_in: LoggedIn,
}

impl Batch<'_> {
    /// All of the batch or, after an error, none: then the devices that it took are released.
    async fn enter(&mut self, entering: Vec<LoginAttempt>) -> Result<Vec<LoginResult>, Error> {
        let entered = self.try_enter(entering).await;
        if entered.is_err() {
            let taken = std::mem::take(&mut self.effects.taken);
            self.forget(taken).await;
        }
        entered
    }

    async fn try_enter(&mut self, entering: Vec<LoginAttempt>) -> Result<Vec<LoginResult>, Error> {
        let mut answers: Vec<Option<LoginResult>> =
            std::iter::repeat_with(|| None).take(entering.len()).collect();
        let mut open: Vec<(usize, LoginAttempt)> = entering.into_iter().enumerate().collect();
        for attempt in 0..ATTEMPTS_MAX {
            if open.is_empty() {
                break;
            }
            open = self.attempt(open, attempt > 0, &mut answers).await?;
        }
        if !open.is_empty() {
            return Err(Error::Overloaded);
        }
        // Every place was filled when its login left `open`.
        Ok(answers.into_iter().flatten().collect())
    }

    /// Answers the logins it can, and returns those whose device changed. `taken`: an earlier attempt took devices.
    async fn attempt(
        &mut self,
        open: Vec<(usize, LoginAttempt)>,
        taken: bool,
        answers: &mut [Option<LoginResult>],
    ) -> Result<Vec<(usize, LoginAttempt)>, Error> {
        let logins: Vec<Login> = open.iter().map(|(_, entering)| entering.login.clone()).collect();
        let read = self.store.log_in(logins).await?;
        let (mut accepted, mut gone) = (Vec::with_capacity(open.len()), Vec::new());
        for ((place, entering), answer) in open.into_iter().zip(read) {
            match answer {
                Ok(logged_in) => accepted.push(AcceptedLogin { place, entering, logged_in }),
                Err(why) => {
                    answers[place] = Some(LoginResult::Refused(why));
                    gone.push(self.named_by(&entering));
                }
            }
        }
        if taken {
            self.forget(gone).await;
        }
        let accepted = self.take(accepted, answers).await;
        self.look_again(accepted, answers).await
    }

    /// Takes the devices in the directory. Returns those that are this node's now, in order.
    async fn take(
        &mut self,
        accepted: Vec<AcceptedLogin>,
        answers: &mut [Option<LoginResult>],
    ) -> Vec<AcceptedLogin> {
        if accepted.is_empty() {
            return accepted;
        }
        let takes: Vec<Take> = accepted.iter().map(|accepted| self.entry_of(accepted)).collect();
        self.effects.taken.extend_from_slice(&takes);
        let taken = match self.cluster.members.epoch() {
            Some(epoch) => self.cluster.directory.take(epoch, takes).await,
            None => Err(noroshi_cluster::Error::Lost),
        };
        let taken = match taken {
            Ok(taken) => taken,
            Err(error) => {
                tracing::debug!(%error, count = accepted.len(), "devices log in without the directory");
                accepted.iter().for_each(|accepted| self.effects.unregistered(accepted.entering.generation));
                return accepted;
            }
        };
        let mut ours = Vec::with_capacity(accepted.len());
        for (accepted, taken) in accepted.into_iter().zip(taken) {
            let LoginAttempt { login, generation } = &accepted.entering;
            match taken {
                Taken::Now { previous } => {
                    self.displace(login, *generation, previous);
                    ours.push(accepted);
                }
                Taken::Partly { previous } => {
                    self.displace(login, *generation, previous);
                    self.effects.unregistered(*generation);
                    ours.push(accepted);
                }
                Taken::Unknown => {
                    self.effects.unregistered(*generation);
                    ours.push(accepted);
                }
                Taken::Behind { generation } => {
                    answers[accepted.place] = Some(LoginResult::GenerationTooLow(generation))
                }
            }
        }
        ours
    }

    async fn look_again(
        &self,
        taken: Vec<AcceptedLogin>,
        answers: &mut [Option<LoginResult>],
    ) -> Result<Vec<(usize, LoginAttempt)>, Error> {
        if taken.is_empty() {
            return Ok(Vec::new());
        }
        let check = |accepted: &AcceptedLogin| {
            let LoggedIn { num, revision, as_of, .. } = accepted.logged_in;
            Recheck { device: num, revision: Some(revision), since: as_of }
        };
        let rechecked = self.store.recheck(taken.iter().map(check).collect()).await?;
        let mut anew = Vec::new();
        for (AcceptedLogin { place, entering, logged_in }, rechecked) in taken.into_iter().zip(rechecked) {
            let behind = match rechecked {
                Rechecked::Changed => {
                    anew.push((place, entering));
                    continue;
                }
                Rechecked::Newer => true,
                Rechecked::Same => false,
            };
            answers[place] = Some(LoginResult::In { logged_in: Box::new(logged_in), behind });
        }
        Ok(anew)
    }

    fn entry_of(&self, accepted: &AcceptedLogin) -> Take {
        let LoginAttempt { login, generation } = &accepted.entering;
        let user = accepted.logged_in.user.as_ref().map(|user| self.cluster.keys.user(login.app, user));
        let device = self.cluster.keys.device(login.app, &login.device);
        Take { device, user, generation: *generation }
    }

    /// The directory entry of a login whose device was not read, or does not exist.
    fn named_by(&self, LoginAttempt { login, generation }: &LoginAttempt) -> Take {
        let user = login.user.as_ref().map(|user| self.cluster.keys.user(login.app, user));
        let device = self.cluster.keys.device(login.app, &login.device);
        Take { device, user, generation: *generation }
    }

    /// Remembers the session on another node that had the device.
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

    /// Releases the devices of logins that failed. An entry that stays names a session that does not exist here.
    async fn forget(&self, takes: Vec<Take>) {
        let Some(epoch) = self.cluster.members.epoch().filter(|_| !takes.is_empty()) else { return };
        if let Err(error) = self.cluster.directory.forget(epoch, takes).await {
            tracing::debug!(%error, "devices that did not log in stay in the directory");
        }
    }
}
