//! Finishing batches: outcomes, retries, tokens and campaigns.

use noroshi_types::Timestamp;

use super::{take, token};
use crate::engine::campaign::{CampaignRow, VariantNotifications};
use crate::engine::push::{Ended, Entry, FinishWrites, has_variant};
use crate::sqlite::statement::Db;
use crate::sqlite::writer::Write;
use crate::sqlite::{campaign_row, outcome, push_queue};
use crate::{Error, Finished, FinishedCounts};

pub(crate) fn finish(w: &Write<'_>, finished: &[Finished], now: Timestamp) -> Result<FinishedCounts, Error> {
    let mut counts = FinishedCounts::default();
    for one in finished {
        match end(w.db, one)? {
            Some(ended) => record(w, &ended, one, now, &mut counts)?,
            None => counts.unknown += 1,
        }
    }
    Ok(counts)
}

/// Removes the batch's row.
fn end(db: &Db, finished: &Finished) -> Result<Option<Ended>, Error> {
    let sql = "DELETE FROM push_queue WHERE id = ?1 RETURNING app, lane, service, campaign, num, due_at";
    let found = db.first(sql, (finished.batch.0 as i64,), |row| Entry::of_row(row, 0))?;
    let Some(entry) = found else { return Ok(None) };
    let campaign = match entry.campaign {
        0 => None,
        num => campaign_row::load(db, num)?,
    };
    let wanted = finished.again.is_empty() || entry.num == 0 || take::is_wanted(db, entry.num)?;
    Ok(Some(Ended { entry, campaign, wanted }))
}

fn record(
    w: &Write<'_>,
    ended: &Ended,
    finished: &Finished,
    now: Timestamp,
    counts: &mut FinishedCounts,
) -> Result<(), Error> {
    let db = w.db;
    let variants = match ended.campaign {
        Some(CampaignRow { num, .. }) if has_variant(std::slice::from_ref(finished)) => {
            campaign_row::variants(db, num)?
        }
        _ => VariantNotifications::new(),
    };
    let mut writes = FinishWrites::default();
    writes.add(ended, finished, &variants, (now, w.ids), counts);
    writes.parts.iter().try_for_each(|part| outcome::add(db, part))?;
    writes.counts.iter().try_for_each(|count| campaign_row::count(db, count))?;
    writes.retries.iter().try_for_each(|(entry, recipients)| push_queue::insert(db, entry, recipients))?;
    let app = ended.entry.app;
    for gone in &finished.gone {
        counts.tokens_removed += u64::from(token::remove(db, app, gone, now)?);
    }
    for suspect in &finished.suspects {
        counts.tokens_suspected += u64::from(token::set_aside(db, app, suspect, now)?);
    }
    for ((campaign, bucket), count) in writes.latencies {
        let sql = "INSERT INTO campaign_latency (campaign, bucket, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        db.run(sql, (campaign, bucket, count))?;
    }
    if let Some(campaign) = ended.campaign {
        counts.done.extend(campaign_row::settle(w, campaign.num, now)?);
    }
    Ok(())
}
