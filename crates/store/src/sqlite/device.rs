//! Devices: registration, changes and removal.

use noroshi_types::{AppId, DeviceId, DeviceNum, Outcome, Timestamp, Topic, UserId};

use super::reader::Read;
use super::statement::{Db, ready};
use super::writer::Write;
use super::{Sqlite, inbox, number, revocation, subscription};
use crate::engine::device::{COLUMNS, Effects, device_of, draw_id, id_of, tags_text};
use crate::engine::push_token::TokenWrites;
use crate::engine::record::Record;
use crate::metrics::Held;
use crate::revocation::Subject;
use crate::{
    Attributes, Device, DeviceChange, DeviceFilter, DeviceToken, Error, Issued, Registration, engine,
};

/// Creates or updates devices in one commit.
pub(crate) async fn register_many(
    store: &Sqlite,
    app: AppId,
    devices: Vec<Registration>,
    now: Timestamp,
) -> Result<Vec<Result<Device, Error>>, Error> {
    let work = move |w: &mut Write<'_>, one| {
        w.held.set(Held::Devices);
        register(w, app, one, now)
    };
    store.write_each(devices, |device| 2 + device.topics.len() + device.push_tokens.len(), work).await
}

pub(crate) fn revoke_tokens(
    &Write { db, .. }: &Write<'_>,
    app: AppId,
    device: &DeviceId,
    now: Timestamp,
) -> Result<u32, Error> {
    let sql = format!(
        "UPDATE devices SET token_version = token_version + 1, revision = revision + 1, kept = {ENDED}
         WHERE app = ?1 AND id = ?2 RETURNING token_version"
    );
    let version = db.first(&sql, (app.0, device.as_str()), |row| row.int(0))?.ok_or(Error::NotFound)?;
    ready(engine::device::revoke(db, app, Subject::Device, device.as_str(), now))?;
    Ok(version as u32)
}

pub(crate) async fn revoke_user(
    store: &Sqlite,
    app: AppId,
    user: &UserId,
    now: Timestamp,
) -> Result<Vec<DeviceId>, Error> {
    let (user, counted) = (user.clone(), user.clone());
    let sql = "SELECT count(*) FROM devices WHERE app = ?1 AND user = ?2";
    let devices = store.read(move |read| read.db.int(sql, (app.0, counted.as_str()))).await?;
    let revoke = move |w: &mut Write<'_>| {
        ready(engine::device::revoke(w.db, app, Subject::User, user.as_str(), now))?;
        let sql = format!(
            "UPDATE devices SET token_version = token_version + 1, revision = revision + 1, kept = {ENDED}
             WHERE app = ?1 AND user = ?2 RETURNING id"
        );
        w.db.all(&sql, (app.0, user.as_str()), |row| id_of(row, 0))
    };
    store.write(1 + devices as usize, revoke).await
}

pub(crate) fn subscribe(
    &Write { db, .. }: &Write<'_>,
    app: AppId,
    device: &DeviceId,
    topic: &Topic,
    now: Timestamp,
) -> Result<bool, Error> {
    let num = number::device(db, app, device)?.ok_or(Error::NotFound)?;
    subscription::check_room(db, num, std::slice::from_ref(topic))?;
    let is_new = subscription::add(db, app, num, topic, now)?;
    if is_new {
        revise(db, num)?;
    }
    Ok(is_new)
}

pub(crate) fn unsubscribe(
    &Write { db, .. }: &Write<'_>,
    app: AppId,
    device: &DeviceId,
    topic: &Topic,
) -> Result<bool, Error> {
    let num = number::device(db, app, device)?.ok_or(Error::NotFound)?;
    let removed = subscription::remove(db, app, num, topic)?;
    if removed {
        revise(db, num)?;
    }
    Ok(removed)
}

/// Marks earlier reads of the device as outdated.
fn revise(db: &Db, device: DeviceNum) -> Result<(), Error> {
    db.run("UPDATE devices SET revision = revision + 1 WHERE num = ?1", (device.0 as i64,)).map(drop)
}

