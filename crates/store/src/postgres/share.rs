//! Changes of shared subscriptions.

use noroshi_types::DeviceNum;

use super::transaction::{Failed, Tx};
use crate::engine::record::Record;
use crate::engine::share::{self, COUNTS, check_limits, codes, held_bytes};
use crate::{Error, JoinShares, Leave, LeaveShares, SettleShares, Share};

/// Attempts of a join whose groups the leader removes at the same time. Each attempt creates the missing groups, so one
/// is enough unless they are removed again.
const ATTEMPTS: u32 = 8;

pub(crate) async fn join(tx: &Tx, join: &JoinShares) -> Result<(), Failed> {
    let (app, device) = (i64::from(join.app.0), join.device.0 as i64);
    let (generation, lasts) = (join.generation as i64, i64::from(join.expiry_s));
    let sql = "SELECT 1 FROM devices WHERE num = $1 AND app = $2 FOR NO KEY UPDATE";
    tx.query_opt(sql, &[&device, &app]).await?.ok_or(Error::NotFound)?;
    let now: i64 = tx.query_one("SELECT last FROM accept_order", &[]).await?.int(0)?;
    let (nums, levels) = lock_groups(tx, app, now, join.shares.clone()).await?;
    // A group without members skips what was published since its last member left.
    let sql = "UPDATE share_groups AS g SET since = greatest(since, $2)
         WHERE num = ANY($1::bigint[]) AND NOT EXISTS (
             SELECT 1 FROM share_members AS m JOIN devices AS d ON d.num = m.device
             WHERE m.share = g.num AND m.state < 2)";
    tx.execute(sql, &[&nums, &now]).await?;
    let sql = "INSERT INTO share_members AS m (share, device, qos, generation, lasts, state)
         SELECT s.num, $3, s.qos, $4, $5, 0 FROM unnest($1::bigint[], $2::bigint[]) AS s (num, qos)
         ON CONFLICT (share, device) DO UPDATE SET qos = excluded.qos, generation = excluded.generation,
             lasts = excluded.lasts, state = 0, ends_at = NULL, held = NULL
         WHERE m.generation <= excluded.generation";
    tx.execute(sql, &[&nums, &levels, &device, &generation, &lasts]).await?;
    check_limits(&tx.query_one(COUNTS, &[&app, &device]).await?)?;
    Ok(())
}

/// Creates the missing groups and locks all of them. Returns the numbers of the groups, and the QoS of each.
async fn lock_groups(
    tx: &Tx,
    app: i64,
    now: i64,
    shares: Vec<(Share, u8)>,
) -> Result<(Vec<i64>, Vec<i64>), Failed> {
    // Rows are created in the order of their names and locked in the order of their numbers, here and in [`settle`], so that
    // two first attempts never deadlock. PostgreSQL ends other deadlocks, and the transaction runs again.
    let shares = share::distinct(shares);
    let (names, filters): (Vec<&str>, Vec<&str>) =
        shares.iter().map(|(share, _)| (&*share.name, &*share.filter)).unzip();
    let levels: Vec<i64> = shares.iter().map(|(_, qos)| i64::from(*qos)).collect();
    for _ in 0..ATTEMPTS {
        let sql = "INSERT INTO share_groups (app, name, filter, since)
             SELECT $1, s.name, s.filter, $4 FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS s (name, filter, at)
             ORDER BY s.at ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&app, &names, &filters, &now]).await?;
        let sql = "SELECT g.num, s.qos FROM share_groups AS g
             JOIN unnest($2::text[], $3::text[], $4::bigint[]) AS s (name, filter, qos)
                 ON s.name = g.name AND s.filter = g.filter
             WHERE g.app = $1 ORDER BY g.num FOR NO KEY UPDATE OF g";
        let rows = tx.query(sql, &[&app, &names, &filters, &levels]).await?;
        if rows.len() == shares.len() {
            return Ok(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i64>(1))).unzip());
        }
    }
    Err(Error::Overloaded.into())
}

