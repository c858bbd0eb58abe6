//! Invalidated tokens: removed on proof, suspended as suspect, and each recorded for export.
//!
//! A batch was sent to tokens of one kind and name. Such a token is in its device's columns if it is the main token, and
//! in a row of `push_tokens` otherwise, so each step has a statement for either.
//!
//! A reader of invalidations continues after the last number it saw, so numbers must be committed in order: the
//! invalidations of an app are the last rows that a transaction writes, under an advisory lock that it holds until the
//! commit.

use std::collections::BTreeMap;

use noroshi_types::{AppId, DeviceNum, Timestamp, TokenKey};
use tokio_postgres::Row;

use crate::engine::push_token::{main_service, message_kinds};
use crate::postgres::transaction::{Failed, Tx};
use crate::{InvalidToken, SuspectToken, TokenReport};

/// Names invalidations among the advisory locks ("toke").
const LOCKS: i32 = 0x746f_6b65;

/// Which tokens of an app a batch was sent to.
#[derive(Clone)]
pub(super) struct Sent {
    pub app: AppId,
    pub key: TokenKey,
}

/// An invalidated token.
pub(super) struct Ended {
    app: i64,
    device: String,
    service: i64,
    environment: Option<i64>,
    kind: i64,
    name: String,
    reason: &'static str,
    removed: bool,
}

/// Tokens by device, app, registration, kind, name and service, with the time of the report and its reason; column by
/// column.
#[derive(Default)]
struct Asked<'r> {
    devices: Vec<i64>,
    apps: Vec<i64>,
    registered: Vec<i64>,
    kinds: Vec<i64>,
    names: Vec<&'r str>,
    services: Vec<i64>,
    since: Vec<Option<i64>>,
    texts: Vec<&'static str>,
}

/// Device, time of registration, kind, name.
type Token = (i64, i64, i64, String);

/// Reports about tokens. Of several reports about the same token the first counts.
#[derive(Default)]
struct TokenReports<'r> {
    asked: Asked<'r>,
    reasons: BTreeMap<Token, &'static str>,
}

impl<'r> TokenReports<'r> {
    fn push(
        &mut self,
        Sent { app, key }: &'r Sent,
        (device, token_at): (DeviceNum, Timestamp),
        since: Option<Timestamp>,
        reason: &'static str,
    ) {
        let (device, token_at, kind) = (device.0 as i64, token_at.0 as i64, key.kind() as i64);
        let token = (device, token_at, kind, key.name().to_owned());
        if self.reasons.contains_key(&token) {
            return;
        }
        self.reasons.insert(token, reason);
        let asked = &mut self.asked;
        asked.devices.push(device);
        asked.apps.push(app.0.into());
        asked.registered.push(token_at);
        asked.kinds.push(kind);
        asked.names.push(key.name());
        asked.services.push(main_service(key).into());
        asked.since.push(since.map(|at| i64::try_from(at.0).unwrap_or(i64::MAX)));
        asked.texts.push(reason);
    }

    /// Reads `num, registered_at, app, id, service, environment, kind, name`.
    fn ended(&self, row: &Row, removed: bool) -> Ended {
        let token: Token = (row.get(0), row.get(1), row.get(6), row.get(7));
        let reason = self.reasons.get(&token).copied().unwrap_or_default();
        let (_, _, kind, name) = token;
        let (app, device, service, environment) = (row.get(2), row.get(3), row.get(4), row.get(5));
        Ended { app, device, service, environment, kind, name, reason, removed }
    }
}

/// Locks the devices of both lists in the order in which all calls lock devices.
pub(super) async fn lock(
    tx: &Tx,
    gone: &[(Sent, &InvalidToken)],
    suspects: &[(Sent, &SuspectToken)],
) -> Result<(), Failed> {
    let gone = gone.iter().map(|(_, gone)| gone.device.0 as i64);
    let suspects = suspects.iter().map(|(_, suspect)| suspect.device.0 as i64);
    let devices: Vec<i64> = gone.chain(suspects).collect();
    let sql = "SELECT 1 FROM devices WHERE num = ANY($1) ORDER BY num FOR NO KEY UPDATE";
    tx.query(sql, &[&devices]).await.map(drop)
}

