//! Campaigns: rows, states, uploads, and the pages that go onto the push queue.

use noroshi_types::{AppId, CampaignId, JsonText, Outcome, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row};

use super::ids::{self, Ids, Num};
use super::push::queue::{self, Entry, Fallback};
use super::writer::Write;
use super::{Sqlite, accept, device_list, notification, outcome, variant};
use crate::{
    Campaign, CampaignState, Campaigns, CreatedCampaign, Departed, Error, Idempotency, NewBatch, NewCampaign,
    PushPart, UploadLine, VariantNum, Work,
};

/// A campaign's short name inside the store.
pub(super) type CampaignNum = i64;

/// Batches or lines that one commit removes: some 10 µs each.
const PURGE_ROWS: usize = 1_000;

#[async_trait::async_trait]
impl Campaigns for Sqlite {
    async fn create_campaign(&self, campaign: NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error> {
        self.write(2, move |w| create(w, &campaign, now)).await
    }

    async fn created_campaign(
        &self,
        app: AppId,
        idempotency: Idempotency,
        now: Timestamp,
    ) -> Result<Option<Campaign>, Error> {
        let ids = std::sync::Arc::clone(&self.ids);
        self.read(move |db| created_before(db, &ids, app, &idempotency, now)).await
    }

    async fn campaign(&self, app: AppId, id: CampaignId, now: Timestamp) -> Result<Option<Campaign>, Error> {
        let ids = std::sync::Arc::clone(&self.ids);
        self.read(move |db| find(db, &ids, app, id, now)).await
    }

    async fn campaigns(
        &self,
        app: AppId,
        before: Option<CampaignId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Campaign>, Error> {
        let ids = std::sync::Arc::clone(&self.ids);
        self.read(move |db| {
            let sql = format!(
                "SELECT {COLUMNS} FROM campaigns WHERE app = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3"
            );
            let before = before.map_or([0xff; 16], |id| *id.as_bytes());
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement
                .query_map((app.0, before, limit as i64), |row| Ok(campaign_of(db, &ids, row, now)))?;
            rows.map(|row| row?).collect()
        })
        .await
    }

    async fn active_campaigns(&self, now: Timestamp) -> Result<Vec<Campaign>, Error> {
        let ids = std::sync::Arc::clone(&self.ids);
        self.read(move |db| {
            let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE state < 5 ORDER BY num");
            let mut statement = db.prepare_cached(&sql)?;
            let rows = statement.query_map((), |row| Ok(campaign_of(db, &ids, row, now)))?;
            rows.map(|row| row?).collect()
        })
        .await
    }

    async fn upload(&self, app: AppId, id: CampaignId, lines: Vec<UploadLine>) -> Result<u64, Error> {
        self.write(lines.len(), move |w| upload(w.db, app, id, &lines)).await
    }

    async fn set_campaign_state(
        &self,
        app: AppId,
        id: CampaignId,
        from: &[CampaignState],
        to: CampaignState,
        now: Timestamp,
    ) -> Result<(CampaignState, Departed), Error> {
        let from = from.to_vec();
        let (num, state) = self.write(1, move |w| set_state(w, app, id, &from, to, now)).await?;
        let mut departed = Departed::default();
        let mut more = to == CampaignState::Aborted;
        while more {
            // If this stops early, `take` goes on with it.
            let Ok(page) = self.write(PURGE_ROWS, move |w| purge_batches(w, num, now)).await else { break };
            departed.append(page.0);
            more = page.1;
        }
        Ok((state, departed))
    }

    async fn enqueue(
        &self,
        id: CampaignId,
        from: u64,
        batches: Vec<NewBatch>,
        cursor: u64,
        walked: bool,
        parts: Vec<PushPart>,
        now: Timestamp,
    ) -> Result<CampaignState, Error> {
        let rows = 2 + batches.len() + parts.len();
        self.write(rows, move |w| enqueue(w, (id, from), batches, (cursor, walked), parts, now)).await
    }

    async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error> {
        let num = self.write(1, move |w| ended(w.db, app, id)).await?;
        while self.write(PURGE_ROWS, move |w| Ok(purge_lines(w.db, num, PURGE_ROWS)? == PURGE_ROWS)).await? {}
        self.write(1, move |w| delete(w.db, num)).await
    }
}

/// What push work needs to know of its campaign.
#[derive(Debug, Clone, Copy)]
pub(super) struct CampaignRow {
    pub num: CampaignNum,
    pub id: CampaignId,
    pub state: CampaignState,
    pub notification: Num,
}

pub(super) fn row(db: &Connection, num: CampaignNum) -> Result<Option<CampaignRow>, Error> {
    let mut statement = db.prepare_cached("SELECT id, state, notification FROM campaigns WHERE num = ?1")?;
    let found = statement.query_row((num,), |row| {
        Ok((CampaignId::from_bytes(row.get(0)?), row.get::<_, u8>(1)?, row.get(2)?))
    });
    let Some((id, state, notification)) = found.optional()? else { return Ok(None) };
    Ok(Some(CampaignRow { num, id, state: state_of(state)?, notification }))
}

pub(super) fn number(db: &Connection, app: AppId, id: CampaignId) -> Result<Option<CampaignNum>, Error> {
    let mut statement = db.prepare_cached("SELECT num FROM campaigns WHERE id = ?1 AND app = ?2")?;
    Ok(statement.query_row((id.as_bytes(), app.0), |row| row.get(0)).optional()?)
}

fn state_of(code: u8) -> Result<CampaignState, Error> {
    CampaignState::from_code(code)
        .ok_or_else(|| Error::Engine("a stored campaign state is not known to this program".to_owned()))
}

const COLUMNS: &str =
    "num, id, app, spec, state, created_at, started_at, finished_at, notification, cursor, walked,
                       recipients, uploaded";

fn find(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    id: CampaignId,
    now: Timestamp,
) -> Result<Option<Campaign>, Error> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE id = ?1 AND app = ?2");
    let mut statement = db.prepare_cached(&sql)?;
    let found =
        statement.query_row((id.as_bytes(), app.0), |row| Ok(campaign_of(db, ids, row, now))).optional()?;
    found.transpose()
}

fn campaign_of(db: &Connection, ids: &Ids, row: &Row<'_>, now: Timestamp) -> Result<Campaign, Error> {
    let num: CampaignNum = row.get(0)?;
    let time = |at: i64| Timestamp(at as u64);
    let sql = "SELECT count(*), count(*) FILTER (WHERE due_at > ?2) FROM push_queue
               WHERE campaign = ?1 AND campaign > 0";
    let (open, later): (i64, i64) =
        db.prepare_cached(sql)?.query_row((num, now.0 as i64), |row| Ok((row.get(0)?, row.get(1)?)))?;
    // By the index of what is leased: that is little, what is open may be much.
    let sql = "SELECT count(*) FROM push_queue INDEXED BY push_queue_leased WHERE leased_until > 0 AND campaign = ?1";
    let taken: i64 = db.prepare_cached(sql)?.query_row((num,), |row| row.get(0))?;
    Ok(Campaign {
        id: CampaignId::from_bytes(row.get(1)?),
        app: AppId(row.get(2)?),
        spec: JsonText::from_valid(row.get::<_, String>(3)?),
        state: state_of(row.get(4)?)?,
        created_at: time(row.get(5)?),
        started_at: row.get::<_, Option<i64>>(6)?.map(time),
        finished_at: row.get::<_, Option<i64>>(7)?.map(time),
        notification: ids.id(row.get(8)?),
        cursor: row.get::<_, i64>(9)? as u64,
        walked: row.get(10)?,
        recipients: row.get::<_, i64>(11)? as u64,
        uploaded: row.get::<_, i64>(12)? as u64,
        counts: counts(db, num)?,
        variants: variant::sums(db, ids, num)?,
        latencies: latencies(db, num)?,
        batches_open: open as u64,
        batches_later: later as u64,
        batches_taken: taken as u64,
    })
}

fn counts(db: &Connection, num: CampaignNum) -> Result<Vec<(Outcome, String, u64)>, Error> {
    let sql =
        "SELECT outcome, reason, count FROM campaign_counts WHERE campaign = ?1 ORDER BY outcome, reason";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query((num,))?;
    let mut counts = Vec::new();
    while let Some(row) = rows.next()? {
        if let Some(outcome) = Outcome::from_code(row.get(0)?) {
            counts.push((outcome, row.get(1)?, row.get::<_, i64>(2)? as u64));
        }
    }
    Ok(counts)
}

fn latencies(db: &Connection, num: CampaignNum) -> Result<Vec<(u16, u64)>, Error> {
    let sql = "SELECT bucket, count FROM campaign_latency WHERE campaign = ?1 ORDER BY bucket";
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map((num,), |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as u64)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// The campaign that the same idempotency key made; none if that was deleted.
fn created_before(
    db: &Connection,
    ids: &Ids,
    app: AppId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Campaign>, Error> {
    let Some(num) = accept::remembered(db, app, idempotency, now)? else { return Ok(None) };
    let sql = "SELECT id FROM campaigns WHERE app = ?1 AND notification = ?2";
    let id = db.prepare_cached(sql)?.query_row((app.0, num), |row| row.get(0)).optional()?;
    match id {
        Some(id) => find(db, ids, app, CampaignId::from_bytes(id), now),
        None if notification::is_campaign(db, num)? => Ok(None),
        // A notification's.
        None => Err(Error::IdempotencyConflict),
    }
}

fn create(w: &Write<'_>, new: &NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error> {
    let app = w.db.query_row("SELECT 1 FROM apps WHERE id = ?1", (new.app.0,), |_| Ok(())).optional()?;
    app.ok_or(Error::NotFound)?;
    if let Some(idempotency) = &new.idempotency
        && let Some(campaign) = created_before(w.db, w.ids, new.app, idempotency, now)?
    {
        return Ok(CreatedCampaign { campaign, replayed: true });
    }
    let num = w.ids.next(now);
    notification::insert_for_campaign(w.db, num, new, (&new.notification, &new.data), now)?;
    if let Some(idempotency) = &new.idempotency {
        accept::remember(w, new.app, idempotency, num, now)?;
    }
    let mut random = [0; 10];
    random[..8].copy_from_slice(&ids::random_bits().to_le_bytes());
    random[8..].copy_from_slice(&ids::random_bits().to_le_bytes()[..2]);
    let id = CampaignId(uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid());
    let started = (new.state == CampaignState::Running).then_some(now.0 as i64);
    w.db.prepare_cached(
        "INSERT INTO campaigns (id, app, state, created_at, started_at, notification, cursor, walked, recipients,
                                uploaded, lines, spec)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, 0, 0, 0, ?7)",
    )?
    .execute((
        id.as_bytes(),
        new.app.0,
        new.state as u8,
        now.0 as i64,
        started,
        num,
        new.spec.as_str(),
    ))?;
    variant::make(w, w.db.last_insert_rowid(), new, now)?;
    let campaign = find(w.db, w.ids, new.app, id, now)?.ok_or(Error::NotFound)?;
    Ok(CreatedCampaign { campaign, replayed: false })
}

fn named(db: &Connection, app: AppId, id: CampaignId) -> Result<CampaignRow, Error> {
    let num = number(db, app, id)?.ok_or(Error::NotFound)?;
    row(db, num)?.ok_or(Error::NotFound)
}

fn upload(db: &Connection, app: AppId, id: CampaignId, lines: &[UploadLine]) -> Result<u64, Error> {
    let campaign = named(db, app, id)?;
    if !matches!(campaign.state, CampaignState::Draft | CampaignState::Scheduled) {
        return Err(Error::Conflict);
    }
    let mut replace =
        db.prepare_cached("UPDATE campaign_lines SET line = ?3 WHERE campaign = ?1 AND user = ?2")?;
    let mut add =
        db.prepare_cached("INSERT INTO campaign_lines (campaign, seq, user, line) VALUES (?1, ?2, ?3, ?4)")?;
    let sql = "SELECT uploaded FROM campaigns WHERE num = ?1";
    let mut uploaded: i64 = db.prepare_cached(sql)?.query_row((campaign.num,), |row| row.get(0))?;
    for UploadLine { user, line } in lines {
        if replace.execute((campaign.num, user.as_str(), line.as_str()))? == 0 {
            uploaded += 1;
            add.execute((campaign.num, uploaded, user.as_str(), line.as_str()))?;
        }
    }
    let sql = "UPDATE campaigns SET uploaded = ?2, lines = 1 WHERE num = ?1";
    db.prepare_cached(sql)?.execute((campaign.num, uploaded))?;
    Ok(uploaded as u64)
}

fn set_state(
    w: &Write<'_>,
    app: AppId,
    id: CampaignId,
    from: &[CampaignState],
    to: CampaignState,
    now: Timestamp,
) -> Result<(CampaignNum, CampaignState), Error> {
    let campaign = named(w.db, app, id)?;
    if !from.contains(&campaign.state) {
        return Err(Error::Conflict);
    }
    w.db.prepare_cached(
        "UPDATE campaigns SET state = ?2, started_at = CASE WHEN ?2 = 3 THEN coalesce(started_at, ?3) ELSE started_at END
         WHERE num = ?1",
    )?
    .execute((campaign.num, to as u8, now.0 as i64))?;
    let mut reached = to;
    if to.ended() {
        end(w, campaign.num, campaign.notification, now)?;
    } else if settle(w, campaign.num, now)?.is_some() {
        reached = CampaignState::Done;
    }
    Ok((campaign.num, reached))
}

/// From here on its trace and its lines are kept for the retention.
fn end(w: &Write<'_>, num: CampaignNum, notification: Num, now: Timestamp) -> Result<(), Error> {
    let sql = "UPDATE campaigns SET finished_at = ?2 WHERE num = ?1";
    w.db.prepare_cached(sql)?.execute((num, now.0 as i64))?;
    let keep_until = now.saturating_add(w.options.trace_retention).0 as i64;
    let sql = "UPDATE notifications SET keep_until = ?2
               WHERE num = ?1 OR num IN (SELECT notification FROM campaign_variants WHERE campaign = ?3)";
    w.db.prepare_cached(sql)?.execute((notification, keep_until, num))?;
    Ok(())
}

/// Ends a campaign that was walked to its end and has no batch left; which one if it ended with this.
pub(super) fn settle(
    w: &Write<'_>,
    num: CampaignNum,
    now: Timestamp,
) -> Result<Option<(AppId, CampaignId)>, Error> {
    let mut statement = w.db.prepare_cached(
        "UPDATE campaigns SET state = 5 WHERE num = ?1 AND walked = 1 AND state IN (3, 4)
         AND NOT EXISTS (SELECT 1 FROM push_queue WHERE campaign = ?1 AND campaign > 0)
         RETURNING app, id, notification",
    )?;
    let done = statement.query_row((num,), |row| {
        Ok(((AppId(row.get(0)?), CampaignId::from_bytes(row.get(1)?)), row.get(2)?))
    });
    let Some((done, notification)) = done.optional()? else { return Ok(None) };
    end(w, num, notification, now)?;
    Ok(Some(done))
}

/// Adds to the campaign's sums.
pub(super) fn count(
    db: &Connection,
    num: CampaignNum,
    outcome: Outcome,
    reason: Option<&str>,
    count: u64,
) -> Result<(), Error> {
    if count == 0 {
        return Ok(());
    }
    let mut statement = db.prepare_cached(
        "INSERT INTO campaign_counts (campaign, outcome, reason, count) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT DO UPDATE SET count = count + excluded.count",
    )?;
    statement.execute((num, outcome as u8, reason.unwrap_or_default(), count as i64))?;
    Ok(())
}

/// Removes batches of an aborted campaign that are not under way; whose, and whether there may be more.
fn purge_batches(w: &Write<'_>, num: CampaignNum, now: Timestamp) -> Result<(Departed, bool), Error> {
    let mut departed = Departed::default();
    let Some(campaign) = row(w.db, num)? else { return Ok((departed, false)) };
    let mut statement = w.db.prepare_cached(
        "DELETE FROM push_queue WHERE id IN (
             SELECT id FROM push_queue WHERE campaign = ?1 AND campaign > 0 AND leased_until = 0 LIMIT ?2)
         RETURNING num, variant, recipients",
    )?;
    let mut rows = statement.query((num, PURGE_ROWS as i64))?;
    let mut removed = 0;
    while let Some(row) = rows.next()? {
        let (of, variant): (Num, _) = (row.get(0)?, VariantNum::from_code(row.get(1)?));
        let list = row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?;
        let devices: Vec<_> = device_list::decode(list).collect();
        let devices_count = devices.len() as u64;
        if let Some(under) = variant::recorded_under(w.db, of, Some(campaign), variant)? {
            outcome::add(w.db, under, Outcome::Cancelled, now, &devices, devices_count)?;
            variant::count(w.db, under, Outcome::Cancelled, None, devices_count)?;
        }
        count(w.db, num, Outcome::Cancelled, None, devices_count)?;
        departed.add(Work::of(w.ids, of, Some(campaign.id)), Outcome::Cancelled, now, &devices);
        removed += 1;
    }
    Ok((departed, removed == PURGE_ROWS))
}

