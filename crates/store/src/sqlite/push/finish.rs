//! Finishing batches: outcomes, retries, tokens and campaigns.

use noroshi_types::Timestamp;

use super::take;
use super::token::Tokens;
use crate::engine::campaign::{CampaignRow, VariantNotifications};
use crate::engine::device_list;
use crate::engine::push::{Ended, Entry, FinishWrites, Kept, has_variant};
use crate::engine::push_record::Of;
use crate::engine::record::Record;
use crate::sqlite::statement::Db;
use crate::sqlite::writer::Write;
use crate::sqlite::{campaign_row, outcome, push_queue};
use crate::{Error, Finished, FinishedCounts, Rest, Work};

pub(crate) fn finish(w: &Write<'_>, finished: &[Finished], now: Timestamp) -> Result<FinishedCounts, Error> {
    let mut counts = FinishedCounts::default();
    for one in finished {
        match &one.rest {
            None => match end(w.db, one)? {
                Some(ended) => record(w, &ended, one, now, &mut counts)?,
                None => counts.unknown += 1,
            },
            Some(rest) => match keep(w.db, one, rest)? {
                Kept::Now(ended) => record(w, &ended, one, now, &mut counts)?,
                Kept::Before => {}
                Kept::Stale => counts.stale.push(one.batch),
            },
        }
    }
    Ok(counts)
}

/// Removes the batch's row.
fn end(db: &Db, finished: &Finished) -> Result<Option<Ended>, Error> {
    let sql =
        "DELETE FROM push_queue WHERE id = ?1 RETURNING app, lane, service, campaign, num, due_at, token";
    let found = db.first(sql, (finished.batch.0 as i64,), |row| Entry::of_row(row, 0))?;
    found.map(|entry| look_up(db, finished, entry)).transpose()
}

/// The rest remains in the batch's row.
fn keep(db: &Db, finished: &Finished, rest: &Rest) -> Result<Kept<Ended>, Error> {
    let sql = "SELECT app, lane, service, campaign, num, due_at, token, leased_until, recipients
               FROM push_queue WHERE id = ?1";
    let found = db.first(sql, (finished.batch.0 as i64,), |row| {
        let entry = Entry::of_row(row, 0)?;
        Ok(Kept::of(entry, row.time(7)?, row.bytes(8)?, rest))
    })?;
    match found.unwrap_or(Kept::Stale) {
        Kept::Now(entry) => {
            let values = (finished.batch.0 as i64, device_list::encode(&rest.recipients));
            db.run("UPDATE push_queue SET recipients = ?2 WHERE id = ?1", values)?;
            Ok(Kept::Now(look_up(db, finished, entry)?))
        }
        Kept::Before => Ok(Kept::Before),
        Kept::Stale => Ok(Kept::Stale),
    }
}

fn look_up(db: &Db, finished: &Finished, entry: Entry) -> Result<Ended, Error> {
    let campaign = match entry.campaign {
        0 => None,
        num => campaign_row::load(db, num)?,
    };
    let wanted = finished.again.is_empty() || entry.num == 0 || take::is_wanted(db, entry.num)?;
    Ok(Ended { entry, campaign, wanted })
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
    if let Some(key) = ended.entry.sent_to() {
        let tokens = Tokens { db, app: ended.entry.app, key: &key, now };
        for gone in &finished.gone {
            counts.tokens_removed += u64::from(tokens.remove(gone)?);
        }
        for suspect in &finished.suspects {
            counts.tokens_suspected += u64::from(tokens.set_aside(suspect)?);
        }
    }
    for ((campaign, bucket), count) in writes.latencies {
        let sql = "INSERT INTO campaign_latency (campaign, bucket, count) VALUES (?1, ?2, ?3)
                   ON CONFLICT DO UPDATE SET count = count + excluded.count";
        db.run(sql, (campaign, bucket, count))?;
    }
    let work = Work::of(w.ids, ended.entry.num, ended.campaign.map(|campaign| campaign.id));
    if let (Some(one), Some(work)) = (&finished.record, work) {
        let sql =
            "INSERT INTO push_records (app, work, keep_until, devices, attempts) VALUES (?1, ?2, ?3, ?4, ?5)";
        let (work, devices) = (Of::Work(work).key(), device_list::encode(&one.devices));
        db.run(sql, (ended.entry.app.0, work, one.keep_until.0 as i64, devices, &one.attempts))?;
    }
    if let Some(campaign) = ended.campaign {
        counts.done.extend(campaign_row::settle(w, campaign.num, now)?);
    }
    Ok(())
}
