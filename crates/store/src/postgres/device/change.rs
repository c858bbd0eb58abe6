//! Writes any number of devices at once: new and changed devices, their subscriptions, and the inboxes of devices
//! that got another user. [`super`] has the order of locks.

use std::collections::{HashMap, HashSet};

use noroshi_types::{DeviceNum, Outcome, Timestamp, Topic, UserId};
use tokio_postgres::Row;

use super::{Keys, tokens};
use crate::engine::device::{Effects, tags_text};
use crate::engine::device_list;
use crate::postgres::columns::columns;
use crate::postgres::subscription::NewRows;
use crate::postgres::transaction::{Failed, Tx, Values};
use crate::postgres::{order, topic};
use crate::{Attributes, Device, Error};

/// The new state of a device.
pub(super) struct Change {
    /// Its index in the answers.
    pub(super) i: usize,
    pub(super) device: Device,
    pub(super) effects: Effects,
    pub(super) is_new: bool,
    pub(super) now: Timestamp,
}

/// Changes that are written together.
#[derive(Default)]
pub(super) struct Changes(pub(super) Vec<Change>);

impl Changes {
    /// All statements go out together.
    pub(super) async fn write(&mut self, tx: &Tx) -> Result<(), Failed> {
        let new: Vec<&Change> = self.0.iter().filter(|change| change.is_new).collect();
        let known: Vec<&Change> = self.0.iter().filter(|change| !change.is_new).collect();
        let moved: Vec<&Change> = known.iter().copied().filter(|change| change.effects.other_user).collect();
        let everyone = Topic::everyone();
        let (mut subscriptions, mut tokens) = (NewRows::default(), tokens::Writes::default());
        let mut topics = HashSet::new();
        for Change { device, effects, is_new, now, .. } in &self.0 {
            tokens.add(device, &effects.tokens);
            for topic in is_new.then_some(&everyone).into_iter().chain(&effects.new_topics) {
                subscriptions.push(device.app, &device.id, topic, *now);
                topics.insert((device.app, topic));
            }
        }
        tx.prepare(&[
            order::KEEP_OUT,
            INSERT,
            REVOKED,
            UPDATE,
            topic::CREATE,
            NewRows::INSERT,
            EMPTY,
            REMOVE_ENDPOINTS,
            tokens::REMOVE,
            tokens::PUT,
        ])
        .await?;
        let (_, made, _, _, _, _, _) = tokio::try_join!(
            keep_accepts_out(tx, &moved),
            insert(tx, &new),
            update_all(tx, &known),
            topic::create(tx, topics),
            subscriptions.insert(tx),
            empty_inboxes(tx, &moved),
            tokens.write(tx),
        )?;
        for change in self.0.iter_mut().filter(|change| change.is_new) {
            let key = (i64::from(change.device.app.0), change.device.id.as_str().to_owned());
            // Not created: it existed already.
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
         new.push_token_at, 1, new.created_at
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                 $9::text[], $10::bigint[], $11::bigint[], $12::bigint[], $13::bigint[])
         AS new (app, id, of_user, platform, locale, timezone, app_version, tags, push_token, push_service,
                 push_environment, push_token_at, created_at)
     ORDER BY new.app, new.id ON CONFLICT (app, id) DO NOTHING RETURNING app, id, num";

/// Continues the token versions of deleted devices with the same ids. A separate statement, which sees the state
/// before the new rows.
const REVOKED: &str = "UPDATE devices d SET token_version = gone.token_version
     FROM unnest($1::bigint[], $2::text[]) AS asked (app, id)
     JOIN deleted_devices gone ON gone.app = asked.app AND gone.id = asked.id
     WHERE d.app = asked.app AND d.id = asked.id AND d.token_version < gone.token_version
     RETURNING d.app, d.id, d.token_version";

/// Numbers and token versions of created devices.
type CreatedDevices = HashMap<(i64, String), (DeviceNum, u32)>;

async fn insert(tx: &Tx, new: &[&Change]) -> Result<CreatedDevices, Failed> {
    if new.is_empty() {
        return Ok(CreatedDevices::default());
    }
    let devices = || new.iter().map(|change| &change.device);
    let keys = Keys::of(devices().map(|device| (device.app, &device.id)));
    let columns = Columns::of(devices())?;
    let created: Vec<_> = devices().map(|device| device.created_at.0 as i64).collect();
    let asked: Values<'_> = &[&keys.apps, &keys.ids];
    let values = [asked, &columns.values(), &[&created]].concat();
    let (made, revoked) = tokio::try_join!(tx.query(INSERT, &values), tx.query(REVOKED, asked))?;
    let num_of = |row: &Row| DeviceNum(row.get::<_, i64>(2) as u64);
    let mut made: CreatedDevices =
        made.iter().map(|row| ((row.get(0), row.get(1)), (num_of(row), 1))).collect();
    for row in revoked {
        if let Some((_, version)) = made.get_mut(&(row.get(0), row.get(1))) {
            *version = row.get::<_, i64>(2) as u32;
        }
    }
    Ok(made)
}

columns! {
    /// Attributes of devices.
    Columns<'d> {
        users: Option<&'d str>, platforms: Option<&'d str>, locales: Option<&'d str>, timezones: Option<&'d str>,
        app_versions: Option<&'d str>, tags: Option<String>, tokens: Option<&'d str>, services: Option<i64>,
        environments: Option<i64>, token_times: Option<i64>,
    }
}

impl<'d> Columns<'d> {
    fn of(devices: impl Iterator<Item = &'d Device>) -> Result<Self, Error> {
        let mut columns = Self::default();
        for device in devices {
            let Attributes { platform, locale, timezone, app_version, tags } = &device.attributes;
            let token = device.push_token.as_ref();
            columns.push_row((
                device.user.as_ref().map(UserId::as_str),
                platform.as_deref(),
                locale.as_deref(),
                timezone.as_deref(),
                app_version.as_deref(),
                tags_text(tags)?,
                token.map(|token| token.json.as_str()),
                token.map(|token| token.service as i64),
                token.map(|token| token.environment as i64),
                device.push_token_at.map(|at| at.0 as i64),
            ));
        }
        Ok(columns)
    }
}

/// Writes the columns that can change. The user's time changes only with the user.
const UPDATE: &str = "UPDATE devices d SET \"user\" = new.of_user, platform = new.platform, locale = new.locale,
         timezone = new.timezone, app_version = new.app_version, tags = new.tags, push_token = new.push_token,
         push_service = new.push_service, push_environment = new.push_environment,
         push_suspect_at = new.suspect_at, push_suspect_reason = new.suspect_reason,
         push_token_at = new.push_token_at,
         user_at = CASE WHEN d.\"user\" IS NOT DISTINCT FROM new.of_user THEN d.user_at ELSE new.at END,
         kept = CASE WHEN d.\"user\" IS NOT DISTINCT FROM new.of_user OR substr(d.kept, 1, 1) = '\\xff'::bytea
                     THEN d.kept ELSE '\\xff'::bytea || coalesce(d.kept, ''::bytea) END,
         revision = d.revision + new.revises::int
     FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
                 $9::bigint[], $10::bigint[], $11::bigint[], $12::bigint[], $13::text[], $14::bigint[], $15::bool[])
         AS new (num, of_user, platform, locale, timezone, app_version, tags, push_token, push_service,
                 push_environment, push_token_at, suspect_at, suspect_reason, at, revises)
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
    let revises: Vec<_> = known.iter().map(|change| change.effects.revises()).collect();
    let more: Values<'_> = &[&suspect_at, &reasons, &times, &revises];
    let values = [&[&nums as _], &columns.values()[..], more].concat();
    tx.execute(UPDATE, &values).await?;
    Ok(())
}

