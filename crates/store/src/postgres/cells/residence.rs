//! Who lives in which cell, and who is on the way to another.
//!
//! Whoever decides about an app's devices does so under that app's advisory lock, so that two fronts never give one
//! user two homes. What is only read needs none.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};
use tokio_postgres::Row;

use super::{cell_of, number};
use crate::Error;
use crate::cells::{Assign, CellNum, Kept, Move, MoveStep, Population, Relocated, Relocation, Residence};
use crate::postgres::transaction::{Failed, Tx};

/// Stands for assignments among the advisory locks ("resi").
const LOCKS: i32 = 0x7265_7369;

async fn lock(tx: &Tx, app: AppId) -> Result<(), Failed> {
    tx.execute("SELECT pg_advisory_xact_lock($1, $2)", &[&LOCKS, &app.0.cast_signed()]).await.map(drop)
}

pub(super) async fn assign(
    tx: Tx,
    app: AppId,
    devices: Arc<Vec<Assign>>,
    now: Timestamp,
) -> Result<Vec<Result<Residence, Error>>, Failed> {
    lock(&tx, app).await?;
    let mut kept = kept(&tx, app, devices.iter().map(|one| one.device.as_str()).collect()).await?;
    let named = devices.iter().filter_map(|one| one.user.as_ref().map(UserId::as_str));
    let users: Vec<&str> = named.chain(kept.values().filter_map(|kept| kept.user.as_deref())).collect();
    let mut homes = homes(&tx, app, &users).await?;
    let (mut answers, mut new_homes) = (Vec::with_capacity(devices.len()), HashMap::new());
    let mut changed: HashMap<&str, Kept> = HashMap::new();
    for one in devices.iter() {
        let before = kept.remove(one.device.as_str());
        let named = one.user.as_ref().map(UserId::as_str);
        let user = named.or(before.as_ref().and_then(|kept| kept.user.as_deref())).map(str::to_owned);
        let home = user.as_ref().and_then(|user| homes.get(user).copied());
        // A user's first device brings its user along.
        let home = home.or(before.as_ref().map(|kept| kept.cell)).unwrap_or(one.fresh);
        if let Some(user) = &user
            && homes.insert(user.clone(), home).is_none()
        {
            new_homes.insert(user.clone(), number(home));
        }
        let next = match &before {
            None => Ok(Kept { user: None, cell: home, previous: None, step: MoveStep::Settled }),
            Some(before) => before.going(home),
        };
        let next = next.map(|next| Kept { user, ..next });
        answers.push(match &next {
            Ok(next) => Ok(Residence { app, cell: next.cell, previous: next.previous, step: next.step }),
            Err(error) => Err(error.clone()),
        });
        match (next, before) {
            (Ok(next), _) => {
                kept.insert(one.device.as_str().to_owned(), next.clone());
                changed.insert(one.device.as_str(), next);
            }
            (Err(_), Some(before)) => drop(kept.insert(one.device.as_str().to_owned(), before)),
            (Err(_), None) => {}
        }
    }
    write_homes(&tx, app, new_homes).await?;
    write_devices(&tx, app, &changed, now).await?;
    Ok(answers)
}

