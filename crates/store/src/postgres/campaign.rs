//! Campaigns: creation, states, uploads, and pages that go onto the push queue. The order of locks is
//! in [`super::campaign_row`].

use std::collections::{HashMap, HashSet};

use noroshi_types::{AppId, CampaignId, Timestamp};
use tokio_postgres::Row;

use super::push_queue::NewRows;
use super::transaction::{Failed, Tx};
use super::{campaign_row, campaign_sum, outcome};
use crate::engine::accept::key_expires_at;
use crate::engine::campaign::{
    self, COLUMNS, CONTINUED_COLUMNS, CampaignNum, CampaignSums, Count, PURGE_ROWS, campaign_of,
    check_uploadable, continued,
};
use crate::engine::cancel::removed_batch;
use crate::engine::draft;
use crate::engine::notification::TO_CAMPAIGN;
use crate::engine::outcome::Part;
use crate::engine::push::{campaign_entry, page_part, sorted};
use crate::engine::record::{Record, to_array};
use crate::engine::session::{Session, require_app};
use crate::ids::Num;
use crate::{
    Campaign, CampaignFilter, CampaignPage, CampaignState, CreatedCampaign, Error, Idempotency, NewBatch,
    NewCampaign, PushPart, RemovedMessages, Unready, UploadLine, Uploader,
};

pub(crate) async fn find(
    tx: &Tx,
    app: AppId,
    id: CampaignId,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE id = $1 AND app = $2");
    let rows = tx.query(&sql, &[&id.as_bytes().as_slice(), &i64::from(app.0)]).await?;
    Ok(campaigns_of(tx, &rows, now).await?.pop())
}

pub(crate) async fn list(
    tx: &Tx,
    app: AppId,
    filter: &CampaignFilter,
    now: Timestamp,
) -> Result<CampaignPage, Failed> {
    let (nums, next) = draft::select(tx, app, filter).await?;
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE num = ANY($1) ORDER BY id DESC");
    let rows = tx.query(&sql, &[&nums]).await?;
    Ok(CampaignPage { campaigns: campaigns_of(tx, &rows, now).await?, next })
}

pub(crate) async fn edit(
    tx: &Tx,
    id: CampaignId,
    revision: u64,
    new: &NewCampaign,
    now: Timestamp,
) -> Result<Result<u64, Unready>, Failed> {
    let loose = &tx.context().loose;
    draft::edit(tx, id, revision, new, || loose.next(now), now).await
}

pub(crate) async fn active(tx: &Tx, now: Timestamp) -> Result<Vec<Campaign>, Failed> {
    let sql = format!("SELECT {COLUMNS} FROM campaigns WHERE state < 5 ORDER BY num");
    campaigns_of(tx, &tx.query(&sql, &[]).await?, now).await
}

/// The campaigns with their sums, with four statements for any number of campaigns.
async fn campaigns_of(tx: &Tx, rows: &[Row], now: Timestamp) -> Result<Vec<Campaign>, Failed> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let nums: Vec<CampaignNum> = rows.iter().map(|row| row.get(0)).collect();
    let (mut batches, mut counts, mut latencies, mut variants) = tokio::try_join!(
        batches(tx, &nums, now),
        campaign_sum::counts(tx, &nums),
        campaign_sum::latencies(tx, &nums),
        campaign_sum::variant_sums(tx, &nums)
    )?;
    let with_sums = |(row, num): (&Row, &CampaignNum)| {
        let sums = CampaignSums {
            counts: counts.remove(num).unwrap_or_default(),
            variants: variants.remove(num).unwrap_or_default(),
            latencies: latencies.remove(num).unwrap_or_default(),
            batches: batches.remove(num).unwrap_or_default(),
        };
        Ok(campaign_of(row, tx.ids(), sums)?)
    };
    rows.iter().zip(&nums).map(with_sums).collect()
}

