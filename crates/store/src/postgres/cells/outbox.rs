//! Reads and writes for messages that wait for their cells, for many messages at once.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use noroshi_types::{AppId, Target, Timestamp};
use tokio_postgres::types::ToSql;

use super::residence;
use crate::Error;
use crate::cells::{CellNum, NewMessage, Part, PartEnd, PartState, Taken, Wanted};
use crate::engine::cells::number;
use crate::engine::cells::outbox::{
    self as messages, KeyUse, NewRow, Reading, keys_since, part_of, prune_keys_and_homes,
};
use crate::engine::record::{Record, array};
use crate::postgres::Postgres;
use crate::postgres::transaction::{Failed, Tx, Values};

/// Names idempotency keys among the advisory locks ("keys").
const LOCKS: i64 = 0x6b65_7973;

/// Held, shared, by calls that keep messages, until they commit ("outbox").
const KEEP_LOCK: i64 = 0x6f75_7462_6f78;

pub(crate) async fn keep(
    tx: &Tx,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<Vec<Result<Taken, Error>>, Failed> {
    tx.execute("SELECT pg_advisory_xact_lock_shared($1)", &[&KEEP_LOCK]).await?;
    let apps = known_apps(tx, messages).await?;
    let earlier = answered_before(tx, messages, now).await?;
    let mut reading = Reading { apps, earlier, ..Reading::default() };
    read_places(tx, messages, now, &mut reading).await?;
    let (answers, rows) = reading.plan(messages)?;
    write(tx, &rows, now).await?;
    Ok(answers)
}

/// Existing apps, locked against removal: removing an app also removes its rows.
async fn known_apps(tx: &Tx, messages: &[NewMessage]) -> Result<HashSet<AppId>, Failed> {
    let apps: BTreeSet<i64> = messages.iter().map(|message| i64::from(message.app.0)).collect();
    let apps: Vec<i64> = apps.into_iter().collect();
    let sql = "SELECT id FROM apps WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE";
    Ok(tx.query(sql, &[&apps]).await?.iter().map(|row| AppId(row.get::<_, i64>(0) as u32)).collect())
}

/// Numbers are given out before they are committed, so this waits for calls that keep messages at this moment.
pub(crate) async fn newest(store: &Postgres) -> Result<u64, Error> {
    let newest = async |tx: Tx| {
        tx.execute("SELECT pg_advisory_xact_lock($1)", &[&KEEP_LOCK]).await?;
        messages::newest(&tx).await
    };
    store.write(newest).await
}

/// Locks the keys, so that of two calls with the same key the second finds the first.
async fn answered_before(
    tx: &Tx,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<HashMap<(AppId, String), KeyUse>, Failed> {
    let keyed = messages.iter().filter_map(|message| Some((message.app, message.idempotency.as_ref()?)));
    let (apps, keys): (Vec<i64>, Vec<&str>) = keyed.map(|(app, one)| (i64::from(app.0), &*one.key)).unzip();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    // In one order, so that two calls with the same keys do not deadlock.
    let sql = "SELECT pg_advisory_xact_lock(lock) FROM (
                   SELECT DISTINCT hashtextextended(k, $3 + a) AS lock
                   FROM unnest($1::bigint[], $2::text[]) AS n (a, k) ORDER BY lock) AS locks";
    tx.query(sql, &[&apps, &keys, &LOCKS]).await?;
    let sql = "SELECT k.app, k.key, k.body_hash, m.id, m.targets
               FROM cell_keys AS k JOIN cell_messages AS m ON m.num = k.num
               WHERE (k.app, k.key) IN (SELECT a, t FROM unnest($1::bigint[], $2::text[]) AS n (a, t)) AND k.at > $3";
    let rows = tx.query(sql, &[&apps, &keys, &keys_since(now)]).await?;
    rows.iter().map(|row| Ok(((row.app(0)?, row.string(1)?), KeyUse::of_row(row, 2)?))).collect()
}

/// Reads where the named users and devices live: two statements per app, however many messages.
async fn read_places(
    tx: &Tx,
    messages: &[NewMessage],
    now: Timestamp,
    reading: &mut Reading,
) -> Result<(), Failed> {
    let mut users: BTreeMap<AppId, BTreeSet<&str>> = BTreeMap::new();
    let mut devices: BTreeMap<AppId, BTreeSet<&str>> = BTreeMap::new();
    for message in messages {
        match &message.target {
            Target::Users(named) => {
                users.entry(message.app).or_default().extend(named.iter().map(|user| user.as_str()));
            }
            Target::Devices(named) => {
                let named = named.iter().map(|device| device.as_str());
                devices.entry(message.app).or_default().extend(named);
            }
            Target::Topic(_) | Target::Condition(_) | Target::Everyone => {}
        }
    }
    for (app, names) in users {
        let names: Vec<&str> = names.into_iter().collect();
        reading.users.insert(app, residence::of_names(tx, app, &names, now).await?);
    }
    for (app, names) in devices {
        let names: Vec<&str> = names.into_iter().collect();
        reading.devices.insert(app, residence::of_devices(tx, app, &names).await?);
    }
    Ok(())
}

/// Writes messages with their parts and keys, with one statement for each table.
async fn write(tx: &Tx, rows: &[NewRow<'_>], now: Timestamp) -> Result<(), Failed> {
    if rows.is_empty() {
        return Ok(());
    }
    let written = write_messages(tx, rows, now).await?;
    let num = |message: &NewMessage| written.get(message.id.as_bytes()).copied().unwrap_or_default();
    let parts = rows.iter().flat_map(|NewRow { message, split }| {
        let parts = split.parts.iter();
        parts.map(move |(cell, target)| (*message, number(*cell), target.as_deref()))
    });
    let parts =
        parts.map(|(message, cell, target)| (num(message), cell, target, message.expires_at.0 as i64));
    let (nums, cells, targets, ends): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = parts.collect();
    let sql = "INSERT INTO cell_parts (num, cell, state, target, expires_at)
               SELECT n, c, 0, t, e FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS p (n, c, t, e)";
    tx.execute(sql, &[&nums, &cells, &targets, &ends]).await?;
    let keyed = rows.iter().filter_map(|NewRow { message, .. }| {
        let idempotency = message.idempotency.as_ref()?;
        Some((i64::from(message.app.0), &*idempotency.key, idempotency.body_hash.as_slice(), num(message)))
    });
    let (apps, keys, hashes, nums): (Vec<_>, Vec<_>, Vec<_>, Vec<_>) = keyed.collect();
    let sql = "INSERT INTO cell_keys (app, key, body_hash, num, at)
               SELECT a, k, h, n, $5 FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[]) AS p (a, k, h, n)
               ON CONFLICT (app, key) DO UPDATE SET body_hash = excluded.body_hash, num = excluded.num, at = $5";
    tx.execute(sql, &[&apps, &keys, &hashes, &nums, &(now.0 as i64)]).await.map(drop)
}

/// The number of each message, growing in the order given.
async fn write_messages(
    tx: &Tx,
    rows: &[NewRow<'_>],
    now: Timestamp,
) -> Result<HashMap<[u8; 16], i64>, Failed> {
    let all = || rows.iter().map(|row| row.message);
    let ids: Vec<&[u8]> = all().map(|one| one.id.as_bytes().as_slice()).collect();
    let apps: Vec<i64> = all().map(|one| i64::from(one.app.0)).collect();
    let targets: Vec<&str> = all().map(|one| &*one.to).collect();
    let bodies: Vec<&str> = rows.iter().map(NewRow::body).collect();
    let summaries: Vec<&str> = all().map(|one| &*one.summary).collect();
    let counts: Vec<Option<i64>> =
        all().map(|one| one.target.named_count().map(|count| count as i64)).collect();
    let unknown: Vec<i64> = rows.iter().map(|row| row.split.unknown as i64).collect();
    let ends: Vec<i64> = all().map(|one| one.expires_at.0 as i64).collect();
    let traces: Vec<Option<Vec<u8>>> =
        all().map(|one| one.trace.map(|trace| trace.to_stored().to_vec())).collect();
    let sql = "INSERT INTO cell_messages (id, app, target, body, summary, targets, unknown, accepted_at, expires_at,
                                          trace)
               SELECT i, a, t, b, s, c, u, $10, e, r
               FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                   $8::bigint[], $9::bytea[]) WITH ORDINALITY AS p (i, a, t, b, s, c, u, e, r, place) ORDER BY place
               RETURNING num, id";
    let values: Values<'_> =
        &[&ids, &apps, &targets, &bodies, &summaries, &counts, &unknown, &ends, &traces, &(now.0 as i64)];
    let rows = tx.query(sql, values).await?;
    rows.iter().map(|row| Ok((array(row, 1)?, row.int(0)?))).collect()
}

