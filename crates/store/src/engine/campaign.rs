//! Campaigns: rows, ids, the notifications that their outcomes are recorded under, and the removal of their lines.

use noroshi_types::{AppId, CampaignId, JsonText, Outcome, Timestamp, When};

use super::draft_row;
use super::notification::{TO_CAMPAIGN, push_text};
use super::record::{Record, array, unknown};
use super::session::{self, Session, values};
use crate::ids::{self, Ids, Num};
use crate::{
    Campaign, CampaignState, Error, NewCampaign, UploadLine, VariantNum, VariantSums, Waiting, WaitingStep,
};

/// A campaign's number inside the store.
pub(crate) type CampaignNum = i64;

/// Batches or lines that one commit removes: 10 µs each.
pub(crate) const PURGE_ROWS: usize = 1_000;

/// A campaign as far as push work depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CampaignRow {
    pub num: CampaignNum,
    pub id: CampaignId,
    pub state: CampaignState,
    /// Outcomes without a variant are recorded under it.
    pub notification: Num,
}

impl CampaignRow {
    /// Reads `num, id, state, notification` from column `first` on; `None` where they are NULL.
    pub(crate) fn of(row: &(impl Record + ?Sized), first: usize) -> Result<Option<Self>, Error> {
        let Some(num) = row.int_or_null(first)? else { return Ok(None) };
        let (id, state) = (id_of(row, first + 1)?, state_of(row, first + 2)?);
        Ok(Some(Self { num, id, state, notification: row.int(first + 3)? }))
    }
}

pub(crate) fn id_of(row: &(impl Record + ?Sized), column: usize) -> Result<CampaignId, Error> {
    Ok(CampaignId::from_bytes(array(row, column)?))
}

pub(crate) fn state_of(row: &(impl Record + ?Sized), column: usize) -> Result<CampaignState, Error> {
    CampaignState::from_code(row.code(column)?).ok_or_else(|| unknown("campaign state"))
}

pub(crate) const COLUMNS: &str = "num, id, app, spec, state, created_at, started_at, finished_at, notification, cursor, \
     walked, recipients, uploaded, revision, complete, created_by, edited_by, edited_at, approved_by, approved_at, authors";

/// Counts by outcome and reason.
pub(crate) type Counts = Vec<(Outcome, String, u64)>;

/// The part of a campaign's sums that is read from other tables.
#[derive(Default)]
pub(crate) struct CampaignSums {
    pub counts: Counts,
    pub variants: Vec<VariantSums>,
    pub latencies: Vec<(u16, u64)>,
    /// Batches: all, those due later, those that are leased.
    pub batches: (u64, u64, u64),
}

/// The campaign of a row of [`COLUMNS`].
pub(crate) fn campaign_of(
    row: &(impl Record + ?Sized),
    ids: &Ids,
    sums: CampaignSums,
) -> Result<Campaign, Error> {
    let CampaignSums { counts, variants, latencies, batches } = sums;
    let (batches_open, batches_later, batches_taken) = batches;
    Ok(Campaign {
        id: id_of(row, 1)?,
        app: row.app(2)?,
        spec: JsonText::from_valid(row.string(3)?),
        state: state_of(row, 4)?,
        created_at: row.time(5)?,
        started_at: row.time_or_null(6)?,
        finished_at: row.time_or_null(7)?,
        notification: ids.id(row.int(8)?),
        cursor: row.count(9)?,
        walked: row.flag(10)?,
        recipients: row.count(11)?,
        uploaded: row.count(12)?,
        counts,
        variants,
        latencies,
        batches_open,
        batches_later,
        batches_taken,
        draft: draft_row::state(row, 13)?,
    })
}

/// Reads `outcome, reason, count` from column `first` on; `None` for an outcome that only a newer program knows.
pub(crate) fn count_of(
    row: &(impl Record + ?Sized),
    first: usize,
) -> Result<Option<(Outcome, String, u64)>, Error> {
    let Some(outcome) = row.code_or_null(first)?.and_then(Outcome::from_code) else { return Ok(None) };
    Ok(Some((outcome, row.string(first + 1)?, row.count(first + 2)?)))
}

/// Creates the campaign with its notification (`num`), and its variants with one of `next` each.
pub(crate) async fn create<S: Session>(
    session: &S,
    num: Num,
    next: impl Fn() -> Num + Send,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<CampaignId, S::Error> {
    insert_notification(session, num, new, (&new.notification, &new.data), None, now).await?;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&ids::random_bits().to_le_bytes());
    random[8..].copy_from_slice(&ids::random_bits().to_le_bytes()[..2]);
    let id = CampaignId(uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid());
    let started = (new.state == CampaignState::Running).then_some(now);
    let sql = "INSERT INTO campaigns (id, app, state, created_at, started_at, notification, cursor, walked, recipients,
                                      uploaded, lines, spec)
               VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, 0, 0, $7) RETURNING num";
    let values = values![id.as_bytes(), new.app, new.state as u8, now, started, num, new.spec.as_str()];
    let campaign = session::one(session, sql, &values, |row| row.int(0)).await?;
    draft_row::create(session, campaign, new).await?;
    create_variants(session, campaign, next, new, now).await?;
    Ok(id)
}

