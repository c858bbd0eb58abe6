//! Campaigns: rows, states, uploads, and the pages that go onto the push queue.
//!
//! When a campaign ends is decided by whoever removes its last batch, of which there may be several at once on
//! several nodes. Locks, always in this order, after those of the queue's rows:
//!
//! 1. An advisory lock of the campaign: shared by who removes batches ([`hold_open`]), alone by who enqueues the
//!    last of them. So whoever removes one knows whether more can come.
//! 2. The campaign's row, by [`settle`] where no more can come: of two who remove the last batches the second
//!    waits for the first, and sees that nothing is left.
//! 3. Sums, in order. They are spread over several rows each (`sum`), so that finishing does not wait for finishing.

mod create;
mod end;
mod sum;
pub(super) mod variant;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, CampaignId, JsonText, Timestamp, UserId};
use tokio_postgres::Row;

use self::create::{create, created_before};
use self::end::{LOCKS, PURGE_ROWS, delete, ended, keep_trace, purge_batches, purge_lines};
pub(super) use self::end::{hold_open, prune_lines, settle};
pub(super) use self::sum::{Count, add_latencies, count};
use self::sum::{counts, latencies};
use super::Postgres;
use super::outcome::{self, Part};
use super::push::queue::{self, Entry, NewRows};
use super::transaction::{Failed, Tx};
use crate::ids::{Ids, Num};
use crate::row::Fallback;
use crate::{
    Campaign, CampaignState, Campaigns, CreatedCampaign, Departed, Error, Idempotency, NewBatch, NewCampaign,
    PushPart, UploadLine,
};

/// A campaign's short name inside the store.
pub(super) type CampaignNum = i64;

