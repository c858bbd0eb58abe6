//! Who lives in which cell, and who is on the way to another.

use std::collections::BTreeSet;

use noroshi_types::{AppId, DeviceId, Timestamp, UserId};
use rusqlite::{Connection, OptionalExtension, Row};

use crate::Error;
use crate::cells::{Assign, CellNum, Kept, Move, MoveStep, Population, Relocated, Relocation, Residence};

pub(super) fn assign(db: &Connection, app: AppId, one: &Assign, now: Timestamp) -> Result<Residence, Error> {
    let kept = kept(db, app, &one.device)?;
    let user = one.user.as_ref().map(UserId::as_str).or(kept.as_ref().and_then(|kept| kept.user.as_deref()));
    let home = match (user, &kept) {
        (Some(user), _) => match home(db, app, user)? {
            Some(home) => home,
            None => {
                // A user's first device brings its user along.
                let fresh = kept.as_ref().map_or(one.fresh, |kept| kept.cell);
                settle_user(db, app, user, fresh)?;
                fresh
            }
        },
        (None, Some(kept)) => kept.cell,
        (None, None) => one.fresh,
    };
    let mut next = match &kept {
        None => Kept { user: None, cell: home, previous: None, step: MoveStep::Settled },
        Some(kept) => kept.going(home)?,
    };
    next.user = user.map(str::to_owned);
    db.prepare_cached(
        "INSERT INTO cell_devices (app, device, user, cell, previous, step, moved_at)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
         ON CONFLICT (app, device) DO UPDATE SET user = ?3, cell = ?4, previous = ?5, step = ?6,
             moved_at = CASE WHEN step = ?6 THEN moved_at ELSE ?7 END",
    )?
    .execute((
        app.0,
        one.device.as_str(),
        &next.user,
        next.cell.0,
        next.previous.map(|cell| cell.0),
        next.step as u8,
        now.0 as i64,
    ))?;
    Ok(Residence { app, cell: next.cell, previous: next.previous, step: next.step })
}

pub(super) fn arrived(
    db: &Connection,
    app: AppId,
    devices: Vec<(DeviceId, CellNum)>,
) -> Result<Vec<DeviceId>, Error> {
    let mut move_on = db.prepare_cached(
        "UPDATE cell_devices SET step = ?4 WHERE app = ?1 AND device = ?2 AND cell = ?3 AND step IN (?5, ?6)",
    )?;
    let mut elsewhere = Vec::new();
    for (device, cell) in devices {
        let (tell, told) = (MoveStep::Tell as u8, MoveStep::Told as u8);
        move_on.execute((app.0, device.as_str(), cell.0, MoveStep::Arrived as u8, tell, told))?;
        if kept(db, app, &device)?.is_none_or(|kept| kept.cell != cell) {
            elsewhere.push(device);
        }
    }
    Ok(elsewhere)
}

pub(super) fn of_device(db: &Connection, apps: &[AppId], device: &DeviceId) -> Result<Vec<Residence>, Error> {
    let apps: BTreeSet<AppId> = apps.iter().copied().collect();
    let found = apps.into_iter().map(|app| {
        let kept = kept(db, app, device)?;
        Ok(kept.map(|Kept { cell, previous, step, .. }| Residence { app, cell, previous, step }))
    });
    found.filter_map(Result::transpose).collect()
}

/// Home first.
pub(super) fn of_user(
    db: &Connection,
    app: AppId,
    user: &UserId,
    now: Timestamp,
) -> Result<Vec<CellNum>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT cell FROM cell_users WHERE app = ?1 AND user = ?2 AND (until = 0 OR until > ?3) ORDER BY until",
    )?;
    let rows = statement.query_map((app.0, user.as_str(), now.0 as i64), |row| row.get(0).map(CellNum))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn forget(db: &Connection, app: AppId, device: &DeviceId) -> Result<(), Error> {
    // Where it is still to be removed from another cell, that goes on.
    db.execute(
        "DELETE FROM cell_devices WHERE app = ?1 AND device = ?2 AND previous IS NULL",
        (app.0, device.as_str()),
    )?;
    db.execute(
        "UPDATE cell_devices SET step = ?3 WHERE app = ?1 AND device = ?2",
        (app.0, device.as_str(), MoveStep::Leave as u8),
    )?;
    Ok(())
}

