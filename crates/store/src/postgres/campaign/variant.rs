//! Variants of campaigns: the notifications that are of one, and what became of them. A notification is of the same variant
//! for ever, so who looks at its device later counts for the variant that was sent. Sums are spread over rows as those of
//! the whole campaign, and are locked after those.
//!
//! Campaigns without variants have no rows here.

use std::collections::{BTreeMap, HashMap};

use noroshi_types::{NotificationId, Outcome, Timestamp};

use super::CampaignNum;
use super::create::insert_notification;
use super::sum::shard;
use crate::ids::{Ids, Num};
use crate::postgres::Postgres;
use crate::postgres::transaction::{Failed, Tx};
use crate::{NewCampaign, VariantNum, VariantSums};

/// These notifications are of variants from now on.
pub(in crate::postgres) const NOTE: &str = "INSERT INTO variant_notifications (num, campaign, variant)
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[])";

/// Adds to the sums of the variants that notifications are of; those that are of none are left out.
pub(in crate::postgres) const COUNT: &str = "INSERT INTO campaign_variant_counts AS s
        (campaign, variant, outcome, reason, shard, count)
    SELECT v.campaign, v.variant, u.outcome, u.reason, $5::bigint, sum(u.count)::bigint
    FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS u (num, outcome, reason, count)
    JOIN variant_notifications v ON v.num = u.num JOIN campaigns c ON c.num = v.campaign
    GROUP BY v.campaign, v.variant, u.outcome, u.reason ORDER BY v.campaign, v.variant, u.outcome, u.reason
    ON CONFLICT (campaign, variant, outcome, reason, shard) DO UPDATE SET count = s.count + excluded.count";

/// What is added for one notification.
pub(in crate::postgres) type Added = (Num, Outcome, Option<&'static str>, u64);

/// The variants of a new campaign, each with a notification of its own.
pub(super) async fn make(
    tx: &Tx,
    store: &Postgres,
    campaign: CampaignNum,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<(), Failed> {
    for (place, variant) in (1_i64..).zip(&new.variants) {
        let num = store.loose.next(now);
        let content = (&variant.notification, &variant.data);
        insert_notification(tx, num, new, (content, Some(campaign)), now).await?;
        let sql = "INSERT INTO campaign_variants (campaign, variant, notification) VALUES ($1, $2, $3)";
        tx.execute(sql, &[&campaign, &place, &num]).await?;
        tx.execute(NOTE, &[&[num].as_slice(), &[campaign].as_slice(), &[place].as_slice()]).await?;
    }
    Ok(())
}

/// Under which outcomes of these campaigns' variants are recorded.
pub(in crate::postgres) async fn notifications(
    tx: &Tx,
    campaigns: &[CampaignNum],
) -> Result<HashMap<(CampaignNum, VariantNum), Num>, Failed> {
    let sql = "SELECT campaign, variant, notification FROM campaign_variants WHERE campaign = ANY($1)";
    let rows = tx.query(sql, &[&campaigns]).await?;
    Ok(rows.iter().map(|row| ((row.get(0), variant_of(row.get(1))), row.get(2))).collect())
}

fn variant_of(code: i64) -> VariantNum {
    // Written by this program, from a byte.
    VariantNum(u8::try_from(code).unwrap_or(u8::MAX))
}

/// See [`COUNT`]; one statement, none for nothing.
pub(in crate::postgres) async fn count(
    tx: &Tx,
    added: impl IntoIterator<Item = Added>,
) -> Result<(), Failed> {
    let mut sums: BTreeMap<(Num, i64, &str), i64> = BTreeMap::new();
    for (num, outcome, reason, count) in added.into_iter().filter(|(.., count)| *count > 0) {
        *sums.entry((num, outcome as i64, reason.unwrap_or_default())).or_default() += count as i64;
    }
    if sums.is_empty() {
        return Ok(());
    }
    let nums: Vec<_> = sums.keys().map(|(num, ..)| *num).collect();
    let outcomes: Vec<_> = sums.keys().map(|(_, outcome, _)| *outcome).collect();
    let reasons: Vec<_> = sums.keys().map(|(.., reason)| *reason).collect();
    let counts: Vec<_> = sums.values().copied().collect();
    tx.execute(COUNT, &[&nums, &outcomes, &reasons, &counts, &shard()]).await?;
    Ok(())
}

/// Every variant of these campaigns, in order.
pub(super) async fn sums(
    tx: &Tx,
    ids: &Ids,
    campaigns: &[CampaignNum],
) -> Result<HashMap<CampaignNum, Vec<VariantSums>>, Failed> {
    let sql = "SELECT v.campaign, v.notification, s.outcome, s.reason, sum(s.count)::bigint FROM campaign_variants v
               LEFT JOIN campaign_variant_counts s ON s.campaign = v.campaign AND s.variant = v.variant
               WHERE v.campaign = ANY($1) GROUP BY v.campaign, v.variant, v.notification, s.outcome, s.reason
               ORDER BY v.campaign, v.variant, s.outcome, s.reason";
    let mut found: HashMap<CampaignNum, Vec<VariantSums>> = HashMap::new();
    for row in tx.query(sql, &[&campaigns]).await? {
        let variants = found.entry(row.get(0)).or_default();
        let notification: NotificationId = ids.id(row.get(1));
        if variants.last().is_none_or(|last| last.notification != notification) {
            variants.push(VariantSums { notification, counts: Vec::new() });
        }
        let code = row.get::<_, Option<i64>>(2).and_then(|code| u8::try_from(code).ok());
        if let (Some(outcome), Some(variant)) = (code.and_then(Outcome::from_code), variants.last_mut()) {
            variant.counts.push((outcome, row.get(3), row.get::<_, i64>(4) as u64));
        }
    }
    Ok(found)
}