pub(crate) async fn create_variants<S: Session>(
    session: &S,
    campaign: CampaignNum,
    next: impl Fn() -> Num + Send,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<(), S::Error> {
    for (variant, content) in (1_u8..).zip(&new.variants) {
        let num = next();
        let shown = (&content.notification, &content.data);
        insert_notification(session, num, new, shown, Some(campaign), now).await?;
        let sql = "INSERT INTO campaign_variants (campaign, variant, notification) VALUES ($1, $2, $3)";
        session.execute(sql, &values![campaign, variant, num]).await?;
        let sql = "INSERT INTO variant_notifications (num, campaign, variant) VALUES ($1, $2, $3)";
        session.execute(sql, &values![num, campaign, variant]).await?;
    }
    Ok(())
}

/// Inserts the notification that outcomes of a campaign, or of one of its variants, are recorded under. It is kept until
/// the campaign ends, and for the trace retention from then on.
async fn insert_notification<S: Session>(
    session: &S,
    num: Num,
    new: &NewCampaign,
    (notification, data): (&Option<JsonText>, &Option<JsonText>),
    campaign: Option<CampaignNum>,
    now: Timestamp,
) -> Result<(), S::Error> {
    let sql = "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target, retain,
                                          notification, data, push, standing, campaign)
               VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $11, 0, $12)";
    let push = push_text(&new.push, false, None);
    let values = values![
        num,
        new.app,
        now,
        new.expires_at,
        i64::MAX,
        // A campaign that only pushes keeps nothing in inboxes.
        new.when.unwrap_or(When::Connected) as u8,
        new.urgency as u8,
        TO_CAMPAIGN,
        notification.as_ref().map(JsonText::as_str),
        data.as_ref().map(JsonText::as_str),
        push.as_ref(),
        campaign,
    ];
    session.execute(sql, &values).await?;
    Ok(())
}

/// Batches that one call of [`make_due`] changes.
const MADE_DUE_MAX: usize = 1_000;

/// See [`crate::Campaigns::make_due`].
pub(crate) async fn make_due<S: Session>(
    session: &S,
    id: CampaignId,
    started_at: Timestamp,
    now: Timestamp,
) -> Result<u64, S::Error> {
    let sql = format!(
        "UPDATE push_queue SET due_at = $3 WHERE id IN (
             SELECT q.id FROM campaigns c JOIN push_queue q ON q.campaign = c.num AND q.campaign > 0
             WHERE c.id = $1 AND q.due_at <= $2 AND q.due_at > $3 AND q.leased_until = 0 LIMIT $4 {})",
        if S::FOR_UPDATE_SKIP_LOCKED.is_empty() { "" } else { "FOR UPDATE OF q SKIP LOCKED" }
    );
    session.execute(&sql, &values![id.as_bytes(), started_at, now, MADE_DUE_MAX]).await
}

/// Batches that are due within this time of each other make one step.
const STEP_MS: u64 = 60_000;

/// See [`crate::Campaigns::waiting_batches`]: a seek and a count for each step.
pub(crate) async fn waiting<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
    now: Timestamp,
    limit: usize,
) -> Result<Waiting, S::Error> {
    let Some(num) = number(session, app, id).await? else { return Err(Error::NotFound.into()) };
    let sql = "SELECT max(due_at) FROM push_queue WHERE campaign = $1 AND campaign > 0 AND due_at > $2";
    let last_due_at = session::one(session, sql, &values![num, now], |row| row.time_or_null(0)).await?;
    let (mut steps, mut after) = (Vec::new(), now);
    while steps.len() < limit && last_due_at.is_some_and(|last| last > after) {
        let sql = "SELECT min(due_at) FROM push_queue WHERE campaign = $1 AND campaign > 0 AND due_at > $2";
        let next = session::one(session, sql, &values![num, after], |row| row.time_or_null(0)).await?;
        let Some(due_at) = next else { break };
        after = Timestamp(due_at.0 + STEP_MS - 1);
        let sql = "SELECT count(*) FROM push_queue
                   WHERE campaign = $1 AND campaign > 0 AND due_at >= $2 AND due_at <= $3";
        let batches = session::one(session, sql, &values![num, due_at, after], |row| row.count(0)).await?;
        steps.push(WaitingStep { due_at, batches });
    }
    Ok(Waiting { steps, last_due_at })
}

/// Fails with [`Error::Conflict`] if lines cannot be uploaded any more.
pub(crate) fn check_uploadable(state: CampaignState) -> Result<(), Error> {
    match state {
        CampaignState::Draft | CampaignState::Scheduled => Ok(()),
        _ => Err(Error::Conflict),
    }
}

pub(crate) async fn number<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
) -> Result<Option<CampaignNum>, S::Error> {
    let sql = "SELECT num FROM campaigns WHERE id = $1 AND app = $2";
    session::first(session, sql, &values![id.as_bytes(), app], |row| row.int(0)).await
}

