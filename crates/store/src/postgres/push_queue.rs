//! Rows of the push queue.
//!
//! Several nodes may change the same row at once; its lock serializes them: a take skips locked rows, all others wait.
//! Rows are always locked in the order of their ids.

use std::time::Duration;

use noroshi_types::{BatchId, DeviceNum, Timestamp};

use super::columns::columns;
use super::transaction::{Failed, Tx};
use crate::engine::cancel::CancelledWork;
use crate::engine::device_list;
use crate::engine::push::{Entry, service_code};
use crate::engine::push_token::key_text;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Lease, Renewal, VariantNum};

/// Milliseconds by the server's clock, which all nodes share.
pub(super) const ENGINE_NOW: &str = "(extract(epoch FROM statement_timestamp()) * 1000)::bigint";

columns! {
    /// Columns of [`INSERT`].
    NewRows {
        apps: i64, lanes: i64, services: i64, campaigns: i64, nums: Num, variants: i64, dues: i64, attempts: i64,
        fallbacks: i64, recipients: Vec<u8>, tokens: Option<String>,
    }
}

impl NewRows {
    /// Adds one batch, unless it has no recipients; they must be sorted.
    pub(super) fn push(&mut self, entry: &Entry, recipients: &[DeviceNum]) {
        let &Entry { app, lane, service, campaign, num, variant, due_at, attempt, fallback, ref token } =
            entry;
        if !recipients.is_empty() {
            self.push_row((
                app.0.into(),
                lane as i64,
                service_code(service).into(),
                campaign,
                num,
                VariantNum::code(variant).into(),
                due_at.0 as i64,
                attempt.into(),
                fallback as i64,
                device_list::encode(recipients),
                key_text(token.as_ref()),
            ));
        }
    }

    pub(super) async fn insert(&self, tx: &Tx) -> Result<(), Failed> {
        if !self.apps.is_empty() {
            tx.execute(INSERT, &self.values()).await?;
        }
        Ok(())
    }
}

pub(super) const INSERT: &str =
    "INSERT INTO push_queue (app, lane, service, campaign, num, variant, due_at, attempt,
                                                         fallback, leased_until, recipients, token)
     SELECT app, lane, service, campaign, num, variant, due_at, attempt, fallback, 0, recipients, token
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                 $7::bigint[], $8::bigint[], $9::bigint[], $10::bytea[], $11::text[])
         AS new (app, lane, service, campaign, num, variant, due_at, attempt, fallback, recipients, token)";

/// Leases are identified by when they end by their taker's clock; by the server's clock they last for `lease` from now.
pub(crate) async fn renew(
    tx: &Tx,
    leases: &[Lease],
    until: Timestamp,
    lease: Duration,
    why: Renewal,
) -> Result<Vec<BatchId>, Failed> {
    let mut leases = leases.to_vec();
    leases.sort_unstable_by_key(|lease| lease.batch);
    let ids: Vec<i64> = leases.iter().map(|lease| lease.batch.0 as i64).collect();
    let untils: Vec<i64> = leases.iter().map(|lease| lease.until.0 as i64).collect();
    let sql = format!(
        "WITH held AS (
             SELECT q.id FROM unnest($1::bigint[], $2::bigint[]) AS lease (id, until)
             JOIN push_queue q ON q.id = lease.id
             WHERE q.leased_until = lease.until AND q.leased_until > 0
             ORDER BY q.id FOR UPDATE OF q)
         UPDATE push_queue q SET leased_until = $3::bigint, holder = CASE WHEN $3::bigint > 0 THEN $4::bigint ELSE 0 END,
                                 lapses_at = CASE WHEN $3::bigint > 0 THEN {ENGINE_NOW} + $5::bigint ELSE 0 END,
                                 takes = greatest(takes + $6::bigint, 0)
         FROM held WHERE q.id = held.id RETURNING q.id"
    );
    let (until, lease_ms) = (until.0 as i64, lease.as_millis() as i64);
    let rows =
        tx.query(&sql, &[&ids, &untils, &until, &tx.context().holder, &lease_ms, &why.takes()]).await?;
    rows.iter().map(|row| Ok(BatchId(row.count(0)?))).collect()
}

/// Removes the batches of a notification that no sender has taken, and its walk.
pub(super) async fn cancel(tx: &Tx, num: Num) -> Result<CancelledWork, Failed> {
    // The walk first: a call that moves it on at this moment has enqueued its page before this continues.
    let walks = tx.execute("DELETE FROM push_walks WHERE num = $1", &[&num]).await?;
    let row =
        tx.query_one("SELECT EXISTS (SELECT 1 FROM push_queue WHERE num = $1 AND num > 0)", &[&num]).await?;
    let mut work = CancelledWork { any: walks > 0 || row.flag(0)?, ..CancelledWork::default() };
    let sql = "WITH free AS (
             SELECT id FROM push_queue WHERE num = $1 AND num > 0 AND leased_until = 0 ORDER BY id FOR UPDATE)
         DELETE FROM push_queue q USING free WHERE q.id = free.id RETURNING q.recipients, q.campaign";
    for row in tx.query(sql, &[&num]).await? {
        work.add(row.bytes(0)?, row.int(1)?);
    }
    Ok(work.finish())
}