/// Removes tokens that are still those that were pushed to, and were registered before the push service's time. Their
/// devices are locked. A message token that was registered before takes the place of a main token.
pub(super) async fn remove(tx: &Tx, gone: &[(Sent, &InvalidToken)]) -> Result<Vec<Ended>, Failed> {
    if gone.is_empty() {
        return Ok(Vec::new());
    }
    // Reports about one token may name different times: the latest removes most.
    let mut gone: Vec<_> = gone.iter().collect();
    gone.sort_by_key(|(_, gone)| {
        (gone.device, gone.token_at, std::cmp::Reverse(gone.since.map_or(u64::MAX, |at| at.0)))
    });
    let mut reports = TokenReports::default();
    for (sent, gone) in gone {
        reports.push(sent, (gone.device, gone.token_at), gone.since, gone.reason);
    }
    let Asked { devices, apps, registered, kinds, names, services, since, .. } = &reports.asked;
    let main = tx
        .query(
            "WITH found AS (
                 SELECT d.num, d.push_token_at, d.app, d.id, d.push_service, d.push_environment, gone.kind, gone.name
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[])
                     AS gone (num, app, token_at, kind, name, service, since)
                 JOIN devices d ON d.num = gone.num
                 WHERE d.app = gone.app AND d.push_service = gone.service AND d.push_token_at = gone.token_at
                   AND (gone.since IS NULL OR d.push_token_at < gone.since)),
             removed AS (
                 UPDATE devices d SET push_token = NULL, push_service = NULL, push_environment = NULL,
                                      push_token_at = NULL, push_suspect_at = NULL, push_suspect_reason = NULL
                 FROM found WHERE d.num = found.num)
             SELECT * FROM found",
            &[devices, apps, registered, kinds, names, services, since],
        )
        .await?;
    let others = tx
        .query(
            "WITH found AS (
                 SELECT p.device, p.registered_at, d.app, d.id, p.service, p.environment, p.kind, p.name
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[])
                     AS gone (num, app, token_at, kind, name, since)
                 JOIN push_tokens p ON p.device = gone.num AND p.kind = gone.kind AND p.name = gone.name
                 JOIN devices d ON d.num = p.device
                 WHERE d.app = gone.app AND p.registered_at = gone.token_at
                   AND (gone.since IS NULL OR p.registered_at < gone.since)),
             removed AS (
                 DELETE FROM push_tokens p USING found
                 WHERE p.device = found.device AND p.kind = found.kind AND p.name = found.name)
             SELECT * FROM found",
            &[devices, apps, registered, kinds, names, since],
        )
        .await?;
    promote(tx, &main).await?;
    Ok(main.iter().chain(&others).map(|row| reports.ended(row, true)).collect())
}

/// The message token that was registered last becomes the main token of each device, which has none.
async fn promote(tx: &Tx, removed: &[Row]) -> Result<(), Failed> {
    if removed.is_empty() {
        return Ok(());
    }
    let devices: Vec<i64> = removed.iter().map(|row| row.get(0)).collect();
    let sql = format!(
        "WITH picked AS (
             SELECT DISTINCT ON (device) * FROM push_tokens
             WHERE device = ANY($1) AND kind IN {} AND name = ''
             ORDER BY device, registered_at DESC, kind),
         moved AS (
             DELETE FROM push_tokens p USING picked
             WHERE p.device = picked.device AND p.kind = picked.kind AND p.name = picked.name)
         UPDATE devices d SET push_token = picked.token, push_service = picked.service,
             push_environment = picked.environment, push_token_at = picked.registered_at,
             push_suspect_at = picked.suspect_at, push_suspect_reason = picked.suspect_reason
         FROM picked WHERE d.num = picked.device",
        message_kinds()
    );
    tx.execute(&sql, &[&devices]).await.map(drop)
}