/// The campaign; its row is locked until the transaction ends.
pub(crate) async fn locked<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
) -> Result<CampaignRow, S::Error> {
    let sql = format!(
        "SELECT num, id, state, notification FROM campaigns WHERE id = $1 AND app = $2 {}",
        S::FOR_NO_KEY_UPDATE
    );
    let values = values![id.as_bytes(), app];
    let found = session::first(session, &sql, &values, |row| CampaignRow::of(row, 0)).await?;
    Ok(found.flatten().ok_or(Error::NotFound)?)
}

/// The number of a campaign that has ended.
pub(crate) async fn ended<S: Session>(
    session: &S,
    app: AppId,
    id: CampaignId,
) -> Result<CampaignNum, S::Error> {
    let campaign = locked(session, app, id).await?;
    if campaign.state.ended() { Ok(campaign.num) } else { Err(Error::Conflict.into()) }
}

/// Each user once, at the place of the user's first line, with the text of the last one.
pub(crate) fn distinct_lines(lines: &[UploadLine]) -> Vec<(&str, &str)> {
    let mut places = std::collections::HashMap::with_capacity(lines.len());
    let mut distinct: Vec<(&str, &str)> = Vec::with_capacity(lines.len());
    for UploadLine { user, line } in lines {
        match places.get(user) {
            Some(&place) => {
                let (_, text): &mut (&str, &str) = &mut distinct[place];
                *text = line.as_str();
            }
            None => {
                places.insert(user, distinct.len());
                distinct.push((user.as_str(), line.as_str()));
            }
        }
    }
    distinct
}

pub(crate) async fn purge_lines<S: Session>(
    session: &S,
    num: CampaignNum,
    rows_max: usize,
) -> Result<usize, S::Error> {
    let sql = "DELETE FROM campaign_lines WHERE campaign = $1 AND seq IN (
                   SELECT seq FROM campaign_lines WHERE campaign = $1 ORDER BY seq LIMIT $2)";
    Ok(session.execute(sql, &values![num, rows_max]).await? as usize)
}

/// Removes lines of one campaign that ended at `ended_before` or earlier. Returns how many, and whether there may be
/// more.
pub(crate) async fn prune_lines<S: Session>(
    session: &S,
    ended_before: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), S::Error> {
    let sql = "SELECT num FROM campaigns WHERE lines = 1 AND finished_at <= $1 LIMIT 1";
    let found = session::first(session, sql, &values![ended_before], |row| row.int(0)).await?;
    let Some(num) = found else { return Ok((0, false)) };
    let removed = purge_lines(session, num, rows_max).await?;
    if removed < rows_max {
        session.execute("UPDATE campaigns SET lines = 0 WHERE num = $1", &values![num]).await?;
    }
    // Another campaign may have lines.
    Ok((removed as u64, true))
}

/// Removes a campaign that has neither lines nor batches.
pub(crate) async fn delete<S: Session>(session: &S, num: CampaignNum) -> Result<(), S::Error> {
    for sql in [
        "DELETE FROM campaigns WHERE num = $1",
        "DELETE FROM campaign_counts WHERE campaign = $1",
        "DELETE FROM campaign_latency WHERE campaign = $1",
        "DELETE FROM campaign_lines WHERE campaign = $1",
        "DELETE FROM campaign_variants WHERE campaign = $1",
        "DELETE FROM campaign_variant_counts WHERE campaign = $1",
        "DELETE FROM campaign_definitions WHERE campaign = $1",
    ] {
        session.execute(sql, &values![num]).await?;
    }
    Ok(())
}

/// The id that orders before every other campaign of a listing: the newest come first.
pub(crate) fn before_bytes(before: Option<CampaignId>) -> [u8; 16] {
    before.map_or([0xff; 16], |id| *id.as_bytes())
}

/// The app and id of a campaign that a statement ended.
pub(crate) fn ended_of(row: &(impl Record + ?Sized)) -> Result<(AppId, CampaignId), Error> {
    Ok((row.app(0)?, id_of(row, 1)?))
}

/// The numbers that are added to a campaign's sums.
pub(crate) struct Count {
    pub campaign: CampaignNum,
    /// The notification whose variant counts it too, if it is of a variant.
    pub num: Option<Num>,
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub count: u64,
}

/// The notifications that outcomes of variants are recorded under.
pub(crate) type VariantNotifications = std::collections::HashMap<(CampaignNum, VariantNum), Num>;

/// The columns of [`continued`].
pub(crate) const CONTINUED_COLUMNS: &str = "num, app, notification, state, cursor, walked";

/// The campaign whose next page is enqueued, and its notification; conflict unless it runs and has arrived at `from`.
pub(crate) fn continued(row: &(impl Record + ?Sized), from: u64) -> Result<(CampaignNum, AppId, Num), Error> {
    if (state_of(row, 3)?, row.count(4)?, row.flag(5)?) != (CampaignState::Running, from, false) {
        return Err(Error::Conflict);
    }
    Ok((row.int(0)?, row.app(1)?, row.int(2)?))
}
