//! Web Push endpoints of devices.

use noroshi_types::{AppId, DeviceId, EndpointId, Timestamp, Urgency, limits};

use super::record::{Record, invalid, to_array, unknown};
use super::session::{self, Session, values};
use crate::{Endpoint, EndpointHash, Error, NewEndpoint, VapidKey};

const COLUMNS: &str =
    "e.id, d.app, d.id, e.base, e.vapid_key, e.label, e.idle_urgency, e.created_at, e.expires_at
     FROM endpoints e JOIN devices d ON d.num = e.device";

fn endpoint_of(row: &dyn Record) -> Result<Endpoint, Error> {
    Ok(Endpoint {
        id: EndpointId(row.count(0)?),
        app: row.app(1)?,
        device: DeviceId::parse(row.text(2)?).map_err(|error| invalid("device id", error))?,
        base: row.string(3)?,
        vapid_key: row.bytes_or_null(4)?.map(to_array).transpose()?,
        label: row.string_or_null(5)?,
        idle_urgency: Urgency::from_code(row.code(6)?).ok_or_else(|| unknown("urgency"))?,
        created_at: row.time(7)?,
        expires_at: row.time_or_null(8)?,
    })
}

/// The device's number; its row is locked, so that what depends on the device changes in order.
async fn lock_device<S: Session>(session: &S, app: AppId, device: &DeviceId) -> Result<i64, S::Error> {
    let sql = format!("SELECT num FROM devices WHERE app = $1 AND id = $2 {}", S::FOR_NO_KEY_UPDATE);
    let num = session::first(session, &sql, &values![app, device.as_str()], |row| row.int(0)).await?;
    Ok(num.ok_or(Error::NotFound)?)
}

pub(crate) async fn create<S: Session>(
    session: &S,
    new: &NewEndpoint,
    now: Timestamp,
) -> Result<Endpoint, S::Error> {
    let num = lock_device(session, new.app, &new.device).await?;
    let sql = "DELETE FROM endpoints WHERE device = $1 AND expires_at <= $2";
    session.execute(sql, &values![num, now]).await?;
    let sql = "SELECT count(*) FROM endpoints WHERE device = $1";
    let count = session::one(session, sql, &values![num], |row| row.count(0)).await?;
    let max = limits::ENDPOINTS_PER_DEVICE_MAX;
    if count >= max as u64 {
        return Err(Error::Limit(format!("a device has at most {max} endpoints")).into());
    }
    let NewEndpoint { app, device, hash, base, vapid_key, label, idle_urgency, expires_at } = new.clone();
    let sql =
        "INSERT INTO endpoints (hash, device, base, vapid_key, label, idle_urgency, created_at, expires_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
    let key = vapid_key.as_ref().map(VapidKey::as_slice);
    let values = values![&hash.0, num, &base, key, label.as_ref(), idle_urgency as u8, now, expires_at];
    let id = EndpointId(session::one(session, sql, &values, |row| row.count(0)).await?);
    Ok(Endpoint { id, app, device, base, vapid_key, label, idle_urgency, created_at: now, expires_at })
}

pub(crate) async fn of_device<S: Session>(
    session: &S,
    app: AppId,
    device: &DeviceId,
    now: Timestamp,
) -> Result<Vec<Endpoint>, S::Error> {
    let sql = format!(
        "SELECT {COLUMNS} WHERE d.app = $1 AND d.id = $2 AND (e.expires_at IS NULL OR e.expires_at > $3)
         ORDER BY e.id"
    );
    session.query(&sql, &values![app, device.as_str(), now], endpoint_of).await
}

pub(crate) async fn find<S: Session>(
    session: &S,
    hash: &EndpointHash,
    now: Timestamp,
) -> Result<Option<Endpoint>, S::Error> {
    let sql = format!("SELECT {COLUMNS} WHERE e.hash = $1 AND (e.expires_at IS NULL OR e.expires_at > $2)");
    session::first(session, &sql, &values![&hash.0, now], endpoint_of).await
}

pub(crate) async fn delete<S: Session>(
    session: &S,
    app: AppId,
    device: &DeviceId,
    id: EndpointId,
) -> Result<(), S::Error> {
    let num = lock_device(session, app, device).await?;
    session::change(session, "DELETE FROM endpoints WHERE id = $1 AND device = $2", &values![id.0, num]).await
}
