//! Reads and writes for residences, for many devices at once.

use std::collections::HashMap;

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};

use crate::Error;
use crate::cells::{Assign, CellNum, Residence};
use crate::engine::cells::residence::{Assignments, CellDevice, DEVICE_COLUMNS, Residences, columns};
use crate::engine::cells::{cell_of, number};
use crate::engine::record::Record;
use crate::postgres::transaction::{Failed, Tx};

/// Names residences among the advisory locks ("resi").
const LOCKS: i32 = 0x7265_7369;

impl Residences for Tx {
    async fn lock(&self, app: AppId) -> Result<(), Failed> {
        let sql = "SELECT pg_advisory_xact_lock($1, $2)";
        self.execute(sql, &[&LOCKS, &app.0.cast_signed()]).await.map(drop)
    }
}

pub(crate) async fn assign(
    tx: &Tx,
    app: AppId,
    devices: &[Assign],
    now: Timestamp,
) -> Result<Vec<Result<Residence, Error>>, Failed> {
    tx.lock(app).await?;
    let known = devices_of(tx, app, devices.iter().map(|one| one.device.as_str()).collect()).await?;
    let named = devices.iter().filter_map(|one| one.user.as_ref().map(UserId::as_str));
    let users: Vec<&str> = named.chain(known.values().filter_map(|known| known.user.as_deref())).collect();
    let sql = "SELECT \"user\", cell FROM cell_users WHERE app = $1 AND \"user\" = ANY ($2) AND until = 0";
    let rows = tx.query(sql, &[&i64::from(app.0), &users]).await?;
    let homes = rows.iter().map(|row| Ok((row.string(0)?, cell_of(row, 1)?)));
    let homes = homes.collect::<Result<_, Error>>()?;
    let mut assignments = Assignments::new(known, homes);
    let answers = devices.iter().map(|one| assignments.assign(app, one)).collect();
    write_homes(tx, app, &assignments.new_homes).await?;
    write_devices(tx, app, &assignments.changed, now).await?;
    Ok(answers)
}

async fn write_homes(tx: &Tx, app: AppId, homes: &HashMap<String, CellNum>) -> Result<(), Failed> {
    if homes.is_empty() {
        return Ok(());
    }
    let (users, cells): (Vec<&str>, Vec<i64>) =
        homes.iter().map(|(user, cell)| (user.as_str(), number(*cell))).unzip();
    let sql = "INSERT INTO cell_users (app, \"user\", cell, until)
               SELECT $1, u, c, 0 FROM unnest($2::text[], $3::bigint[]) AS n (u, c)
               ON CONFLICT (app, \"user\", cell) DO UPDATE SET until = 0";
    tx.execute(sql, &[&i64::from(app.0), &users, &cells]).await.map(drop)
}

async fn write_devices(
    tx: &Tx,
    app: AppId,
    changed: &HashMap<&str, CellDevice>,
    now: Timestamp,
) -> Result<(), Failed> {
    let (devices, users, cells, previous, steps) = columns(changed);
    let sql = "INSERT INTO cell_devices (app, device, \"user\", cell, previous, step, moved_at)
               SELECT $1, d, u, c, p, s, $7
               FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS n (d, u, c, p, s)
               ON CONFLICT (app, device) DO UPDATE SET \"user\" = excluded.\"user\", cell = excluded.cell,
                   previous = excluded.previous, step = excluded.step,
                   moved_at = CASE WHEN cell_devices.step = excluded.step THEN cell_devices.moved_at ELSE $7 END";
    let now = now.0 as i64;
    tx.execute(sql, &[&i64::from(app.0), &devices, &users, &cells, &previous, &steps, &now]).await.map(drop)
}

async fn devices_of(tx: &Tx, app: AppId, names: Vec<&str>) -> Result<HashMap<String, CellDevice>, Failed> {
    let sql =
        format!("SELECT {DEVICE_COLUMNS}, device FROM cell_devices WHERE app = $1 AND device = ANY ($2)");
    let rows = tx.query(&sql, &[&i64::from(app.0), &names]).await?;
    rows.iter().map(|row| Ok((row.string(4)?, CellDevice::of_row(row, 0)?))).collect()
}

pub(crate) async fn arrived(
    tx: &Tx,
    app: AppId,
    devices: &[(DeviceId, CellNum)],
) -> Result<Vec<DeviceId>, Failed> {
    tx.lock(app).await?;
    let names: Vec<&str> = devices.iter().map(|(device, _)| device.as_str()).collect();
    let cells: Vec<i64> = devices.iter().map(|(_, cell)| number(*cell)).collect();
    let sql =
        "UPDATE cell_devices AS d SET step = 3 FROM unnest($2::text[], $3::bigint[]) AS came (device, cell)
               WHERE d.app = $1 AND d.device = came.device AND d.cell = came.cell AND d.step IN (1, 2)";
    tx.execute(sql, &[&i64::from(app.0), &names, &cells]).await?;
    let known = devices_of(tx, app, names).await?;
    let lives = |device: &DeviceId| known.get(device.as_str()).map(|known| known.cell);
    let elsewhere = devices.iter().filter(|(device, cell)| lives(device) != Some(*cell));
    Ok(elsewhere.map(|(device, _)| device.clone()).collect())
}

pub(crate) async fn of_device(tx: &Tx, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Failed> {
    let sql = format!(
        "SELECT {DEVICE_COLUMNS}, app FROM cell_devices
         WHERE device = $1 AND app = ANY ($2::bigint[]) ORDER BY app"
    );
    let apps: Vec<i64> = apps.iter().map(|app| i64::from(app.0)).collect();
    let rows = tx.query(&sql, &[&device.as_str(), &apps]).await?;
    rows.iter().map(|row| Ok(CellDevice::of_row(row, 0)?.residence(row.app(4)?))).collect()
}

/// Each device once.
pub(super) async fn of_devices(
    tx: &Tx,
    app: AppId,
    names: &[&str],
) -> Result<HashMap<String, Residence>, Failed> {
    let found = devices_of(tx, app, names.to_vec()).await?;
    Ok(found.into_iter().map(|(name, device)| (name, device.residence(app))).collect())
}

/// The cells to ask for each user, home first.
pub(crate) async fn of_users(
    tx: &Tx,
    app: AppId,
    users: &[UserId],
    now: Timestamp,
) -> Result<Vec<Vec<CellNum>>, Failed> {
    let names: Vec<&str> = users.iter().map(UserId::as_str).collect();
    let found = of_names(tx, app, &names, now).await?;
    // A name that occurs twice is answered twice.
    Ok(names.iter().map(|name| found.get(*name).cloned().unwrap_or_default()).collect())
}

/// The cells to ask for each user, home first. Users without a cell are missing.
pub(super) async fn of_names(
    tx: &Tx,
    app: AppId,
    names: &[&str],
    now: Timestamp,
) -> Result<HashMap<String, Vec<CellNum>>, Failed> {
    let sql = "SELECT \"user\", cell FROM cell_users
               WHERE app = $1 AND \"user\" = ANY ($2) AND (until = 0 OR until > $3) ORDER BY until";
    let rows = tx.query(sql, &[&i64::from(app.0), &names, &(now.0 as i64)]).await?;
    let mut found: HashMap<String, Vec<CellNum>> = HashMap::new();
    for row in &rows {
        found.entry(row.string(0)?).or_default().push(cell_of(row, 1)?);
    }
    Ok(found)
}
