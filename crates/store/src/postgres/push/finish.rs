//! Finishing batches: outcomes, retries, tokens and campaigns, with a few statements for all batches of a call.

use std::collections::{BTreeSet, HashMap, HashSet};

use noroshi_types::Timestamp;

use super::token;
use crate::engine::campaign::{CampaignNum, CampaignRow, VariantNotifications};
use crate::engine::notification::Standing;
use crate::engine::push::{Ended, Entry, FinishWrites, has_variant};
use crate::engine::record::Record;
use crate::ids::Num;
use crate::postgres::push_queue::NewRows;
use crate::postgres::transaction::{Failed, Tx};
use crate::postgres::{campaign_row, campaign_sum, outcome};
use crate::{Finished, FinishedCounts};

/// What is read about the work of the batches that end.
struct Known {
    campaigns: HashMap<CampaignNum, CampaignRow>,
    /// Notifications whose retries are wanted.
    wanted: HashSet<Num>,
    variants: VariantNotifications,
}

pub(crate) async fn finish(tx: &Tx, finished: &[Finished], now: Timestamp) -> Result<FinishedCounts, Failed> {
    let mut entries = end(tx, finished).await?;
    let mut counts = FinishedCounts::default();
    let nums: BTreeSet<CampaignNum> =
        entries.values().map(|entry| entry.campaign).filter(|num| *num != 0).collect();
    let nums: Vec<CampaignNum> = nums.into_iter().collect();
    if !nums.is_empty() {
        campaign_row::hold_open(tx, &nums).await?;
    }
    let known = look_up(tx, finished, &entries, &nums).await?;
    let mut writes = FinishWrites::default();
    let (mut gone, mut suspects) = (Vec::new(), Vec::new());
    for one in finished {
        // A batch that is reported twice counts once.
        let Some(entry) = entries.remove(&one.batch.0) else {
            counts.unknown += 1;
            continue;
        };
        let campaign = known.campaigns.get(&entry.campaign).copied();
        gone.extend(one.gone.iter().map(|gone| (entry.app, gone)));
        suspects.extend(one.suspects.iter().map(|suspect| (entry.app, suspect)));
        let ended = Ended { entry, campaign, wanted: known.wanted.contains(&entry.num) };
        writes.add(&ended, one, &known.variants, (now, tx.ids()), &mut counts);
    }
    let mut retries = NewRows::default();
    writes.retries.iter().for_each(|(entry, recipients)| retries.push(entry, recipients));
    tokio::try_join!(outcome::add(tx, &writes.parts), retries.insert(tx))?;
    if !gone.is_empty() && !suspects.is_empty() {
        token::lock(tx, &gone, &suspects).await?;
    }
    let removed = token::remove(tx, &gone).await?;
    let set_aside = token::set_aside(tx, &suspects, now).await?;
    (counts.tokens_removed, counts.tokens_suspected) = (removed.len() as u64, set_aside.len() as u64);
    if !nums.is_empty() {
        counts.done = campaign_row::settle(tx, &nums, now).await?;
    }
    campaign_sum::count(tx, writes.counts).await?;
    campaign_sum::add_latencies(tx, &writes.latencies).await?;
    token::record(tx, removed.iter().chain(&set_aside), now).await?;
    Ok(counts)
}

/// Removes the rows of the batches.
async fn end(tx: &Tx, finished: &[Finished]) -> Result<HashMap<u64, Entry>, Failed> {
    let batches: Vec<i64> = finished.iter().map(|one| one.batch.0 as i64).collect();
    let rows = tx
        .query(
            "WITH ended AS (SELECT id FROM push_queue WHERE id = ANY($1) ORDER BY id FOR UPDATE)
             DELETE FROM push_queue q USING ended WHERE q.id = ended.id
             RETURNING q.id, q.app, q.lane, q.service, q.campaign, q.num, q.due_at",
            &[&batches],
        )
        .await?;
    rows.iter().map(|row| Ok((row.count(0)?, Entry::of_row(row, 1)?))).collect()
}

async fn look_up(
    tx: &Tx,
    finished: &[Finished],
    entries: &HashMap<u64, Entry>,
    campaigns: &[CampaignNum],
) -> Result<Known, Failed> {
    let again = finished.iter().filter(|one| !one.again.is_empty());
    let nums: BTreeSet<Num> = again.filter_map(|one| Some(entries.get(&one.batch.0)?.num)).collect();
    let nums: Vec<Num> = nums.into_iter().filter(|num| *num > 0).collect();
    let wanted = async {
        if nums.is_empty() {
            return Ok(HashSet::new());
        }
        let sql = "SELECT num FROM notifications WHERE num = ANY($1) AND standing <> $2";
        let rows = tx.query(sql, &[&nums, &(Standing::Cancelled as i64)]).await?;
        rows.iter().map(|row| Ok(row.int(0)?)).collect()
    };
    let variants = async {
        match has_variant(finished) {
            true => campaign_sum::variants(tx, campaigns).await,
            false => Ok(HashMap::new()),
        }
    };
    let (campaigns, wanted, variants) =
        tokio::try_join!(campaign_row::rows(tx, campaigns), wanted, variants)?;
    Ok(Known { campaigns, wanted, variants })
}
