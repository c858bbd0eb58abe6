//! Sums of campaigns and of their variants: outcomes by reason, and latency histograms. Each sum is spread over
//! [`SHARDS`] rows, so that concurrent additions do not wait for each other; reads add the rows up. The sums of a campaign
//! are locked before those of its variants.
//!
//! A notification belongs to the same variant for ever, so that later outcomes count for the variant that was sent.
//! Campaigns without variants have no rows in the tables of variants.

use std::collections::{BTreeMap, HashMap};

use noroshi_types::{NotificationId, Outcome};

use super::transaction::{Failed, Tx};
use crate::engine::campaign::{CampaignNum, Count, Counts, VariantNotifications, count_of};
use crate::engine::record::Record;
use crate::ids::{self, Num};
use crate::{VariantNum, VariantSums};

/// Rows of each sum.
const SHARDS: u64 = 16;

/// A random row of a sum.
fn shard() -> i64 {
    (ids::random_bits() % SHARDS) as i64
}

/// These notifications belong to variants from now on.
pub(super) const ADD_TO_VARIANTS: &str = "INSERT INTO variant_notifications (num, campaign, variant)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";

/// Adds to the sums of the variants that notifications belong to. Other notifications are left out.
pub(super) const COUNT_VARIANTS: &str = "INSERT INTO campaign_variant_counts AS s
        (campaign, variant, outcome, reason, shard, count)
    SELECT v.campaign, v.variant, u.outcome, u.reason, $5::bigint, sum(u.count)::bigint
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS u (num, outcome, reason, count)
    JOIN variant_notifications v ON v.num = u.num JOIN campaigns c ON c.num = v.campaign
    GROUP BY v.campaign, v.variant, u.outcome, u.reason ORDER BY v.campaign, v.variant, u.outcome, u.reason
    ON CONFLICT (campaign, variant, outcome, reason, shard) DO UPDATE SET count = s.count + excluded.count";

pub(super) async fn counts(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, Counts>, Failed> {
    let sql =
        "SELECT campaign, outcome, reason, sum(count)::bigint FROM campaign_counts WHERE campaign = ANY($1)
               GROUP BY campaign, outcome, reason ORDER BY campaign, outcome, reason";
    let mut found: HashMap<CampaignNum, Counts> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        found.entry(row.int(0)?).or_default().extend(count_of(&row, 1)?);
    }
    Ok(found)
}

pub(super) async fn latencies(
    tx: &Tx,
    nums: &[CampaignNum],
) -> Result<HashMap<CampaignNum, Vec<(u16, u64)>>, Failed> {
    let sql = "SELECT campaign, bucket, sum(count)::bigint FROM campaign_latency WHERE campaign = ANY($1)
               GROUP BY campaign, bucket ORDER BY campaign, bucket";
    let mut found: HashMap<CampaignNum, Vec<(u16, u64)>> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        found.entry(row.int(0)?).or_default().push((row.int(1)? as u16, row.count(2)?));
    }
    Ok(found)
}

