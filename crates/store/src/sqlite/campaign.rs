//! Campaigns: creation, states, uploads, and pages that go onto the push queue.

use noroshi_types::{AppId, CampaignId, Timestamp};
use rusqlite::Row;

use super::reader::Read;
use super::statement::ready;
use super::writer::Write;
use super::{campaign_row, idempotency, notification, outcome, push_queue};
use crate::engine::campaign::{
    self, COLUMNS, CONTINUED_COLUMNS, CampaignNum, CampaignRow, CampaignSums, Count, PURGE_ROWS, campaign_of,
    check_uploadable, continued,
};
use crate::engine::cancel::removed_batch;
use crate::engine::draft;
use crate::engine::outcome::Part;
use crate::engine::push::{campaign_entry, page_part, sorted};
use crate::engine::record::Record;
use crate::engine::session;
use crate::{
    Campaign, CampaignFilter, CampaignPage, CampaignState, CreatedCampaign, Error, Idempotency, NewBatch,
    NewCampaign, PushPart, RemovedMessages, Unready, UploadLine, Uploader,
};

pub(crate) fn find(
    read: Read<'_>,
    app: AppId,
    id: CampaignId,
    now: Timestamp,
) -> Result<Option<Campaign>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE id = ?1 AND app = ?2");
    read.db.first(&sql, (id.as_bytes(), app.0), |row| with_sums(read, row, now))
}

pub(crate) fn list(
    read: Read<'_>,
    app: AppId,
    filter: &CampaignFilter,
    now: Timestamp,
) -> Result<CampaignPage, Error> {
    let (nums, next) = ready(draft::select(read.db, app, filter))?;
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE num = ?1");
    let mut campaigns = Vec::with_capacity(nums.len());
    for num in nums {
        campaigns.extend(read.db.first(&sql, (num,), |row| with_sums(read, row, now))?);
    }
    Ok(CampaignPage { campaigns, next })
}

