//! Finishing batches: outcomes, retries, tokens and campaigns, with a few statements for all batches of a call.

use std::collections::{BTreeSet, HashMap, HashSet};

use noroshi_types::{AppId, BatchId, Timestamp};

use super::token::{self, Sent};
use crate::engine::campaign::{CampaignNum, CampaignRow, VariantNotifications};
use crate::engine::device_list;
use crate::engine::notification::Standing;
use crate::engine::push::{Ended, Entry, FinishWrites, Kept, has_variant};
use crate::engine::push_record::Of;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::postgres::columns::columns;
use crate::postgres::push_queue::NewRows;
use crate::postgres::transaction::{Failed, Tx};
use crate::postgres::{campaign_row, campaign_sum, outcome};
use crate::{Finished, FinishedCounts, PushRecord, Rest, Work};

/// What is read about the work of the batches that end.
struct Known {
    campaigns: HashMap<CampaignNum, CampaignRow>,
    /// Notifications whose retries are wanted.
    wanted: HashSet<Num>,
    variants: VariantNotifications,
}

pub(crate) async fn finish(tx: &Tx, finished: &[Finished], now: Timestamp) -> Result<FinishedCounts, Failed> {
    let mut counts = FinishedCounts::default();
    let (kept, unchanged) = keep(tx, finished, &mut counts).await?;
    let mut entries = end(tx, finished).await?;
    entries.extend(kept);
    let nums: BTreeSet<CampaignNum> =
        entries.values().map(|entry| entry.campaign).filter(|num| *num != 0).collect();
    let nums: Vec<CampaignNum> = nums.into_iter().collect();
    if !nums.is_empty() {
        campaign_row::hold_open(tx, &nums).await?;
    }
    let known = look_up(tx, finished, &entries, &nums).await?;
    let mut writes = FinishWrites::default();
    let (mut gone, mut suspects, mut records) = (Vec::new(), Vec::new(), Records::default());
    for one in finished {
        if unchanged.contains(&one.batch.0) {
            continue;
        }
        // A batch that is reported twice counts once.
        let Some(entry) = entries.remove(&one.batch.0) else {
            counts.unknown += 1;
            continue;
        };
        let campaign = known.campaigns.get(&entry.campaign).copied();
        if let Some(key) = entry.sent_to() {
            gone.extend(one.gone.iter().map(|gone| (Sent { app: entry.app, key: key.clone() }, gone)));
            let of = |suspect| (Sent { app: entry.app, key: key.clone() }, suspect);
            suspects.extend(one.suspects.iter().map(of));
        }
        let num = entry.num;
        let work = Work::of(tx.ids(), num, campaign.map(|campaign| campaign.id));
        if let (Some(record), Some(work)) = (&one.record, work) {
            records.add(entry.app, Of::Work(work), record);
        }
        let ended = Ended { entry, campaign, wanted: known.wanted.contains(&num) };
        writes.add(&ended, one, &known.variants, (now, tx.ids()), &mut counts);
    }
    let mut retries = NewRows::default();
    writes.retries.iter().for_each(|(entry, recipients)| retries.push(entry, recipients));
    tokio::try_join!(outcome::add(tx, &writes.parts), retries.insert(tx), records.insert(tx))?;
    if !gone.is_empty() || !suspects.is_empty() {
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

columns! {
    Records { apps: i64, works: Vec<u8>, until: i64, devices: Vec<u8>, attempts: Vec<u8> }
}

impl Records {
    fn add(&mut self, app: AppId, of: Of, record: &PushRecord) {
        let PushRecord { keep_until, devices, attempts } = record;
        let devices = device_list::encode(devices);
        self.push_row((i64::from(app.0), of.key(), keep_until.0 as i64, devices, attempts.clone()));
    }

    async fn insert(&self, tx: &Tx) -> Result<(), Failed> {
        let sql = "INSERT INTO push_records (app, work, keep_until, devices, attempts)
                   SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bigint[], $4::bytea[], $5::bytea[])";
        if !self.apps.is_empty() {
            tx.execute(sql, &self.values()).await?;
        }
        Ok(())
    }
}

/// Leaves the rest of batches in their rows. Returns those that are to be recorded, and those that are not: written by
/// an earlier call, or stale. Locks the rows of all batches first, in the order of every call.
async fn keep(
    tx: &Tx,
    finished: &[Finished],
    counts: &mut FinishedCounts,
) -> Result<(HashMap<u64, Entry>, HashSet<u64>), Failed> {
    let parts: HashMap<u64, &Rest> =
        finished.iter().filter_map(|one| Some((one.batch.0, one.rest.as_ref()?))).collect();
    if parts.is_empty() {
        return Ok((HashMap::new(), HashSet::new()));
    }
    let all: Vec<i64> = finished.iter().map(|one| one.batch.0 as i64).collect();
    let rows = tx
        .query(
            "SELECT id, app, lane, service, campaign, num, due_at, token, leased_until, recipients
             FROM push_queue WHERE id = ANY($1) ORDER BY id FOR UPDATE",
            &[&all],
        )
        .await?;
    let (mut now, mut before) = (HashMap::new(), HashSet::new());
    for row in &rows {
        let batch = row.count(0)?;
        let Some(rest) = parts.get(&batch) else { continue };
        match Kept::of(Entry::of_row(row, 1)?, row.time(8)?, row.bytes(9)?, rest) {
            Kept::Now(entry) => drop(now.insert(batch, entry)),
            Kept::Before => drop(before.insert(batch)),
            Kept::Stale => {}
        }
    }
    let stale = parts.keys().filter(|batch| !now.contains_key(batch) && !before.contains(batch));
    counts.stale = stale.map(|batch| BatchId(*batch)).collect();
    let ids: Vec<i64> = now.keys().map(|batch| *batch as i64).collect();
    let rests: Vec<Vec<u8>> = now.keys().map(|batch| device_list::encode(&parts[batch].recipients)).collect();
    if !ids.is_empty() {
        let sql = "UPDATE push_queue q SET recipients = part.recipients
                   FROM unnest($1::bigint[], $2::bytea[]) AS part (id, recipients) WHERE q.id = part.id";
        tx.execute(sql, &[&ids, &rests]).await?;
    }
    before.extend(counts.stale.iter().map(|batch| batch.0));
    Ok((now, before))
}

/// Removes the rows of the batches that end.
async fn end(tx: &Tx, finished: &[Finished]) -> Result<HashMap<u64, Entry>, Failed> {
    let ended = finished.iter().filter(|one| one.rest.is_none());
    let batches: Vec<i64> = ended.map(|one| one.batch.0 as i64).collect();
    if batches.is_empty() {
        return Ok(HashMap::new());
    }
    let rows = tx
        .query(
            "WITH ended AS (SELECT id FROM push_queue WHERE id = ANY($1) ORDER BY id FOR UPDATE)
             DELETE FROM push_queue q USING ended WHERE q.id = ended.id
             RETURNING q.id, q.app, q.lane, q.service, q.campaign, q.num, q.due_at, q.token",
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
