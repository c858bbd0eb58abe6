//! What was accepted for cells, in parts that wait until their cell has taken them.
//!
//! Invariant: a message's body is kept exactly as long as one of its parts waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use noroshi_types::{AppId, NotificationId, Target, Timestamp, limits};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::{bytes, cell_of, number, residence};
use crate::cells::{
    CellNum, Depth, NewMessage, Part, PartEnd, PartState, Relayed, RelayedPart, Residence, Split, Taken,
    Wanted,
};
use crate::postgres::transaction::{Failed, Tx};
use crate::row::trace_of;
use crate::{Error, Idempotency};

/// Stands for idempotency keys among the advisory locks ("keys").
const LOCKS: i64 = 0x6b65_7973;

/// Shared by who decides where messages go until that is committed ("outbox").
const KEEPING: i64 = 0x6f75_7462_6f78;

pub(super) async fn keep(
    tx: Tx,
    messages: Arc<Vec<NewMessage>>,
    now: Timestamp,
) -> Result<Vec<Result<Taken, Error>>, Failed> {
    tx.execute("SELECT pg_advisory_xact_lock_shared($1)", &[&KEEPING]).await?;
    let apps = known_apps(&tx, &messages).await?;
    let mut earlier = answered_before(&tx, &messages, now).await?;
    let places = Places::of(&tx, &messages, now).await?;
    let mut answers = Vec::with_capacity(messages.len());
    let mut rows = Rows::default();
    for message in messages.iter() {
        let key = message.idempotency.as_ref().map(|one| (message.app, one.key.to_string()));
        if let Some(answer) = key.as_ref().and_then(|key| earlier.get(key)) {
            answers.push(answer.repeat(message.idempotency.as_ref()));
            continue;
        }
        if !apps.contains(&message.app) {
            answers.push(Err(Error::NotFound));
            continue;
        }
        let split = places.split(message)?;
        if split.parts.keys().any(|cell| message.full.contains(cell)) {
            answers.push(Err(Error::Overloaded));
            continue;
        }
        let cells = split.parts.keys().copied().collect();
        let targets = message.target.named_count();
        rows.push(message, split);
        if let (Some(key), Some(idempotency)) = (key, &message.idempotency) {
            let answer = Earlier { body_hash: idempotency.body_hash, id: message.id, targets };
            earlier.insert(key, answer);
        }
        answers.push(Ok(Taken { id: message.id, targets, cells, replayed: false }));
    }
    rows.write(&tx, now).await?;
    Ok(answers)
}

/// Apps that are there, and stay until the end: what is kept for an app goes with it.
async fn known_apps(tx: &Tx, messages: &[NewMessage]) -> Result<HashSet<AppId>, Failed> {
    let apps: BTreeSet<i64> = messages.iter().map(|message| i64::from(message.app.0)).collect();
    let apps: Vec<i64> = apps.into_iter().collect();
    let sql = "SELECT id FROM apps WHERE id = ANY ($1) ORDER BY id FOR KEY SHARE";
    Ok(tx.query(sql, &[&apps]).await?.iter().map(|row| AppId(row.get::<_, i64>(0) as u32)).collect())
}

/// Numbers are given out before they are committed: whoever keeps something at this moment is waited for.
pub(super) async fn newest(tx: Tx) -> Result<u64, Failed> {
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&KEEPING]).await?;
    let row = tx.query_one("SELECT coalesce(max(num), 0) FROM cell_messages", &[]).await?;
    Ok(row.get::<_, i64>(0) as u64)
}

/// The answer to a key.
struct Earlier {
    body_hash: [u8; 32],
    id: NotificationId,
    targets: Option<u64>,
}

impl Earlier {
    fn repeat(&self, idempotency: Option<&Idempotency>) -> Result<Taken, Error> {
        match idempotency.is_some_and(|one| one.body_hash == self.body_hash) {
            true => Ok(Taken { id: self.id, targets: self.targets, cells: Vec::new(), replayed: true }),
            false => Err(Error::IdempotencyConflict),
        }
    }
}

