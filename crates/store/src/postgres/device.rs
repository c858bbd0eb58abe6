//! Devices: registration, changes and removal.
//!
//! Locks, always in this order: the user's revocation lock ([`revocation`]), rows of devices by number, then, if a
//! device gets another user or is removed, the order lock ([`order::keep_accepts_out`]), then new devices and topics,
//! then inboxes. A change of a device or its subscriptions locks the device's row, so that concurrent changes run one
//! after the other.

mod change;
mod tokens;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use noroshi_types::{AppId, DeviceId, DeviceNum, Timestamp, Topic, UserId};
use tokio_postgres::Row;

use self::change::{Change, Changes, EMPTY, REMOVE_ENDPOINTS, empty};
use super::subscription::NewRows;
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, order, revocation, topic};
use crate::engine::device::{COLUMNS, check_topics, device_of, draw_id, id_of};
use crate::engine::expansion::SliceSize;
use crate::engine::record::Record;
use crate::revocation::Subject;
use crate::{Device, DeviceChange, DeviceFilter, Error, Issued, Registration, Revocation, engine};

/// Attempts of a registration whose device another call creates at the same time. After each attempt at least one
/// more device exists.
const COLLISIONS_MAX: usize = 8;

/// Devices of the first commit of many.
const REGISTERED_FIRST: usize = 200;

/// A device to create or update.
#[derive(Clone)]
pub(super) struct NewDevice {
    pub app: AppId,
    pub id: DeviceId,
    pub registration: Registration,
    pub now: Timestamp,
}

/// Creates or updates devices, many of them in several commits.
pub(crate) async fn register_many(
    store: &Postgres,
    app: AppId,
    devices: Vec<Registration>,
    now: Timestamp,
) -> Result<Vec<Result<Device, Error>>, Error> {
    let wanted = devices.into_iter().map(|registration| {
        // Drawn here, so that a retry creates the same device.
        let id = registration.device.clone().map_or_else(draw_id, Ok)?;
        Ok(NewDevice { app, id, registration, now })
    });
    store.register_all(wanted.collect::<Result<_, Error>>()?).await
}

impl Postgres {
    /// Creates or updates devices of any apps, many of them in several commits; answers in order.
    pub(super) async fn register_all(
        &self,
        wanted: Vec<NewDevice>,
    ) -> Result<Vec<Result<Device, Error>>, Error> {
        let (mut answers, mut slices) = (Vec::with_capacity(wanted.len()), SliceSize::new(REGISTERED_FIRST));
        let mut wanted = wanted.into_iter().peekable();
        while wanted.peek().is_some() {
            let slice: Vec<_> = wanted.by_ref().take(slices.size()).collect();
            let (size, started) = (slice.len(), Instant::now());
            answers.extend(self.register_slice(slice.into()).await?);
            slices.took(size, started.elapsed());
        }
        Ok(answers)
    }

    /// In one commit.
    async fn register_slice(&self, wanted: Arc<[NewDevice]>) -> Result<Vec<Result<Device, Error>>, Error> {
        for _ in 0..COLLISIONS_MAX {
            let again = Arc::clone(&wanted);
            match self.write(move |tx| register(tx, Arc::clone(&again))).await {
                // Nothing was changed, and the device exists for the next attempt.
                Err(Error::Conflict) => {}
                registered => return registered,
            }
        }
        Err(Error::Overloaded)
    }
}

/// Devices by app and id, column by column.
pub(super) struct Keys {
    pub apps: Vec<i64>,
    pub ids: Vec<String>,
}

impl Keys {
    pub(super) fn of<'d>(keys: impl IntoIterator<Item = (AppId, &'d DeviceId)>) -> Self {
        let keys = keys.into_iter().map(|(app, id)| (i64::from(app.0), id.as_str().to_owned()));
        let (apps, ids) = keys.unzip();
        Self { apps, ids }
    }
}

const ASKED: &str = "unnest($1::bigint[], $2::text[]) AS asked (app, id)
     JOIN devices d ON d.app = asked.app AND d.id = asked.id";