async fn write_homes(tx: &Tx, app: AppId, homes: HashMap<String, i64>) -> Result<(), Failed> {
    if homes.is_empty() {
        return Ok(());
    }
    let (users, cells): (Vec<String>, Vec<i64>) = homes.into_iter().unzip();
    let sql = "INSERT INTO cell_users (app, \"user\", cell, until)
               SELECT $1, u, c, 0 FROM unnest($2::text[], $3::bigint[]) AS n (u, c)
               ON CONFLICT (app, \"user\", cell) DO UPDATE SET until = 0";
    tx.execute(sql, &[&i64::from(app.0), &users, &cells]).await.map(drop)
}

async fn write_devices(
    tx: &Tx,
    app: AppId,
    changed: &HashMap<&str, Kept>,
    now: Timestamp,
) -> Result<(), Failed> {
    let devices: Vec<&str> = changed.keys().copied().collect();
    let users: Vec<Option<&str>> = changed.values().map(|one| one.user.as_deref()).collect();
    let cells: Vec<i64> = changed.values().map(|one| number(one.cell)).collect();
    let previous: Vec<Option<i64>> = changed.values().map(|one| one.previous.map(number)).collect();
    let steps: Vec<i64> = changed.values().map(|one| one.step as i64).collect();
    let sql = "INSERT INTO cell_devices (app, device, \"user\", cell, previous, step, moved_at)
               SELECT $1, d, u, c, p, s, $7
               FROM unnest($2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) AS n (d, u, c, p, s)
               ON CONFLICT (app, device) DO UPDATE SET \"user\" = excluded.\"user\", cell = excluded.cell,
                   previous = excluded.previous, step = excluded.step,
                   moved_at = CASE WHEN cell_devices.step = excluded.step THEN cell_devices.moved_at ELSE $7 END";
    let now = now.0 as i64;
    tx.execute(sql, &[&i64::from(app.0), &devices, &users, &cells, &previous, &steps, &now]).await.map(drop)
}

async fn kept(tx: &Tx, app: AppId, devices: Vec<&str>) -> Result<HashMap<String, Kept>, Failed> {
    let sql = "SELECT device, \"user\", cell, previous, step FROM cell_devices
               WHERE app = $1 AND device = ANY ($2)";
    let rows = tx.query(sql, &[&i64::from(app.0), &devices]).await?;
    let read = |row: &Row| {
        let kept = Kept {
            user: row.get(1),
            cell: cell_of(row.get(2)),
            previous: row.get::<_, Option<i64>>(3).map(cell_of),
            step: step(row.get(4))?,
        };
        Ok((row.get(0), kept))
    };
    rows.iter().map(read).collect()
}

async fn homes(tx: &Tx, app: AppId, users: &[&str]) -> Result<HashMap<String, CellNum>, Failed> {
    let sql = "SELECT \"user\", cell FROM cell_users WHERE app = $1 AND \"user\" = ANY ($2) AND until = 0";
    let rows = tx.query(sql, &[&i64::from(app.0), &users]).await?;
    Ok(rows.iter().map(|row| (row.get(0), cell_of(row.get(1)))).collect())
}

pub(super) async fn arrived(
    tx: Tx,
    app: AppId,
    devices: Arc<Vec<(DeviceId, CellNum)>>,
) -> Result<Vec<DeviceId>, Failed> {
    lock(&tx, app).await?;
    let names: Vec<&str> = devices.iter().map(|(device, _)| device.as_str()).collect();
    let cells: Vec<i64> = devices.iter().map(|(_, cell)| number(*cell)).collect();
    let sql =
        "UPDATE cell_devices AS d SET step = 3 FROM unnest($2::text[], $3::bigint[]) AS came (device, cell)
               WHERE d.app = $1 AND d.device = came.device AND d.cell = came.cell AND d.step IN (1, 2)";
    tx.execute(sql, &[&i64::from(app.0), &names, &cells]).await?;
    let kept = kept(&tx, app, names).await?;
    let lives = |device: &DeviceId| kept.get(device.as_str()).map(|kept| kept.cell);
    let elsewhere = devices.iter().filter(|(device, cell)| lives(device) != Some(*cell));
    Ok(elsewhere.map(|(device, _)| device.clone()).collect())
}

pub(super) async fn of_device(tx: Tx, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Failed> {
    let sql = "SELECT app, cell, previous, step FROM cell_devices
               WHERE device = $1 AND app = ANY ($2::bigint[]) ORDER BY app";
    let apps: Vec<i64> = apps.iter().map(|app| i64::from(app.0)).collect();
    let rows = tx.query(sql, &[&device.as_str(), &apps]).await?;
    rows.iter().map(residence).collect()
}

fn residence(row: &Row) -> Result<Residence, Failed> {
    Ok(Residence {
        app: AppId(row.get::<_, i64>(0) as u32),
        cell: cell_of(row.get(1)),
        previous: row.get::<_, Option<i64>>(2).map(cell_of),
        step: step(row.get(3))?,
    })
}

/// Each device once.
pub(super) async fn of_devices(
    tx: &Tx,
    app: AppId,
    names: &[&str],
) -> Result<HashMap<String, Residence>, Failed> {
    let sql =
        "SELECT app, cell, previous, step, device FROM cell_devices WHERE app = $1 AND device = ANY ($2)";
    let rows = tx.query(sql, &[&i64::from(app.0), &names]).await?;
    rows.iter().map(|row| Ok((row.get(4), residence(row)?))).collect()
}

/// Of each the cells to ask, home first; those that live nowhere are missing.
pub(super) async fn of_users(
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
        found.entry(row.get(0)).or_default().push(cell_of(row.get(1)));
    }
    Ok(found)
}

pub(super) async fn forget(tx: Tx, app: AppId, device: DeviceId) -> Result<(), Failed> {
    lock(&tx, app).await?;
    let (app, device) = (i64::from(app.0), device.as_str());
    // Where it is still to be removed from another cell, that goes on.
    let sql = "DELETE FROM cell_devices WHERE app = $1 AND device = $2 AND previous IS NULL";
    tx.execute(sql, &[&app, &device]).await?;
    let sql = "UPDATE cell_devices SET step = 4 WHERE app = $1 AND device = $2";
    tx.execute(sql, &[&app, &device]).await.map(drop)
}

pub(super) async fn populations(tx: Tx) -> Result<Vec<Population>, Failed> {
    let sql = "SELECT num, (SELECT count(*) FROM cell_devices WHERE cell = cells.num),
                   (SELECT count(*) FROM cell_users WHERE cell = cells.num AND until = 0),
                   (SELECT count(*) FROM cell_devices WHERE cell = cells.num AND \"user\" IS NULL),
                   (SELECT count(*) FROM cell_devices WHERE previous = cells.num)
               FROM cells ORDER BY num";
    let rows = tx.query(sql, &[]).await?;
    let count = |row: &Row, column: usize| row.get::<_, i64>(column) as u64;
    let read = |row: &Row| Population {
        cell: cell_of(row.get(0)),
        devices: count(row, 1),
        users: count(row, 2),
        alone: count(row, 3),
        leaving: count(row, 4),
    };
    Ok(rows.iter().map(read).collect())
}

pub(super) async fn relocate(
    tx: Tx,
    who: Relocation,
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
) -> Result<Relocated, Failed> {
    let mut moved = Relocated::default();
    let (users, devices) = match who {
        Relocation::Device(app, device) => {
            lock(&tx, app).await?;
            let known = kept(&tx, app, vec![device.as_str()]).await?.remove(device.as_str());
            match known.ok_or(Error::NotFound)?.user {
                // A user's devices live together.
                Some(user) => (vec![(app, user)], Vec::new()),
                None => (Vec::new(), vec![(app, device.as_str().to_owned())]),
            }
        }
        Relocation::User(app, user) => {
            lock(&tx, app).await?;
            let known = homes(&tx, app, &[user.as_str()]).await?;
            if known.is_empty() {
                return Err(Error::NotFound.into());
            }
            (vec![(app, user.as_str().to_owned())], Vec::new())
        }
        Relocation::Some { from, limit } => some(&tx, from, limit).await?,
    };
    for (app, user) in &users {
        moved.devices += move_user(&tx, *app, user, to, now, asked_until, &mut moved.users).await?;
    }
    for (app, device) in &devices {
        moved.alone += set_out(&tx, *app, std::slice::from_ref(device), to, now).await?;
    }
    moved.devices += moved.alone;
    Ok(moved)
}

type Named = Vec<(AppId, String)>;

/// Users of a cell, and devices without one; their apps are locked, in order, so that two who do this do not wait
/// for each other. Apps of which nobody is concerned are left alone, however many there are.
async fn some(tx: &Tx, from: CellNum, limit: usize) -> Result<(Named, Named), Failed> {
    let (users, devices) = residents(tx, from, limit).await?;
    let apps: BTreeSet<AppId> = users.iter().chain(&devices).map(|(app, _)| *app).collect();
    for app in &apps {
        lock(tx, *app).await?;
    }
    let (mut users, mut devices) = residents(tx, from, limit).await?;
    users.retain(|(app, _)| apps.contains(app));
    devices.retain(|(app, _)| apps.contains(app));
    Ok((users, devices))
}

async fn residents(tx: &Tx, from: CellNum, limit: usize) -> Result<(Named, Named), Failed> {
    let named = |row: &Row| (AppId(row.get::<_, i64>(0) as u32), row.get::<_, String>(1));
    let sql =
        "SELECT app, \"user\" FROM cell_users WHERE cell = $1 AND until = 0 ORDER BY app, \"user\" LIMIT $2";
    let users: Named = tx.query(sql, &[&number(from), &(limit as i64)]).await?.iter().map(named).collect();
    let rest = limit.saturating_sub(users.len()) as i64;
    let sql = "SELECT app, device FROM cell_devices WHERE cell = $1 AND \"user\" IS NULL AND previous IS NULL
               ORDER BY app, device LIMIT $2";
    let devices = tx.query(sql, &[&number(from), &rest]).await?.iter().map(named).collect();
    Ok((users, devices))
}

/// How many of the user's devices are on their way now.
async fn move_user(
    tx: &Tx,
    app: AppId,
    user: &str,
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
    moved: &mut u64,
) -> Result<u64, Failed> {
    if homes(tx, app, &[user]).await?.get(user) == Some(&to) {
        return Ok(0);
    }
    let id = i64::from(app.0);
    let sql = "UPDATE cell_users SET until = $3 WHERE app = $1 AND \"user\" = $2 AND until = 0";
    tx.execute(sql, &[&id, &user, &(asked_until.0 as i64)]).await?;
    write_homes(tx, app, HashMap::from([(user.to_owned(), number(to))])).await?;
    *moved += 1;
    let sql = "SELECT device FROM cell_devices WHERE app = $1 AND \"user\" = $2";
    let rows = tx.query(sql, &[&id, &user]).await?;
    let devices: Vec<String> = rows.iter().map(|row| row.get(0)).collect();
    let devices = set_out(tx, app, &devices, to, now).await?;
    leave_if_empty(tx, app, user).await?;
    Ok(devices)
}

/// How many of the devices are on their way now: back to where they still are, elsewhere from there, or new.
async fn set_out(
    tx: &Tx,
    app: AppId,
    devices: &[String],
    to: CellNum,
    now: Timestamp,
) -> Result<u64, Failed> {
    let sql = "UPDATE cell_devices SET
                   cell = $3,
                   previous = CASE WHEN previous IS NULL THEN cell WHEN previous = $3 THEN NULL ELSE previous END,
                   step = CASE WHEN previous IS NULL THEN 1 WHEN previous = $3 THEN 0 ELSE step END,
                   moved_at = CASE WHEN previous IS NULL THEN $4 ELSE moved_at END
               WHERE app = $1 AND device = ANY ($2) AND cell <> $3 AND (previous IS NULL OR step IN (1, 2))";
    tx.execute(sql, &[&i64::from(app.0), &devices, &number(to), &(now.0 as i64)]).await
}

/// The cells that a user left are asked no more once the last of the devices is gone from them.
async fn leave_if_empty(tx: &Tx, app: AppId, user: &str) -> Result<(), Failed> {
    let sql =
        "DELETE FROM cell_users AS u WHERE u.app = $1 AND u.\"user\" = $2 AND u.until > 0 AND NOT EXISTS (
                   SELECT 1 FROM cell_devices AS d WHERE d.app = $1 AND d.\"user\" = $2
                       AND (d.cell = u.cell OR d.previous = u.cell))";
    tx.execute(sql, &[&i64::from(app.0), &user]).await.map(drop)
}

pub(super) async fn moves(
    tx: Tx,
    from: CellNum,
    at: MoveStep,
    after: Option<&(AppId, DeviceId)>,
    limit: usize,
) -> Result<Vec<Move>, Failed> {
    let sql = "SELECT app, device, cell, moved_at FROM cell_devices
               WHERE previous = $1 AND step = $2 AND (app, device) > ($3, $4) ORDER BY app, device LIMIT $5";
    let (app, device) = after.map_or((0, ""), |(app, device)| (i64::from(app.0), device.as_str()));
    let rows = tx.query(sql, &[&number(from), &(at as i64), &app, &device, &(limit as i64)]).await?;
    let read = |row: &Row| {
        let device = DeviceId::parse(row.get(1)).map_err(|error| Error::Engine(error.to_string()))?;
        Ok(Move {
            app: AppId(row.get::<_, i64>(0) as u32),
            device,
            from,
            to: cell_of(row.get(2)),
            step: at,
            since: Timestamp(row.get::<_, Option<i64>>(3).unwrap_or_default() as u64),
        })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn advance(
    tx: Tx,
    app: AppId,
    device: DeviceId,
    from: MoveStep,
    to: MoveStep,
) -> Result<(), Failed> {
    lock(&tx, app).await?;
    let sql =
        "UPDATE cell_devices SET step = $4, previous = CASE WHEN $4::bigint = 0 THEN NULL ELSE previous END
               WHERE app = $1 AND device = $2 AND step = $3 RETURNING \"user\"";
    let id = i64::from(app.0);
    let row = tx.query_opt(sql, &[&id, &device.as_str(), &(from as i64), &(to as i64)]).await?;
    match row.and_then(|row| row.get::<_, Option<String>>(0)) {
        Some(user) if to == MoveStep::Settled => {
            tx.execute(FOLLOW, &[&id, &device.as_str()]).await?;
            leave_if_empty(&tx, app, &user).await
        }
        _ => Ok(()),
    }
}

/// Its user may have moved on while it was on its way.
const FOLLOW: &str = "UPDATE cell_devices AS d SET previous = d.cell, cell = u.cell, step = 1
     FROM cell_users AS u WHERE d.app = $1 AND d.device = $2 AND d.step = 0
         AND u.app = d.app AND u.\"user\" = d.\"user\" AND u.until = 0 AND u.cell <> d.cell";

fn step(code: i64) -> Result<MoveStep, Failed> {
    let step = u8::try_from(code).ok().and_then(MoveStep::from_code);
    Ok(step.ok_or_else(|| Error::Engine(format!("a stored step of a move: {code}")))?)
}