/// Locks the keys, so that of two with the same the second finds the first.
async fn answered_before(
    tx: &Tx,
    messages: &[NewMessage],
    now: Timestamp,
) -> Result<HashMap<(AppId, String), Earlier>, Failed> {
    let keyed = messages.iter().filter_map(|message| Some((message.app, message.idempotency.as_ref()?)));
    let (apps, keys): (Vec<i64>, Vec<&str>) = keyed.map(|(app, one)| (i64::from(app.0), &*one.key)).unzip();
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    // In one order, so that two who lock the same keys do not wait for each other.
    let sql = "SELECT pg_advisory_xact_lock(lock) FROM (
                   SELECT DISTINCT hashtextextended(k, $3 + a) AS lock
                   FROM unnest($1::bigint[], $2::text[]) AS n (a, k) ORDER BY lock) AS locks";
    tx.query(sql, &[&apps, &keys, &LOCKS]).await?;
    let since = now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64) as i64;
    let sql = "SELECT k.app, k.key, k.body_hash, m.id, m.targets
               FROM cell_keys AS k JOIN cell_messages AS m ON m.num = k.num
               WHERE (k.app, k.key) IN (SELECT a, t FROM unnest($1::bigint[], $2::text[]) AS n (a, t)) AND k.at > $3";
    let rows = tx.query(sql, &[&apps, &keys, &since]).await?;
    let read = |row: &Row| {
        let earlier = Earlier {
            body_hash: bytes(row, 2)?,
            id: NotificationId::from_bytes(bytes(row, 3)?),
            targets: row.get::<_, Option<i64>>(4).map(|count| count as u64),
        };
        Ok(((AppId(row.get::<_, i64>(0) as u32), row.get(1)), earlier))
    };
    rows.iter().map(read).collect()
}

/// Where everybody lives whom a group of messages names.
#[derive(Default)]
struct Places {
    users: HashMap<AppId, HashMap<String, Vec<CellNum>>>,
    devices: HashMap<AppId, HashMap<String, Residence>>,
}

impl Places {
    /// By two statements an app, however many messages.
    async fn of(tx: &Tx, messages: &[NewMessage], now: Timestamp) -> Result<Self, Failed> {
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
        let mut places = Self::default();
        for (app, names) in users {
            let names: Vec<&str> = names.into_iter().collect();
            places.users.insert(app, residence::of_users(tx, app, &names, now).await?);
        }
        for (app, names) in devices {
            let names: Vec<&str> = names.into_iter().collect();
            places.devices.insert(app, residence::of_devices(tx, app, &names).await?);
        }
        Ok(places)
    }

    fn split(&self, message: &NewMessage) -> Result<Split, Error> {
        match &message.target {
            Target::Users(users) => {
                let known = self.users.get(&message.app);
                let cells = |name: &str| known.and_then(|known| known.get(name)).cloned().unwrap_or_default();
                Split::of("users", users.iter().map(|user| (user.as_str(), cells(user.as_str()))))
            }
            Target::Devices(devices) => {
                let known = self.devices.get(&message.app);
                let asked = |name: &str| known.and_then(|known| known.get(name)).map(Residence::asked);
                let named = devices.iter().map(|one| (one.as_str(), asked(one.as_str()).unwrap_or_default()));
                Split::of("devices", named)
            }
            Target::Topic(_) | Target::Condition(_) | Target::Everyone => {
                Ok(Split::everywhere(&message.everywhere))
            }
        }
    }
}

/// What is written in two statements.
#[derive(Default)]
struct Rows<'a> {
    messages: Vec<(&'a NewMessage, u64, bool)>,
    parts: Vec<(NotificationId, CellNum, Option<String>, i64)>,
}

impl<'a> Rows<'a> {
    fn push(&mut self, message: &'a NewMessage, split: Split) {
        self.messages.push((message, split.unknown, split.parts.is_empty()));
        let expires_at = message.expires_at.0 as i64;
        let parts = split.parts.into_iter().map(|(cell, target)| (message.id, cell, target, expires_at));
        self.parts.extend(parts);
    }