pub(crate) async fn waiting(
    tx: &Tx,
    cell: CellNum,
    wanted: &Wanted,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<Part>, Failed> {
    // Sizes are computed without reading large values that are stored separately. Apps are looked up one by one, in
    // the order of the parts, and only if some are excluded.
    let sql = "SELECT num, id, app, target, body, expires_at, trace FROM (
                   SELECT p.num, m.id, m.app, coalesce(p.target, m.target) AS target, m.body, m.expires_at, m.trace,
                       row_number() OVER (ORDER BY p.num) AS place,
                       sum(octet_length(coalesce(p.target, m.target)) + octet_length(m.body)) OVER (ORDER BY p.num) AS size
                   FROM (SELECT w.num, w.target FROM cell_parts AS w
                         WHERE w.cell = $1 AND w.state = 0 AND w.num > $4 AND CASE
                             WHEN $5::bigint IS NOT NULL
                                 THEN (SELECT a.app FROM cell_messages AS a WHERE a.num = w.num) = $5
                             WHEN cardinality($6::bigint[]) > 0
                                 THEN (SELECT a.app FROM cell_messages AS a WHERE a.num = w.num) <> ALL ($6)
                             ELSE true END
                         ORDER BY w.num LIMIT $2) AS p
                   JOIN cell_messages AS m ON m.num = p.num
               ) AS waiting WHERE place = 1 OR size <= $3 ORDER BY num";
    let (of, apart, after) = wanted.values();
    let values: [&(dyn ToSql + Sync); 6] =
        [&number(cell), &(rows_max as i64), &(bytes_max as i64), &after, &of, &apart];
    let rows = tx.query(sql, &values).await?;
    rows.iter().map(|row| Ok(part_of(row)?)).collect()
}

