//! Messages that a front accepted, in one part for each cell; a part waits until its cell has taken it.
//!
//! Invariant: a message keeps its body exactly as long as one of its parts waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use noroshi_types::{AppId, NotificationId, Target, Timestamp, limits};

use super::cell_of;
use crate::cells::{
    CellNum, Depth, NewMessage, Part, PartState, Relayed, RelayedPart, Residence, Taken, Wanted,
};
use crate::engine::record::{Record, array, to_array, trace_of, unknown};
use crate::engine::session::{self, Session, Value, values};
use crate::{Error, Idempotency};

/// The target of each cell's part; `None`: the message's own.
#[derive(Debug, Default)]
pub(crate) struct Split {
    pub parts: BTreeMap<CellNum, Option<String>>,
    /// Named users and devices without a cell.
    pub unknown: u64,
}

impl Split {
    fn everywhere(cells: &[CellNum]) -> Self {
        Self { parts: cells.iter().map(|cell| (*cell, None)).collect(), unknown: 0 }
    }

    /// Splits names by the cells to ask for each; `kind` is the field of `to`.
    fn of<'a>(kind: &str, named: impl Iterator<Item = (&'a str, Vec<CellNum>)>) -> Result<Self, Error> {
        let mut by_cell: BTreeMap<CellNum, Vec<&str>> = BTreeMap::new();
        let mut split = Self::default();
        for (name, cells) in named {
            split.unknown += u64::from(cells.is_empty());
            for cell in cells.into_iter().collect::<BTreeSet<_>>() {
                by_cell.entry(cell).or_default().push(name);
            }
        }
        for (cell, names) in by_cell {
            let names = serde_json::to_string(&names)
                .map_err(|error| Error::Engine(format!("names cannot be serialized: {error}")))?;
            split.parts.insert(cell, Some(format!("{{\"{kind}\":{names}}}")));
        }
        Ok(split)
    }
}

/// The answer that an idempotency key got.
pub(crate) struct KeyUse {
    pub body_hash: [u8; 32],
    pub id: NotificationId,
    pub targets: Option<u64>,
}

impl KeyUse {
    /// Reads `body_hash, id, targets` from column `first` on.
    pub(crate) fn of_row(row: &(impl Record + ?Sized), first: usize) -> Result<Self, Error> {
        let id = NotificationId::from_bytes(array(row, first + 1)?);
        Ok(Self { body_hash: array(row, first)?, id, targets: row.count_or_null(first + 2)? })
    }

    fn replay(&self, idempotency: &Idempotency) -> Result<Taken, Error> {
        match idempotency.body_hash == self.body_hash {
            true => Ok(Taken { id: self.id, targets: self.targets, cells: Vec::new(), replayed: true }),
            false => Err(Error::IdempotencyConflict),
        }
    }
}

/// Keys that were used at this time or earlier are forgotten.
pub(crate) fn keys_since(now: Timestamp) -> i64 {
    now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64) as i64
}

/// What is read before messages are accepted.
#[derive(Default)]
pub(crate) struct Reading {
    /// Apps that exist.
    pub apps: HashSet<AppId>,
    pub earlier: HashMap<(AppId, String), KeyUse>,
    /// The cells to ask for each user.
    pub users: HashMap<AppId, HashMap<String, Vec<CellNum>>>,
    pub devices: HashMap<AppId, HashMap<String, Residence>>,
}

/// A message to write with its parts.
pub(crate) struct NewRow<'m> {
    pub message: &'m NewMessage,
    pub split: Split,
}

impl NewRow<'_> {
    /// Empty if no part waits.
    pub(crate) fn body(&self) -> &str {
        if self.split.parts.is_empty() { "" } else { &self.message.body }
    }
}

/// One answer for each message.
pub(crate) type Answers = Vec<Result<Taken, Error>>;

