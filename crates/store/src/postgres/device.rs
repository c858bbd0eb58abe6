//! Devices: registration, changes, removal.
//!
//! Locks, always in this order: rows of devices by number, then, where a device gets another user or ends, the
//! order lock ([`order::keep_accepts_out`]), then new devices and topics, then inboxes. What changes a device or
//! its subscriptions has the device's row locked, so two of them follow each other and the second sees what the
//! first left behind.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, DeviceNum, Outcome, Timestamp, Topic, UserId};
use tokio_postgres::Row;

use super::subscription::NewRows;
use super::transaction::{Failed, Tx, Values};
use super::{Postgres, order, topic};
use crate::device::{Renewal, check_topics, draw_id, tags_of, tags_text, token_of};
use crate::{
    Attributes, Device, DeviceChange, DeviceFilter, Devices, Error, Registration, Suspect, device_list,
};

/// How often a registration begins anew because somebody else made one of its devices at the same time. Each
/// time at least one more of them is there, made by another log-in of the same device.
const COLLISIONS_MAX: usize = 8;

/// A device to be made or brought up to date.
#[derive(Clone)]
pub(super) struct Wanted {
    pub app: AppId,
    pub id: DeviceId,
    pub registration: Registration,
    pub now: Timestamp,
}

#[async_trait::async_trait]
impl Devices for Postgres {
    async fn register(
        &self,
        app: AppId,
        devices: Vec<Registration>,
        now: Timestamp,
    ) -> Result<Vec<Result<Device, Error>>, Error> {
        let wanted = devices.into_iter().map(|registration| {
            // Drawn here, so that work that is repeated makes the same device.
            let id = registration.device.clone().map_or_else(draw_id, Ok)?;
            Ok(Wanted { app, id, registration, now })
        });
        self.register_all(wanted.collect::<Result<_, Error>>()?).await
    }