pub(crate) async fn end(tx: &Tx, cell: CellNum, ended: &[(u64, PartEnd)]) -> Result<(), Failed> {
    let (mut forwarded, mut over) = (Vec::new(), Vec::new());
    for (num, end) in ended {
        let num = *num as i64;
        match end {
            PartEnd::Forwarded(remote) => forwarded.push((num, remote.as_bytes().as_slice())),
            PartEnd::Refused(reason) => over.push((num, PartState::Refused as i64, Some(reason.as_str()))),
            PartEnd::Expired => over.push((num, PartState::Expired as i64, None)),
        }
    }
    let (nums, remotes): (Vec<_>, Vec<_>) = forwarded.into_iter().unzip();
    let (over, states, reasons): (Vec<_>, Vec<_>, Vec<_>) = over.into_iter().collect();
    let all: Vec<i64> = nums.iter().chain(&over).copied().collect();
    hold(tx, &all).await?;
    let sql = "UPDATE cell_parts AS p SET remote = n.remote, target = NULL,
                   state = CASE WHEN m.cancelled <> 0 THEN 5 ELSE 1 END
               FROM unnest($1::bigint[], $2::bytea[]) AS n (num, remote), cell_messages AS m
               WHERE p.num = n.num AND m.num = n.num AND p.cell = $3 AND p.state IN (0, 4)";
    tx.execute(sql, &[&nums, &remotes, &number(cell)]).await?;
    let sql = "UPDATE cell_parts AS p SET state = n.state, reason = n.reason, target = NULL
               FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS n (num, state, reason)
               WHERE p.num = n.num AND p.cell = $4 AND p.state = 0";
    tx.execute(sql, &[&over, &states, &reasons, &number(cell)]).await?;
    drop_bodies(tx, &all).await
}

/// The cell has cancelled these.
pub(crate) async fn cancelled(tx: &Tx, cell: CellNum, nums: &[u64]) -> Result<(), Failed> {
    let nums: Vec<i64> = nums.iter().map(|num| *num as i64).collect();
    let sql = "UPDATE cell_parts SET state = 1 WHERE num = ANY ($1) AND cell = $2 AND state = 5";
    tx.execute(sql, &[&nums, &number(cell)]).await.map(drop)
}

/// Locks messages, in order: a call that ends a part sees which other parts have ended.
async fn hold(tx: &Tx, nums: &[i64]) -> Result<(), Failed> {
    let sql = "SELECT 1 FROM cell_messages WHERE num = ANY ($1) ORDER BY num FOR UPDATE";
    tx.query(sql, &[&nums]).await.map(drop)
}

async fn drop_bodies(tx: &Tx, nums: &[i64]) -> Result<(), Failed> {
    let sql = "UPDATE cell_messages AS m SET body = '' WHERE m.num = ANY ($1) AND m.body <> ''
                   AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state = 0)";
    tx.execute(sql, &[&nums]).await.map(drop)
}

pub(crate) async fn prune(
    tx: &Tx,
    now: Timestamp,
    expired: Timestamp,
    forgotten: Timestamp,
    rows_max: usize,
) -> Result<bool, Failed> {
    let limit = rows_max as i64;
    let sql = "SELECT num, cell FROM cell_parts WHERE state = 0 AND expires_at < $1
               ORDER BY expires_at, num, cell LIMIT $2";
    let rows = tx.query(sql, &[&(expired.0 as i64), &limit]).await?;
    let mut over: BTreeMap<i64, Vec<(u64, PartEnd)>> = BTreeMap::new();
    for row in &rows {
        over.entry(row.get(1)).or_default().push((row.get::<_, i64>(0) as u64, PartEnd::Expired));
    }
    let all: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
    hold(tx, &all).await?;
    for (cell, ended) in over {
        end(tx, CellNum(cell as u32), &ended).await?;
    }
    let sql = "WITH old AS (
                   SELECT num FROM cell_messages AS m WHERE accepted_at < $1
                       AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state IN (0, 5))
                   ORDER BY accepted_at LIMIT $2 FOR UPDATE SKIP LOCKED
               ), parts AS (DELETE FROM cell_parts WHERE num IN (SELECT num FROM old))
               DELETE FROM cell_messages WHERE num IN (SELECT num FROM old)";
    let old = tx.execute(sql, &[&(forgotten.0 as i64), &limit]).await?;
    let [keys, homes] = prune_keys_and_homes(tx, now, rows_max).await?;
    Ok([rows.len(), old as usize, keys, homes].contains(&rows_max))
}
