//! Sums of campaigns: outcomes by reason, and histograms of latencies. Each is spread over [`SHARDS`] rows, of which
//! who adds takes any: finishing does not wait for finishing. Who reads adds them up.

use std::collections::{BTreeMap, HashMap};

use noroshi_types::Outcome;

use super::{CampaignNum, variant};
use crate::ids::{self, Num};
use crate::postgres::transaction::{Failed, Tx};

/// Rows of each sum.
const SHARDS: u64 = 16;

pub(super) type Sums = Vec<(Outcome, String, u64)>;

pub(super) async fn counts(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, Sums>, Failed> {
    let sql =
        "SELECT campaign, outcome, reason, sum(count)::bigint FROM campaign_counts WHERE campaign = ANY($1)
               GROUP BY campaign, outcome, reason ORDER BY campaign, outcome, reason";
    let mut found: HashMap<CampaignNum, Sums> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        let code = u8::try_from(row.get::<_, i64>(1)).ok();
        if let Some(outcome) = code.and_then(Outcome::from_code) {
            let sum = (outcome, row.get(2), row.get::<_, i64>(3) as u64);
            found.entry(row.get(0)).or_default().push(sum);
        }
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
        let sum = (row.get::<_, i64>(1) as u16, row.get::<_, i64>(2) as u64);
        found.entry(row.get(0)).or_default().push(sum);
    }
    Ok(found)
}

/// What is added to a campaign's sums.
pub(in crate::postgres) struct Count {
    pub campaign: CampaignNum,
    /// The notification, where it may be of a variant: then it is added to that one's sums too.
    pub num: Option<Num>,
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub count: u64,
}

/// One of a sum's rows.
pub(super) fn shard() -> i64 {
    (ids::random_bits() % SHARDS) as i64
}

/// Adds to sums by one statement, in their order, and to those of variants by another.
pub(in crate::postgres) async fn count(
    tx: &Tx,
    counts: impl IntoIterator<Item = Count>,
) -> Result<(), Failed> {
    let mut sums: BTreeMap<(CampaignNum, i64, &str), i64> = BTreeMap::new();
    let mut of_variants: Vec<variant::Added> = Vec::new();
    for Count { campaign, num, outcome, reason, count } in counts {
        if count > 0 {
            of_variants.extend(num.map(|num| (num, outcome, reason, count)));
            *sums.entry((campaign, outcome as i64, reason.unwrap_or_default())).or_default() += count as i64;
        }
    }
    if sums.is_empty() {
        return Ok(());
    }
    let campaigns: Vec<_> = sums.keys().map(|(campaign, ..)| *campaign).collect();
    let outcomes: Vec<_> = sums.keys().map(|(_, outcome, _)| *outcome).collect();
    let reasons: Vec<_> = sums.keys().map(|(.., reason)| *reason).collect();
    let counts: Vec<_> = sums.values().copied().collect();
    tx.execute(
        "INSERT INTO campaign_counts AS c (campaign, outcome, reason, shard, count)
         SELECT campaign, outcome, reason, $5, count
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS new (campaign, outcome, reason, count)
         ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count",
        &[&campaigns, &outcomes, &reasons, &counts, &shard()],
    )
    .await?;
    variant::count(tx, of_variants).await
}

/// Adds to histograms by one statement, in their order.
pub(in crate::postgres) async fn add_latencies(
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