    async fn device(&self, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error> {
        let key = [(app, device)];
        let found = self.read(async |tx: Tx| load(&tx, &Keys::of(key), Lock::None).await).await?;
        Ok(found.into_values().next())
    }

    async fn devices(&self, app: AppId, filter: DeviceFilter) -> Result<Vec<Device>, Error> {
        self.read(async |tx: Tx| list(&tx, app, &filter).await).await
    }

    async fn update_device(
        &self,
        app: AppId,
        device: &DeviceId,
        change: DeviceChange,
        now: Timestamp,
    ) -> Result<Device, Error> {
        let device = device.clone();
        self.write(move |tx| update(tx, app, device.clone(), change.clone(), now)).await
    }

    async fn delete_device(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error> {
        let device = device.clone();
        self.write(move |tx| delete(tx, app, device.clone(), now)).await
    }

    async fn revoke_tokens(&self, app: AppId, device: &DeviceId) -> Result<u32, Error> {
        let device = device.clone();
        self.write(move |tx| {
            let device = device.clone();
            async move {
                let sql = "UPDATE devices SET token_version = token_version + 1, revision = revision + 1
                           WHERE app = $1 AND id = $2 RETURNING token_version";
                let version = tx.query_opt(sql, &[&i64::from(app.0), &device.as_str()]).await?;
                Ok(version.ok_or(Error::NotFound)?.get::<_, i64>(0) as u32)
            }
        })
        .await
    }

    async fn subscribe(
        &self,
        app: AppId,
        device: &DeviceId,
        topic: &Topic,
        _now: Timestamp,
    ) -> Result<bool, Error> {
        let (device, topic) = (device.clone(), topic.clone());
        self.write(move |tx| subscribe(tx, app, device.clone(), topic.clone())).await
    }

    async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let (device, topic) = (device.clone(), topic.clone());
        self.write(move |tx| unsubscribe(tx, app, device.clone(), topic.clone())).await
    }
}

impl Postgres {
    /// Makes or updates devices of any apps, all in one commit, answers in order.
    pub(super) async fn register_all(
        &self,
        wanted: Vec<Wanted>,
    ) -> Result<Vec<Result<Device, Error>>, Error> {
        let wanted: Arc<[Wanted]> = wanted.into();
        for _ in 0..COLLISIONS_MAX {
            let again = Arc::clone(&wanted);
            match self.write(move |tx| register(tx, Arc::clone(&again))).await {
                // Nothing was changed, and the next time the device is there.
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

/// Of `devices d`.
const COLUMNS: &str = "d.num, d.app, d.id, d.\"user\", d.platform, d.locale, d.timezone, d.app_version, d.tags, \
     d.push_token, d.token_version, d.created_at, d.push_service, d.push_environment, d.push_suspect_at, \
     d.push_suspect_reason";

const ASKED: &str = "unnest($1::bigint[], $2::text[]) AS asked (app, id)
     JOIN devices d ON d.app = asked.app AND d.id = asked.id";

/// The device of a row of [`COLUMNS`], its topics still missing.
fn device_of(row: &Row) -> Result<Device, Failed> {
    let wrong = |error| Error::Engine(format!("a stored device: {error}"));
    let code = |column| row.get::<_, Option<i64>>(column).map(|code| code as u8);
    let suspect_at: Option<i64> = row.get(14);
    Ok(Device {
        num: DeviceNum(row.get::<_, i64>(0) as u64),
        app: AppId(row.get::<_, i64>(1) as u32),
        id: DeviceId::parse(row.get(2)).map_err(wrong)?,
        user: row.get::<_, Option<&str>>(3).map(UserId::parse).transpose().map_err(wrong)?,
        attributes: attributes_of(row, 4)?,
        topics: Vec::new(),
        push_token: token_of(row.get(9), code(12), code(13)),
        push_suspect: suspect_at.map(|at| Suspect {
            at: Timestamp(at as u64),
            reason: row.get::<_, Option<String>>(15).unwrap_or_default(),
        }),
        token_version: row.get::<_, i64>(10) as u32,
        created_at: Timestamp(row.get::<_, i64>(11) as u64),
    })
}

/// Of `platform, locale, timezone, app_version, tags` from column `first` on.
pub(super) fn attributes_of(row: &Row, first: usize) -> Result<Attributes, Error> {
    Ok(Attributes {
        platform: row.get(first),
        locale: row.get(first + 1),
        timezone: row.get(first + 2),
        app_version: row.get(first + 3),
        tags: tags_of(row.get(first + 4))?,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Lock {
    None,
    /// Against everybody who changes the device, or what hangs on it.
    Change,
}

/// Devices with their topics.
async fn load(tx: &Tx, keys: &Keys, lock: Lock) -> Result<HashMap<(AppId, DeviceId), Device>, Failed> {
    let lock = if lock == Lock::Change { "FOR NO KEY UPDATE OF d" } else { "" };
    let devices = format!("SELECT {COLUMNS} FROM {ASKED} ORDER BY d.num {lock}");
    let topics = format!(
        "SELECT d.num, t.name FROM {ASKED} JOIN subscriptions s ON s.device = d.num AND s.named = 1
         JOIN topics t ON t.num = s.topic ORDER BY d.num, t.name"
    );
    // Topics are read after the lock is there.
    tx.prepare(&[&devices, &topics]).await?;
    let values: Values<'_> = &[&keys.apps, &keys.ids];
    let (devices, topics) = tokio::try_join!(tx.query(&devices, values), tx.query(&topics, values))?;
    let mut devices = devices.iter().map(device_of).collect::<Result<Vec<_>, Failed>>()?;
    add_topics(&mut devices, &topics);
    Ok(devices.into_iter().map(|device| ((device.app, device.id.clone()), device)).collect())
}

/// Both in the order of device numbers.
fn add_topics(devices: &mut [Device], topics: &[Row]) {
    let mut topics = topics.iter().peekable();
    for device in devices {
        let of_device = |row: &&Row| row.get::<_, i64>(0) as u64 == device.num.0;
        while let Some(row) = topics.next_if(of_device) {
            device.topics.push(Topic::from_trusted(row.get(1)));
        }
    }
}

async fn list(tx: &Tx, app: AppId, filter: &DeviceFilter) -> Result<Vec<Device>, Failed> {
    let by_user = if filter.user.is_some() { "d.\"user\" = $4" } else { "$4::text IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM devices d WHERE d.app = $1 AND d.num > $2 AND {by_user} ORDER BY d.num LIMIT $3"
    );
    let after = filter.after.map_or(0, |num| num.0 as i64);
    let user = filter.user.as_ref().map(UserId::as_str);
    let rows = tx.query(&sql, &[&i64::from(app.0), &after, &(filter.limit as i64), &user]).await?;
    let mut devices = rows.iter().map(device_of).collect::<Result<Vec<_>, Failed>>()?;
    let nums: Vec<_> = devices.iter().map(|device| device.num.0 as i64).collect();
    let sql = "SELECT s.device, t.name FROM subscriptions s JOIN topics t ON t.num = s.topic
               WHERE s.device = ANY($1) AND s.named = 1 ORDER BY s.device, t.name";
    add_topics(&mut devices, &tx.query(sql, &[&nums]).await?);
    Ok(devices)
}

/// A device named twice is brought up to date twice, in turn.
fn rounds(wanted: &[Wanted]) -> Vec<Vec<usize>> {
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

/// [`Error::Conflict`] if somebody made one of the devices after it was looked for: to be tried again.
async fn register(tx: Tx, wanted: Arc<[Wanted]>) -> Result<Vec<Result<Device, Error>>, Failed> {
    let mut answers: Vec<Result<Device, Error>> = vec![Err(Error::NotFound); wanted.len()];
    for round in rounds(&wanted) {
        let keys = Keys::of(round.iter().map(|&i| (wanted[i].app, &wanted[i].id)));
        let mut known = load(&tx, &keys, Lock::Change).await?;
        let mut changes = Changes::default();
        for i in round {
            let Wanted { app, id, registration, now } = wanted[i].clone();
            let found = known.remove(&(app, id.clone()));
            let is_new = found.is_none();
            let mut device = found.unwrap_or_else(|| Device::fresh(app, id, now));
            match device.register(registration) {
                Ok(renewal) => changes.0.push(Change { i, device, renewal, is_new, now }),
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

/// A device as it is to be.
struct Change {
    /// Its place in the answers.
    i: usize,
    device: Device,
    renewal: Renewal,
    is_new: bool,
    now: Timestamp,
}

/// What is to be written together.
#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    /// All statements go out at once.
    async fn write(&mut self, tx: &Tx) -> Result<(), Failed> {
        let new: Vec<&Change> = self.0.iter().filter(|change| change.is_new).collect();
        let known: Vec<&Change> = self.0.iter().filter(|change| !change.is_new).collect();
        let moved: Vec<&Change> = known.iter().copied().filter(|change| change.renewal.other_user).collect();
        let everyone = Topic::everyone();
        let mut subscriptions = NewRows::default();
        let mut topics = HashSet::new();
        for Change { device, renewal, is_new, .. } in &self.0 {
            for topic in is_new.then_some(&everyone).into_iter().chain(&renewal.new_topics) {
                subscriptions.push(device.app, &device.id, topic);
                topics.insert((device.app, topic));
            }
        }
        tx.prepare(&[order::KEEP_OUT, INSERT, REVOKED, UPDATE, topic::MAKE, NewRows::INSERT, EMPTY]).await?;
        let (_, made, _, _, _, _) = tokio::try_join!(
            keep_accepts_out(tx, &moved),
            insert(tx, &new),
            update_all(tx, &known),
            topic::make(tx, topics),
            subscriptions.insert(tx),
            empty_inboxes(tx, &moved),
        )?;
        for change in self.0.iter_mut().filter(|change| change.is_new) {
            let key = (i64::from(change.device.app.0), change.device.id.as_str().to_owned());
            // Not made: it was there already.
            let (num, token_version) = made.get(&key).copied().ok_or(Error::Conflict)?;
            (change.device.num, change.device.token_version) = (num, token_version);
        }
        Ok(())
    }
}

async fn keep_accepts_out(tx: &Tx, moved: &[&Change]) -> Result<(), Failed> {
    if moved.is_empty() { Ok(()) } else { order::keep_accepts_out(tx).await }
}

const INSERT: &str = "INSERT INTO devices (app, id, \"user\", platform, locale, timezone, app_version, tags,
         push_token, push_service, push_environment, push_token_at, token_version, created_at)
     SELECT new.app, new.id, new.of_user, new.platform, new.locale, new.timezone, new.app_version, new.tags,
         new.push_token, new.push_service, new.push_environment,
         CASE WHEN new.push_token IS NOT NULL THEN new.created_at END, 1, new.created_at
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                 $9::text[], $10::bigint[], $11::bigint[], $12::bigint[])
         AS new (app, id, of_user, platform, locale, timezone, app_version, tags, push_token, push_service,
                 push_environment, created_at)
     ORDER BY new.app, new.id ON CONFLICT (app, id) DO NOTHING RETURNING app, id, num";

/// Where devices of the same ids were deleted before, the versions of their tokens go on. A statement of its
/// own: what it sees was decided before the new row was there.
const REVOKED: &str = "UPDATE devices d SET token_version = gone.token_version
     FROM unnest($1::bigint[], $2::text[]) AS asked (app, id)
     JOIN deleted_devices gone ON gone.app = asked.app AND gone.id = asked.id
     WHERE d.app = asked.app AND d.id = asked.id AND d.token_version < gone.token_version
     RETURNING d.app, d.id, d.token_version";

/// Numbers and token versions of those that were made.
type Made = HashMap<(i64, String), (DeviceNum, u32)>;

async fn insert(tx: &Tx, new: &[&Change]) -> Result<Made, Failed> {
    if new.is_empty() {
        return Ok(Made::default());
    }
    let devices = || new.iter().map(|change| &change.device);
    let keys = Keys::of(devices().map(|device| (device.app, &device.id)));
    let columns = Columns::of(devices())?;
    let created: Vec<_> = devices().map(|device| device.created_at.0 as i64).collect();
    let values: Values<'_> = &[
        &keys.apps,
        &keys.ids,
        &columns.users,
        &columns.platforms,
        &columns.locales,
        &columns.timezones,
        &columns.app_versions,
        &columns.tags,
        &columns.tokens,
        &columns.services,
        &columns.environments,
        &created,
    ];
    let asked: Values<'_> = &[&keys.apps, &keys.ids];
    let (made, revoked) = tokio::try_join!(tx.query(INSERT, values), tx.query(REVOKED, asked))?;
    let num_of = |row: &Row| DeviceNum(row.get::<_, i64>(2) as u64);
    let mut made: Made = made.iter().map(|row| ((row.get(0), row.get(1)), (num_of(row), 1))).collect();
    for row in revoked {
        if let Some((_, version)) = made.get_mut(&(row.get(0), row.get(1))) {
            *version = row.get::<_, i64>(2) as u32;
        }
    }
    Ok(made)
}

/// What a device says of itself, column by column.
#[derive(Default)]
struct Columns<'d> {
    users: Vec<Option<&'d str>>,
    platforms: Vec<Option<&'d str>>,
    locales: Vec<Option<&'d str>>,
    timezones: Vec<Option<&'d str>>,
    app_versions: Vec<Option<&'d str>>,
    tags: Vec<Option<String>>,
    tokens: Vec<Option<&'d str>>,
    services: Vec<Option<i64>>,
    environments: Vec<Option<i64>>,
}

impl<'d> Columns<'d> {
    fn of(devices: impl Iterator<Item = &'d Device>) -> Result<Self, Error> {
        let mut columns = Self::default();
        for device in devices {
            let Attributes { platform, locale, timezone, app_version, tags } = &device.attributes;
            let token = device.push_token.as_ref();
            columns.users.push(device.user.as_ref().map(UserId::as_str));
            columns.platforms.push(platform.as_deref());
            columns.locales.push(locale.as_deref());
            columns.timezones.push(timezone.as_deref());
            columns.app_versions.push(app_version.as_deref());
            columns.tags.push(tags_text(tags)?);
            columns.tokens.push(token.map(|token| token.json.as_str()));
            columns.services.push(token.map(|token| token.service as i64));
            columns.environments.push(token.map(|token| token.environment as i64));
        }
        Ok(columns)
    }
}

/// Writes what can change: a token's time wherever its device names it, that of the user only with the user.
const UPDATE: &str = "UPDATE devices d SET \"user\" = new.of_user, platform = new.platform, locale = new.locale,
         timezone = new.timezone, app_version = new.app_version, tags = new.tags, push_token = new.push_token,
         push_service = new.push_service, push_environment = new.push_environment,
         push_suspect_at = new.suspect_at, push_suspect_reason = new.suspect_reason,
         push_token_at = CASE WHEN new.push_token IS NULL THEN NULL WHEN new.names_token THEN new.at
                              ELSE d.push_token_at END,
         user_at = CASE WHEN d.\"user\" IS NOT DISTINCT FROM new.of_user THEN d.user_at ELSE new.at END,
         revision = d.revision + new.revises::int
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                 $9::bigint[], $10::bigint[], $11::bigint[], $12::text[], $13::bigint[], $14::bool[], $15::bool[])
         AS new (num, of_user, platform, locale, timezone, app_version, tags, push_token, push_service,
                 push_environment, suspect_at, suspect_reason, at, names_token, revises)
     WHERE d.num = new.num";

/// Their rows are locked.
async fn update_all(tx: &Tx, known: &[&Change]) -> Result<(), Failed> {
    if known.is_empty() {
        return Ok(());
    }
    let devices = || known.iter().map(|change| &change.device);
    let nums: Vec<_> = devices().map(|device| device.num.0 as i64).collect();
    let columns = Columns::of(devices())?;
    let suspects = || devices().map(|device| device.push_suspect.as_ref());
    let suspect_at: Vec<_> = suspects().map(|found| found.map(|found| found.at.0 as i64)).collect();
    let reasons: Vec<_> = suspects().map(|found| found.map(|found| found.reason.as_str())).collect();
    let times: Vec<_> = known.iter().map(|change| change.now.0 as i64).collect();
    let names_token: Vec<_> = known.iter().map(|change| change.renewal.names_token).collect();
    let revises: Vec<_> = known.iter().map(|change| change.renewal.revises()).collect();
    let values: Values<'_> = &[
        &nums,
        &columns.users,
        &columns.platforms,
        &columns.locales,
        &columns.timezones,
        &columns.app_versions,
        &columns.tags,
        &columns.tokens,
        &columns.services,
        &columns.environments,
        &suspect_at,
        &reasons,
        &times,
        &names_token,
        &revises,
    ];
    tx.execute(UPDATE, values).await?;
    Ok(())
}

/// Everything in an inbox goes, and each of it is recorded as cancelled for its device.
const EMPTY: &str = "WITH gone AS (
         DELETE FROM inbox i USING unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS asked (device, list, at)
         WHERE i.device = asked.device RETURNING i.num, asked.list, asked.at)
     INSERT INTO outcomes (num, outcome, at, count, devices) SELECT num, $4, at, 1, list FROM gone ORDER BY num";

async fn empty_inboxes(tx: &Tx, moved: &[&Change]) -> Result<(), Failed> {
    if moved.is_empty() {
        return Ok(());
    }
    let mut devices: Vec<_> = moved.iter().map(|change| (change.device.num, change.now)).collect();
    devices.sort_unstable();
    empty(tx, &devices).await
}

/// With accepts kept out nothing comes in afterwards either.
async fn empty(tx: &Tx, devices: &[(DeviceNum, Timestamp)]) -> Result<(), Failed> {
    let nums: Vec<_> = devices.iter().map(|(num, _)| num.0 as i64).collect();
    let lists: Vec<_> = devices.iter().map(|(num, _)| device_list::encode(&[*num])).collect();
    let times: Vec<_> = devices.iter().map(|(_, now)| now.0 as i64).collect();
    tx.execute(EMPTY, &[&nums, &lists, &times, &(Outcome::Cancelled as i64)]).await?;
    Ok(())
}

async fn locked(tx: &Tx, app: AppId, id: &DeviceId) -> Result<Device, Failed> {
    let found = load(tx, &Keys::of([(app, id)]), Lock::Change).await?.into_values().next();
    Ok(found.ok_or(Error::NotFound)?)
}

async fn update(
    tx: Tx,
    app: AppId,
    id: DeviceId,
    change: DeviceChange,
    now: Timestamp,
) -> Result<Device, Failed> {
    let mut device = locked(&tx, app, &id).await?;
    let renewal = device.change(change)?;
    let mut changes = Changes(vec![Change { i: 0, device, renewal, is_new: false, now }]);
    changes.write(&tx).await?;
    Ok(changes.0.pop().ok_or(Error::NotFound)?.device)
}

async fn delete(tx: Tx, app: AppId, id: DeviceId, now: Timestamp) -> Result<DeviceNum, Failed> {
    let device = locked(&tx, app, &id).await?.num;
    let devices = [(device, now)];
    let num = device.0 as i64;
    let values: Values<'_> = &[&num];
    tx.prepare(&[order::KEEP_OUT, EMPTY, UNSUBSCRIBE_ALL, REMEMBER, DELETE]).await?;
    tokio::try_join!(
        order::keep_accepts_out(&tx),
        empty(&tx, &devices),
        tx.execute(UNSUBSCRIBE_ALL, values),
        tx.execute(REMEMBER, values),
        tx.execute(DELETE, values),
    )?;
    Ok(device)
}

const UNSUBSCRIBE_ALL: &str = "DELETE FROM subscriptions WHERE device = $1";
const REMEMBER: &str = "INSERT INTO deleted_devices (app, id, token_version)
     SELECT app, id, token_version + 1 FROM devices WHERE num = $1
     ON CONFLICT (app, id) DO UPDATE SET token_version = excluded.token_version";
const DELETE: &str = "DELETE FROM devices WHERE num = $1";

/// What was read of the device before does not hold any longer.
const REVISE: &str = "UPDATE devices SET revision = revision + 1 WHERE num = $1";

async fn subscribe(tx: Tx, app: AppId, id: DeviceId, topic: Topic) -> Result<bool, Failed> {
    let device = locked(&tx, app, &id).await?;
    if topic.is_everyone() || device.topics.binary_search(&topic).is_ok() {
        return Ok(false);
    }
    check_topics(device.topics.len() + 1)?;
    let mut subscriptions = NewRows::default();
    subscriptions.push(app, &id, &topic);
    let num = device.num.0 as i64;
    let values: Values<'_> = &[&num];
    tx.prepare(&[topic::MAKE, NewRows::INSERT, REVISE]).await?;
    tokio::try_join!(
        topic::make(&tx, [(app, &topic)]),
        subscriptions.insert(&tx),
        tx.execute(REVISE, values),
    )?;
    Ok(true)
}

/// That to `$everyone` stays.
async fn unsubscribe(tx: Tx, app: AppId, id: DeviceId, topic: Topic) -> Result<bool, Failed> {
    let device = locked(&tx, app, &id).await?;
    if device.topics.binary_search(&topic).is_err() {
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