    async fn write(self, tx: &Tx, now: Timestamp) -> Result<(), Failed> {
        if self.messages.is_empty() {
            return Ok(());
        }
        let nums = self.write_messages(tx, now).await?;
        let num = |id: &NotificationId| nums.get(id.as_bytes()).copied().unwrap_or_default();
        let part_nums: Vec<i64> = self.parts.iter().map(|(id, ..)| num(id)).collect();
        let cells: Vec<i64> = self.parts.iter().map(|(_, cell, ..)| number(*cell)).collect();
        let targets: Vec<Option<&str>> =
            self.parts.iter().map(|(_, _, target, _)| target.as_deref()).collect();
        let ends: Vec<i64> = self.parts.iter().map(|(.., ends)| *ends).collect();
        let sql = "INSERT INTO cell_parts (num, cell, state, target, expires_at)
                   SELECT n, c, 0, t, e FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS p (n, c, t, e)";
        tx.execute(sql, &[&part_nums, &cells, &targets, &ends]).await?;
        let keyed =
            self.messages.iter().filter_map(|(message, ..)| Some((*message, message.idempotency.as_ref()?)));
        let (mut apps, mut keys, mut hashes, mut key_nums) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (message, idempotency) in keyed {
            apps.push(i64::from(message.app.0));
            keys.push(&*idempotency.key);
            hashes.push(idempotency.body_hash.as_slice());
            key_nums.push(num(&message.id));
        }
        let sql = "INSERT INTO cell_keys (app, key, body_hash, num, at)
                   SELECT a, k, h, n, $5 FROM unnest($1::bigint[], $2::text[], $3::bytea[], $4::bigint[]) AS p (a, k, h, n)
                   ON CONFLICT (app, key) DO UPDATE SET body_hash = excluded.body_hash, num = excluded.num, at = $5";
        tx.execute(sql, &[&apps, &keys, &hashes, &key_nums, &(now.0 as i64)]).await.map(drop)
    }

    /// The number of each, growing in the order given.
    async fn write_messages(&self, tx: &Tx, now: Timestamp) -> Result<HashMap<[u8; 16], i64>, Failed> {
        let all = || self.messages.iter();
        let ids: Vec<&[u8]> = all().map(|(one, ..)| one.id.as_bytes().as_slice()).collect();
        let apps: Vec<i64> = all().map(|(one, ..)| i64::from(one.app.0)).collect();
        let targets: Vec<&str> = all().map(|(one, ..)| &*one.to).collect();
        let bodies: Vec<&str> = all().map(|(one, _, nobody)| if *nobody { "" } else { &*one.body }).collect();
        let summaries: Vec<&str> = all().map(|(one, ..)| &*one.summary).collect();
        let counts: Vec<Option<i64>> =
            all().map(|(one, ..)| one.target.named_count().map(|count| count as i64)).collect();
        let unknown: Vec<i64> = all().map(|(_, unknown, _)| *unknown as i64).collect();
        let ends: Vec<i64> = all().map(|(one, ..)| one.expires_at.0 as i64).collect();
        let sql = "INSERT INTO cell_messages (id, app, target, body, summary, targets, unknown, accepted_at, expires_at,
                                              trace)
                   SELECT i, a, t, b, s, c, u, $10, e, r
                   FROM unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[],
                       $8::bigint[], $9::bytea[]) WITH ORDINALITY AS p (i, a, t, b, s, c, u, e, r, place) ORDER BY place
                   RETURNING num, id";
        let traces: Vec<Option<Vec<u8>>> =
            all().map(|(one, ..)| one.trace.map(|trace| trace.to_stored().to_vec())).collect();
        let now = now.0 as i64;
        let rows = tx
            .query(
                sql,
                &[&ids, &apps, &targets, &bodies, &summaries, &counts, &unknown, &ends, &traces, &now],
            )
            .await?;
        rows.iter().map(|row| Ok((bytes(row, 1)?, row.get(0)))).collect()
    }
}

pub(super) async fn waiting(
    tx: Tx,
    cell: CellNum,
    wanted: &Wanted,
    rows_max: usize,
    bytes_max: usize,
) -> Result<Vec<Part>, Failed> {
    // Sizes are known without reading what is kept apart for its size. Apps are looked up one by one, in the order of
    // the parts, and only where some are left out.
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
    let (of, apart, after) = wanted.columns();
    let values: [&(dyn ToSql + Sync); 6] =
        [&number(cell), &(rows_max as i64), &(bytes_max as i64), &after, &of, &apart];
    let rows = tx.query(sql, &values).await?;
    let read = |row: &Row| {
        Ok(Part {
            num: row.get::<_, i64>(0) as u64,
            id: NotificationId::from_bytes(bytes(row, 1)?),
            app: AppId(row.get::<_, i64>(2) as u32),
            to: row.get(3),
            body: row.get(4),
            expires_at: Timestamp(row.get::<_, i64>(5) as u64),
            trace: trace_of(row.get(6)),
        })
    };
    rows.iter().map(read).collect()
}