/// The batches of each campaign: all, those due later, those that are leased.
async fn batches(
    tx: &Tx,
    nums: &[CampaignNum],
    now: Timestamp,
) -> Result<HashMap<CampaignNum, (u64, u64, u64)>, Failed> {
    let sql = "SELECT campaign, count(*), count(*) FILTER (WHERE due_at > $2), count(*) FILTER (WHERE leased_until > 0)
               FROM push_queue WHERE campaign = ANY($1) AND campaign > 0 GROUP BY campaign";
    let rows = tx.query(sql, &[&nums, &(now.0 as i64)]).await?;
    rows.iter().map(|row| Ok((row.int(0)?, (row.count(1)?, row.count(2)?, row.count(3)?)))).collect()
}

/// The campaign that the idempotency key created; `None` if that was deleted.
pub(crate) async fn created_before(
    tx: &Tx,
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
        (Some(id), _) => find(tx, app, CampaignId::from_bytes(to_array(id)?), now).await,
        (None, Some(target)) if target == i64::from(TO_CAMPAIGN) => Ok(None),
        // The key belongs to a notification.
        (None, _) => Err(Error::IdempotencyConflict.into()),
    }
}

pub(crate) async fn create(tx: &Tx, new: &NewCampaign, now: Timestamp) -> Result<CreatedCampaign, Failed> {
    require_app(tx, new.app, Tx::FOR_KEY_SHARE).await?;
    let loose = &tx.context().loose;
    let num = loose.next(now);
    if let Some(idempotency) = &new.idempotency
        && let Some(campaign) = remember(tx, new.app, idempotency, num, now).await?
    {
        return Ok(CreatedCampaign { campaign, replayed: true });
    }
    let id = campaign::create(tx, num, || loose.next(now), new, now).await?;
    let campaign = find(tx, new.app, id, now).await?.ok_or(Error::NotFound)?;
    Ok(CreatedCampaign { campaign, replayed: false })
}

/// Remembers the key for the campaign whose notification is `num`, or finds the campaign that it created. Of two
/// concurrent calls with the key, the second waits for the first at the key's row.
async fn remember(
    tx: &Tx,
    app: AppId,
    idempotency: &Idempotency,
    num: Num,
    now: Timestamp,
) -> Result<Option<Campaign>, Failed> {
    if let Some(campaign) = created_before(tx, app, idempotency, now).await? {
        return Ok(Some(campaign));
    }
    // A key without a conflict belongs to a deleted campaign or is over, and is replaced.
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
                &(key_expires_at(now).0 as i64),
                &(now.0 as i64),
                &i64::from(TO_CAMPAIGN),
            ],
        )
        .await?;
    match written {
        0 => {
            let earlier = created_before(tx, app, idempotency, now).await?;
            Ok(Some(earlier.ok_or(Error::IdempotencyConflict)?))
        }
        _ => Ok(None),
    }
}

pub(crate) async fn upload(
    tx: &Tx,
    app: AppId,
    id: CampaignId,
    lines: &[UploadLine],
    uploader: &Uploader,
    now: Timestamp,
) -> Result<u64, Failed> {
    let campaign = campaign::locked(tx, app, id).await?;
    check_uploadable(campaign.state)?;
    let sql = "SELECT uploaded FROM campaigns WHERE num = $1";
    let before = tx.query_one(sql, &[&campaign.num]).await?.count(0)?;
    let (users, texts): (Vec<&str>, Vec<&str>) = campaign::distinct_lines(lines).into_iter().unzip();
    if users.is_empty() {
        return Ok(before);
    }
    draft::check_room(campaign.state, before, users.len(), uploader.scheduled_max)?;
    draft::uploaded(tx, campaign.num, &uploader.by, now).await?;
    // The campaign's row is locked, so no other call changes or numbers its lines.
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

pub(crate) async fn set_state(
    tx: &Tx,
    app: AppId,
    id: CampaignId,
    from: &[CampaignState],
    to: CampaignState,
    now: Timestamp,
) -> Result<(CampaignNum, CampaignState), Failed> {
    let campaign = campaign::locked(tx, app, id).await?;
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
        campaign_row::keep_trace(tx, &[campaign.num], now).await?;
    } else if !campaign_row::settle(tx, &[campaign.num], now).await?.is_empty() {
        reached = CampaignState::Done;
    }
    Ok((campaign.num, reached))
}