/// Removes all rows of inboxes and records them as cancelled.
pub(super) const EMPTY: &str = "WITH found AS (
         SELECT i.device, i.num, asked.list, asked.at
         FROM unnest($1::bigint[], $2::bytea[], $3::bigint[]) AS asked (device, list, at)
         JOIN inbox i ON i.device = asked.device ORDER BY i.device, i.num FOR UPDATE OF i),
     gone AS (
         DELETE FROM inbox i USING found WHERE i.device = found.device AND i.num = found.num
         RETURNING i.num, found.list, found.at)
     INSERT INTO outcomes (num, outcome, at, count, devices) SELECT num, $4, at, 1, list FROM gone ORDER BY num";

/// Removes the endpoints of these devices, whose rows are locked.
pub(super) const REMOVE_ENDPOINTS: &str = "DELETE FROM endpoints WHERE device = ANY($1::bigint[])";

async fn empty_inboxes(tx: &Tx, moved: &[&Change]) -> Result<(), Failed> {
    if moved.is_empty() {
        return Ok(());
    }
    let mut devices: Vec<_> = moved.iter().map(|change| (change.device.num, change.now)).collect();
    devices.sort_unstable();
    empty(tx, &devices).await
}

/// Removes what belongs to the devices' users: inboxes and endpoints. While accepts are kept out, no new rows follow.
pub(super) async fn empty(tx: &Tx, devices: &[(DeviceNum, Timestamp)]) -> Result<(), Failed> {
    let nums: Vec<_> = devices.iter().map(|(num, _)| num.0 as i64).collect();
    let lists: Vec<_> = devices.iter().map(|(num, _)| device_list::encode(&[*num])).collect();
    let times: Vec<_> = devices.iter().map(|(_, now)| now.0 as i64).collect();
    let cancelled = Outcome::Cancelled as i64;
    let (inboxes, endpoints): (Values<'_>, Values<'_>) = (&[&nums, &lists, &times, &cancelled], &[&nums]);
    tokio::try_join!(tx.execute(EMPTY, inboxes), tx.execute(REMOVE_ENDPOINTS, endpoints))?;
    Ok(())
}