pub(super) async fn end(tx: Tx, cell: CellNum, ended: Arc<Vec<(u64, PartEnd)>>) -> Result<(), Failed> {
    let (mut nums, mut remotes) = (Vec::new(), Vec::new());
    let (mut over, mut states, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
    for (num, end) in ended.iter() {
        let num = *num as i64;
        match end {
            PartEnd::Forwarded(remote) => {
                nums.push(num);
                remotes.push(remote.as_bytes().as_slice());
            }
            PartEnd::Refused(reason) => {
                over.push(num);
                states.push(PartState::Refused as i64);
                reasons.push(Some(reason.as_str()));
            }
            PartEnd::Expired => {
                over.push(num);
                states.push(PartState::Expired as i64);
                reasons.push(None);
            }
        }
    }
    let all: Vec<i64> = nums.iter().chain(&over).copied().collect();
    hold(&tx, &all).await?;
    let sql = "UPDATE cell_parts AS p SET remote = n.remote, target = NULL,
                   state = CASE WHEN m.cancelled <> 0 THEN 5 ELSE 1 END
               FROM unnest($1::bigint[], $2::bytea[]) AS n (num, remote), cell_messages AS m
               WHERE p.num = n.num AND m.num = n.num AND p.cell = $3 AND p.state IN (0, 4)";
    tx.execute(sql, &[&nums, &remotes, &number(cell)]).await?;
    let sql = "UPDATE cell_parts AS p SET state = n.state, reason = n.reason, target = NULL
               FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS n (num, state, reason)
               WHERE p.num = n.num AND p.cell = $4 AND p.state = 0";
    tx.execute(sql, &[&over, &states, &reasons, &number(cell)]).await?;
    drop_bodies(&tx, &all).await
}

/// Locks messages, in order: whoever ends one of the parts sees what became of the others before.
async fn hold(tx: &Tx, nums: &[i64]) -> Result<(), Failed> {
    let sql = "SELECT 1 FROM cell_messages WHERE num = ANY ($1) ORDER BY num FOR UPDATE";
    tx.query(sql, &[&nums]).await.map(drop)
}

async fn drop_bodies(tx: &Tx, nums: &[i64]) -> Result<(), Failed> {
    let sql = "UPDATE cell_messages AS m SET body = '' WHERE m.num = ANY ($1) AND m.body <> ''
                   AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state = 0)";
    tx.execute(sql, &[&nums]).await.map(drop)
}

pub(super) async fn relayed(tx: Tx, id: NotificationId) -> Result<Option<Relayed>, Failed> {
    let row =
        tx.query_opt("SELECT num FROM cell_messages WHERE id = $1", &[&id.as_bytes().as_slice()]).await?;
    match row {
        Some(row) => load(&tx, row.get(0)).await.map(Some),
        None => Ok(None),
    }
}

pub(super) async fn relayed_as(
    tx: Tx,
    cell: CellNum,
    remote: NotificationId,
) -> Result<Option<Relayed>, Failed> {
    let sql = "SELECT num FROM cell_parts WHERE cell = $1 AND remote = $2";
    match tx.query_opt(sql, &[&number(cell), &remote.as_bytes().as_slice()]).await? {
        Some(row) => load(&tx, row.get(0)).await.map(Some),
        None => Ok(None),
    }
}

async fn load(tx: &Tx, num: i64) -> Result<Relayed, Failed> {
    let sql = "SELECT id, app, summary, targets, unknown, accepted_at, expires_at, trace, cancelled
               FROM cell_messages WHERE num = $1";
    let row = tx.query_one(sql, &[&num]).await?;
    let sql = "SELECT cell, state, remote, reason FROM cell_parts WHERE num = $1 ORDER BY cell";
    let parts = tx.query(sql, &[&num]).await?;
    Ok(Relayed {
        id: NotificationId::from_bytes(bytes(&row, 0)?),
        app: AppId(row.get::<_, i64>(1) as u32),
        summary: row.get(2),
        targets: row.get::<_, Option<i64>>(3).map(|count| count as u64),
        unknown: row.get::<_, i64>(4) as u64,
        accepted_at: Timestamp(row.get::<_, i64>(5) as u64),
        expires_at: Timestamp(row.get::<_, i64>(6) as u64),
        trace: trace_of(row.get(7)),
        cancelled: row.get::<_, i64>(8) != 0,
        parts: parts.iter().map(part_of).collect::<Result<_, _>>()?,
    })
}

