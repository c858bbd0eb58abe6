//! Sums of the variants of campaigns.
//!
//! A notification belongs to the same variant for ever, so that later outcomes count for the variant that was sent.

use noroshi_types::Outcome;

use super::statement::Db;
use crate::Error;
use crate::ids::Num;

/// Adds to the sums of the variant that the notification belongs to, if it belongs to one.
pub(super) fn count_variant(
    db: &Db,
    num: Num,
    outcome: Outcome,
    reason: &str,
    count: u64,
) -> Result<(), Error> {
    let sql = "INSERT INTO campaign_variant_counts (campaign, variant, outcome, reason, count)
               SELECT v.campaign, v.variant, ?2, ?3, ?4 FROM variant_notifications v
               JOIN campaigns c ON c.num = v.campaign WHERE v.num = ?1
               ON CONFLICT DO UPDATE SET count = count + excluded.count";
    db.run(sql, (num, outcome as u8, reason, count as i64)).map(drop)
}
