//! Campaigns: rows, states, uploads, and the pages that go onto the push queue.
//!
//! When a campaign ends is decided by whoever removes its last batch, of which there may be several at once on
//! several nodes. Locks, always in this order, after those of the queue's rows:
//!
//! 1. An advisory lock of the campaign: shared by who removes batches ([`hold_open`]), alone by who enqueues the
//!    last of them. So whoever removes one knows whether more can come.
//! 2. The campaign's row, by [`settle`] where no more can come: of two who remove the last batches the second
//!    waits for the first, and sees that nothing is left.
//! 3. Sums, in order. They are spread over [`SHARDS`] rows each, so that finishing does not wait for finishing.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, CampaignId, DeviceNum, JsonText, Outcome, Timestamp, UserId, When, limits};
use tokio_postgres::Row;

use super::Postgres;
use super::outcome::{self, Part};
use super::push::queue::{self, Entry, NewRows};
use super::transaction::{Failed, Tx};
use crate::ids::{self, Ids, Num};
use crate::row::{Fallback, TO_CAMPAIGN, push_text};
use crate::{
    Campaign, CampaignState, Campaigns, CreatedCampaign, Error, Idempotency, NewBatch, NewCampaign, PushPart,
    UploadLine, device_list,
};

/// A campaign's short name inside the store.
pub(super) type CampaignNum = i64;

/// Batches or lines that one commit removes: some 10 µs each.
const PURGE_ROWS: i64 = 1_000;

/// Rows of each sum.
const SHARDS: u64 = 16;

/// Stands for campaigns among the advisory locks ("camp").
const LOCKS: i32 = 0x6361_6d70;