/// Suspends tokens that are still those that were pushed to, and were not suspect before. Their devices are locked.
pub(super) async fn set_aside(
    tx: &Tx,
    suspects: &[(Sent, &SuspectToken)],
    now: Timestamp,
) -> Result<Vec<Ended>, Failed> {
    if suspects.is_empty() {
        return Ok(Vec::new());
    }
    let mut reports = TokenReports::default();
    for (sent, suspect) in suspects {
        reports.push(sent, (suspect.device, suspect.token_at), None, suspect.reason);
    }
    let Asked { devices, apps, registered, kinds, names, services, texts, .. } = &reports.asked;
    let at = now.0 as i64;
    let main = tx
        .query(
            "WITH found AS (
                 SELECT d.num, d.push_token_at, d.app, d.id, d.push_service, d.push_environment, doubt.kind, doubt.name,
                     doubt.reason
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::text[])
                     AS doubt (num, app, token_at, kind, name, service, reason)
                 JOIN devices d ON d.num = doubt.num
                 WHERE d.app = doubt.app AND d.push_service = doubt.service AND d.push_token_at = doubt.token_at
                   AND d.push_suspect_at IS NULL),
             set_aside AS (
                 UPDATE devices d SET push_suspect_at = $8, push_suspect_reason = found.reason
                 FROM found WHERE d.num = found.num)
             SELECT * FROM found",
            &[devices, apps, registered, kinds, names, services, texts, &at],
        )
        .await?;
    let others = tx
        .query(
            "WITH found AS (
                 SELECT p.device, p.registered_at, d.app, d.id, p.service, p.environment, p.kind, p.name, doubt.reason
                 FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::text[])
                     AS doubt (num, app, token_at, kind, name, reason)
                 JOIN push_tokens p ON p.device = doubt.num AND p.kind = doubt.kind AND p.name = doubt.name
                 JOIN devices d ON d.num = p.device
                 WHERE d.app = doubt.app AND p.registered_at = doubt.token_at AND p.suspect_at IS NULL),
             set_aside AS (
                 UPDATE push_tokens p SET suspect_at = $7, suspect_reason = found.reason FROM found
                 WHERE p.device = found.device AND p.kind = found.kind AND p.name = found.name)
             SELECT * FROM found",
            &[devices, apps, registered, kinds, names, texts, &at],
        )
        .await?;
    Ok(main.iter().chain(&others).map(|row| reports.ended(row, false)).collect())
}

/// Removes and suspends tokens. Returns how many of each.
pub(crate) async fn invalidate(
    tx: &Tx,
    reports: &[TokenReport],
    now: Timestamp,
) -> Result<(u64, u64), Failed> {
    let (mut gone, mut suspects) = (Vec::new(), Vec::new());
    for report in reports {
        let sent = || Sent { app: report.app, key: report.key.clone() };
        gone.extend(report.gone.iter().map(|gone| (sent(), gone)));
        suspects.extend(report.suspects.iter().map(|suspect| (sent(), suspect)));
    }
    lock(tx, &gone, &suspects).await?;
    let removed = remove(tx, &gone).await?;
    let suspended = set_aside(tx, &suspects, now).await?;
    record(tx, removed.iter().chain(&suspended), now).await?;
    Ok((removed.len() as u64, suspended.len() as u64))
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
    let kinds: Vec<_> = ended.iter().map(|ended| ended.kind).collect();
    let names: Vec<_> = ended.iter().map(|ended| ended.name.as_str()).collect();
    let mut keys: Vec<i32> = apps.iter().map(|app| (app % (1 << 31)) as i32).collect();
    keys.sort_unstable();
    keys.dedup();
    let sql = "SELECT pg_advisory_xact_lock($1, key) FROM unnest($2::int[]) AS key";
    tx.query(sql, &[&LOCKS, &keys]).await?;
    tx.execute(
        "INSERT INTO push_invalidations (app, at, device, service, environment, reason, removed, kind, name)
         SELECT app, $9, device, service, environment, reason, removed, kind, name
         FROM unnest($1::bigint[], $2::text[], $3::bigint[], $4::bigint[], $5::text[], $6::bigint[], $7::bigint[],
                     $8::text[])
             AS new (app, device, service, environment, reason, removed, kind, name)",
        &[&apps, &devices, &services, &environments, &reasons, &removed, &kinds, &names, &(now.0 as i64)],
    )
    .await?;
    Ok(())
}