/// Removes batches of an aborted campaign that no sender has taken. Returns whether there may be more.
pub(crate) async fn purge_batches(
    tx: &Tx,
    app: AppId,
    num: CampaignNum,
    now: Timestamp,
) -> Result<(RemovedMessages, bool), Failed> {
    let mut departed = RemovedMessages::default();
    let Some(campaign) = campaign_row::rows(tx, &[num]).await?.remove(&num) else {
        return Ok((departed, false));
    };
    let removed = tx
        .query(
            "WITH free AS (
                 SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 AND leased_until = 0
                 ORDER BY campaign, due_at LIMIT $2 FOR UPDATE SKIP LOCKED)
             DELETE FROM push_queue q USING free WHERE q.id = free.id RETURNING q.num, q.variant, q.recipients",
            &[&num, &(PURGE_ROWS as i64)],
        )
        .await?;
    let variants = campaign_sum::variants(tx, &[num]).await?;
    let more = removed.len() == PURGE_ROWS;
    let removed = removed
        .iter()
        .map(|row| removed_batch(row, (app, &campaign), &variants, (tx.ids(), now), &mut departed));
    let (parts, counts): (Vec<Part>, Vec<Count>) =
        removed.collect::<Result<Vec<_>, Error>>()?.into_iter().unzip();
    outcome::add(tx, &parts).await?;
    campaign_sum::count(tx, counts).await?;
    Ok((departed, more))
}

/// Removes a campaign without lines.
pub(crate) async fn remove(tx: &Tx, num: CampaignNum) -> Result<(), Failed> {
    let sql = "WITH left_over AS (
                   SELECT id FROM push_queue WHERE campaign = $1 AND campaign > 0 ORDER BY id FOR UPDATE)
               DELETE FROM push_queue q USING left_over WHERE q.id = left_over.id";
    tx.execute(sql, &[&num]).await?;
    campaign::delete(tx, num).await
}

#[allow(clippy::too_many_arguments, reason = "one commit has to hold all of it")]
pub(crate) async fn enqueue(
    tx: &Tx,
    id: CampaignId,
    from: u64,
    batches: &[NewBatch],
    cursor: u64,
    walked: bool,
    parts: &[PushPart],
    now: Timestamp,
) -> Result<CampaignState, Failed> {
    if walked {
        campaign_row::lock_alone(tx, id).await?;
    }
    let sql = format!("SELECT {CONTINUED_COLUMNS} FROM campaigns WHERE id = $1 FOR NO KEY UPDATE");
    let row = tx.query_opt(&sql, &[&id.as_bytes().as_slice()]).await?.ok_or(Error::NotFound)?;
    let (campaign, app, notification) = continued(&row, from)?;
    let (mut new, mut recipients_count) = (NewRows::default(), 0);
    for batch in batches {
        let recipients = sorted(batch.recipients.clone());
        recipients_count += recipients.len() as i64;
        new.push(&campaign_entry(app, campaign, batch), &recipients);
    }
    let parts: Vec<Part> = parts.iter().map(|part| page_part(notification, part, now)).collect();
    let counts: Vec<Count> = parts
        .iter()
        .map(|&Part { outcome, reason, count, .. }| Count { campaign, num: None, outcome, reason, count })
        .collect();
    let sql = "UPDATE campaigns SET cursor = $2, walked = $3, recipients = recipients + $4 WHERE num = $1";
    let (cursor, at_end) = (cursor as i64, i64::from(walked));
    let moved = async { tx.execute(sql, &[&campaign, &cursor, &at_end, &recipients_count]).await };
    tokio::try_join!(new.insert(tx), outcome::add(tx, &parts), moved)?;
    let done = if walked { campaign_row::settle(tx, &[campaign], now).await? } else { Vec::new() };
    campaign_sum::count(tx, counts).await?;
    Ok(if done.is_empty() { CampaignState::Running } else { CampaignState::Done })
}