#[async_trait::async_trait]
impl Campaigns for Postgres {
    async fn create_campaign(&self, campaign: NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Error> {
        let store = self.clone();
        self.write(move |tx| create(tx, store.clone(), campaign.clone(), now)).await
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
    ) -> Result<Campaign, Error> {
        let (from, keep_until) = (from.to_vec(), self.keep_until(now));
        let num = self.write(move |tx| set_state(tx, app, id, from.clone(), to, now, keep_until)).await?;
        if to == CampaignState::Aborted {
            // If this stops early, `take` goes on with it.
            while let Ok(true) = self.write(move |tx| purge_batches(tx, num, now)).await {}
        }
        self.campaign(app, id, now).await?.ok_or(Error::NotFound)
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

/// With their sums, by three statements whatever their number.
async fn campaigns_of(tx: &Tx, ids: &Ids, rows: &[Row], now: Timestamp) -> Result<Vec<Campaign>, Failed> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let nums: Vec<CampaignNum> = rows.iter().map(|row| row.get(0)).collect();
    let (mut open, mut counts, mut latencies) =
        tokio::try_join!(batches(tx, &nums, now), counts(tx, &nums), latencies(tx, &nums))?;
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

type Sums = Vec<(Outcome, String, u64)>;

async fn counts(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, Sums>, Failed> {
    let sql =
        "SELECT campaign, outcome, reason, sum(count)::bigint FROM campaign_counts WHERE campaign = ANY($1)
               GROUP BY campaign, outcome, reason ORDER BY campaign, outcome, reason";
    let mut found: HashMap<CampaignNum, Sums> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        let code = u8::try_from(row.get::<_, i64>(1)).ok();
        if let Some(outcome) = code.and_then(Outcome::from_code) {
            let sum = (outcome, row.get(2), row.get::<_, i64>(3) as u64);
            found.entry(row.get(0)).or_default().push(sum);
        }
    }
    Ok(found)
}

async fn latencies(tx: &Tx, nums: &[CampaignNum]) -> Result<HashMap<CampaignNum, Vec<(u16, u64)>>, Failed> {
    let sql = "SELECT campaign, bucket, sum(count)::bigint FROM campaign_latency WHERE campaign = ANY($1)
               GROUP BY campaign, bucket ORDER BY campaign, bucket";
    let mut found: HashMap<CampaignNum, Vec<(u16, u64)>> = HashMap::new();
    for row in tx.query(sql, &[&nums]).await? {
        let sum = (row.get::<_, i64>(1) as u16, row.get::<_, i64>(2) as u64);
        found.entry(row.get(0)).or_default().push(sum);
    }
    Ok(found)
}

/// The campaign that the same idempotency key made; none if that was deleted.
async fn created_before(
    tx: &Tx,
    store: &Postgres,
    app: AppId,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    let sql = "SELECT i.body_hash, c.id, n.target FROM idempotency i
               LEFT JOIN campaigns c ON c.app = i.app AND c.notification = i.num
               LEFT JOIN notifications n ON n.num = i.num
               WHERE i.app = $1 AND i.key = $2 AND i.expires_at > $3";
    let found = tx.query_opt(sql, &[&i64::from(app.0), &&*idempotency.key, &(now.0 as i64)]).await?;
    let Some(row) = found else { return Ok(None) };
    let same_body = row.get::<_, &[u8]>(0) == idempotency.body_hash;
    match (row.get::<_, Option<&[u8]>>(1), row.get::<_, Option<i64>>(2)) {
        _ if !same_body => Err(Error::IdempotencyConflict.into()),
        (Some(id), _) => find(tx.clone(), &store.ids, app, id_of(id)?, now).await,
        (None, Some(target)) if target == i64::from(TO_CAMPAIGN) => Ok(None),
        // A notification's.
        (None, _) => Err(Error::IdempotencyConflict.into()),
    }
}

async fn create(
    tx: Tx,
    store: Postgres,
    new: NewCampaign,
    now: Timestamp,
) -> Result<CreatedCampaign, Failed> {
    let app = i64::from(new.app.0);
    tx.query_opt("SELECT 1 FROM apps WHERE id = $1 FOR KEY SHARE", &[&app]).await?.ok_or(Error::NotFound)?;
    let num = store.loose.next(now);
    if let Some(idempotency) = &new.idempotency
        && let Some(campaign) = remember(&tx, &store, new.app, idempotency, num, now).await?
    {
        return Ok(CreatedCampaign { campaign, replayed: true });
    }
    insert_notification(&tx, num, &new, now).await?;
    let mut random = [0; 10];
    random[..8].copy_from_slice(&ids::random_bits().to_le_bytes());
    random[8..].copy_from_slice(&ids::random_bits().to_le_bytes()[..2]);
    let id = CampaignId(uuid::Builder::from_unix_timestamp_millis(now.0, &random).into_uuid());
    let started = (new.state == CampaignState::Running).then_some(now.0 as i64);
    tx.execute(
        "INSERT INTO campaigns (id, app, state, created_at, started_at, notification, cursor, walked, recipients,
                                uploaded, lines, spec)
         VALUES ($1, $2, $3, $4, $5, $6, 0, 0, 0, 0, 0, $7)",
        &[
            &id.as_bytes().as_slice(),
            &app,
            &(new.state as i64),
            &(now.0 as i64),
            &started,
            &num,
            &new.spec.as_str(),
        ],
    )
    .await?;
    let campaign = find(tx, &store.ids, new.app, id, now).await?.ok_or(Error::NotFound)?;
    Ok(CreatedCampaign { campaign, replayed: false })
}

/// Writes the key down for the campaign that `num` is the notification of, or finds the one that it made. Of two
/// that come with it at once the second waits for the first, at the row of the key.
async fn remember(
    tx: &Tx,
    store: &Postgres,
    app: AppId,
    idempotency: &Idempotency,
    num: Num,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    if let Some(campaign) = created_before(tx, store, app, idempotency, now).await? {
        return Ok(Some(campaign));
    }
    // A key that is taken and did not conflict is of a campaign that was deleted.
    let written = tx
        .execute(
            "INSERT INTO idempotency AS i (app, key, body_hash, num, expires_at) VALUES ($1, $2, $3, $4, $5)
             ON CONFLICT (app, key) DO UPDATE
             SET body_hash = excluded.body_hash, num = excluded.num, expires_at = excluded.expires_at
             WHERE i.expires_at <= $6
                OR NOT EXISTS (SELECT 1 FROM campaigns c WHERE c.app = i.app AND c.notification = i.num)
                   AND EXISTS (SELECT 1 FROM notifications n WHERE n.num = i.num AND n.target = $7)",
            &[
                &i64::from(app.0),
                &&*idempotency.key,
                &idempotency.body_hash.as_slice(),
                &num,
                &(now.saturating_add(limits::IDEMPOTENCY_WINDOW).0 as i64),
                &(now.0 as i64),
                &i64::from(TO_CAMPAIGN),
            ],
        )
        .await?;
    match written {
        0 => Ok(created_before(tx, store, app, idempotency, now)
            .await?
            .map(Some)
            .ok_or(Error::IdempotencyConflict)?),
        _ => Ok(None),
    }
}

/// The notification under which a campaign's outcomes are recorded: kept until the campaign has ended, and
/// the retention from then on.
async fn insert_notification(tx: &Tx, num: Num, new: &NewCampaign, now: Timestamp) -> Result<(), Failed> {
    tx.execute(
        "INSERT INTO notifications (num, app, created_at, expires_at, keep_until, delivery, urgency, target, retain,
                                    notification, data, push, standing)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $10, $11, 0)",
        &[
            &num,
            &i64::from(new.app.0),
            &(now.0 as i64),
            &(new.expires_at.0 as i64),
            &i64::MAX,
            // Nothing is kept of what only push services are asked for.
            &(new.when.unwrap_or(When::Connected) as i64),
            &(new.urgency as i64),
            &i64::from(TO_CAMPAIGN),
            &new.notification.as_ref().map(JsonText::as_str),
            &new.data.as_ref().map(JsonText::as_str),
            &push_text(&new.push),
        ],
    )
    .await?;
    Ok(())
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
) -> Result<CampaignNum, Failed> {
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
    if to.ended() {
        keep_trace(&tx, &[campaign.notification], keep_until).await?;
    } else {
        settle(&tx, &[campaign.num], now, keep_until).await?;
    }
    Ok(campaign.num)
}

