//! Web Push endpoints of devices. Whoever adds or removes one has the device's row locked, as everybody who changes
//! what hangs on a device (see [`super::device`]).

use noroshi_types::{AppId, DeviceId, EndpointId, Timestamp};
use tokio_postgres::Row;

use super::Postgres;
use super::transaction::{Failed, Tx, Values};
use crate::endpoint::{EndpointRow, check_room};
use crate::{Endpoint, EndpointHash, Endpoints, Error, NewEndpoint};

#[async_trait::async_trait]
impl Endpoints for Postgres {
    async fn create_endpoint(&self, endpoint: NewEndpoint, now: Timestamp) -> Result<Endpoint, Error> {
        self.write(move |tx| create(tx, endpoint.clone(), now)).await
    }

    async fn endpoints(&self, app: AppId, device: &DeviceId, now: Timestamp) -> Result<Vec<Endpoint>, Error> {
        let (app, now) = (i64::from(app.0), now.0 as i64);
        self.read(async |tx: Tx| {
            let sql = format!(
                "SELECT {COLUMNS} WHERE d.app = $1 AND d.id = $2 AND (e.expires_at IS NULL OR e.expires_at > $3)
                 ORDER BY e.id"
            );
            let rows = tx.query(&sql, &[&app, &device.as_str(), &now]).await?;
            rows.iter().map(|row| Ok(row_of(row).try_into()?)).collect()
        })
        .await
    }

    async fn endpoint(&self, hash: &EndpointHash, now: Timestamp) -> Result<Option<Endpoint>, Error> {
        let (hash, now) = (hash.0, now.0 as i64);
        self.read(async |tx: Tx| {
            let sql =
                format!("SELECT {COLUMNS} WHERE e.hash = $1 AND (e.expires_at IS NULL OR e.expires_at > $2)");
            let found = tx.query_opt(&sql, &[&&hash[..], &now]).await?;
            Ok(found.map(|row| row_of(&row).try_into()).transpose()?)
        })
        .await
    }

    async fn delete_endpoint(&self, app: AppId, device: &DeviceId, id: EndpointId) -> Result<(), Error> {
        let device = device.clone();
        self.write(move |tx| {
            let device = device.clone();
            async move {
                let num = lock(&tx, app, &device).await?;
                let sql = "DELETE FROM endpoints WHERE id = $1 AND device = $2";
                match tx.execute(sql, &[&(id.0 as i64), &num]).await? {
                    0 => Err(Error::NotFound.into()),
                    _ => Ok(()),
                }
            }
        })
        .await
    }
}

const COLUMNS: &str =
    "e.id, d.app, d.id, e.base, e.vapid_key, e.label, e.idle_urgency, e.created_at, e.expires_at
                       FROM endpoints e JOIN devices d ON d.num = e.device";

/// Nobody reaches these devices by them any more; their rows are locked.
pub(super) const REMOVE_ALL: &str = "DELETE FROM endpoints WHERE device = ANY($1::bigint[])";

fn row_of(row: &Row) -> EndpointRow {
    EndpointRow {
        id: row.get(0),
        app: AppId(row.get::<_, i64>(1) as u32),
        device: row.get(2),
        base: row.get(3),
        vapid_key: row.get(4),
        label: row.get(5),
        idle_urgency: row.get::<_, i64>(6) as u8,
        created_at: row.get(7),
        expires_at: row.get(8),
    }
}

/// The device's number.
async fn lock(tx: &Tx, app: AppId, device: &DeviceId) -> Result<i64, Failed> {
    let sql = "SELECT num FROM devices WHERE app = $1 AND id = $2 FOR NO KEY UPDATE";
    let found = tx.query_opt(sql, &[&i64::from(app.0), &device.as_str()]).await?;
    Ok(found.ok_or(Error::NotFound)?.get(0))
}

async fn create(tx: Tx, new: NewEndpoint, now: Timestamp) -> Result<Endpoint, Failed> {
    let device = lock(&tx, new.app, &new.device).await?;
    let created_at = now.0 as i64;
    tx.execute("DELETE FROM endpoints WHERE device = $1 AND expires_at <= $2", &[&device, &created_at])
        .await?;
    let count = tx.query_one("SELECT count(*) FROM endpoints WHERE device = $1", &[&device]).await?;
    check_room(count.get(0))?;
    let sql =
        "INSERT INTO endpoints (hash, device, base, vapid_key, label, idle_urgency, created_at, expires_at)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8) RETURNING id";
    let (hash, vapid_key) = (&new.hash.0[..], new.vapid_key.as_ref().map(<[u8; 65]>::as_slice));
    let expires_at = new.expires_at.map(|at| at.0 as i64);
    let values: Values<'_> = &[
        &hash,
        &device,
        &new.base,
        &vapid_key,
        &new.label,
        &(new.idle_urgency as i64),
        &created_at,
        &expires_at,
    ];
    let id = tx.query_one(sql, values).await?.get(0);
    Ok(new.numbered(id, now))
}
