//! Ending batches: what became of each device, what is tried again, tokens, and campaigns. A handful of statements
//! for all batches of a call.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use noroshi_types::{AppId, Outcome, Timestamp};
use tokio_postgres::Row;

use super::queue::{self, Entry, NewRows};
use super::token;
use crate::ids::{Ids, Num};
use crate::postgres::campaign::{self, CampaignNum, CampaignRow, Count, variant};
use crate::postgres::outcome::{self, Part};
use crate::postgres::transaction::{Failed, Tx};
use crate::row::{Fallback, Standing};
use crate::{Again, Finished, FinishedCounts, PushPart, VariantNum, Work};

/// What the transaction writes besides the rows that go.
#[derive(Default)]
struct Writes {
    parts: Vec<Part>,
    counts: Vec<Count>,
    latencies: BTreeMap<(CampaignNum, i64), i64>,
    retries: NewRows,
}

/// What is known of the work of the batches that end.
struct Known {
    campaigns: HashMap<CampaignNum, CampaignRow>,
    /// Notifications of which retries are wanted.
    wanted: HashSet<Num>,
    /// Under which outcomes of variants are recorded.
    variants: HashMap<(CampaignNum, VariantNum), Num>,
}

/// The row of a batch that ends.
struct Ended<'a> {
    entry: Entry,
    /// None if it is of none, or the campaign was deleted.
    campaign: Option<&'a CampaignRow>,
    /// Under which outcomes are recorded.
    num: Option<Num>,
    /// None: the campaign was deleted.
    work: Option<Work>,
}

pub(super) async fn finish(
    tx: &Tx,
    ids: &Ids,
    finished: &[Finished],
    (now, keep_until): (Timestamp, Timestamp),
) -> Result<FinishedCounts, Failed> {
    let mut entries = end(tx, finished).await?;
    let mut counts = FinishedCounts::default();
    let nums: BTreeSet<CampaignNum> =
        entries.values().map(|entry| entry.campaign).filter(|num| *num != 0).collect();
    let nums: Vec<CampaignNum> = nums.into_iter().collect();
    if !nums.is_empty() {
        campaign::hold_open(tx, &nums).await?;
    }
    let known = look_up(tx, finished, &entries, &nums).await?;
    let mut writes = Writes::default();
    let (mut gone, mut suspects) = (Vec::new(), Vec::new());
    for one in finished {
        // A batch that is named twice counts once.
        let Some(entry) = entries.remove(&one.batch.0) else {
            counts.unknown += 1;
            continue;
        };
        let campaign = known.campaigns.get(&entry.campaign);
        let num =
            if entry.num > 0 { Some(entry.num) } else { campaign.map(|campaign| campaign.notification) };
        let work = Work::of(ids, entry.num, campaign.map(|campaign| campaign.id));
        let ended = Ended { entry, campaign, num, work };
        gone.extend(one.gone.iter().map(|gone| (entry.app, gone)));
        suspects.extend(one.suspects.iter().map(|suspect| (entry.app, suspect)));
        record(&ended, one, &known, now, &mut writes, &mut counts);
    }
    tokio::try_join!(outcome::add(tx, &writes.parts), writes.retries.insert(tx))?;
    if !gone.is_empty() && !suspects.is_empty() {
        token::lock(tx, &gone, &suspects).await?;
    }
    let removed = token::remove(tx, &gone).await?;
    let set_aside = token::set_aside(tx, &suspects, now).await?;
    (counts.tokens_removed, counts.tokens_suspected) = (removed.len() as u64, set_aside.len() as u64);
    if !nums.is_empty() {
        counts.done = campaign::settle(tx, &nums, now, keep_until).await?;
    }
    campaign::count(tx, writes.counts).await?;
    campaign::add_latencies(tx, &writes.latencies).await?;
    token::note(tx, removed.iter().chain(&set_aside), now).await?;
    Ok(counts)
}

/// Takes the rows out of the queue.
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
    let entry_of = |row: &Row| Entry {
        app: AppId(row.get::<_, i64>(1) as u32),
        lane: queue::lane_of(row.get(2)),
        service: queue::service_of(row.get(3)),
        campaign: row.get(4),
        num: row.get(5),
        variant: None,
        due_at: Timestamp(row.get::<_, i64>(6) as u64),
        attempt: 0,
        fallback: Fallback::Settled,
    };
    Ok(rows.iter().map(|row| (row.get::<_, i64>(0) as u64, entry_of(row))).collect())
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
        Ok(rows.iter().map(|row| row.get(0)).collect())
    };
    let of_variant = finished.iter().flat_map(|one| &one.parts).any(|part| part.variant.is_some());
    let any_variant =
        of_variant || finished.iter().flat_map(|one| &one.again).any(|again| again.variant.is_some());
    let variants = async {
        match any_variant {
            true => variant::notifications(tx, campaigns).await,
            false => Ok(HashMap::new()),
        }
    };
    let (campaigns, wanted, variants) = tokio::try_join!(campaign::rows(tx, campaigns), wanted, variants)?;
    Ok(Known { campaigns, wanted, variants })
}

fn record(
    ended: &Ended<'_>,
    finished: &Finished,
    known: &Known,
    now: Timestamp,
    writes: &mut Writes,
    counts: &mut FinishedCounts,
) {
    let of_variant = |part: &PushPart| {
        let key = (ended.campaign?.num, part.variant?);
        known.variants.get(&key).copied()
    };
    for part in &finished.parts {
        add(ended, of_variant(part), part, now, writes);
    }
    let entry = ended.entry;
    let wanted = match ended.campaign {
        Some(campaign) if campaign.state.ended() => false,
        None if entry.campaign != 0 => false,
        _ => entry.num == 0 || known.wanted.contains(&entry.num),
    };
    for again in &finished.again {
        if wanted {
            let Again { due_at, attempt, variant, .. } = *again;
            let entry = Entry { due_at, attempt, variant, ..entry };
            writes.retries.push(&entry, &queue::sorted(again.recipients.clone()));
        } else {
            let part = again.cancelled();
            add(ended, of_variant(&part), &part, now, writes);
            let recipients = queue::sorted(again.recipients.clone());
            counts.cancelled.add(ended.work, Outcome::Cancelled, now, &recipients);
        }
    }
    if let Some(campaign) = ended.campaign {
        for (bucket, count) in finished.latencies.iter().filter(|(_, count)| *count > 0) {
            *writes.latencies.entry((campaign.num, i64::from(*bucket))).or_default() += i64::from(*count);
        }
    }
}

/// Recorded under the notification of its variant, if it is of one.
fn add(ended: &Ended<'_>, of_variant: Option<Num>, part: &PushPart, now: Timestamp, writes: &mut Writes) {
    let PushPart { outcome, reason, devices, .. } = part;
    let (outcome, reason, devices) = (*outcome, *reason, queue::sorted(devices.clone()));
    let count = devices.len() as u64;
    let under = of_variant.or(ended.num);
    writes.parts.extend(under.map(|num| Part { reason, ..Part::of(num, outcome, now, devices) }));
    // A batch that was published is of the variant that its notification is of.
    let num = of_variant.or(Some(ended.entry.num).filter(|num| *num > 0));
    writes.counts.extend(ended.campaign.map(|campaign| Count {
        campaign: campaign.num,
        num,
        outcome,
        reason,
        count,
    }));
}
