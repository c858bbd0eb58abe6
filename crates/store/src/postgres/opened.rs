//! Notifications that users opened: one row for a notification and a device, kept as long as the notification. Counts and
//! traces read the rows as [`Outcome::Opened`]; a part of `outcomes` for each would make the trace of a campaign as long as
//! its audience.

use std::collections::HashSet;
use std::sync::Arc;

use noroshi_types::{DeviceNum, NotificationId, Outcome, Timestamp};
use tokio_postgres::Row;

use super::campaign_sum;
use super::transaction::{Failed, Tx};
use crate::TraceStep;
use crate::engine::campaign::{CampaignNum, Count};
use crate::engine::record::Record;
use crate::ids::{Ids, Num};

/// A published batch names its campaign; the notification of a campaign is named by it.
const OPEN: &str = "WITH new AS (
        INSERT INTO openings (num, device, at)
        SELECT n.num, d.num, $3::bigint FROM unnest($1::bigint[]) AS asked (num)
        JOIN notifications n ON n.num = asked.num JOIN devices d ON d.num = $2::bigint AND d.app = n.app
        ORDER BY n.num ON CONFLICT (num, device) DO NOTHING RETURNING num)
    SELECT new.num, coalesce((SELECT c.num FROM campaigns c WHERE c.num = n.campaign),
                             (SELECT c.num FROM campaigns c WHERE c.notification = n.num LIMIT 1), 0)
    FROM new JOIN notifications n ON n.num = new.num";

/// Returns those that were not opened on this device before.
pub(super) async fn open(
    tx: Tx,
    ids: Arc<Ids>,
    device: DeviceNum,
    asked: Arc<Vec<NotificationId>>,
    now: Timestamp,
) -> Result<Vec<NotificationId>, Failed> {
    let mut nums: Vec<Num> = asked.iter().filter_map(|id| ids.num(*id)).collect();
    nums.sort_unstable();
    nums.dedup();
    if nums.is_empty() {
        return Ok(Vec::new());
    }
    let rows = tx.query(OPEN, &[&nums, &(device.0 as i64), &(now.0 as i64)]).await?;
    let of = |row: &Row| (row.get::<_, CampaignNum>(1), Some(row.get::<_, Num>(0)));
    let of_campaigns = rows.iter().map(of).filter(|(campaign, _)| *campaign != 0);
    let count = |(campaign, num)| Count { campaign, num, outcome: Outcome::Opened, reason: None, count: 1 };
    campaign_sum::count(&tx, of_campaigns.map(count)).await?;
    let mut new: HashSet<NotificationId> = rows.iter().map(|row| ids.id(row.get(0))).collect();
    Ok(asked.iter().copied().filter(|id| new.remove(id)).collect())
}

/// On how many devices it was opened.
pub(super) async fn count(tx: &Tx, num: Num) -> Result<u64, Failed> {
    let row = tx.query_one("SELECT count(*) FROM openings WHERE num = $1", &[&num]).await?;
    Ok(row.count(0)?)
}

/// When it was opened on a device.
pub(super) async fn step(tx: &Tx, num: Num, device: DeviceNum) -> Result<Option<TraceStep>, Failed> {
    let sql = "SELECT at FROM openings WHERE num = $1 AND device = $2";
    let row = tx.query_opt(sql, &[&num, &(device.0 as i64)]).await?;
    let step = |at: i64| TraceStep { at: Timestamp(at as u64), outcome: Outcome::Opened, reason: None };
    Ok(row.map(|row| step(row.get(0))))
}