pub(crate) async fn leave(tx: &Tx, leave: &LeaveShares) -> Result<bool, Failed> {
    let (device, generation, held) =
        (leave.device.0 as i64, leave.generation as i64, held_bytes(&leave.held));
    let (state, ends_at) = codes(&leave.what);
    let Leave::Shares(shares) = &leave.what else {
        let sql = "UPDATE share_members SET state = $3::bigint, ends_at = $4, held = coalesce($5, held)
                   WHERE device = $1 AND generation <= $2 AND state < $3::bigint";
        return Ok(tx.execute(sql, &[&device, &generation, &state, &ends_at, &held]).await? > 0);
    };
    let sql = "UPDATE share_members SET state = $3::bigint, ends_at = NULL, held = coalesce($4, held)
         WHERE device = $1 AND generation <= $2 AND state < $3::bigint AND share IN (
             SELECT g.num FROM share_groups AS g JOIN devices AS d ON d.app = g.app
             JOIN unnest($5::text[], $6::text[]) AS s (name, filter) ON s.name = g.name AND s.filter = g.filter
             WHERE d.num = $1)";
    let (names, filters): (Vec<&str>, Vec<&str>) =
        shares.iter().map(|share| (&*share.name, &*share.filter)).unzip();
    Ok(tx.execute(sql, &[&device, &generation, &state, &held, &names, &filters]).await? > 0)
}

pub(crate) async fn return_members(tx: &Tx, members: &[(DeviceNum, u64)]) -> Result<bool, Failed> {
    let (devices, generations): (Vec<i64>, Vec<i64>) =
        members.iter().map(|(device, generation)| (device.0 as i64, *generation as i64)).unzip();
    let sql = "UPDATE share_members AS m SET state = 0, ends_at = NULL
               FROM unnest($1::bigint[], $2::bigint[]) AS s (device, generation)
               WHERE m.device = s.device AND m.generation = s.generation AND m.state = 1";
    Ok(tx.execute(sql, &[&devices, &generations]).await? > 0)
}

pub(crate) async fn settle(tx: &Tx, settle: &SettleShares) -> Result<(), Failed> {
    let mut touched: Vec<i64> = settle.since.iter().map(|(num, _)| num.0).collect();
    touched.extend(settle.over.iter().map(|(num, _)| num.0));
    // A join locks the rows of its groups.
    let sql = "SELECT num FROM share_groups WHERE num = ANY($1::bigint[]) ORDER BY num FOR UPDATE";
    tx.query(sql, &[&touched]).await?;
    let (nums, places): (Vec<i64>, Vec<i64>) =
        settle.since.iter().map(|(num, place)| (num.0, place.0)).unzip();
    let sql = "UPDATE share_groups AS g SET since = greatest(g.since, s.place)
               FROM unnest($1::bigint[], $2::bigint[]) AS s (num, place) WHERE g.num = s.num";
    tx.execute(sql, &[&nums, &places]).await?;
    if settle.over.is_empty() {
        return Ok(());
    }
    let (nums, devices): (Vec<i64>, Vec<i64>) =
        settle.over.iter().map(|(num, device)| (num.0, device.0 as i64)).unzip();
    let sql = "DELETE FROM share_members AS m USING unnest($1::bigint[], $2::bigint[]) AS s (share, device)
               WHERE m.share = s.share AND m.device = s.device
                   AND (m.state >= 2 OR NOT EXISTS (SELECT 1 FROM devices WHERE num = m.device))";
    tx.execute(sql, &[&nums, &devices]).await?;
    let sql = "DELETE FROM share_groups AS g WHERE num = ANY($1::bigint[])
                   AND NOT EXISTS (SELECT 1 FROM share_members WHERE share = g.num)";
    tx.execute(sql, &[&nums]).await?;
    Ok(())
}