pub(super) fn populations(db: &Connection) -> Result<Vec<Population>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT num, (SELECT count(*) FROM cell_devices WHERE cell = cells.num),
                (SELECT count(*) FROM cell_users WHERE cell = cells.num AND until = 0),
                (SELECT count(*) FROM cell_devices WHERE cell = cells.num AND user IS NULL),
                (SELECT count(*) FROM cell_devices WHERE previous = cells.num)
         FROM cells ORDER BY num",
    )?;
    let rows = statement.query_map((), |row| {
        Ok(Population {
            cell: CellNum(row.get(0)?),
            devices: row.get::<_, i64>(1)? as u64,
            users: row.get::<_, i64>(2)? as u64,
            alone: row.get::<_, i64>(3)? as u64,
            leaving: row.get::<_, i64>(4)? as u64,
        })
    })?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn relocate(
    db: &Connection,
    who: &Relocation,
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
) -> Result<Relocated, Error> {
    let mut moved = Relocated::default();
    match who {
        Relocation::Device(app, device) => {
            let kept = kept(db, *app, device)?.ok_or(Error::NotFound)?;
            match kept.user {
                // A user's devices live together.
                Some(user) => move_user(db, *app, &user, to, now, asked_until, &mut moved)?,
                None => moved.alone += set_out(db, *app, device.as_str(), to, now)?,
            }
        }
        Relocation::User(app, user) => {
            home(db, *app, user.as_str())?.ok_or(Error::NotFound)?;
            move_user(db, *app, user.as_str(), to, now, asked_until, &mut moved)?;
        }
        Relocation::Some { from, limit } => {
            for (app, user) in homes(db, *from, *limit)? {
                move_user(db, app, &user, to, now, asked_until, &mut moved)?;
            }
            let rest = limit.saturating_sub(moved.users as usize);
            for (app, device) in alone(db, *from, rest)? {
                moved.alone += set_out(db, app, &device, to, now)?;
            }
        }
    }
    moved.devices += moved.alone;
    Ok(moved)
}

fn move_user(
    db: &Connection,
    app: AppId,
    user: &str,
    to: CellNum,
    now: Timestamp,
    asked_until: Timestamp,
    moved: &mut Relocated,
) -> Result<(), Error> {
    if home(db, app, user)? == Some(to) {
        return Ok(());
    }
    db.prepare_cached("UPDATE cell_users SET until = ?3 WHERE app = ?1 AND user = ?2 AND until = 0")?
        .execute((app.0, user, asked_until.0 as i64))?;
    settle_user(db, app, user, to)?;
    moved.users += 1;
    let mut statement = db.prepare_cached("SELECT device FROM cell_devices WHERE app = ?1 AND user = ?2")?;
    let devices: Vec<String> =
        statement.query_map((app.0, user), |row| row.get(0))?.collect::<Result<_, _>>()?;
    for device in &devices {
        moved.devices += set_out(db, app, device, to, now)?;
    }
    leave_if_empty(db, app, user)
}

/// 1 if the device is on its way now.
fn set_out(db: &Connection, app: AppId, device: &str, to: CellNum, now: Timestamp) -> Result<u64, Error> {
    // Back to where it still is: nothing has to move.
    let back = db
        .prepare_cached(
            "UPDATE cell_devices SET cell = ?3, previous = NULL, step = 0
             WHERE app = ?1 AND device = ?2 AND previous = ?3 AND step IN (1, 2)",
        )?
        .execute((app.0, device, to.0))?;
    // One that never came to where it was going goes elsewhere from where it is.
    let turned = db
        .prepare_cached(
            "UPDATE cell_devices SET cell = ?3 WHERE app = ?1 AND device = ?2 AND cell <> ?3 AND step IN (1, 2)",
        )?
        .execute((app.0, device, to.0))?;
    let set_out = db
        .prepare_cached(
            "UPDATE cell_devices SET previous = cell, cell = ?3, step = 1, moved_at = ?4
             WHERE app = ?1 AND device = ?2 AND cell <> ?3 AND previous IS NULL",
        )?
        .execute((app.0, device, to.0, now.0 as i64))?;
    Ok((back + turned + set_out).min(1) as u64)
}

