//! Groups of shared subscriptions and their members.

use noroshi_types::{AppId, DeviceId, DeviceNum};
use tokio_postgres::Row;

use super::Postgres;
use super::transaction::{Failed, Tx};
use crate::share::{self, Counts, GroupRow, MemberState, held_bytes, held_ids};
use crate::{Error, JoinShares, Leave, LeaveShares, Place, Share, ShareGroup, ShareMember, ShareNum, Shares};

#[async_trait::async_trait]
impl Shares for Postgres {
    async fn join_shares(&self, join: JoinShares) -> Result<(), Error> {
        self.write(move |tx| w_join(tx, join.clone())).await
    }

    async fn leave_shares(&self, leave: LeaveShares) -> Result<bool, Error> {
        self.write(move |tx| w_leave(tx, leave.clone())).await
    }

    async fn share_groups(&self) -> Result<Vec<ShareGroup>, Error> {
        self.read(async |tx: Tx| {
            let rows = tx.query(share::GROUPS, &[]).await?;
            Ok(share::group(rows.iter().map(row_of)))
        })
        .await
    }

    async fn settle_shares(
        &self,
        since: Vec<(ShareNum, Place)>,
        over: Vec<(ShareNum, DeviceNum)>,
    ) -> Result<(), Error> {
        self.write(move |tx| w_settle(tx, since.clone(), over.clone())).await
    }
}

async fn w_join(tx: Tx, join: JoinShares) -> Result<(), Failed> {
    let (app, device) = (i64::from(join.app.0), join.device.0 as i64);
    let (generation, lasts) = (join.generation as i64, i64::from(join.lasts));
    let sql = "SELECT 1 FROM devices WHERE num = $1 AND app = $2 FOR NO KEY UPDATE";
    tx.query_opt(sql, &[&device, &app]).await?.ok_or(Error::NotFound)?;
    let now: i64 = tx.query_one("SELECT last FROM accept_order", &[]).await?.get(0);
    // Always in one order, so that two devices that join the same groups do not wait for each other.
    let mut shares = join.shares;
    shares.sort_by(|(a, _), (b, _)| (&a.name, &a.filter).cmp(&(&b.name, &b.filter)));
    for (Share { name, filter }, qos) in &shares {
        let sql = "INSERT INTO share_groups (app, name, filter, since) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING";
        tx.execute(sql, &[&app, name, filter, &now]).await?;
        let sql =
            "SELECT num FROM share_groups WHERE app = $1 AND name = $2 AND filter = $3 FOR NO KEY UPDATE";
        // The leader may end an empty group at this moment: then the whole is tried again by its caller.
        let found = tx.query_opt(sql, &[&app, name, filter]).await?;
        let num: i64 = found.ok_or(Error::Overloaded)?.get(0);
        // Nobody was to get what came since its last member left.
        let sql = "UPDATE share_groups SET since = greatest(since, $2)
             WHERE num = $1 AND NOT EXISTS (SELECT 1 FROM share_members WHERE share = $1 AND state <> 2)";
        tx.execute(sql, &[&num, &now]).await?;
        let sql = "INSERT INTO share_members AS m (share, device, qos, generation, lasts, state)
             VALUES ($1, $2, $3, $4, $5, 0)
             ON CONFLICT (share, device) DO UPDATE SET qos = excluded.qos, generation = excluded.generation,
                 lasts = excluded.lasts, state = 0, held = NULL
             WHERE m.generation <= excluded.generation";
        tx.execute(sql, &[&num, &device, &i64::from(*qos), &generation, &lasts]).await?;
    }
    let sql = "SELECT (SELECT count(*) FROM share_members WHERE device = $2 AND state <> 2),
             (SELECT count(*) FROM share_groups AS g JOIN share_members AS m ON m.share = g.num WHERE g.app = $1),
             (SELECT count(*) FROM share_groups WHERE app = $1)";
    let row = tx.query_one(sql, &[&app, &device]).await?;
    Counts { of_device: row.get(0), members: row.get(1), groups: row.get(2) }.check()?;
    Ok(())
}