fn enqueue(
    w: &Write<'_>,
    (id, from): (CampaignId, u64),
    batches: Vec<NewBatch>,
    (cursor, walked): (u64, bool),
    parts: Vec<PushPart>,
    now: Timestamp,
) -> Result<CampaignState, Error> {
    let mut statement = w.db.prepare_cached(
        "SELECT num, app, notification, state, cursor, walked FROM campaigns WHERE id = ?1",
    )?;
    let found = statement
        .query_row((id.as_bytes(),), |row| {
            let place = (row.get::<_, i64>(4)? as u64, row.get::<_, bool>(5)?);
            Ok((row.get(0)?, AppId(row.get(1)?), row.get::<_, Num>(2)?, row.get::<_, u8>(3)?, place))
        })
        .optional()?;
    let (campaign, app, notification, state, place): (CampaignNum, _, _, _, _) =
        found.ok_or(Error::NotFound)?;
    if state != CampaignState::Running as u8 || place != (from, false) {
        return Err(Error::Conflict);
    }
    let mut recipients_count = 0;
    for NewBatch { service, due_at, lane, recipients } in batches {
        let recipients = queue::sorted(recipients);
        recipients_count += recipients.len() as i64;
        let fallback = Fallback::Settled;
        let entry =
            Entry { app, lane, service, campaign, num: 0, variant: None, due_at, attempt: 0, fallback };
        queue::insert(w.db, &entry, &recipients)?;
    }
    for PushPart { outcome, reason, devices, .. } in parts {
        let devices = queue::sorted(devices);
        let devices_count = devices.len() as u64;
        outcome::add_with_reason(w.db, notification, outcome, reason, now, &devices, devices_count)?;
        count(w.db, campaign, outcome, reason, devices_count)?;
    }
    let sql = "UPDATE campaigns SET cursor = ?2, walked = ?3, recipients = recipients + ?4 WHERE num = ?1";
    w.db.prepare_cached(sql)?.execute((campaign, cursor as i64, walked, recipients_count))?;
    Ok(match settle(w, campaign, now)? {
        Some(_) => CampaignState::Done,
        None => CampaignState::Running,
    })
}

