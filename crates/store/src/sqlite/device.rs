//! Devices: registration, changes, removal.

use noroshi_types::{AppId, DeviceId, DeviceNum, Outcome, Timestamp, Topic, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

use super::writer::Write;
use super::{Sqlite, endpoint, inbox, revocation, subscription};
use crate::device::{Renewal, draw_id, tags_of, tags_text, token_of};
use crate::revocation::Subject;
use crate::{
    Attributes, Device, DeviceChange, DeviceFilter, Devices, Error, Issued, Registration, Revocation, Suspect,
};

#[async_trait::async_trait]
impl Devices for Sqlite {
    async fn register(
        &self,
        app: AppId,
        devices: Vec<Registration>,
        now: Timestamp,
    ) -> Result<Vec<Result<Device, Error>>, Error> {
        let rows = devices.iter().map(|device| 2 + device.topics.len()).sum();
        self.write(rows, move |w| devices.into_iter().map(|one| register(w, app, one, now)).collect()).await
    }

    async fn device(&self, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error> {
        let device = device.clone();
        self.read(move |db| load(db, app, &device)).await
    }

    async fn devices(&self, app: AppId, filter: DeviceFilter) -> Result<Vec<Device>, Error> {
        self.read(move |db| list(db, app, &filter)).await
    }

    async fn update_device(
        &self,
        app: AppId,
        device: &DeviceId,
        change: DeviceChange,
        now: Timestamp,
    ) -> Result<Device, Error> {
        let device = device.clone();
        self.write(1, move |w| update(w, app, &device, change, now)).await
    }

    async fn delete_device(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error> {
        let device = device.clone();
        self.write(1, move |w| delete(w, app, &device, now)).await
    }

    async fn revoke_tokens(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<u32, Error> {
        let device = device.clone();
        self.write(2, move |w| {
            let sql = format!(
                "UPDATE devices SET token_version = token_version + 1, revision = revision + 1, kept = {ENDED}
                 WHERE app = ?1 AND id = ?2 RETURNING token_version"
            );
            let mut statement = w.db.prepare_cached(&sql)?;
            let version = statement.query_row((app.0, device.as_str()), |row| row.get(0)).optional()?;
            let version = version.ok_or(Error::NotFound)?;
            revocation::revoke(w, app, Subject::Device, device.as_str(), now)?;
            Ok(version)
        })
        .await
    }

    async fn revoke_user(&self, app: AppId, user: &UserId, now: Timestamp) -> Result<Vec<DeviceId>, Error> {
        let (user, counted) = (user.clone(), user.clone());
        let devices = self.read(move |db| {
            let sql = "SELECT count(*) FROM devices WHERE app = ?1 AND user = ?2";
            Ok(db.prepare_cached(sql)?.query_row((app.0, counted.as_str()), |row| row.get::<_, i64>(0))?)
        });
        let rows = 1 + devices.await? as usize;
        self.write(rows, move |w| {
            revocation::revoke(w, app, Subject::User, user.as_str(), now)?;
            let sql = format!(
                "UPDATE devices SET token_version = token_version + 1, revision = revision + 1, kept = {ENDED}
                 WHERE app = ?1 AND user = ?2 RETURNING id"
            );
            let mut statement = w.db.prepare_cached(&sql)?;
            let ids = statement.query_map((app.0, user.as_str()), |row| row.get::<_, String>(0))?;
            let wrong = |error| Error::Engine(format!("a stored device: {error}"));
            ids.map(|id| DeviceId::parse(&id?).map_err(wrong)).collect()
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
        self.write(1, move |w| {
            let num = number(w.db, app, &device)?.ok_or(Error::NotFound)?;
            subscription::check_room(w.db, num, std::slice::from_ref(&topic))?;
            let is_new = subscription::add(w.db, app, num, &topic)?;
            if is_new {
                revise(w.db, num)?;
            }
            Ok(is_new)
        })
        .await
    }

    async fn unsubscribe(&self, app: AppId, device: &DeviceId, topic: &Topic) -> Result<bool, Error> {
        let (device, topic) = (device.clone(), topic.clone());
        self.write(1, move |w| {
            let num = number(w.db, app, &device)?.ok_or(Error::NotFound)?;
            let removed = subscription::remove(w.db, app, num, &topic)?;
            if removed {
                revise(w.db, num)?;
            }
            Ok(removed)
        })
        .await
    }
}

const COLUMNS: &str = "num, app, id, user, platform, locale, timezone, app_version, tags, push_token, token_version, \
                       created_at, push_service, push_environment, push_suspect_at, push_suspect_reason, \
                       (SELECT r.revoked_at FROM revocations r WHERE r.app = devices.app AND r.kind = 0 AND r.id = devices.id), \
                       (SELECT r.revoked_at FROM revocations r WHERE r.app = devices.app AND r.kind = 1 AND r.id = devices.user)";

/// The device of a row of [`COLUMNS`], its topics still missing.
fn device_of(row: &Row<'_>) -> Result<Device, Error> {
    let wrong = |error| Error::Engine(format!("a stored device: {error}"));
    let text = |column| row.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from);
    let suspect_at: Option<i64> = row.get(14)?;
    Ok(Device {
        num: DeviceNum(row.get::<_, i64>(0)? as u64),
        app: AppId(row.get(1)?),
        id: DeviceId::parse(text(2)?.unwrap_or_default()).map_err(wrong)?,
        user: text(3)?.map(UserId::parse).transpose().map_err(wrong)?,
        attributes: attributes_of(row, 4)?,
        topics: Vec::new(),
        push_token: token_of(row.get(9)?, row.get(12)?, row.get(13)?),
        push_suspect: match suspect_at {
            Some(at) => Some(Suspect {
                at: Timestamp(at as u64),
                reason: row.get::<_, Option<String>>(15)?.unwrap_or_default(),
            }),
            None => None,
        },
        token_version: row.get(10)?,
        revoked: Revocation {
            device: row.get::<_, Option<i64>>(16)?.map(|at| Timestamp(at as u64)),
            user: row.get::<_, Option<i64>>(17)?.map(|at| Timestamp(at as u64)),
        },
        created_at: Timestamp(row.get::<_, i64>(11)? as u64),
    })
}

/// Of `platform, locale, timezone, app_version, tags` from column `first` on.
pub(super) fn attributes_of(row: &Row<'_>, first: usize) -> Result<Attributes, Error> {
    let tags = row.get_ref(first + 4)?.as_str_or_null().map_err(rusqlite::Error::from)?;
    Ok(Attributes {
        platform: row.get(first)?,
        locale: row.get(first + 1)?,
        timezone: row.get(first + 2)?,
        app_version: row.get(first + 3)?,
        tags: tags_of(tags)?,
    })
}

pub(super) fn number(db: &Connection, app: AppId, device: &DeviceId) -> Result<Option<DeviceNum>, Error> {
    let mut statement = db.prepare_cached("SELECT num FROM devices WHERE app = ?1 AND id = ?2")?;
    let num = statement.query_row((app.0, device.as_str()), |row| row.get::<_, i64>(0)).optional()?;
    Ok(num.map(|num| DeviceNum(num as u64)))
}

/// What was read of the device does not hold any longer.
fn revise(db: &Connection, device: DeviceNum) -> Result<(), Error> {
    db.prepare_cached("UPDATE devices SET revision = revision + 1 WHERE num = ?1")?
        .execute((device.0 as i64,))?;
    Ok(())
}

pub(super) fn load(db: &Connection, app: AppId, device: &DeviceId) -> Result<Option<Device>, Error> {
    let mut statement =
        db.prepare_cached(&format!("SELECT {COLUMNS} FROM devices WHERE app = ?1 AND id = ?2"))?;
    let found = statement.query_row((app.0, device.as_str()), |row| Ok(device_of(row))).optional()?;
    let Some(mut device) = found.transpose()? else { return Ok(None) };
    device.topics = subscription::topics(db, device.num)?;
    Ok(Some(device))
}

fn list(db: &Connection, app: AppId, filter: &DeviceFilter) -> Result<Vec<Device>, Error> {
    let by_user = if filter.user.is_some() { "user = ?4" } else { "?4 IS NULL" };
    let sql = format!(
        "SELECT {COLUMNS} FROM devices WHERE app = ?1 AND num > ?2 AND {by_user} ORDER BY num LIMIT ?3"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let after = filter.after.map_or(0, |num| num.0 as i64);
    let user = filter.user.as_ref().map(UserId::as_str);
    let rows = statement.query_map((app.0, after, filter.limit as i64, user), |row| Ok(device_of(row)))?;
    let mut devices = rows.map(|row| row?).collect::<Result<Vec<_>, Error>>()?;
    for device in &mut devices {
        device.topics = subscription::topics(db, device.num)?;
    }
    Ok(devices)
}

/// Makes or updates one device. The outer error is the engine's and ends the operation; the inner
/// one refuses this device alone, before anything of it was written.
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
    let renewal = match device.register(registration) {
        Ok(renewal) => renewal,
        Err(refused) => return Ok(Err(refused)),
    };
    if is_new {
        insert(w.db, &mut device)?;
        subscription::add(w.db, app, device.num, &Topic::everyone())?;
    } else {
        write_back(w, &device, &renewal, now)?;
    }
    for topic in &renewal.new_topics {
        subscription::add(w.db, app, device.num, topic)?;
    }
    Ok(Ok(device))
}

/// 1, or above every version a deleted device of the same id has used.
fn first_token_version(db: &Connection, app: AppId, id: &DeviceId) -> Result<u32, Error> {
    let mut statement =
        db.prepare_cached("SELECT token_version FROM deleted_devices WHERE app = ?1 AND id = ?2")?;
    Ok(statement.query_row((app.0, id.as_str()), |row| row.get(0)).optional()?.unwrap_or(1))
}

fn insert(db: &Connection, device: &mut Device) -> Result<(), Error> {
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
        token.map(|_| device.created_at.0 as i64),
    ))?;
    device.num = DeviceNum(db.last_insert_rowid() as u64);
    Ok(())
}

/// What is kept of a session that may not go on: marked with [`crate::KEPT_ENDED`], once.
const ENDED: &str = "CASE WHEN kept IS NULL THEN X'FF' WHEN substr(kept, 1, 1) = X'FF' THEN kept
                     ELSE CAST(X'FF' || kept AS BLOB) END";

/// Writes what can change (a token's time wherever its device names it, that of the user only with the user),
/// and takes from a device of another user what is the first one's: its inbox and its endpoints.
fn write_back(w: &Write<'_>, device: &Device, renewal: &Renewal, now: Timestamp) -> Result<(), Error> {
    let Attributes { platform, locale, timezone, app_version, tags } = &device.attributes;
    let token = device.push_token.as_ref();
    let suspect = device.push_suspect.as_ref();
    let mut statement = w.db.prepare_cached(&format!(
        "UPDATE devices SET user = ?2, platform = ?3, locale = ?4, timezone = ?5, app_version = ?6, tags = ?7,
                            push_token = ?8, push_service = ?9, push_environment = ?10, push_suspect_at = ?11,
                            push_suspect_reason = ?12,
                            push_token_at = CASE WHEN ?8 IS NULL THEN NULL WHEN ?14 THEN ?13 ELSE push_token_at END,
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
        renewal.names_token,
        renewal.revises(),
    ))?;
    if renewal.other_user {
        inbox::empty(w.db, device.num, Outcome::Cancelled, now)?;
        endpoint::remove_all(w.db, device.num)?;
    }
    Ok(())
}

fn update(
    w: &Write<'_>,
    app: AppId,
    id: &DeviceId,
    change: DeviceChange,
    now: Timestamp,
) -> Result<Device, Error> {
    let mut device = load(w.db, app, id)?.ok_or(Error::NotFound)?;
    let renewal = device.change(change)?;
    write_back(w, &device, &renewal, now)?;
    Ok(device)
}

fn delete(w: &Write<'_>, app: AppId, id: &DeviceId, now: Timestamp) -> Result<DeviceNum, Error> {
    let device = number(w.db, app, id)?.ok_or(Error::NotFound)?;
    inbox::empty(w.db, device, Outcome::Cancelled, now)?;
    endpoint::remove_all(w.db, device)?;
    let num = device.0 as i64;
    w.db.prepare_cached("DELETE FROM subscriptions WHERE device = ?1")?.execute((num,))?;
    w.db.prepare_cached(
        "INSERT OR REPLACE INTO deleted_devices (app, id, token_version)
         SELECT app, id, token_version + 1 FROM devices WHERE num = ?1",
    )?
    .execute((num,))?;
    revocation::revoke(w, app, Subject::Device, id.as_str(), now)?;
    w.db.prepare_cached("DELETE FROM devices WHERE num = ?1")?.execute((num,))?;
    Ok(device)
}