#[async_trait::async_trait]
impl Campaigns for Postgres {
    async fn create_campaign(&self, campaign: NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error> {
        let store = self.clone();
        self.write(move |tx| create(tx, store.clone(), campaign.clone(), now)).await
    }

    async fn created_campaign(
        &self,
        app: AppId,
        idempotency: Idempotency,
        now: Timestamp,
    ) -> Result<Option<Campaign>, Error> {
        self.read(async |tx| created_before(&tx, &self.ids, app, &idempotency, now).await).await
    }

    async fn campaign(&self, app: AppId, id: CampaignId, now: Timestamp) -> Result<Option<Campaign>, Error> {
        self.read(|tx| find(tx, &self.ids, app, id, now)).await
    }

    async fn campaigns(
        &self,
        app: AppId,
        before: Option<CampaignId>,
        limit: usize,
        now: Timestamp,
    ) -> Result<Vec<Campaign>, Error> {
        self.read(async |tx| {
            let sql = format!(
                "SELECT {COLUMNS} FROM campaigns WHERE app = $1 AND id < $2 ORDER BY id DESC LIMIT $3"
            );
            let before = before.map_or([0xff; 16], |id| *id.as_bytes());
            let rows = tx.query(&sql, &[&i64::from(app.0), &before.as_slice(), &(limit as i64)]).await?;
            campaigns_of(&tx, &self.ids, &rows, now).await
        })
        .await
    }

    async fn active_campaigns(&self, now: Timestamp) -> Result<Vec<Campaign>, Error> {
        self.read(async |tx| {
            let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE state < 5 ORDER BY num");
            campaigns_of(&tx, &self.ids, &tx.query(&sql, &[]).await?, now).await
        })
        .await
    }

    async fn upload(&self, app: AppId, id: CampaignId, lines: Vec<UploadLine>) -> Result<u64, Error> {
        let lines = Arc::new(lines);
        self.write(move |tx| upload(tx, app, id, lines.clone())).await
    }

    async fn set_campaign_state(
        &self,
        app: AppId,
        id: CampaignId,
        from: &[CampaignState],
        to: CampaignState,
        now: Timestamp,
    ) -> Result<(CampaignState, Departed), Error> {
        let (from, keep_until) = (from.to_vec(), self.keep_until(now));
        let (num, state) =
            self.write(move |tx| set_state(tx, app, id, from.clone(), to, now, keep_until)).await?;
        let mut departed = Departed::default();
        let mut more = to == CampaignState::Aborted;
        while more {
            let ids = self.ids.clone();
            // If this stops early, `take` goes on with it.
            let Ok(page) = self.write(move |tx| purge_batches(tx, ids.clone(), num, now)).await else {
                break;
            };
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
        let keep_until = self.keep_until(now);
        let page = Arc::new(Page { from, batches, cursor, walked, parts });
        self.write(move |tx| enqueue(tx, id, page.clone(), now, keep_until)).await
    }

    async fn delete_campaign(&self, app: AppId, id: CampaignId) -> Result<(), Error> {
        let num = self.write(move |tx| ended(tx, app, id)).await?;
        while self.write(move |tx| purge_lines(tx, num, PURGE_ROWS)).await? == PURGE_ROWS as u64 {}
        self.write(move |tx| delete(tx, num)).await
    }
}

impl Postgres {
    /// Until when the trace of what ends now is kept.
    pub(super) fn keep_until(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.options.trace_retention)
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

impl CampaignRow {
    /// Of the columns `num`, `id`, `state` and `notification`, from `first` on; none where they are NULL.
    pub(super) fn of(row: &Row, first: usize) -> Result<Option<Self>, Failed> {
        let Some(num) = row.get::<_, Option<CampaignNum>>(first) else { return Ok(None) };
        let (id, state, notification) =
            (id_of(row.get(first + 1))?, state_of(row.get(first + 2))?, row.get(first + 3));
        Ok(Some(Self { num, id, state, notification }))
    }
}

/// Those of `nums` that there are.
pub(super) async fn rows(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, CampaignRow>, Failed> {
    if nums.is_empty() {
        return Ok(HashMap::new());
    }
    let sql = "SELECT num, id, state, notification FROM campaigns WHERE num = ANY($1)";
    let mut found = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        found.extend(CampaignRow::of(&row, 0)?.map(|campaign| (campaign.num, campaign)));
    }
    Ok(found)
}

pub(super) async fn number(tx: &Tx, app: AppId, id: CampaignId) -> Result<Option<CampaignNum>, Failed> {
    let sql = "SELECT num FROM campaigns WHERE id = $1 AND app = $2";
    let row = tx.query_opt(sql, &[&id.as_bytes().as_slice(), &i64::from(app.0)]).await?;
    Ok(row.map(|row| row.get(0)))
}

fn id_of(bytes: &[u8]) -> Result<CampaignId, Failed> {
    let wrong = |_| Error::Engine("a stored campaign's id is no UUID".to_owned());
    Ok(CampaignId::from_bytes(bytes.try_into().map_err(wrong)?))
}

fn state_of(code: i64) -> Result<CampaignState, Failed> {
    let state = u8::try_from(code).ok().and_then(CampaignState::from_code);
    Ok(state
        .ok_or_else(|| Error::Engine("a stored campaign state is not known to this program".to_owned()))?)
}

const COLUMNS: &str =
    "num, id, app, spec, state, created_at, started_at, finished_at, notification, cursor, walked,
                       recipients, uploaded";

async fn find(
    tx: Tx,
    ids: &Ids,
    app: AppId,
    id: CampaignId,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE id = $1 AND app = $2");
    let rows = tx.query(&sql, &[&id.as_bytes().as_slice(), &i64::from(app.0)]).await?;
    Ok(campaigns_of(&tx, ids, &rows, now).await?.pop())
}

/// With their sums, by four statements whatever their number.
async fn campaigns_of(tx: &Tx, ids: &Ids, rows: &[Row], now: Timestamp) -> Result<Vec<Campaign>, Failed> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let nums: Vec<CampaignNum> = rows.iter().map(|row| row.get(0)).collect();
    let (mut open, mut counts, mut latencies, mut variants) = tokio::try_join!(
        batches(tx, &nums, now),
        counts(tx, &nums),
        latencies(tx, &nums),
        variant::sums(tx, ids, &nums)
    )?;
    let time = |at: i64| Timestamp(at as u64);
    rows.iter()
        .zip(nums)
        .map(|(row, num)| {
            let (batches_open, batches_later, batches_taken) = open.remove(&num).unwrap_or_default();
            Ok(Campaign {
                id: id_of(row.get(1))?,
                app: AppId(row.get::<_, i64>(2) as u32),
                spec: JsonText::from_valid(row.get::<_, String>(3)),
                state: state_of(row.get(4))?,
                created_at: time(row.get(5)),
                started_at: row.get::<_, Option<i64>>(6).map(time),
                finished_at: row.get::<_, Option<i64>>(7).map(time),
                notification: ids.id(row.get(8)),
                cursor: row.get::<_, i64>(9) as u64,
                walked: row.get::<_, i64>(10) != 0,
                recipients: row.get::<_, i64>(11) as u64,
                uploaded: row.get::<_, i64>(12) as u64,
                counts: counts.remove(&num).unwrap_or_default(),
                variants: variants.remove(&num).unwrap_or_default(),
                latencies: latencies.remove(&num).unwrap_or_default(),
                batches_open,
                batches_later,
                batches_taken,
            })
        })
        .collect()
}

/// Of each campaign its batches: all, those due later, those that somebody took.
async fn batches(
    tx: &Tx,
    nums: &[CampaignNum],
    now: Timestamp,
) -> Result<HashMap<CampaignNum, (u64, u64, u64)>, Failed> {
    let sql = "SELECT campaign, count(*), count(*) FILTER (WHERE due_at > $2), count(*) FILTER (WHERE leased_until > 0)
               FROM push_queue WHERE campaign = ANY($1) AND campaign > 0 GROUP BY campaign";
    let rows = tx.query(sql, &[&nums, &(now.0 as i64)]).await?;
    let count = |row: &Row, column| row.get::<_, i64>(column) as u64;
    Ok(rows.iter().map(|row| (row.get(0), (count(row, 1), count(row, 2), count(row, 3)))).collect())
}

/// The campaign, which nobody changes until this transaction ends.
async fn locked(tx: &Tx, app: AppId, id: CampaignId) -> Result<CampaignRow, Failed> {
    let sql =
        "SELECT num, id, state, notification FROM campaigns WHERE id = $1 AND app = $2 FOR NO KEY UPDATE";
    let row = tx.query_opt(sql, &[&id.as_bytes().as_slice(), &i64::from(app.0)]).await?;
    let row = row.ok_or(Error::NotFound)?;
    Ok(CampaignRow::of(&row, 0)?.ok_or(Error::NotFound)?)
}

async fn upload(tx: Tx, app: AppId, id: CampaignId, lines: Arc<Vec<UploadLine>>) -> Result<u64, Failed> {
    let campaign = locked(&tx, app, id).await?;
    if !matches!(campaign.state, CampaignState::Draft | CampaignState::Scheduled) {
        return Err(Error::Conflict.into());
    }
    // Of several lines of a user the last one counts, at the place of the first.
    let mut place_of: HashMap<&UserId, usize> = HashMap::with_capacity(lines.len());
    let (mut users, mut texts): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
    for UploadLine { user, line } in lines.iter() {
        match place_of.get(user) {
            Some(&place) => texts[place] = line.as_str(),
            None => {
                place_of.insert(user, users.len());
                users.push(user.as_str());
                texts.push(line.as_str());
            }
        }
    }
    // The campaign's row is locked, so nobody else changes or numbers its lines.
    let replaced = tx
        .query(
            r#"UPDATE campaign_lines l SET line = new.line FROM unnest($2::text[], $3::text[]) AS new ("user", line)
               WHERE l.campaign = $1 AND l."user" = new."user" RETURNING l."user""#,
            &[&campaign.num, &users, &texts],
        )
        .await?;
    let replaced: HashSet<&str> = replaced.iter().map(|row| row.get(0)).collect();
    let (users, texts): (Vec<&str>, Vec<&str>) =
        users.iter().zip(&texts).filter(|(user, _)| !replaced.contains(*user)).unzip();
    let sql = "UPDATE campaigns SET uploaded = uploaded + $2, lines = 1 WHERE num = $1 RETURNING uploaded";
    let row = tx.query_one(sql, &[&campaign.num, &(users.len() as i64)]).await?;
    let uploaded: i64 = row.get(0);
    tx.execute(
        r#"INSERT INTO campaign_lines (campaign, seq, "user", line)
           SELECT $1::bigint, $2::bigint + place, "user", line
           FROM unnest($3::text[], $4::text[]) WITH ORDINALITY AS new ("user", line, place)"#,
        &[&campaign.num, &(uploaded - users.len() as i64), &users, &texts],
    )
    .await?;
    Ok(uploaded as u64)
}

async fn set_state(
    tx: Tx,
    app: AppId,
    id: CampaignId,
    from: Vec<CampaignState>,
    to: CampaignState,
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<(CampaignNum, CampaignState), Failed> {
    let campaign = locked(&tx, app, id).await?;
    if !from.contains(&campaign.state) {
        return Err(Error::Conflict.into());
    }
    tx.execute(
        "UPDATE campaigns SET state = $2::bigint, started_at = CASE WHEN $2::bigint = 3 THEN coalesce(started_at, $3::bigint) ELSE started_at END,
                              finished_at = CASE WHEN $2::bigint >= 5 THEN $3::bigint ELSE finished_at END
         WHERE num = $1",
        &[&campaign.num, &(to as i64), &(now.0 as i64)],
    )
    .await?;
    let mut reached = to;
    if to.ended() {
        keep_trace(&tx, &[campaign.num], keep_until).await?;
    } else if !settle(&tx, &[campaign.num], now, keep_until).await?.is_empty() {
        reached = CampaignState::Done;
    }
    Ok((campaign.num, reached))
}

/// What [`Campaigns::enqueue`] is given.
struct Page {
    from: u64,
    batches: Vec<NewBatch>,
    cursor: u64,
    walked: bool,
    parts: Vec<PushPart>,
}

async fn enqueue(
    tx: Tx,
    id: CampaignId,
    page: Arc<Page>,
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<CampaignState, Failed> {
    if page.walked {
        let sql = "SELECT pg_advisory_xact_lock($1, (num % 2147483648)::int) FROM campaigns WHERE id = $2";
        tx.query(sql, &[&LOCKS, &id.as_bytes().as_slice()]).await?;
    }
    let sql =
        "SELECT num, app, notification, state, cursor, walked FROM campaigns WHERE id = $1 FOR NO KEY UPDATE";
    let row = tx.query_opt(sql, &[&id.as_bytes().as_slice()]).await?.ok_or(Error::NotFound)?;
    let (campaign, app): (CampaignNum, _) = (row.get(0), AppId(row.get::<_, i64>(1) as u32));
    let (notification, state): (Num, _) = (row.get(2), state_of(row.get(3))?);
    let (cursor, walked) = (row.get::<_, i64>(4) as u64, row.get::<_, i64>(5) != 0);
    if state != CampaignState::Running || walked || cursor != page.from {
        return Err(Error::Conflict.into());
    }
    let (mut new, mut recipients_count) = (NewRows::default(), 0);
    for NewBatch { service, due_at, lane, recipients } in &page.batches {
        let recipients = queue::sorted(recipients.clone());
        recipients_count += recipients.len() as i64;
        let (service, lane, due_at) = (*service, *lane, *due_at);
        let fallback = Fallback::Settled;
        let entry =
            Entry { app, lane, service, campaign, num: 0, variant: None, due_at, attempt: 0, fallback };
        new.push(&entry, &recipients);
    }
    let (mut parts, mut counts) = (Vec::new(), Vec::new());
    for PushPart { outcome, reason, devices, .. } in &page.parts {
        let (outcome, reason) = (*outcome, *reason);
        let part = Part::of(notification, outcome, now, queue::sorted(devices.clone()));
        counts.push(Count { campaign, num: None, outcome, reason, count: part.count });
        parts.push(Part { reason, ..part });
    }
    let sql = "UPDATE campaigns SET cursor = $2, walked = $3, recipients = recipients + $4 WHERE num = $1";
    let (cursor, walked) = (page.cursor as i64, i64::from(page.walked));
    let moved = async { tx.execute(sql, &[&campaign, &cursor, &walked, &recipients_count]).await };
    tokio::try_join!(new.insert(&tx), outcome::add(&tx, &parts), moved)?;
    let done = if page.walked { settle(&tx, &[campaign], now, keep_until).await? } else { Vec::new() };
    count(&tx, counts).await?;
    Ok(if done.is_empty() { CampaignState::Running } else { CampaignState::Done })
}
