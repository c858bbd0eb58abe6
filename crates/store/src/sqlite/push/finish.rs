//! Ending batches: what became of each device, what is tried again, tokens, and campaigns.

use noroshi_types::{AppId, Lane, Outcome, PushService, Timestamp};
use rusqlite::{Connection, OptionalExtension};

use super::queue::{self, Entry, Fallback};
use super::{take, token};
use crate::sqlite::campaign::{self, CampaignNum, CampaignRow};
use crate::sqlite::writer::Write;
use crate::sqlite::{outcome, variant};
use crate::{Again, Error, Finished, FinishedCounts, PushPart, Work};

/// The row of a batch that ends.
struct Ended {
    entry: Entry,
    /// None if it is of none, or the campaign was deleted.
    campaign: Option<CampaignRow>,
}

pub(super) fn finish(
    w: &Write<'_>,
    finished: Vec<Finished>,
    now: Timestamp,
) -> Result<FinishedCounts, Error> {
    let mut counts = FinishedCounts::default();
    for one in finished {
        match end(w.db, one.batch.0 as i64)? {
            Some(ended) => record(w, &ended, one, now, &mut counts)?,
            None => counts.unknown += 1,
        }
    }
    Ok(counts)
}

/// Takes the row out of the queue.
fn end(db: &Connection, batch: i64) -> Result<Option<Ended>, Error> {
    let mut statement = db.prepare_cached(
        "DELETE FROM push_queue WHERE id = ?1 RETURNING app, lane, service, campaign, num, due_at",
    )?;
    let found = statement
        .query_row((batch,), |row| {
            Ok(Entry {
                app: AppId(row.get(0)?),
                lane: Lane::from_code(row.get(1)?).unwrap_or(Lane::Direct),
                service: PushService::from_code(row.get(2)?),
                campaign: row.get(3)?,
                num: row.get(4)?,
                variant: None,
                due_at: Timestamp(row.get::<_, i64>(5)? as u64),
                attempt: 0,
                fallback: Fallback::Settled,
            })
        })
        .optional()?;
    let Some(entry) = found else { return Ok(None) };
    let campaign = match entry.campaign {
        0 => None,
        num => campaign::row(db, num)?,
    };
    Ok(Some(Ended { entry, campaign }))
}

fn record(
    w: &Write<'_>,
    ended: &Ended,
    finished: Finished,
    now: Timestamp,
    counts: &mut FinishedCounts,
) -> Result<(), Error> {
    for part in finished.parts {
        add(w.db, ended, part, now)?;
    }
    retry(w, ended, finished.again, now, counts)?;
    for gone in &finished.gone {
        counts.tokens_removed += u64::from(token::remove(w.db, ended.entry.app, gone, now)?);
    }
    for suspect in &finished.suspects {
        counts.tokens_suspected += u64::from(token::set_aside(w.db, ended.entry.app, suspect, now)?);
    }
    if let Some(campaign) = ended.campaign {
        add_latencies(w.db, campaign.num, &finished.latencies)?;
        counts.done.extend(campaign::settle(w, campaign.num, now)?);
    }
    Ok(())
}

fn add(db: &Connection, ended: &Ended, part: PushPart, now: Timestamp) -> Result<(), Error> {
    let PushPart { outcome, reason, variant, devices } = part;
    let devices = queue::sorted(devices);
    let count = devices.len() as u64;
    let under = variant::recorded_under(db, ended.entry.num, ended.campaign, variant)?;
    if let Some(under) = under {
        outcome::add_with_reason(db, under, outcome, reason, now, &devices, count)?;
    }
    if let (Some(campaign), Some(under)) = (ended.campaign, under) {
        campaign::count(db, campaign.num, outcome, reason, count)?;
        variant::count(db, under, outcome, reason, count)?;
    }
    Ok(())
}

/// Queues retries, unless the work was cancelled or aborted meanwhile.
fn retry(
    w: &Write<'_>,
    ended: &Ended,
    again: Vec<Again>,
    now: Timestamp,
    counts: &mut FinishedCounts,
) -> Result<(), Error> {
    if again.is_empty() {
        return Ok(());
    }
    let entry = ended.entry;
    let wanted = match ended.campaign {
        Some(campaign) if campaign.state.ended() => false,
        None if entry.campaign != 0 => false,
        _ => entry.num == 0 || take::wanted(w.db, entry.num)?,
    };
    let work = Work::of(w.ids, entry.num, ended.campaign.map(|campaign| campaign.id));
    for again in again {
        if wanted {
            let Again { due_at, attempt, variant, recipients } = again;
            let entry = Entry { due_at, attempt, variant, ..entry };
            queue::insert(w.db, &entry, &queue::sorted(recipients))?;
        } else {
            add(w.db, ended, again.cancelled(), now)?;
            counts.cancelled.add(work, Outcome::Cancelled, now, &queue::sorted(again.recipients));
        }
    }
    Ok(())
}

fn add_latencies(db: &Connection, campaign: CampaignNum, latencies: &[(u16, u32)]) -> Result<(), Error> {
    let mut statement = db.prepare_cached(
        "INSERT INTO campaign_latency (campaign, bucket, count) VALUES (?1, ?2, ?3)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    for (bucket, count) in latencies.iter().filter(|(_, count)| *count > 0) {
        statement.execute((campaign, bucket, count))?;
    }
    Ok(())
}