pub(crate) fn edit(
    w: &Write<'_>,
    id: CampaignId,
    revision: u64,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<Result<u64, Unready>, Error> {
    ready(draft::edit(w.db, id, revision, new, || w.ids.next(now), now))
}

pub(crate) fn active(read: Read<'_>, now: Timestamp) -> Result<Vec<Campaign>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE state < 5 ORDER BY num");
    read.db.all(&sql, (), |row| with_sums(read, row, now))
}

/// The campaign of a row, with its sums.
fn with_sums(Read { db, ids }: Read<'_>, row: &Row<'_>, now: Timestamp) -> Result<Campaign, Error> {
    let num: CampaignNum = row.int(0)?;
    let sql = "SELECT count(*), count(*) FILTER (WHERE due_at > ?2) FROM push_queue
               WHERE campaign = ?1 AND campaign > 0";
    let open = db.first(sql, (num, now.0 as i64), |row| Ok((row.count(0)?, row.count(1)?)))?;
    let (open, later) = open.unwrap_or_default();
    // By the index of leased rows: those are few, open ones may be many.
    let sql = "SELECT count(*) FROM push_queue INDEXED BY push_queue_leased WHERE leased_until > 0 AND campaign = ?1";
    let taken = db.int(sql, (num,))? as u64;
    let sql =
        "SELECT outcome, reason, count FROM campaign_counts WHERE campaign = ?1 ORDER BY outcome, reason";
    let counts = campaign_row::counts(db, sql, (num,))?;
    let sql = "SELECT bucket, count FROM campaign_latency WHERE campaign = ?1 ORDER BY bucket";
    let latencies = db.all(sql, (num,), |row| Ok((row.int(0)? as u16, row.count(1)?)))?;
    let variants = campaign_row::variant_sums(db, ids, num)?;
    campaign_of(row, ids, CampaignSums { counts, variants, latencies, batches: (open, later, taken) })
}

/// The campaign that the idempotency key created; `None` if that was deleted.
pub(crate) fn created_before(
    read: Read<'_>,
    app: AppId,
    key: &Idempotency,
    now: Timestamp,
) -> Result<Option<Campaign>, Error> {
    let Some(num) = idempotency::find(read.db, app, key, now)? else { return Ok(None) };
    let sql = "SELECT id FROM campaigns WHERE app = ?1 AND notification = ?2";
    match read.db.first(sql, (app.0, num), |row| campaign::id_of(row, 0))? {
        Some(id) => find(read, app, id, now),
        None if notification::is_campaign(read.db, num)? => Ok(None),
        // The key belongs to a notification.
        None => Err(Error::IdempotencyConflict),
    }
}

pub(crate) fn create(w: &Write<'_>, new: &NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error> {
    ready(session::require_app(w.db, new.app, ""))?;
    if let Some(key) = &new.idempotency
        && let Some(campaign) = created_before(w.read(), new.app, key, now)?
    {
        return Ok(CreatedCampaign { campaign, replayed: true });
    }
    let num = w.ids.next(now);
    if let Some(key) = &new.idempotency {
        idempotency::remember(w.db, new.app, key, num, now)?;
    }
    let id = ready(campaign::create(w.db, num, || w.ids.next(now), new, now))?;
    let campaign = find(w.read(), new.app, id, now)?.ok_or(Error::NotFound)?;
    Ok(CreatedCampaign { campaign, replayed: false })
}

pub(crate) fn upload(
    w: &Write<'_>,
    app: AppId,
    id: CampaignId,
    lines: &[UploadLine],
    uploader: &Uploader,
    now: Timestamp,
) -> Result<u64, Error> {
    let db = w.db;
    let campaign = ready(campaign::locked(db, app, id))?;
    check_uploadable(campaign.state)?;
    let replace = "UPDATE campaign_lines SET line = ?3 WHERE campaign = ?1 AND user = ?2";
    let add = "INSERT INTO campaign_lines (campaign, seq, user, line) VALUES (?1, ?2, ?3, ?4)";
    let mut uploaded = db.int("SELECT uploaded FROM campaigns WHERE num = ?1", (campaign.num,))?;
    let lines = campaign::distinct_lines(lines);
    if lines.is_empty() {
        return Ok(uploaded as u64);
    }
    draft::check_room(campaign.state, uploaded as u64, lines.len(), uploader.scheduled_max)?;
    for (user, line) in lines {
        if db.run(replace, (campaign.num, user, line))? == 0 {
            uploaded += 1;
            db.run(add, (campaign.num, uploaded, user, line))?;
        }
    }
    db.run("UPDATE campaigns SET uploaded = ?2, lines = 1 WHERE num = ?1", (campaign.num, uploaded))?;
    ready(draft::uploaded(db, campaign.num, &uploader.by, now))?;
    Ok(uploaded as u64)
}

pub(crate) fn set_state(
    w: &Write<'_>,
    app: AppId,
    id: CampaignId,
    from: &[CampaignState],
    to: CampaignState,
    now: Timestamp,
) -> Result<(CampaignNum, CampaignState), Error> {
    let CampaignRow { num, state, .. } = ready(campaign::locked(w.db, app, id))?;
    if !from.contains(&state) {
        return Err(Error::Conflict);
    }
    let sql = "UPDATE campaigns SET state = ?2,
                   started_at = CASE WHEN ?2 = 3 THEN coalesce(started_at, ?3) ELSE started_at END
               WHERE num = ?1";
    w.db.run(sql, (num, to as u8, now.0 as i64))?;
    if to.ended() {
        campaign_row::set_ended(w, num, now)?;
    } else if campaign_row::settle(w, num, now)?.is_some() {
        return Ok((num, CampaignState::Done));
    }
    Ok((num, to))
}

/// Removes batches of an aborted campaign that no sender has taken. Returns whether there may be more.
pub(crate) fn purge_batches(
    w: &Write<'_>,
    app: AppId,
    num: CampaignNum,
    now: Timestamp,
) -> Result<(RemovedMessages, bool), Error> {
    let mut departed = RemovedMessages::default();
    let Some(campaign) = campaign_row::load(w.db, num)? else { return Ok((departed, false)) };
    let variants = campaign_row::variants(w.db, num)?;
    let sql = "DELETE FROM push_queue WHERE id IN (
                   SELECT id FROM push_queue WHERE campaign = ?1 AND campaign > 0 AND leased_until = 0 LIMIT ?2)
               RETURNING num, variant, recipients";
    let removed = w.db.all(sql, (num, PURGE_ROWS as i64), |row| {
        removed_batch(row, (app, &campaign), &variants, (w.ids, now), &mut departed)
    })?;
    let more = removed.len() == PURGE_ROWS;
    for (part, count) in removed {
        outcome::add(w.db, &part)?;
        campaign_row::count(w.db, &count)?;
    }
    Ok((departed, more))
}

/// Removes a campaign without lines.
pub(crate) fn remove(w: &Write<'_>, num: CampaignNum) -> Result<(), Error> {
    w.db.run("DELETE FROM push_queue WHERE campaign = ?1 AND campaign > 0", (num,))?;
    ready(campaign::delete(w.db, num))
}

#[allow(clippy::too_many_arguments, reason = "one commit has to hold all of it")]
pub(crate) fn enqueue(
    w: &Write<'_>,
    id: CampaignId,
    from: u64,
    batches: &[NewBatch],
    cursor: u64,
    walked: bool,
    parts: &[PushPart],
    now: Timestamp,
) -> Result<CampaignState, Error> {
    let sql = format!("SELECT {CONTINUED_COLUMNS} FROM campaigns WHERE id = ?1");
    let found = w.db.first(&sql, (id.as_bytes(),), |row| continued(row, from))?;
    let (campaign, app, notification) = found.ok_or(Error::NotFound)?;
    let mut recipients_count = 0;
    for batch in batches {
        let recipients = sorted(batch.recipients.clone());
        recipients_count += recipients.len() as i64;
        push_queue::insert(w.db, &campaign_entry(app, campaign, batch), &recipients)?;
    }
    for part in parts {
        let part = page_part(notification, part, now);
        outcome::add(w.db, &part)?;
        let Part { outcome, reason, count, .. } = part;
        campaign_row::count(w.db, &Count { campaign, num: None, outcome, reason, count })?;
    }
    let sql = "UPDATE campaigns SET cursor = ?2, walked = ?3, recipients = recipients + ?4 WHERE num = ?1";
    w.db.run(sql, (campaign, cursor as i64, walked, recipients_count))?;
    Ok(match campaign_row::settle(w, campaign, now)? {
        Some(_) => CampaignState::Done,
        None => CampaignState::Running,
    })
}
