//! The directory on Redis: a batch becomes one command per bucket (one without Cluster), all in one round trip.
//!
//! Different servers may keep a device and its user, so their entries are two concurrent writes. The device's entry
//! decides. The user's entry compares generations itself; a stale one eventually sends a message to a node that answers
//! "not here" and removes it.

use std::sync::Arc;

use ::redis::{Cmd, Value};
use async_trait::async_trait;
use smallvec::SmallVec;
use tokio::sync::mpsc;

use super::connections::Connections;
use super::entry::{self, device_tag, epoch_bytes, joined};
use super::members::{Life, State};
use super::script::{self, Script, USER_DEVICES_MAX};
use super::slot::{Buckets, Command};
use crate::metrics::{Kind, Metrics};
use crate::{Directory, Epoch, Error, Kept, SessionKey, Take, Taken};

/// A script blocks the server; 128 entries take about 0.2 ms.
const SCRIPT_KEYS_MAX: usize = 128;
const HMGET_FIELDS_MAX: usize = 1_024;
/// Entries of dead nodes queued for removal; further ones are found again later.
pub(crate) const REMOVALS_MAX: usize = 16_384;

pub(crate) struct RedisDirectory {
    pub(crate) connections: Connections,
    pub(crate) buckets: Buckets,
    pub(crate) state: Arc<State>,
    pub(crate) metrics: Metrics,
    pub(crate) removals: mpsc::Sender<(SessionKey, Epoch)>,
}

/// The value of a key.
type Found = SmallVec<[Epoch; 2]>;

/// One command of a call: where its answers belong.
struct Batch {
    bucket: usize,
    of_users: bool,
    indexes: Vec<usize>,
}

impl RedisDirectory {
    /// Assigns keys to commands, by bucket.
    fn batches(&self, keys: &[SessionKey], keys_max: usize) -> Vec<Batch> {
        let cluster = self.connections.is_cluster();
        let mut groups: Vec<[Vec<usize>; 2]> =
            vec![Default::default(); if cluster { self.buckets.len() } else { 1 }];
        for (i, key) in keys.iter().enumerate() {
            let bucket = if cluster { self.buckets.bucket(*key) } else { 0 };
            groups[bucket][usize::from(key.is_of_user())].push(i);
        }
        let mut batches = Vec::new();
        for (bucket, kinds) in groups.iter().enumerate() {
            for (group, of_users) in kinds.iter().zip([false, true]) {
                let batch = |chunk: &[usize]| Batch { bucket, of_users, indexes: chunk.to_vec() };
                batches.extend(group.chunks(keys_max).map(batch));
            }
        }
        batches
    }

    /// `argument`: the arguments after each key.
    fn script(
        &self,
        script: &Script,
        keys: &[SessionKey],
        first: &[&[u8]],
        argument: impl Fn(usize) -> Option<Vec<u8>>,
    ) -> (Vec<Batch>, Vec<Command>) {
        let batches = self.batches(keys, SCRIPT_KEYS_MAX);
        let command = |batch: &Batch| {
            let mut cmd = script.call(1);
            add(&mut cmd, self.buckets.name(batch.bucket, batch.of_users));
            first.iter().for_each(|argument| add(&mut cmd, argument));
            for i in &batch.indexes {
                add(&mut cmd, &keys[*i].0.to_be_bytes());
                argument(*i).iter().for_each(|argument| add(&mut cmd, argument));
            }
            Command { slot: self.buckets.slot(batch.bucket), cmd }
        };
        let commands = batches.iter().map(command).collect();
        (batches, commands)
    }