impl Reading {
    /// Answers in order, and what is written.
    pub(crate) fn plan<'m>(
        &mut self,
        messages: &'m [NewMessage],
    ) -> Result<(Answers, Vec<NewRow<'m>>), Error> {
        let (mut answers, mut rows) = (Vec::with_capacity(messages.len()), Vec::new());
        for message in messages {
            let key = message.idempotency.as_ref().map(|key| ((message.app, key.key.to_string()), key));
            if let Some((name, idempotency)) = &key
                && let Some(earlier) = self.earlier.get(name)
            {
                answers.push(earlier.replay(idempotency));
                continue;
            }
            if !self.apps.contains(&message.app) {
                answers.push(Err(Error::NotFound));
                continue;
            }
            let split = self.split(message)?;
            if split.parts.keys().any(|cell| message.full.contains(cell)) {
                answers.push(Err(Error::Overloaded));
                continue;
            }
            let (id, targets) = (message.id, message.target.named_count());
            let cells = split.parts.keys().copied().collect();
            if let Some((name, idempotency)) = key {
                self.earlier.insert(name, KeyUse { body_hash: idempotency.body_hash, id, targets });
            }
            rows.push(NewRow { message, split });
            answers.push(Ok(Taken { id, targets, cells, replayed: false }));
        }
        Ok((answers, rows))
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

/// Reads `num, id, app, to, body, expires_at, trace`.
pub(crate) fn part_of(row: &(impl Record + ?Sized)) -> Result<Part, Error> {
    Ok(Part {
        num: row.count(0)?,
        id: NotificationId::from_bytes(array(row, 1)?),
        app: row.app(2)?,
        to: row.string(3)?,
        body: row.string(4)?,
        expires_at: row.time(5)?,
        trace: trace_of(row, 6)?,
    })
}

impl Wanted {
    /// As values: the one app, the apps left out, and the number after which parts are wanted.
    pub(crate) fn values(&self) -> (Option<i64>, Vec<i64>, i64) {
        match self {
            Self::Of { app, after } => (Some(i64::from(app.0)), Vec::new(), *after as i64),
            Self::Others { apart, after } => {
                (None, apart.iter().map(|app| i64::from(app.0)).collect(), *after as i64)
            }
        }
    }
}

pub(crate) async fn newest<S: Session>(session: &S) -> Result<u64, S::Error> {
    session::one(session, "SELECT coalesce(max(num), 0) FROM cell_messages", &[], |row| row.count(0)).await
}

pub(crate) async fn waits_before<S: Session>(
    session: &S,
    cell: CellNum,
    app: AppId,
    num: u64,
) -> Result<bool, S::Error> {
    // SQLite reads parts first, as a CROSS JOIN says; PostgreSQL may begin with the messages of the app.
    let sql = "SELECT EXISTS (SELECT 1 FROM cell_parts AS p CROSS JOIN cell_messages AS m
                              WHERE p.cell = $1 AND p.state = 0 AND p.num < $2 AND m.num = p.num AND m.app = $3)";
    session::one(session, sql, &values![cell, num, app], |row| row.flag(0)).await
}

pub(crate) async fn relayed<S: Session>(
    session: &S,
    app: AppId,
    id: NotificationId,
) -> Result<Option<Relayed>, S::Error> {
    let sql = "SELECT num FROM cell_messages WHERE id = $1 AND app = $2";
    named(session, sql, &values![id.as_bytes(), app]).await
}

pub(crate) async fn relayed_as<S: Session>(
    session: &S,
    cell: CellNum,
    remote: NotificationId,
) -> Result<Option<Relayed>, S::Error> {
    let sql = "SELECT num FROM cell_parts WHERE cell = $1 AND remote = $2";
    named(session, sql, &values![cell, remote.as_bytes()]).await
}