fn ended(db: &Connection, app: AppId, id: CampaignId) -> Result<CampaignNum, Error> {
    let campaign = named(db, app, id)?;
    if campaign.state.ended() { Ok(campaign.num) } else { Err(Error::Conflict) }
}

fn purge_lines(db: &Connection, num: CampaignNum, rows_max: usize) -> Result<usize, Error> {
    let mut statement = db.prepare_cached(
        "DELETE FROM campaign_lines
         WHERE campaign = ?1 AND seq IN (SELECT seq FROM campaign_lines WHERE campaign = ?1 LIMIT ?2)",
    )?;
    Ok(statement.execute((num, rows_max as i64))?)
}

/// Removes lines of one campaign that ended long enough ago; how many, and whether there may be more.
pub(super) fn prune_lines(w: &Write<'_>, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error> {
    let ended_before = now.0.saturating_sub(w.options.trace_retention.as_millis() as u64);
    let sql = "SELECT num FROM campaigns WHERE lines = 1 AND finished_at <= ?1 LIMIT 1";
    let found = w.db.prepare_cached(sql)?.query_row((ended_before as i64,), |row| row.get(0)).optional()?;
    let Some(num) = found else { return Ok((0, false)) };
    let removed = purge_lines(w.db, num, rows_max)?;
    if removed < rows_max {
        w.db.prepare_cached("UPDATE campaigns SET lines = 0 WHERE num = ?1")?.execute((num,))?;
    }
    // Another campaign may have some.
    Ok((removed as u64, true))
}

/// What is left of it after its lines.
fn delete(db: &Connection, num: CampaignNum) -> Result<(), Error> {
    for sql in [
        "DELETE FROM push_queue WHERE campaign = ?1 AND campaign > 0",
        "DELETE FROM campaign_counts WHERE campaign = ?1",
        "DELETE FROM campaign_latency WHERE campaign = ?1",
        "DELETE FROM campaign_variants WHERE campaign = ?1",
        "DELETE FROM campaign_variant_counts WHERE campaign = ?1",
        "DELETE FROM campaign_lines WHERE campaign = ?1",
        "DELETE FROM campaigns WHERE num = ?1",
    ] {
        db.prepare_cached(sql)?.execute((num,))?;
    }
    Ok(())
}
