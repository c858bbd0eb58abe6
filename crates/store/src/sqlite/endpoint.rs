//! Web Push endpoints of devices.

use noroshi_types::{AppId, DeviceId, DeviceNum, EndpointId, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{Sqlite, device};
use crate::endpoint::{EndpointRow, check_room};
use crate::{Endpoint, EndpointHash, Endpoints, Error, NewEndpoint};

#[async_trait::async_trait]
impl Endpoints for Sqlite {
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error> {
        self.write(1, move |w| create(w.db, endpoint, now)).await
    }

    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error> {
        let device = device.clone();
        self.read(move |db| {
            let sql = format!(
                "SELECT {COLUMNS} WHERE d.app = ?1 AND d.id = ?2 AND {LIVES} ORDER BY e.id",
                LIVES = "(e.expires_at IS NULL OR e.expires_at > ?3)"
            );
            let mut statement = db.prepare_cached(&sql)?;
            let values = (app.0, device.as_str(), now.0 as i64);
            statement.query_map(values, row_of)?.map(|row| Endpoint::try_from(row?)).collect()
        })
        .await
    }

    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error> {
        let hash = *hash;
        self.read(move |db| {
            let sql =
                format!("SELECT {COLUMNS} WHERE e.hash = ?1 AND (e.expires_at IS NULL OR e.expires_at > ?2)");
            let mut statement = db.prepare_cached(&sql)?;
            let found = statement.query_row((hash.0, now.0 as i64), row_of).optional()?;
            found.map(Endpoint::try_from).transpose()
        })
        .await
    }

    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error> {
        let device = device.clone();
        self.write(1, move |w| {
            let num = device::number(w.db, app, &device)?.ok_or(Error::NotFound)?;
            let mut statement = w.db.prepare_cached("DELETE FROM endpoints WHERE id = ?1 AND device = ?2")?;
            match statement.execute((id.0 as i64, num.0 as i64))? {
                0 => Err(Error::NotFound),
                _ => Ok(()),
            }
        })
        .await
    }
}

const COLUMNS: &str =
    "e.id, d.app, d.id, e.base, e.vapid_key, e.label, e.idle_urgency, e.created_at, e.expires_at
                       FROM endpoints e JOIN devices d ON d.num = e.device";

fn row_of(row: &Row<'_>) -> rusqlite::Result<EndpointRow> {
    Ok(EndpointRow {
        id: row.get(0)?,
        app: AppId(row.get(1)?),
        device: row.get(2)?,
        base: row.get(3)?,
        vapid_key: row.get(4)?,
        label: row.get(5)?,
        idle_urgency: row.get(6)?,
        created_at: row.get(7)?,
        expires_at: row.get(8)?,
    })
}

fn create(db: &Connection, new: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error> {
    let device = device::number(db, new.app, &new.device)?.ok_or(Error::NotFound)?;
    let num = device.0 as i64;
    db.prepare_cached("DELETE FROM endpoints WHERE device = ?1 AND expires_at <= ?2")?
        .execute((num, now.0 as i64))?;
    let mut count = db.prepare_cached("SELECT count(*) FROM endpoints WHERE device = ?1")?;
    check_room(count.query_row((num,), |row| row.get(0))?)?;
    let mut insert = db.prepare_cached(
        "INSERT INTO endpoints (hash, device, base, vapid_key, label, idle_urgency, created_at, expires_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )?;
    insert.execute((
        new.hash.0,
        num,
        &new.base,
        new.vapid_key.as_ref().map(<[u8; 65]>::as_slice),
        &new.label,
        new.idle_urgency as u8,
        now.0 as i64,
        new.expires_at.map(|at| at.0 as i64),
    ))?;
    Ok(new.numbered(db.last_insert_rowid(), now))
}

/// Nobody reaches the device by them any more.
pub(super) fn remove_all(db: &Connection, device: DeviceNum) -> Result<(), Error> {
    db.prepare_cached("DELETE FROM endpoints WHERE device = ?1")?.execute((device.0 as i64,))?;
    Ok(())
}