/// From the end of a campaign on its trace is kept for the retention.
async fn keep_trace(tx: &Tx, nums: &[Num], keep_until: Timestamp) -> Result<(), Failed> {
    let sql = "UPDATE notifications SET keep_until = $2 WHERE num = ANY($1)";
    tx.execute(sql, &[&nums, &(keep_until.0 as i64)]).await?;
    Ok(())
}

/// To be asked after batches of these campaigns were removed and before [`settle`]: whoever enqueues the last of
/// them has done so before, or does so after this transaction.
pub(super) async fn hold_open(tx: &Tx, nums: &[CampaignNum]) -> Result<(), Failed> {
    let mut keys: Vec<i32> = nums.iter().map(|num| (num % (1 << 31)) as i32).collect();
    keys.sort_unstable();
    let sql = "SELECT pg_advisory_xact_lock_shared($1, key) FROM unnest($2::int[]) AS key";
    tx.query(sql, &[&LOCKS, &keys]).await?;
    Ok(())
}

/// Ends those that were walked to their end and have no batch left; their ids.
pub(super) async fn settle(
    tx: &Tx,
    nums: &[CampaignNum],
    now: Timestamp,
    keep_until: Timestamp,
) -> Result<Vec<CampaignId>, Failed> {
    let sql = "SELECT num FROM campaigns WHERE num = ANY($1) AND walked = 1 AND state IN (3, 4)
               ORDER BY num FOR NO KEY UPDATE";
    let walked: Vec<CampaignNum> = tx.query(sql, &[&nums]).await?.iter().map(|row| row.get(0)).collect();
    if walked.is_empty() {
        return Ok(Vec::new());
    }
    // A statement of its own, so that it sees what was committed before the rows were locked.
    let done = tx
        .query(
            "UPDATE campaigns SET state = 5, finished_at = $2
             WHERE num = ANY($1) AND walked = 1 AND state IN (3, 4)
               AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.campaign = campaigns.num AND q.campaign > 0)
             RETURNING id, notification",
            &[&walked, &(now.0 as i64)],
        )
        .await?;
    if done.is_empty() {
        return Ok(Vec::new());
    }
    let notifications: Vec<Num> = done.iter().map(|row| row.get(1)).collect();
    keep_trace(tx, &notifications, keep_until).await?;
    done.iter().map(|row| id_of(row.get(0))).collect()
}

/// What is added to a campaign's sums.
pub(super) struct Count {
    pub campaign: CampaignNum,
    pub outcome: Outcome,
    pub reason: Option<&'static str>,
    pub count: u64,
}

/// One of a sum's rows.
fn shard() -> i64 {
    (ids::random_bits() % SHARDS) as i64
}

/// Adds to sums by one statement, in their order.
pub(super) async fn count(tx: &Tx, counts: impl IntoIterator<Item = Count>) -> Result<(), Failed> {
    let mut sums: BTreeMap<(CampaignNum, i64, &str), i64> = BTreeMap::new();
    for Count { campaign, outcome, reason, count } in counts {
        if count > 0 {
            *sums.entry((campaign, outcome as i64, reason.unwrap_or_default())).or_default() += count as i64;
        }
    }
    if sums.is_empty() {
        return Ok(());
    }
    let campaigns: Vec<_> = sums.keys().map(|(campaign, ..)| *campaign).collect();
    let outcomes: Vec<_> = sums.keys().map(|(_, outcome, _)| *outcome).collect();
    let reasons: Vec<_> = sums.keys().map(|(.., reason)| *reason).collect();
    let counts: Vec<_> = sums.values().copied().collect();
    tx.execute(
        "INSERT INTO campaign_counts AS c (campaign, outcome, reason, shard, count)
         SELECT campaign, outcome, reason, $5, count
         FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS new (campaign, outcome, reason, count)
         ON CONFLICT (campaign, outcome, reason, shard) DO UPDATE SET count = c.count + excluded.count",
        &[&campaigns, &outcomes, &reasons, &counts, &shard()],
    )
    .await?;
    Ok(())
}