/// What one notification adds to the sums of its variant.
pub(super) type VariantCount = (Num, Outcome, Option<&'static str>, u64);

/// By campaign or notification, the outcome's code, and the reason.
type Sums = BTreeMap<(i64, i64, &'static str), i64>;

/// Runs a statement that adds sums, in their order, to a random row of each; does nothing without sums.
async fn add(tx: &Tx, sql: &str, sums: Sums) -> Result<(), Failed> {
    if sums.is_empty() {
        return Ok(());
    }
    let columns = sums.into_iter().map(|((of, outcome, reason), count)| (of, outcome, reason, count));
    let (of, outcomes, reasons, counts): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = columns.collect();
    tx.execute(sql, &[&of, &outcomes, &reasons, &counts, &shard()]).await.map(drop)
}

/// Adds to the sums of campaigns with one statement, in their order, and to those of variants with another.
pub(super) async fn count(tx: &Tx, counts: impl IntoIterator<Item = Count>) -> Result<(), Failed> {
    let mut sums = Sums::new();
    let mut of_variants: Vec<VariantCount> = Vec::new();
    for Count { campaign, num, outcome, reason, count } in counts {
        if count > 0 {
            of_variants.extend(num.map(|num| (num, outcome, reason, count)));
            *sums.entry((campaign, outcome as i64, reason.unwrap_or_default())).or_default() += count as i64;
        }
    }
    let sql = "INSERT INTO campaign_counts AS c (campaign, outcome, reason, shard, count)
         SELECT campaign, outcome, reason, $5, count
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS new (campaign, outcome, reason, count)
         ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count";
    add(tx, sql, sums).await?;
    count_variants(tx, of_variants).await
}

/// Adds to histograms with one statement, in their order.
pub(super) async fn add_latencies(
    tx: &Tx,
    latencies: &BTreeMap<(CampaignNum, i64), i64>,
) -> Result<(), Failed> {
    if latencies.is_empty() {
        return Ok(());
    }
    let (campaigns, buckets): (Vec<i64>, Vec<i64>) = latencies.keys().copied().unzip();
    let counts: Vec<_> = latencies.values().copied().collect();
    tx.execute(
        "INSERT INTO campaign_latency AS l (campaign, bucket, shard, count)
         SELECT campaign, bucket, $4, count
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new (campaign, bucket, count)
         ON CONFLICT (campaign, bucket, shard) DO UPDATE SET count = l.count + excluded.count",
        &[&campaigns, &buckets, &counts, &shard()],
    )
    .await?;
    Ok(())
}

/// The notifications that outcomes of these campaigns' variants are recorded under.
pub(super) async fn variants(tx: &Tx, campaigns: &[CampaignNum]) -> Result<VariantNotifications, Failed> {
    let sql = "SELECT campaign, variant, notification FROM campaign_variants WHERE campaign = ANY($1)";
    let rows = tx.query(sql, &[&campaigns]).await?;
    rows.iter().map(|row| Ok(((row.int(0)?, VariantNum(row.code(1)?)), row.int(2)?))).collect()
}

/// Runs [`COUNT_VARIANTS`], unless there is nothing to add.
pub(super) async fn count_variants(
    tx: &Tx,
    added: impl IntoIterator<Item = VariantCount>,
) -> Result<(), Failed> {
    let mut sums = Sums::new();
    for (num, outcome, reason, count) in added.into_iter().filter(|(.., count)| *count > 0) {
        *sums.entry((num, outcome as i64, reason.unwrap_or_default())).or_default() += count as i64;
    }
    add(tx, COUNT_VARIANTS, sums).await
}

/// The sums of every variant of these campaigns, in order.
pub(super) async fn variant_sums(
    tx: &Tx,
    campaigns: &[CampaignNum],
) -> Result<HashMap<CampaignNum, Vec<VariantSums>>, Failed> {
    let sql = "SELECT v.campaign, v.notification, s.outcome, s.reason, sum(s.count)::bigint FROM campaign_variants v
               LEFT JOIN campaign_variant_counts s ON s.campaign = v.campaign AND s.variant = v.variant
               WHERE v.campaign = ANY($1) GROUP BY v.campaign, v.variant, v.notification, s.outcome, s.reason
               ORDER BY v.campaign, v.variant, s.outcome, s.reason";
    let mut found: HashMap<CampaignNum, Vec<VariantSums>> = HashMap::new();
    for row in tx.query(sql, &[&campaigns]).await? {
        let variants = found.entry(row.int(0)?).or_default();
        let notification: NotificationId = tx.ids().id(row.int(1)?);
        if variants.last().is_none_or(|last| last.notification != notification) {
            variants.push(VariantSums { notification, counts: Vec::new() });
        }
        if let (Some(count), Some(variant)) = (count_of(&row, 2)?, variants.last_mut()) {
            variant.counts.push(count);
        }
    }
    Ok(found)
}