fn part_of(row: &Row) -> Result<RelayedPart, Failed> {
    let code: i64 = row.get(1);
    let state = u8::try_from(code).ok().and_then(PartState::from_code);
    let remote: Option<&[u8]> = row.get(2);
    Ok(RelayedPart {
        cell: cell_of(row.get(0)),
        state: state.ok_or_else(|| Error::Engine(format!("a stored state of a part: {code}")))?,
        remote: remote.map(|_| bytes(row, 2)).transpose()?.map(NotificationId::from_bytes),
        reason: row.get(3),
    })
}

pub(super) async fn cancel(tx: Tx, app: AppId, id: NotificationId) -> Result<Option<Relayed>, Failed> {
    let sql = "UPDATE cell_messages SET cancelled = 1 WHERE id = $1 AND app = $2 RETURNING num";
    let row = tx.query_opt(sql, &[&id.as_bytes().as_slice(), &i64::from(app.0)]).await?;
    let Some(num) = row.map(|row| row.get::<_, i64>(0)) else { return Ok(None) };
    let sql = "UPDATE cell_parts SET state = CASE state WHEN 0 THEN 4 ELSE 5 END
               WHERE num = $1 AND state IN (0, 1)";
    tx.execute(sql, &[&num]).await?;
    drop_bodies(&tx, &[num]).await?;
    load(&tx, num).await.map(Some)
}

pub(super) async fn cancelling(
    tx: Tx,
    cell: CellNum,
    limit: usize,
) -> Result<Vec<(u64, AppId, NotificationId)>, Failed> {
    let sql = "SELECT p.num, m.app, p.remote FROM cell_parts AS p JOIN cell_messages AS m ON m.num = p.num
               WHERE p.cell = $1 AND p.state = 5 ORDER BY p.num LIMIT $2";
    let rows = tx.query(sql, &[&number(cell), &(limit as i64)]).await?;
    let read = |row: &Row| {
        let remote = NotificationId::from_bytes(bytes(row, 2)?);
        Ok((row.get::<_, i64>(0) as u64, AppId(row.get::<_, i64>(1) as u32), remote))
    };
    rows.iter().map(read).collect()
}

pub(super) async fn depths(tx: Tx) -> Result<Vec<Depth>, Failed> {
    let sql = "SELECT p.cell, p.parts, m.accepted_at
               FROM (SELECT cell, count(*) AS parts, min(num) AS first FROM cell_parts WHERE state = 0 GROUP BY cell) AS p
               JOIN cell_messages AS m ON m.num = p.first ORDER BY p.cell";
    let rows = tx.query(sql, &[]).await?;
    let read = |row: &Row| Depth {
        cell: cell_of(row.get(0)),
        parts: row.get::<_, i64>(1) as u64,
        oldest: row.get::<_, Option<i64>>(2).map(|at| Timestamp(at as u64)),
    };
    Ok(rows.iter().map(read).collect())
}

pub(super) async fn prune(
    tx: Tx,
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
    hold(&tx, &all).await?;
    for (cell, ended) in over {
        end(tx.clone(), cell_of(cell), Arc::new(ended)).await?;
    }
    let sql = "WITH old AS (
                   SELECT num FROM cell_messages AS m WHERE accepted_at < $1
                       AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = m.num AND state IN (0, 5))
                   ORDER BY accepted_at LIMIT $2 FOR UPDATE SKIP LOCKED
               ), parts AS (DELETE FROM cell_parts WHERE num IN (SELECT num FROM old))
               DELETE FROM cell_messages WHERE num IN (SELECT num FROM old)";
    let old = tx.execute(sql, &[&(forgotten.0 as i64), &limit]).await?;
    let since = now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64) as i64;
    let sql = "DELETE FROM cell_keys WHERE (app, key) IN
                   (SELECT app, key FROM cell_keys WHERE at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED)";
    let keys = tx.execute(sql, &[&since, &limit]).await?;
    let sql = "DELETE FROM cell_users WHERE (app, \"user\", cell) IN
                   (SELECT app, \"user\", cell FROM cell_users WHERE until > 0 AND until <= $1 LIMIT $2
                    FOR UPDATE SKIP LOCKED)";
    let places = tx.execute(sql, &[&(now.0 as i64), &limit]).await?;
    Ok([rows.len() as u64, old, keys, places].contains(&(rows_max as u64)))
}