/// Adds to histograms by one statement, in their order.
pub(super) async fn add_latencies(
    tx: &Tx,
    latencies: &BTreeMap<(CampaignNum, i64), i64>,
) -> Result<(), Failed> {
    if latencies.is_empty() {
        return Ok(());
    }
    let (campaigns, buckets): (Vec<i64>, Vec<i64>) = latencies.keys().copied().unzip();
    let counts: Vec<_> = latencies.values().copied().collect();
    tx.execute(
        "INSERT INTO campaign_latency AS l (campaign, bucket, shard, count)
         SELECT campaign, bucket, $4, count
         FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS new (campaign, bucket, count)
         ON CONFLICT (campaign, bucket, shard) DO UPDATE SET count = l.count + excluded.count",
        &[&campaigns, &buckets, &counts, &shard()],
    )
    .await?;
    Ok(())
}

/// Removes batches of an aborted campaign that are not under way; true if there may be more.
async fn purge_batches(tx: Tx, num: CampaignNum, now: Timestamp) -> Result<bool, Failed> {
    let Some(campaign) = rows(&tx, &[num]).await?.remove(&num) else { return Ok(false) };
    let removed = tx
        .query(
            "WITH free AS (
                 SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 AND leased_until = 0
                 ORDER BY campaign, due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             DELETE FROM push_queue q USING free WHERE q.id = free.id RETURNING q.num, q.recipients",
            &[&num, &PURGE_ROWS],
        )
        .await?;
    let (mut parts, mut total) = (Vec::new(), 0);
    for row in &removed {
        let under = Some(row.get::<_, Num>(0)).filter(|num| *num > 0).unwrap_or(campaign.notification);
        let devices: Vec<DeviceNum> = device_list::decode(row.get(1)).collect();
        total += devices.len() as u64;
        parts.push(Part::of(under, Outcome::Cancelled, now, devices));
    }
    outcome::add(&tx, &parts).await?;
    count(&tx, [Count { campaign: num, outcome: Outcome::Cancelled, reason: None, count: total }]).await?;
    Ok(removed.len() as i64 == PURGE_ROWS)
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
        let entry = Entry { app, lane, service, campaign, num: 0, due_at, attempt: 0, fallback };
        new.push(&entry, &recipients);
    }
    let (mut parts, mut counts) = (Vec::new(), Vec::new());
    for PushPart { outcome, reason, devices } in &page.parts {
        let (outcome, reason) = (*outcome, *reason);
        let part = Part::of(notification, outcome, now, queue::sorted(devices.clone()));
        counts.push(Count { campaign, outcome, reason, count: part.count });
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

async fn ended(tx: Tx, app: AppId, id: CampaignId) -> Result<CampaignNum, Failed> {
    let campaign = locked(&tx, app, id).await?;
    if campaign.state.ended() { Ok(campaign.num) } else { Err(Error::Conflict.into()) }
}

async fn purge_lines(tx: Tx, num: CampaignNum, rows_max: i64) -> Result<u64, Failed> {
    let sql = "DELETE FROM campaign_lines WHERE campaign = $1 AND seq IN (
                   SELECT seq FROM campaign_lines WHERE campaign = $1 ORDER BY seq LIMIT $2)";
    tx.execute(sql, &[&num, &rows_max]).await
}

/// Removes lines of one campaign that ended before `ended_before` at the latest; how many, and whether there may be
/// more.
pub(super) async fn prune_lines(
    tx: &Tx,
    ended_before: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), Failed> {
    let sql = "SELECT num FROM campaigns WHERE lines = 1 AND finished_at <= $1 LIMIT 1";
    let Some(row) = tx.query_opt(sql, &[&(ended_before.0 as i64)]).await? else { return Ok((0, false)) };
    let num: CampaignNum = row.get(0);
    let removed = purge_lines(tx.clone(), num, rows_max as i64).await?;
    if removed < rows_max as u64 {
        tx.execute("UPDATE campaigns SET lines = 0 WHERE num = $1", &[&num]).await?;
    }
    // Another campaign may have some.
    Ok((removed, true))
}

/// What is left of it after its lines.
async fn delete(tx: Tx, num: CampaignNum) -> Result<(), Failed> {
    for sql in [
        "WITH left_over AS (SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 ORDER BY id FOR UPDATE)
         DELETE FROM push_queue q USING left_over WHERE q.id = left_over.id",
        "DELETE FROM campaigns WHERE num = $1",
        "DELETE FROM campaign_counts WHERE campaign = $1",
        "DELETE FROM campaign_latency WHERE campaign = $1",
        "DELETE FROM campaign_lines WHERE campaign = $1",
    ] {
        tx.execute(sql, &[&num]).await?;
    }
    Ok(())
}
