//! Groups of shared subscriptions and their members.

use noroshi_types::{AppId, DeviceId, DeviceNum};
use rusqlite::{Connection, OptionalExtension, Row};

use super::{Sqlite, maintenance};
use crate::share::{self, Counts, GroupRow, MemberState, held_bytes, held_ids};
use crate::{
    Error, JoinShares, Leave, LeaveShares, Place, SettleShares, Share, ShareGroup, ShareMember, ShareNum,
    Shares,
};

#[async_trait::async_trait]
impl Shares for Sqlite {
    async fn join_shares(&self, join: JoinShares) -> Result<(), Error> {
        self.write(join.shares.len(), move |w| w_join(w.db, &join)).await
    }

    async fn leave_shares(&self, leave: LeaveShares) -> Result<bool, Error> {
        self.write(1, move |w| w_leave(w.db, &leave)).await
    }

    async fn share_groups(&self) -> Result<Vec<ShareGroup>, Error> {
        self.read(|db| {
            let mut statement = db.prepare_cached(share::GROUPS)?;
            let rows = statement.query_map((), row_of)?.collect::<rusqlite::Result<Vec<GroupRow>>>()?;
            Ok(share::group(rows))
        })
        .await
    }

    async fn return_to_shares(&self, members: Vec<(DeviceNum, u64)>) -> Result<bool, Error> {
        self.write(members.len(), move |w| w_return(w.db, &members)).await
    }

    async fn settle_shares(&self, settle: SettleShares) -> Result<(), Error> {
        self.write(settle.since.len() + settle.over.len(), move |w| w_settle(w.db, &settle)).await
    }
}

fn w_join(db: &Connection, join: &JoinShares) -> Result<(), Error> {
    let (app, device) = (join.app.0, join.device.0 as i64);
    let known: Option<i64> = db
        .prepare_cached("SELECT 1 FROM devices WHERE num = ?1 AND app = ?2")?
        .query_row((device, app), |row| row.get(0))
        .optional()?;
    known.ok_or(Error::NotFound)?;
    let now = maintenance::place(db)?;
    for (Share { name, filter }, qos) in &share::distinct(join.shares.clone()) {
        db.prepare_cached(
            "INSERT INTO share_groups (app, name, filter, since) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?
        .execute((app, name, filter, now.0))?;
        let num: i64 = db
            .prepare_cached("SELECT num FROM share_groups WHERE app = ?1 AND name = ?2 AND filter = ?3")?
            .query_row((app, name, filter), |row| row.get(0))?;
        // A group without members skips what was published since its last member left.
        db.prepare_cached(
            "UPDATE share_groups SET since = max(since, ?2)
             WHERE num = ?1 AND NOT EXISTS (
                 SELECT 1 FROM share_members AS m JOIN devices AS d ON d.num = m.device
                 WHERE m.share = ?1 AND m.state < 2)",
        )?
        .execute((num, now.0))?;
        db.prepare_cached(
            "INSERT INTO share_members (share, device, qos, generation, lasts, state) VALUES (?1, ?2, ?3, ?4, ?5, 0)
             ON CONFLICT (share, device) DO UPDATE SET qos = excluded.qos, generation = excluded.generation,
                 lasts = excluded.lasts, state = 0, ends_at = NULL, held = NULL
             WHERE generation <= excluded.generation",
        )?
        .execute((num, device, qos, join.generation as i64, join.expiry_s))?;
    }
    let counts = db
        .prepare_cached(
            "SELECT (SELECT count(*) FROM share_members WHERE device = ?2 AND state < 2),
                    (SELECT count(*) FROM share_groups AS g JOIN share_members AS m ON m.share = g.num WHERE g.app = ?1),
                    (SELECT count(*) FROM share_groups WHERE app = ?1)",
        )?
        .query_row((app, device), |row| {
            Ok(Counts { of_device: row.get(0)?, members: row.get(1)?, groups: row.get(2)? })
        })?;
    counts.check()
}

fn w_leave(db: &Connection, leave: &LeaveShares) -> Result<bool, Error> {
    let (device, generation, held) =
        (leave.device.0 as i64, leave.generation as i64, held_bytes(&leave.held));
    let (state, ends_at) = (leave.what.state() as i64, leave.what.ends_at());
    let Leave::Shares(shares) = &leave.what else {
        let sql = "UPDATE share_members SET state = ?3, ends_at = ?4, held = coalesce(?5, held)
                   WHERE device = ?1 AND generation <= ?2 AND state < ?3";
        return Ok(db.prepare_cached(sql)?.execute((device, generation, state, ends_at, held))? > 0);
    };
    let mut statement = db.prepare_cached(
        "UPDATE share_members SET state = ?3, ends_at = NULL, held = coalesce(?4, held)
         WHERE device = ?1 AND generation <= ?2 AND state < ?3 AND share IN (
             SELECT g.num FROM share_groups AS g JOIN devices AS d ON d.app = g.app
             WHERE d.num = ?1 AND g.name = ?5 AND g.filter = ?6)",
    )?;
    let mut count = 0;
    for Share { name, filter } in shares {
        count += statement.execute((device, generation, state, &held, name, filter))?;
    }
    Ok(count > 0)
}

fn w_return(db: &Connection, members: &[(DeviceNum, u64)]) -> Result<bool, Error> {
    let mut statement = db.prepare_cached(
        "UPDATE share_members SET state = 0, ends_at = NULL WHERE device = ?1 AND generation = ?2 AND state = 1",
    )?;
    let mut count = 0;
    for (device, generation) in members {
        count += statement.execute((device.0 as i64, *generation as i64))?;
    }
    Ok(count > 0)
}

fn w_settle(db: &Connection, settle: &SettleShares) -> Result<(), Error> {
    let mut forward = db.prepare_cached("UPDATE share_groups SET since = max(since, ?2) WHERE num = ?1")?;
    for (num, place) in &settle.since {
        forward.execute((num.0, place.0))?;
    }
    let mut remove = db.prepare_cached(
        "DELETE FROM share_members WHERE share = ?1 AND device = ?2
             AND (state >= 2 OR NOT EXISTS (SELECT 1 FROM devices WHERE num = ?2))",
    )?;
    let mut end = db.prepare_cached(
        "DELETE FROM share_groups WHERE num = ?1 AND NOT EXISTS (SELECT 1 FROM share_members WHERE share = ?1)",
    )?;
    for (num, device) in &settle.over {
        remove.execute((num.0, device.0 as i64))?;
        end.execute((num.0,))?;
    }
    Ok(())
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<GroupRow> {
    let group = ShareGroup {
        num: ShareNum(row.get(0)?),
        app: AppId(row.get(1)?),
        share: Share { name: row.get(2)?, filter: row.get(3)? },
        since: Place(row.get(4)?),
        members: Vec::new(),
    };
    let member = match row.get::<_, Option<i64>>(5)? {
        Some(num) => Some(ShareMember {
            num: DeviceNum(num as u64),
            device: row.get::<_, Option<String>>(6)?.and_then(|id| DeviceId::parse(&id).ok()),
            qos: row.get(7)?,
            generation: row.get::<_, i64>(8)? as u64,
            expiry_s: row.get(9)?,
            state: MemberState::of(row.get(10)?),
            ends_at: share::time(row.get(11)?),
            held: held_ids(row.get::<_, Option<Vec<u8>>>(12)?.as_deref()),
        }),
        None => None,
    };
    Ok(GroupRow { group, member })
}