/// Devices with their topics. Excludes other changes of the devices and of rows that belong to them.
async fn load(tx: &Tx, keys: &Keys) -> Result<HashMap<(AppId, DeviceId), Device>, Failed> {
    let devices = format!("SELECT {} FROM {ASKED} ORDER BY d.num FOR NO KEY UPDATE OF d", *COLUMNS);
    let topics = format!(
        "SELECT d.num, t.name FROM {ASKED} JOIN subscriptions s ON s.device = d.num AND s.named = 1
         JOIN topics t ON t.num = s.topic ORDER BY d.num, t.name"
    );
    // Topics are read after the lock is held.
    tx.prepare(&[&devices, &topics]).await?;
    let values: Values<'_> = &[&keys.apps, &keys.ids];
    let (devices, topics) = tokio::try_join!(tx.query(&devices, values), tx.query(&topics, values))?;
    let mut devices = devices.iter().map(device_of).collect::<Result<Vec<_>, Error>>()?;
    add_topics(&mut devices, &topics);
    Ok(devices.into_iter().map(|device| ((device.app, device.id.clone()), device)).collect())
}

/// With one statement: one round trip, and a consistent read without a transaction.
pub(crate) async fn find(tx: &Tx, app: AppId, device: &DeviceId) -> Result<Option<Device>, Failed> {
    let sql = format!(
        "SELECT {}, subscribed.names FROM devices d CROSS JOIN LATERAL ({TOPIC_NAMES}) AS subscribed
         WHERE d.app = $1 AND d.id = $2",
        *COLUMNS
    );
    let found = tx.query_opt(&sql, &[&i64::from(app.0), &device.as_str()]).await?;
    Ok(found.as_ref().map(device_with_topics).transpose()?)
}

/// The names of the topics that a device `d` durably subscribes to.
pub(super) const TOPIC_NAMES: &str = "SELECT array_agg(t.name ORDER BY t.name) AS names
    FROM subscriptions s JOIN topics t ON t.num = s.topic WHERE s.device = d.num AND s.named = 1";

/// The number of columns of a device.
pub(super) const COLUMN_COUNT: usize = 21;

/// Reads the columns of a device, and the names of its topics after them.
pub(super) fn device_with_topics(row: &Row) -> Result<Device, Error> {
    let names: Option<Vec<String>> = row.get(COLUMN_COUNT);
    let mut device = device_of(row)?;
    // Sorted by bytes, whatever the database's collation.
    device.topics = names.unwrap_or_default().iter().map(|name| Topic::from_trusted(name)).collect();
    device.topics.sort_unstable();
    Ok(device)
}

/// Both are ordered by device number.
fn add_topics(devices: &mut [Device], topics: &[Row]) {
    let mut topics = topics.iter().peekable();
    for device in devices {
        let of_device = |row: &&Row| row.get::<_, i64>(0) as u64 == device.num.0;
        while let Some(row) = topics.next_if(of_device) {
            device.topics.push(Topic::from_trusted(row.get(1)));
        }
    }
}

pub(crate) async fn list(tx: &Tx, app: AppId, filter: &DeviceFilter) -> Result<Vec<Device>, Failed> {
    let mut devices = engine::device::list(tx, app, filter).await?;
    let nums: Vec<_> = devices.iter().map(|device| device.num.0 as i64).collect();
    let sql = "SELECT s.device, t.name FROM subscriptions s JOIN topics t ON t.num = s.topic
               WHERE s.device = ANY($1) AND s.named = 1 ORDER BY s.device, t.name";
    add_topics(&mut devices, &tx.query(sql, &[&nums]).await?);
    Ok(devices)
}

/// A device that is named twice is updated twice, in turn.
fn rounds(wanted: &[NewDevice]) -> Vec<Vec<usize>> {
    let mut times: HashMap<(AppId, &DeviceId), usize> = HashMap::new();
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    for (i, one) in wanted.iter().enumerate() {
        let round = times.entry((one.app, &one.id)).or_default();
        if rounds.len() == *round {
            rounds.push(Vec::new());
        }
        rounds[*round].push(i);
        *round += 1;
    }
    rounds
}

