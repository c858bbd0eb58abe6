//! Notifications that users opened, as [`crate::engine::opened`] reads them.

use std::collections::HashSet;

use noroshi_types::{DeviceNum, NotificationId, Outcome, Timestamp};
use tokio_postgres::Row;

use super::campaign_sum;
use super::transaction::{Failed, Tx};
use crate::engine::campaign::{CampaignNum, Count};
use crate::ids::Num;

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
pub(crate) async fn open(
    tx: &Tx,
    device: DeviceNum,
    asked: &[NotificationId],
    now: Timestamp,
) -> Result<Vec<NotificationId>, Failed> {
    let ids = tx.ids();
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
    campaign_sum::count(tx, of_campaigns.map(count)).await?;
    let mut new: HashSet<NotificationId> = rows.iter().map(|row| ids.id(row.get(0))).collect();
    Ok(asked.iter().copied().filter(|id| new.remove(id)).collect())
}
