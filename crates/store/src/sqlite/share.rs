//! Changes of shared subscriptions.

use noroshi_types::DeviceNum;

use super::maintenance;
use super::writer::Write;
use crate::engine::session::values;
use crate::engine::share::{self, COUNTS, check_limits, codes, held_bytes};
use crate::{Error, JoinShares, Leave, LeaveShares, SettleShares, Share};

pub(crate) fn join(&Write { db, .. }: &Write<'_>, join: &JoinShares) -> Result<(), Error> {
    let (app, device) = (join.app.0, join.device.0 as i64);
    if !db.has_row("SELECT 1 FROM devices WHERE num = ?1 AND app = ?2", (device, app))? {
        return Err(Error::NotFound);
    }
    let now = maintenance::last(db)?;
    for (Share { name, filter }, qos) in &share::distinct(join.shares.clone()) {
        let sql = "INSERT INTO share_groups (app, name, filter, since) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING";
        db.run(sql, (app, name, filter, now.0))?;
        let sql = "SELECT num FROM share_groups WHERE app = ?1 AND name = ?2 AND filter = ?3";
        let num = db.int(sql, (app, name, filter))?;
        // A group without members skips what was published since its last member left.
        let sql = "UPDATE share_groups SET since = max(since, ?2)
                   WHERE num = ?1 AND NOT EXISTS (
                       SELECT 1 FROM share_members AS m JOIN devices AS d ON d.num = m.device
                       WHERE m.share = ?1 AND m.state < 2)";
        db.run(sql, (num, now.0))?;
        let sql = "INSERT INTO share_members (share, device, qos, generation, lasts, state)
                   VALUES (?1, ?2, ?3, ?4, ?5, 0)
                   ON CONFLICT (share, device) DO UPDATE SET qos = excluded.qos, generation = excluded.generation,
                       lasts = excluded.lasts, state = 0, ends_at = NULL, held = NULL
                   WHERE generation <= excluded.generation";
        db.run(sql, (num, device, qos, join.generation as i64, join.expiry_s))?;
    }
    db.all_shared(COUNTS, &values![join.app, device], |row| check_limits(row)).map(drop)
}

pub(crate) fn leave(&Write { db, .. }: &Write<'_>, leave: &LeaveShares) -> Result<bool, Error> {
    let (device, generation, held) =
        (leave.device.0 as i64, leave.generation as i64, held_bytes(&leave.held));
    let (state, ends_at) = codes(&leave.what);
    let Leave::Shares(shares) = &leave.what else {
        let sql = "UPDATE share_members SET state = ?3, ends_at = ?4, held = coalesce(?5, held)
                   WHERE device = ?1 AND generation <= ?2 AND state < ?3";
        return Ok(db.run(sql, (device, generation, state, ends_at, held))? > 0);
    };
    let sql = "UPDATE share_members SET state = ?3, ends_at = NULL, held = coalesce(?4, held)
               WHERE device = ?1 AND generation <= ?2 AND state < ?3 AND share IN (
                   SELECT g.num FROM share_groups AS g JOIN devices AS d ON d.app = g.app
                   WHERE d.num = ?1 AND g.name = ?5 AND g.filter = ?6)";
    let mut count = 0;
    for Share { name, filter } in shares {
        count += db.run(sql, (device, generation, state, &held, name, filter))?;
    }
    Ok(count > 0)
}

pub(crate) fn return_members(
    &Write { db, .. }: &Write<'_>,
    members: &[(DeviceNum, u64)],
) -> Result<bool, Error> {
    let sql = "UPDATE share_members SET state = 0, ends_at = NULL WHERE device = ?1 AND generation = ?2 AND state = 1";
    let mut count = 0;
    for (device, generation) in members {
        count += db.run(sql, (device.0 as i64, *generation as i64))?;
    }
    Ok(count > 0)
}

pub(crate) fn settle(&Write { db, .. }: &Write<'_>, settle: &SettleShares) -> Result<(), Error> {
    for (num, place) in &settle.since {
        db.run("UPDATE share_groups SET since = max(since, ?2) WHERE num = ?1", (num.0, place.0))?;
    }
    for (num, device) in &settle.over {
        let sql = "DELETE FROM share_members WHERE share = ?1 AND device = ?2
                       AND (state >= 2 OR NOT EXISTS (SELECT 1 FROM devices WHERE num = ?2))";
        db.run(sql, (num.0, device.0 as i64))?;
        let sql = "DELETE FROM share_groups WHERE num = ?1
                       AND NOT EXISTS (SELECT 1 FROM share_members WHERE share = ?1)";
        db.run(sql, (num.0,))?;
    }
    Ok(())
}