/// [`Error::Conflict`] if another call created one of the devices after the lookup: the caller retries.
async fn register(tx: Tx, wanted: Arc<[NewDevice]>) -> Result<Vec<Result<Device, Error>>, Failed> {
    let mut answers: Vec<Result<Device, Error>> = vec![Err(Error::NotFound); wanted.len()];
    let with_jwt = |one: &&NewDevice| one.registration.issued != Issued::Elsewhere;
    let users =
        wanted.iter().filter(with_jwt).filter_map(|one| Some((one.app, one.registration.user.as_ref()?)));
    let users: Vec<_> = users.collect();
    if !users.is_empty() {
        revocation::keep_revocations_out(&tx, &users).await?;
    }
    for round in rounds(&wanted) {
        let keys = Keys::of(round.iter().map(|&i| (wanted[i].app, &wanted[i].id)));
        let mut known = load(&tx, &keys).await?;
        let revoked = revoked(&tx, &wanted, &round).await?;
        let mut changes = Changes::default();
        for i in round {
            let NewDevice { app, id, registration, now } = wanted[i].clone();
            if revoked.contains(&i) {
                answers[i] = Err(Error::Revoked);
                continue;
            }
            let found = known.remove(&(app, id.clone()));
            let is_new = found.is_none();
            let mut device = found.unwrap_or_else(|| Device::fresh(app, id, now));
            match device.register(registration, now) {
                Ok(effects) => changes.0.push(Change { i, device, effects, is_new, now }),
                Err(refused) => answers[i] = Err(refused),
            }
        }
        changes.write(&tx).await?;
        for Change { i, device, .. } in changes.0 {
            answers[i] = Ok(device);
        }
    }
    Ok(answers)
}

/// The registrations of a round whose JWT was revoked. Their devices are locked or do not exist.
async fn revoked(tx: &Tx, wanted: &[NewDevice], round: &[usize]) -> Result<HashSet<usize>, Failed> {
    let with_jwt = |i: &&usize| wanted[**i].registration.issued != Issued::Elsewhere;
    let asked: Vec<usize> = round.iter().filter(with_jwt).copied().collect();
    if asked.is_empty() {
        return Ok(HashSet::new());
    }
    let who = asked.iter().map(|&i| (wanted[i].app, &wanted[i].id, wanted[i].registration.user.as_ref()));
    let found = revocation::load(tx, &who.collect::<Vec<_>>()).await?;
    let is_revoked = |(i, revocation): &(usize, Revocation)| {
        wanted[*i].registration.issued.is_revoked(revocation.latest(), wanted[*i].now)
    };
    Ok(asked.into_iter().zip(found).filter(is_revoked).map(|(i, _)| i).collect())
}

/// The state of a session that may not continue ([`crate::ENDED_STATE_PREFIX`]).
const ENDED: &str = "CASE WHEN substr(d.kept, 1, 1) = '\\xff'::bytea THEN d.kept
                          ELSE '\\xff'::bytea || coalesce(d.kept, ''::bytea) END";

pub(crate) async fn revoke_tokens(
    tx: &Tx,
    app: AppId,
    device: &DeviceId,
    now: Timestamp,
) -> Result<u32, Failed> {
    let sql = format!(
        "UPDATE devices d SET token_version = token_version + 1, revision = revision + 1, kept = {ENDED}
         WHERE app = $1 AND id = $2 RETURNING token_version"
    );
    let version = tx.query_opt(&sql, &[&i64::from(app.0), &device.as_str()]).await?;
    let version = version.ok_or(Error::NotFound)?.int(0)? as u32;
    engine::device::revoke(tx, app, Subject::Device, device.as_str(), now).await?;
    Ok(version)
}

pub(crate) async fn revoke_user(
    store: &Postgres,
    app: AppId,
    user: &UserId,
    now: Timestamp,
) -> Result<Vec<DeviceId>, Error> {
    let user = user.clone();
    store.write(move |tx| revoke_of(tx, app, user.clone(), now)).await
}

async fn revoke_of(tx: Tx, app: AppId, user: UserId, now: Timestamp) -> Result<Vec<DeviceId>, Failed> {
    revocation::keep_registrations_out(&tx, app, &user).await?;
    engine::device::revoke(&tx, app, Subject::User, user.as_str(), now).await?;
    let sql = format!(
        "WITH found AS (
             SELECT num FROM devices WHERE app = $1 AND \"user\" = $2 ORDER BY num FOR NO KEY UPDATE)
         UPDATE devices d SET token_version = d.token_version + 1, revision = d.revision + 1, kept = {ENDED}
         FROM found WHERE d.num = found.num RETURNING d.id"
    );
    let rows = tx.query(&sql, &[&i64::from(app.0), &user.as_str()]).await?;
    rows.iter().map(|row| Ok(id_of(row, 0)?)).collect()
}