async fn w_leave(tx: Tx, leave: LeaveShares) -> Result<bool, Failed> {
    let (device, generation, held) =
        (leave.device.0 as i64, leave.generation as i64, held_bytes(&leave.held));
    let all = "UPDATE share_members SET state = $3::bigint, held = coalesce($4, held)
               WHERE device = $1 AND generation <= $2 AND state <> 2 AND (state <> 1 OR $3::bigint <> 1)";
    let count = match &leave.what {
        Leave::Connection => {
            tx.execute(all, &[&device, &generation, &(MemberState::Away as i64), &held]).await?
        }
        Leave::Session => {
            tx.execute(all, &[&device, &generation, &(MemberState::Left as i64), &held]).await?
        }
        Leave::Some(shares) => {
            let sql = "UPDATE share_members SET state = 2, held = coalesce($3, held)
                 WHERE device = $1 AND generation <= $2 AND state <> 2 AND share IN (
                     SELECT g.num FROM share_groups AS g JOIN devices AS d ON d.app = g.app
                     JOIN unnest($4::text[], $5::text[]) AS s (name, filter) ON s.name = g.name AND s.filter = g.filter
                     WHERE d.num = $1)";
            let (names, filters): (Vec<&str>, Vec<&str>) =
                shares.iter().map(|share| (&*share.name, &*share.filter)).unzip();
            tx.execute(sql, &[&device, &generation, &held, &names, &filters]).await?
        }
    };
    Ok(count > 0)
}

async fn w_settle(
    tx: Tx,
    since: Vec<(ShareNum, Place)>,
    over: Vec<(ShareNum, DeviceNum)>,
) -> Result<(), Failed> {
    let (nums, places): (Vec<i64>, Vec<i64>) = since.iter().map(|(num, place)| (num.0, place.0)).unzip();
    let sql = "UPDATE share_groups AS g SET since = greatest(g.since, s.place)
               FROM unnest($1::bigint[], $2::bigint[]) AS s (num, place) WHERE g.num = s.num";
    tx.execute(sql, &[&nums, &places]).await?;
    if over.is_empty() {
        return Ok(());
    }
    let (nums, devices): (Vec<i64>, Vec<i64>) =
        over.iter().map(|(num, device)| (num.0, device.0 as i64)).unzip();
    // Whoever joins has the group's row locked.
    let sql = "SELECT num FROM share_groups WHERE num = ANY($1::bigint[]) ORDER BY num FOR UPDATE";
    tx.query(sql, &[&nums]).await?;
    let sql = "DELETE FROM share_members AS m USING unnest($1::bigint[], $2::bigint[]) AS s (share, device)
               WHERE m.share = s.share AND m.device = s.device
                   AND (m.state = 2 OR NOT EXISTS (SELECT 1 FROM devices WHERE num = m.device))";
    tx.execute(sql, &[&nums, &devices]).await?;
    let sql = "DELETE FROM share_groups AS g WHERE num = ANY($1::bigint[])
                   AND NOT EXISTS (SELECT 1 FROM share_members WHERE share = g.num)";
    tx.execute(sql, &[&nums]).await?;
    Ok(())
}

fn row_of(row: &Row) -> GroupRow {
    let text = |at: usize| row.get::<_, &str>(at).into();
    let group = ShareGroup {
        num: ShareNum(row.get(0)),
        app: AppId(row.get::<_, i64>(1) as u32),
        share: Share { name: text(2), filter: text(3) },
        since: Place(row.get(4)),
        members: Vec::new(),
    };
    let member = row.get::<_, Option<i64>>(5).map(|num| ShareMember {
        num: DeviceNum(num as u64),
        device: row.get::<_, Option<&str>>(6).and_then(|id| DeviceId::parse(id).ok()),
        qos: row.get::<_, i64>(7) as u8,
        generation: row.get::<_, i64>(8) as u64,
        lasts: row.get::<_, i64>(9) != 0,
        state: MemberState::of(row.get(10)),
        held: held_ids(row.get(11)),
    });
    GroupRow { group, member }
}