/// The message whose number a statement returns.
async fn named<S: Session>(
    session: &S,
    sql: &str,
    values: &[Value<'_>],
) -> Result<Option<Relayed>, S::Error> {
    match session::first(session, sql, values, |row| row.int(0)).await? {
        Some(num) => load(session, num).await.map(Some),
        None => Ok(None),
    }
}

async fn load<S: Session>(session: &S, num: i64) -> Result<Relayed, S::Error> {
    let sql = "SELECT id, app, summary, targets, unknown, accepted_at, expires_at, trace, cancelled
               FROM cell_messages WHERE num = $1";
    let relayed = session::one(session, sql, &values![num], relayed_of).await?;
    let sql = "SELECT cell, state, remote, reason FROM cell_parts WHERE num = $1 ORDER BY cell";
    let parts = session.query(sql, &values![num], relayed_part_of).await?;
    Ok(Relayed { parts, ..relayed })
}

fn relayed_of(row: &dyn Record) -> Result<Relayed, Error> {
    Ok(Relayed {
        id: NotificationId::from_bytes(array(row, 0)?),
        app: row.app(1)?,
        summary: row.string(2)?,
        targets: row.count_or_null(3)?,
        unknown: row.count(4)?,
        accepted_at: row.time(5)?,
        expires_at: row.time(6)?,
        trace: trace_of(row, 7)?,
        cancelled: row.flag(8)?,
        parts: Vec::new(),
    })
}

fn relayed_part_of(row: &dyn Record) -> Result<RelayedPart, Error> {
    let remote = row.bytes_or_null(2)?.map(to_array).transpose()?;
    Ok(RelayedPart {
        cell: cell_of(row, 0)?,
        state: PartState::from_code(row.code(1)?).ok_or_else(|| unknown("state of a part"))?,
        remote: remote.map(NotificationId::from_bytes),
        reason: row.string_or_null(3)?,
    })
}

pub(crate) async fn cancel<S: Session>(
    session: &S,
    app: AppId,
    id: NotificationId,
) -> Result<Option<Relayed>, S::Error> {
    let sql = "UPDATE cell_messages SET cancelled = 1 WHERE id = $1 AND app = $2 RETURNING num";
    let num = session::first(session, sql, &values![id.as_bytes(), app], |row| row.int(0)).await?;
    let Some(num) = num else { return Ok(None) };
    let sql = "UPDATE cell_parts SET state = CASE state WHEN 0 THEN 4 ELSE 5 END
               WHERE num = $1 AND state IN (0, 1)";
    session.execute(sql, &values![num]).await?;
    drop_body(session, num).await?;
    load(session, num).await.map(Some)
}

/// Removes the body of a message of which no part waits.
pub(crate) async fn drop_body<S: Session>(session: &S, num: i64) -> Result<(), S::Error> {
    let sql = "UPDATE cell_messages SET body = '' WHERE num = $1 AND body <> ''
                   AND NOT EXISTS (SELECT 1 FROM cell_parts WHERE num = $1 AND state = 0)";
    session.execute(sql, &values![num]).await?;
    Ok(())
}

pub(crate) async fn cancelling<S: Session>(
    session: &S,
    cell: CellNum,
    limit: usize,
) -> Result<Vec<(u64, AppId, NotificationId)>, S::Error> {
    let sql = "SELECT p.num, m.app, p.remote FROM cell_parts AS p JOIN cell_messages AS m ON m.num = p.num
               WHERE p.cell = $1 AND p.state = 5 ORDER BY p.num LIMIT $2";
    let map = |row: &dyn Record| Ok((row.count(0)?, row.app(1)?, NotificationId::from_bytes(array(row, 2)?)));
    session.query(sql, &values![cell, limit], map).await
}

pub(crate) async fn depths<S: Session>(session: &S) -> Result<Vec<Depth>, S::Error> {
    let sql = "SELECT p.cell, p.parts, m.accepted_at
               FROM (SELECT cell, count(*) AS parts, min(num) AS first FROM cell_parts WHERE state = 0 GROUP BY cell) AS p
               JOIN cell_messages AS m ON m.num = p.first ORDER BY p.cell";
    let depth_of = |row: &dyn Record| {
        Ok(Depth { cell: cell_of(row, 0)?, parts: row.count(1)?, oldest: row.time_or_null(2)? })
    };
    session.query(sql, &[], depth_of).await
}

/// Removes idempotency keys and former homes of users that are over. Returns how many of each.
pub(crate) async fn prune_keys_and_homes<S: Session>(
    session: &S,
    now: Timestamp,
    rows_max: usize,
) -> Result<[usize; 2], S::Error> {
    let lock = S::FOR_UPDATE_SKIP_LOCKED;
    let sql = format!(
        "DELETE FROM cell_keys WHERE (app, key) IN
             (SELECT app, key FROM cell_keys WHERE at <= $1 LIMIT $2 {lock})"
    );
    let keys = session.execute(&sql, &values![keys_since(now), rows_max]).await?;
    let sql = format!(
        "DELETE FROM cell_users WHERE (app, \"user\", cell) IN
             (SELECT app, \"user\", cell FROM cell_users WHERE until > 0 AND until <= $1 LIMIT $2 {lock})"
    );
    let homes = session.execute(&sql, &values![now, rows_max]).await?;
    Ok([keys as usize, homes as usize])
}