async fn locked(tx: &Tx, app: AppId, id: &DeviceId) -> Result<Device, Failed> {
    let found = load(tx, &Keys::of([(app, id)])).await?.into_values().next();
    Ok(found.ok_or(Error::NotFound)?)
}

pub(crate) async fn update(
    tx: &Tx,
    app: AppId,
    id: &DeviceId,
    change: DeviceChange,
    now: Timestamp,
) -> Result<Device, Failed> {
    let mut device = locked(tx, app, id).await?;
    let effects = device.change(change, now)?;
    let mut changes = Changes(vec![Change { i: 0, device, effects, is_new: false, now }]);
    changes.write(tx).await?;
    Ok(changes.0.pop().ok_or(Error::NotFound)?.device)
}

pub(crate) async fn delete(tx: &Tx, app: AppId, id: &DeviceId, now: Timestamp) -> Result<DeviceNum, Failed> {
    let device = locked(tx, app, id).await?.num;
    let devices = [(device, now)];
    let (num, at) = (device.0 as i64, now.0 as i64);
    let (values, remembered): (Values<'_>, Values<'_>) = (&[&num], &[&num, &at]);
    tx.prepare(&[
        order::KEEP_OUT,
        EMPTY,
        REMOVE_ENDPOINTS,
        UNSUBSCRIBE_ALL,
        REMEMBER,
        engine::device::REVOKE,
        DELETE,
    ])
    .await?;
    tokio::try_join!(
        order::keep_accepts_out(tx),
        empty(tx, &devices),
        tx.execute(UNSUBSCRIBE_ALL, values),
        tx.execute(REMEMBER, remembered),
        engine::device::revoke(tx, app, Subject::Device, id.as_str(), now),
        tx.execute(DELETE, values),
    )?;
    Ok(device)
}

const UNSUBSCRIBE_ALL: &str = "WITH found AS (
         SELECT device, topic FROM subscriptions WHERE device = $1 ORDER BY topic FOR UPDATE)
     DELETE FROM subscriptions s USING found WHERE s.device = found.device AND s.topic = found.topic";
/// A device that is created again under this id starts with this token version.
const REMEMBER: &str = "INSERT INTO deleted_devices (app, id, token_version, deleted_at)
     SELECT app, id, token_version + 1, $2::bigint FROM devices WHERE num = $1
     ON CONFLICT (app, id) DO UPDATE SET token_version = excluded.token_version, deleted_at = excluded.deleted_at";
const DELETE: &str = "DELETE FROM devices WHERE num = $1";

/// Marks earlier reads of the device as outdated.
const REVISE: &str = "UPDATE devices SET revision = revision + 1 WHERE num = $1";

pub(crate) async fn subscribe(
    tx: &Tx,
    app: AppId,
    id: &DeviceId,
    topic: &Topic,
    now: Timestamp,
) -> Result<bool, Failed> {
    let device = locked(tx, app, id).await?;
    if topic.is_everyone() || device.topics.binary_search(topic).is_ok() {
        return Ok(false);
    }
    check_topics(device.topics.len() + 1)?;
    let mut subscriptions = NewRows::default();
    subscriptions.push(app, id, topic, now);
    let num = device.num.0 as i64;
    let values: Values<'_> = &[&num];
    tx.prepare(&[topic::CREATE, NewRows::INSERT, REVISE]).await?;
    tokio::try_join!(
        topic::create(tx, [(app, topic)]),
        subscriptions.insert(tx),
        tx.execute(REVISE, values),
    )?;
    Ok(true)
}

/// The subscription to `$everyone` cannot be removed.
pub(crate) async fn unsubscribe(tx: &Tx, app: AppId, id: &DeviceId, topic: &Topic) -> Result<bool, Failed> {
    let device = locked(tx, app, id).await?;
    if device.topics.binary_search(topic).is_err() {
        return Ok(false);
    }
    let num = device.num.0 as i64;
    let values: Values<'_> = &[&num];
    let sql = "DELETE FROM subscriptions WHERE device = $1 AND named = 1
               AND topic = (SELECT num FROM topics WHERE app = $2 AND name = $3)";
    let (app, name) = (i64::from(app.0), topic.as_str());
    let gone: Values<'_> = &[&num, &app, &name];
    tokio::try_join!(tx.execute(sql, gone), tx.execute(REVISE, values))?;
    Ok(true)
}