fn homes(db: &Connection, cell: CellNum, limit: usize) -> Result<Vec<(AppId, String)>, Error> {
    let mut statement =
        db.prepare_cached("SELECT app, user FROM cell_users WHERE cell = ?1 AND until = 0 LIMIT ?2")?;
    let rows = statement.query_map((cell.0, limit as i64), |row| Ok((AppId(row.get(0)?), row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Devices without a user.
fn alone(db: &Connection, cell: CellNum, limit: usize) -> Result<Vec<(AppId, String)>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT app, device FROM cell_devices WHERE cell = ?1 AND user IS NULL AND previous IS NULL LIMIT ?2",
    )?;
    let rows = statement.query_map((cell.0, limit as i64), |row| Ok((AppId(row.get(0)?), row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

pub(super) fn moves(
    db: &Connection,
    from: CellNum,
    step: MoveStep,
    after: Option<&(AppId, DeviceId)>,
    limit: usize,
) -> Result<Vec<Move>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT app, device, cell, moved_at FROM cell_devices
         WHERE previous = ?1 AND step = ?2 AND (app, device) > (?3, ?4) ORDER BY app, device LIMIT ?5",
    )?;
    let (app, device) = after.map_or((0, ""), |(app, device)| (app.0, device.as_str()));
    let rows = statement.query_map((from.0, step as u8, app, device, limit as i64), |row| {
        let since = Timestamp(row.get::<_, Option<i64>>(3)?.unwrap_or_default() as u64);
        Ok((AppId(row.get(0)?), row.get::<_, String>(1)?, CellNum(row.get(2)?), since))
    })?;
    rows.map(|row| {
        let (app, device, to, since) = row?;
        let device =
            DeviceId::parse(&device).map_err(|error| Error::Engine(format!("a stored device: {error}")))?;
        Ok(Move { app, device, from, to, step, since })
    })
    .collect()
}

pub(super) fn advance(
    db: &Connection,
    app: AppId,
    device: &DeviceId,
    from: MoveStep,
    to: MoveStep,
) -> Result<(), Error> {
    let previous = if to == MoveStep::Settled { "NULL" } else { "previous" };
    let sql = format!(
        "UPDATE cell_devices SET step = ?4, previous = {previous}
         WHERE app = ?1 AND device = ?2 AND step = ?3 RETURNING user"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let user: Option<Option<String>> =
        statement.query_row((app.0, device.as_str(), from as u8, to as u8), |row| row.get(0)).optional()?;
    match user.flatten() {
        Some(user) if to == MoveStep::Settled => {
            db.prepare_cached(FOLLOW)?.execute((app.0, device.as_str()))?;
            leave_if_empty(db, app, &user)
        }
        _ => Ok(()),
    }
}

/// Its user may have moved on while it was on its way.
const FOLLOW: &str = "UPDATE cell_devices AS d SET previous = d.cell, cell = u.cell, step = 1
     FROM cell_users AS u WHERE d.app = ?1 AND d.device = ?2 AND d.step = 0
         AND u.app = d.app AND u.user = d.user AND u.until = 0 AND u.cell <> d.cell";

/// The cells that a user left are asked no more once the last of the devices is gone from them.
fn leave_if_empty(db: &Connection, app: AppId, user: &str) -> Result<(), Error> {
    db.prepare_cached(
        "DELETE FROM cell_users WHERE app = ?1 AND user = ?2 AND until > 0 AND NOT EXISTS (
             SELECT 1 FROM cell_devices AS d WHERE d.app = ?1 AND d.user = ?2
                 AND (d.cell = cell_users.cell OR d.previous = cell_users.cell))",
    )?
    .execute((app.0, user))?;
    Ok(())
}

fn home(db: &Connection, app: AppId, user: &str) -> Result<Option<CellNum>, Error> {
    let mut statement =
        db.prepare_cached("SELECT cell FROM cell_users WHERE app = ?1 AND user = ?2 AND until = 0")?;
    Ok(statement.query_row((app.0, user), |row| row.get(0).map(CellNum)).optional()?)
}

fn settle_user(db: &Connection, app: AppId, user: &str, cell: CellNum) -> Result<(), Error> {
    db.prepare_cached("INSERT OR REPLACE INTO cell_users (app, user, cell, until) VALUES (?1, ?2, ?3, 0)")?
        .execute((app.0, user, cell.0))?;
    Ok(())
}

fn kept(db: &Connection, app: AppId, device: &DeviceId) -> Result<Option<Kept>, Error> {
    let mut statement = db.prepare_cached(
        "SELECT user, cell, previous, step FROM cell_devices WHERE app = ?1 AND device = ?2",
    )?;
    let row = statement
        .query_row((app.0, device.as_str()), |row| {
            Ok((row.get(0)?, CellNum(row.get(1)?), previous(row, 2)?, row.get(3)?))
        })
        .optional()?;
    row.map(|(user, cell, previous, code)| Ok(Kept { user, cell, previous, step: step(code)? })).transpose()
}

fn previous(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<CellNum>> {
    Ok(row.get::<_, Option<u32>>(column)?.map(CellNum))
}

fn step(code: u8) -> Result<MoveStep, Error> {
    MoveStep::from_code(code).ok_or_else(|| Error::Engine(format!("a stored step of a move: {code}")))
}