    /// Runs `script` on the devices and `ADD` on their users concurrently. Returns the answers for the devices, in
    /// order, and whether those of their users were written.
    async fn put(
        &self,
        kind: Kind,
        script: &Script,
        epoch: Epoch,
        takes: &[Take],
    ) -> Result<Vec<(Option<Value>, bool)>, Error> {
        self.state.check(epoch)?;
        let epoch_arg = epoch_bytes(epoch);
        let devices: Vec<SessionKey> = takes.iter().map(|take| take.device).collect();
        let generation = |i: usize| Some(takes[i].generation.to_be_bytes().to_vec());
        let (batches, mut commands) = self.script(script, &devices, &[&epoch_arg], generation);
        let of_users: Vec<usize> = (0..takes.len()).filter(|i| takes[*i].user.is_some()).collect();
        let users: Vec<SessionKey> = takes.iter().filter_map(|take| take.user).collect();
        let entry = |i: usize| {
            let take = &takes[of_users[i]];
            Some(joined(&[device_tag(take.device), take.generation.to_be_bytes()]))
        };
        let most = USER_DEVICES_MAX.to_string();
        let (user_batches, adds) = self.script(&script::ADD, &users, &[most.as_bytes(), &epoch_arg], entry);
        commands.extend(adds);
        let mut answers = self.connections.run_all(kind, commands).await;
        // If the lease expired meanwhile, the written entries name a dead epoch.
        self.state.check(epoch)?;
        let added = answers.split_off(batches.len());
        let mut is_added = vec![true; takes.len()];
        for (batch, _) in user_batches.iter().zip(&added).filter(|(_, answer)| answer.is_err()) {
            batch.indexes.iter().for_each(|i| is_added[of_users[*i]] = false);
        }
        let failed = added.into_iter().find_map(Result::err);
        let spread = self.spread(takes.len(), batches, answers, failed)?;
        Ok(spread.into_iter().zip(is_added).collect())
    }

    /// The answers at the positions of their keys. An error only if nothing was answered.
    fn spread(
        &self,
        len: usize,
        batches: Vec<Batch>,
        answers: Vec<Result<Value, Error>>,
        mut failed: Option<Error>,
    ) -> Result<Vec<Option<Value>>, Error> {
        let mut spread: Vec<Option<Value>> = (0..len).map(|_| None).collect();
        let mut answered = len == 0;
        for (batch, answer) in batches.into_iter().zip(answers) {
            match answer {
                Ok(Value::Array(values)) if values.len() == batch.indexes.len() => {
                    answered = true;
                    batch.indexes.iter().zip(values).for_each(|(i, value)| spread[*i] = Some(value));
                }
                Ok(_) => failed = Some(Error::Refused("invalid form of an answer".to_owned())),
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) if !answered || matches!(error, Error::Refused(_)) => Err(error),
            _ => Ok(spread),
        }
    }

    /// Removes entries of these keys with an epoch and a generation below `before`.
    pub(crate) async fn remove(&self, epoch: Epoch, keys: &[SessionKey], before: u64) -> Result<(), Error> {
        let (epoch, before) = (epoch_bytes(epoch), before.to_be_bytes());
        let (_, commands) = self.script(&script::ABSENT, keys, &[&epoch, &before], |_| None);
        all(self.connections.run_all(Kind::Absent, commands).await)
    }

    /// Reads the values; `None` for keys whose server is down.
    async fn read(&self, keys: &[SessionKey]) -> Result<Vec<Option<Found>>, Error> {
        let batches = self.batches(keys, HMGET_FIELDS_MAX);
        let command = |batch: &Batch| {
            let mut cmd = ::redis::cmd("HMGET");
            add(&mut cmd, self.buckets.name(batch.bucket, batch.of_users));
            batch.indexes.iter().for_each(|i| add(&mut cmd, &keys[*i].0.to_be_bytes()));
            Command { slot: self.buckets.slot(batch.bucket), cmd }
        };
        let commands = batches.iter().map(command).collect();
        let answers = self.connections.run_all(Kind::Locate, commands).await;
        let values = self.spread(keys.len(), batches, answers, None)?;
        Ok(values.into_iter().map(|value| Some(entry::epochs(bytes(&value?)))).collect())
    }

    /// Checks unknown epochs against a list that is newer than the entries.
    async fn sort_out(&self, found: &[Option<Found>]) {
        let epochs = || found.iter().flatten().flatten();
        if !epochs().any(|epoch| self.state.life(*epoch) == Life::Unknown) {
            return;
        }
        // Without an answer they count as live: a message without a recipient is cheap.
        if self.state.read_list(&self.connections).await.is_ok() {
            epochs().filter(|epoch| self.state.life(**epoch) == Life::Unknown).for_each(|epoch| {
                self.state.remember_dead(*epoch);
            });
        }
    }

    /// Omits dead nodes. A user's entry of a dead node is removed, because such entries would accumulate. A device's
    /// entry stays until the next take, because the next generation must be higher even if a paused node resumes.
    fn live(&self, key: SessionKey, mut found: Found) -> SmallVec<[Epoch; 2]> {
        found.retain(|epoch| {
            let is_live = self.state.life(*epoch) != Life::Dead;
            if !is_live && key.is_of_user() {
                // If the queue is full, the entry is found again later.
                let _ = self.removals.try_send((key, *epoch));
            }
            is_live
        });
        found
    }
}

