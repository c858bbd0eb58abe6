//! Invalidated tokens: removed on proof, suspended as suspect, and each recorded for export.
//!
//! A reader of invalidations continues after the last number it saw, so numbers must be committed in order: the
//! invalidations of an app are the last rows that a transaction writes, under an advisory lock that it holds until the
//! commit.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceNum, Timestamp};
use tokio_postgres::Row;

use crate::postgres::transaction::{Failed, Tx};
use crate::{InvalidToken, SuspectToken};

/// Names invalidations among the advisory locks ("toke").
const LOCKS: i32 = 0x746f_6b65;

/// An invalidated token.
pub(super) struct Ended {
    app: i64,
    device: String,
    service: i64,
    environment: Option<i64>,
    reason: &'static str,
    removed: bool,
}

/// Devices with the time at which the token that was pushed to was registered, column by column.
#[derive(Default)]
struct TokenReports {
    devices: Vec<i64>,
    apps: Vec<i64>,
    registered: Vec<i64>,
    reasons: BTreeMap<(i64, i64), &'static str>,
}

impl TokenReports {
    /// Of several reports about the same token the first counts.
    fn push(&mut self, app: AppId, device: DeviceNum, token_at: Timestamp, reason: &'static str) -> bool {
        let (device, token_at) = (device.0 as i64, token_at.0 as i64);
        if self.reasons.contains_key(&(device, token_at)) {
            return false;
        }
        self.reasons.insert((device, token_at), reason);
        self.devices.push(device);
        self.apps.push(app.0.into());
        self.registered.push(token_at);
        true
    }

    fn ended(&self, row: &Row, removed: bool) -> Ended {
        Ended {
            app: row.get(2),
            device: row.get(3),
            service: row.get(4),
            environment: row.get(5),
            reason: self.reasons.get(&(row.get(0), row.get(1))).copied().unwrap_or_default(),
            removed,
        }
    }
}

/// Locks the devices of both lists in the order in which all calls lock devices.
pub(super) async fn lock(
    tx: &Tx,
    gone: &[(AppId, &InvalidToken)],
    suspects: &[(AppId, &SuspectToken)],
) -> Result<(), Failed> {
    let gone = gone.iter().map(|(_, gone)| gone.device.0 as i64);
    let suspects = suspects.iter().map(|(_, suspect)| suspect.device.0 as i64);
    let devices: Vec<i64> = gone.chain(suspects).collect();
    let sql = "SELECT 1 FROM devices WHERE num = ANY($1) ORDER BY num FOR NO KEY UPDATE";
    tx.query(sql, &[&devices]).await.map(drop)
}

/// Removes tokens that are still those that were pushed to, and were registered before the push service's time.
pub(super) async fn remove(tx: &Tx, gone: &[(AppId, &InvalidToken)]) -> Result<Vec<Ended>, Failed> {
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    // Reports about one token may name different times: the latest removes most.
    let mut gone = gone.to_vec();
    gone.sort_by_key(|(_, gone)| {
        (gone.device, gone.token_at, std::cmp::Reverse(gone.since.map_or(u64::MAX, |at| at.0)))
    });
    let (mut asked, mut since) = (TokenReports::default(), Vec::new());
    for (app, gone) in gone {
        if asked.push(app, gone.device, gone.token_at, gone.reason) {
            since.push(gone.since.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX)));
        }
    }
    let rows = tx
        .query(
            "WITH found AS (
                 SELECT d.num, d.push_token_at, d.app, d.id, d.push_service, d.push_environment
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[]) AS gone (num, app, token_at, since)
                 JOIN devices d ON d.num = gone.num
                 WHERE d.app = gone.app AND d.push_service IS NOT NULL AND d.push_token_at = gone.token_at
                   AND (gone.since IS NULL OR d.push_token_at < gone.since)
                 ORDER BY d.num FOR NO KEY UPDATE OF d),
             removed AS (
                 UPDATE devices d SET push_token = NULL, push_service = NULL, push_environment = NULL,
                                      push_token_at = NULL, push_suspect_at = NULL, push_suspect_reason = NULL
                 FROM found WHERE d.num = found.num)
             SELECT * FROM found",
            &[&asked.devices, &asked.apps, &asked.registered, &since],
        )
        .await?;
    Ok(rows.iter().map(|row| asked.ended(row, true)).collect())
}

/// Suspends tokens that are still those that were pushed to, and were not suspect before.
pub(super) async fn set_aside(
    tx: &Tx,
    suspects: &[(AppId, &SuspectToken)],
    now: Timestamp,
) -> Result<Vec<Ended>, Failed> {
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    let (mut asked, mut reasons) = (TokenReports::default(), Vec::new());
    for (app, suspect) in suspects {
        if asked.push(*app, suspect.device, suspect.token_at, suspect.reason) {
            reasons.push(suspect.reason);
        }
    }
    let rows = tx
        .query(
            "WITH found AS (
                 SELECT d.num, d.push_token_at, d.app, d.id, d.push_service, d.push_environment, doubt.reason
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS doubt (num, app, token_at, reason)
                 JOIN devices d ON d.num = doubt.num
                 WHERE d.app = doubt.app AND d.push_service IS NOT NULL AND d.push_token_at = doubt.token_at
                   AND d.push_suspect_at IS NULL
                 ORDER BY d.num FOR NO KEY UPDATE OF d),
             set_aside AS (
                 UPDATE devices d SET push_suspect_at = $5, push_suspect_reason = found.reason
                 FROM found WHERE d.num = found.num)
             SELECT * FROM found",
            &[&asked.devices, &asked.apps, &asked.registered, &reasons, &(now.0 as i64)],
        )
        .await?;
    Ok(rows.iter().map(|row| asked.ended(row, false)).collect())
}

/// Records invalidations for export.
pub(super) async fn record(
    tx: &Tx,
    ended: impl Iterator<Item = &Ended>,
    now: Timestamp,
) -> Result<(), Failed> {
    let ended: Vec<&Ended> = ended.collect();
    if ended.is_empty() {
        return Ok(());
    }
    let apps: Vec<_> = ended.iter().map(|ended| ended.app).collect();
    let devices: Vec<_> = ended.iter().map(|ended| ended.device.as_str()).collect();
    let services: Vec<_> = ended.iter().map(|ended| ended.service).collect();
    let environments: Vec<_> = ended.iter().map(|ended| ended.environment.unwrap_or(1)).collect();
    let reasons: Vec<_> = ended.iter().map(|ended| ended.reason).collect();
    let removed: Vec<_> = ended.iter().map(|ended| i64::from(ended.removed)).collect();
    let mut keys: Vec<i32> = apps.iter().map(|app| (app % (1 << 31)) as i32).collect();
    keys.sort_unstable();
    keys.dedup();
    let sql = "SELECT pg_advisory_xact_lock($1, key) FROM unnest($2::int[]) AS key";
    tx.query(sql, &[&LOCKS, &keys]).await?;
    tx.execute(
        "INSERT INTO push_invalidations (app, at, device, service, environment, reason, removed)
         SELECT app, $7, device, service, environment, reason, removed
         FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
             AS new (app, device, service, environment, reason, removed)",
        &[&apps, &devices, &services, &environments, &reasons, &removed, &(now.0 as i64)],
    )
    .await?;
    Ok(())
}