pub(super) fn load(db: &Db, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error> {
    let sql = format!("SELECT {} FROM devices d WHERE d.app = ?1 AND d.id = ?2", *COLUMNS);
    let found = db.first(&sql, (app.0, device.as_str()), |row| device_of(row))?;
    let Some(mut device) = found else { return Ok(None) };
    device.topics = subscription::topics(db, device.num)?;
    Ok(Some(device))
}

pub(crate) fn find(read: Read<'_>, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error> {
    load(read.db, app, device)
}

pub(crate) fn list(
    Read { db, .. }: Read<'_>,
    app: AppId,
    filter: &DeviceFilter,
) -> Result<Vec<Device>, Error> {
    let mut devices = ready(engine::device::list(db, app, filter))?;
    for device in &mut devices {
        device.topics = subscription::topics(db, device.num)?;
    }
    Ok(devices)
}

/// Creates or updates one device. The outer error is the engine's and ends the operation; the inner one refuses only
/// this device, before anything of it is written.
pub(super) fn register(
    w: &Write<'_>,
    app: AppId,
    registration: Registration,
    now: Timestamp,
) -> Result<Result<Device, Error>, Error> {
    let id = match &registration.device {
        Some(id) => id.clone(),
        None => draw_id()?,
    };
    let known = load(w.db, app, &id)?;
    if registration.issued != Issued::Elsewhere {
        let of_user = registration.user.as_ref().or_else(|| known.as_ref()?.user.as_ref());
        let revoked = revocation::load(w.db, app, &id, of_user)?;
        if registration.issued.is_revoked(revoked.latest(), now) {
            return Ok(Err(Error::Revoked));
        }
    }
    let is_new = known.is_none();
    let mut device = match known {
        Some(device) => device,
        None => Device { token_version: first_token_version(w.db, app, &id)?, ..Device::fresh(app, id, now) },
    };
    let effects = match device.register(registration, now) {
        Ok(effects) => effects,
        Err(refused) => return Ok(Err(refused)),
    };
    if is_new {
        insert(w.db, &mut device)?;
        subscription::add(w.db, app, device.num, &Topic::everyone(), now)?;
    } else {
        write_back(w, &device, &effects, now)?;
    }
    write_tokens(w.db, device.num, &effects.tokens)?;
    for topic in &effects.new_topics {
        subscription::add(w.db, app, device.num, topic, now)?;
    }
    Ok(Ok(device))
}

/// 1, or greater than every version that a deleted device of the same id used.
fn first_token_version(db: &Db, app: AppId, id: &DeviceId) -> Result<u32, Error> {
    let sql = "SELECT token_version FROM deleted_devices WHERE app = ?1 AND id = ?2";
    Ok(db.first(sql, (app.0, id.as_str()), |row| row.int(0))?.unwrap_or(1) as u32)
}

fn insert(db: &Db, device: &mut Device) -> Result<(), Error> {
    let Attributes { platform, locale, timezone, app_version, tags } = &device.attributes;
    let token = device.push_token.as_ref();
    let mut statement = db.prepare_cached(
        "INSERT INTO devices (app, id, user, platform, locale, timezone, app_version, tags, push_token,
                              token_version, created_at, push_service, push_environment, push_token_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    statement.execute((
        device.app.0,
        device.id.as_str(),
        device.user.as_ref().map(UserId::as_str),
        platform,
        locale,
        timezone,
        app_version,
        tags_text(tags)?,
        token.map(|token| token.json.as_str()),
        device.token_version,
        device.created_at.0 as i64,
        token.map(|token| token.service as u8),
        token.map(|token| token.environment as u8),
        device.push_token_at.map(|at| at.0 as i64),
    ))?;
    device.num = DeviceNum(db.last_insert_rowid() as u64);
    Ok(())
}

/// The state of a session that may not continue: prefixed with [`crate::ENDED_STATE_PREFIX`], once.
const ENDED: &str = "CASE WHEN kept IS NULL THEN X'FF' WHEN substr(kept, 1, 1) = X'FF' THEN kept
                     ELSE CAST(X'FF' || kept AS BLOB) END";

/// Writes the columns that can change. The user's time changes only with the user. A device that gets another user loses
/// its inbox and its endpoints.
fn write_back(w: &Write<'_>, device: &Device, effects: &Effects, now: Timestamp) -> Result<(), Error> {
    let Attributes { platform, locale, timezone, app_version, tags } = &device.attributes;
    let token = device.push_token.as_ref();
    let suspect = device.push_suspect.as_ref();
    let mut statement = w.db.prepare_cached(&format!(
        "UPDATE devices SET user = ?2, platform = ?3, locale = ?4, timezone = ?5, app_version = ?6, tags = ?7,
                            push_token = ?8, push_service = ?9, push_environment = ?10, push_suspect_at = ?11,
                            push_suspect_reason = ?12,
                            push_token_at = ?14,
                            user_at = CASE WHEN user IS ?2 THEN user_at ELSE ?13 END,
                            kept = CASE WHEN user IS ?2 THEN kept ELSE {ENDED} END,
                            revision = revision + ?15
         WHERE num = ?1"
    ))?;
    statement.execute((
        device.num.0 as i64,
        device.user.as_ref().map(UserId::as_str),
        platform,
        locale,
        timezone,
        app_version,
        tags_text(tags)?,
        token.map(|token| token.json.as_str()),
        token.map(|token| token.service as u8),
        token.map(|token| token.environment as u8),
        suspect.map(|suspect| suspect.at.0 as i64),
        suspect.map(|suspect| &suspect.reason),
        now.0 as i64,
        device.push_token_at.map(|at| at.0 as i64),
        effects.revises(),
    ))?;
    if effects.other_user {
        empty(w.db, device.num, now)?;
    }
    Ok(())
}

fn write_tokens(db: &Db, device: DeviceNum, writes: &TokenWrites) -> Result<(), Error> {
    let num = device.0 as i64;
    for key in &writes.removed {
        let sql = "DELETE FROM push_tokens WHERE device = ?1 AND kind = ?2 AND name = ?3";
        db.run(sql, (num, key.kind() as u8, key.name()))?;
    }
    for DeviceToken { key, token, registered_at, suspect, expires_at } in &writes.put {
        let sql = "INSERT OR REPLACE INTO push_tokens (device, kind, name, service, environment, token, registered_at,
                                                       suspect_at, suspect_reason, expires_at)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
        let values = (
            num,
            key.kind() as u8,
            key.name(),
            token.service as u8,
            token.environment as u8,
            token.json.as_str(),
            registered_at.0 as i64,
            suspect.as_ref().map(|suspect| suspect.at.0 as i64),
            suspect.as_ref().map(|suspect| &suspect.reason),
            expires_at.map(|at| at.0 as i64),
        );
        db.run(sql, values)?;
    }
    Ok(())
}

/// Removes what belongs to the device's user: its inbox and its endpoints.
fn empty(db: &Db, device: DeviceNum, now: Timestamp) -> Result<(), Error> {
    inbox::empty(db, device, Outcome::Cancelled, now)?;
    db.run("DELETE FROM endpoints WHERE device = ?1", (device.0 as i64,)).map(drop)
}

pub(crate) fn update(
    w: &Write<'_>,
    app: AppId,
    id: &DeviceId,
    change: DeviceChange,
    now: Timestamp,
) -> Result<Device, Error> {
    let mut device = load(w.db, app, id)?.ok_or(Error::NotFound)?;
    let effects = device.change(change, now)?;
    write_back(w, &device, &effects, now)?;
    write_tokens(w.db, device.num, &effects.tokens)?;
    Ok(device)
}

pub(crate) fn delete(w: &Write<'_>, app: AppId, id: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error> {
    let device = number::device(w.db, app, id)?.ok_or(Error::NotFound)?;
    empty(w.db, device, now)?;
    let num = device.0 as i64;
    w.db.run("DELETE FROM subscriptions WHERE device = ?1", (num,))?;
    let sql = "INSERT OR REPLACE INTO deleted_devices (app, id, token_version, deleted_at)
               SELECT app, id, token_version + 1, ?2 FROM devices WHERE num = ?1";
    w.db.run(sql, (num, now.0 as i64))?;
    ready(engine::device::revoke(w.db, app, Subject::Device, id.as_str(), now))?;
    w.db.run("DELETE FROM devices WHERE num = ?1", (num,))?;
    Ok(device)
}