fn add(cmd: &mut Cmd, argument: &[u8]) {
    cmd.arg(argument);
}

fn bytes(value: &Value) -> &[u8] {
    match value {
        Value::BulkString(bytes) => bytes,
        _ => &[],
    }
}

fn all(answers: Vec<Result<Value, Error>>) -> Result<(), Error> {
    answers.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

fn taken((answer, is_added): (Option<Value>, bool)) -> Taken {
    let Some(answer) = answer else { return Taken::Unknown };
    let bytes = bytes(&answer);
    match (entry::generation(bytes), entry::holder(bytes)) {
        (Some(generation), _) => Taken::Behind { generation },
        (None, previous) if is_added => Taken::Now { previous },
        (None, previous) => Taken::Partly { previous },
    }
}

#[async_trait]
impl Directory for RedisDirectory {
    async fn take(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Taken>, Error> {
        let answers = self.put(Kind::Take, &script::TAKE, epoch, &takes).await?;
        Ok(answers.into_iter().map(taken).collect())
    }

    async fn keep(&self, epoch: Epoch, takes: Vec<Take>) -> Result<Vec<Kept>, Error> {
        let answers = self.put(Kind::Keep, &script::KEEP, epoch, &takes).await?;
        let kept = |answer: (Option<Value>, bool)| match answer {
            (Some(Value::Int(0)), _) => Ok(Kept::Superseded),
            (Some(_), true) => Ok(Kept::Mine),
            _ => Err(Error::Unavailable("a part of the directory is down".into())),
        };
        answers.into_iter().map(kept).collect()
    }

    async fn forget(&self, epoch: Epoch, takes: Vec<Take>) -> Result<(), Error> {
        self.state.check(epoch)?;
        let of_users = takes.iter().filter_map(|take| take.user.map(|user| (user, take)));
        let entries: Vec<(SessionKey, &Take)> =
            takes.iter().map(|take| (take.device, take)).chain(of_users).collect();
        let keys: Vec<SessionKey> = entries.iter().map(|(key, _)| *key).collect();
        let entry = |i: usize| {
            let take = entries[i].1;
            Some(joined(&[device_tag(take.device), epoch_bytes(epoch), take.generation.to_be_bytes()]))
        };
        let (_, commands) = self.script(&script::FORGET, &keys, &[], entry);
        all(self.connections.run_all(Kind::Forget, commands).await)
    }

    async fn absent(&self, epoch: Epoch, keys: Vec<SessionKey>, before: u64) -> Result<(), Error> {
        self.state.check(epoch)?;
        self.remove(epoch, &keys, before).await
    }

    async fn locate(&self, keys: Vec<SessionKey>) -> Result<Vec<SmallVec<[Epoch; 2]>>, Error> {
        self.metrics.look_ups.inc();
        self.metrics.keys_located.inc_by(keys.len() as u64);
        let found = self.read(&keys).await?;
        self.sort_out(&found).await;
        let mut gateways = None;
        let live = |(key, found)| match found {
            Some(found) => self.live(key, found),
            None => {
                self.metrics.keys_unknown.inc();
                gateways.get_or_insert_with(|| self.state.gateways()).clone()
            }
        };
        Ok(keys.into_iter().zip(found).map(live).collect())
    }
}

/// Removes entries of dead nodes that lookups found, in batches, until the directory is dropped.
pub(crate) async fn remove_dead(
    directory: Arc<RedisDirectory>,
    mut removals: mpsc::Receiver<(SessionKey, Epoch)>,
) {
    let mut found = Vec::with_capacity(SCRIPT_KEYS_MAX);
    while removals.recv_many(&mut found, SCRIPT_KEYS_MAX).await > 0 {
        found.sort_unstable_by_key(|(_, epoch)| *epoch);
        for of_epoch in found.chunk_by(|a, b| a.1 == b.1) {
            let keys: Vec<SessionKey> = of_epoch.iter().map(|(key, _)| *key).collect();
            if directory.remove(of_epoch[0].1, &keys, u64::MAX).await.is_ok() {
                directory.metrics.entries_removed.inc_by(keys.len() as u64);
            }
        }
        found.clear();
        // At most 128 per 10 ms, so that a node's death does not cause a storm of writes.
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
