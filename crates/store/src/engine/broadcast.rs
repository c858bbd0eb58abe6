//! Broadcasts as rows: accepting them, taking the first of each channel, and their results.

use std::time::Duration;

use noroshi_types::{
    AppId, Broadcast, BroadcastId, BroadcastState, JsonText, NotificationId, Timestamp, limits,
};

use super::channel::{end_waiting, environment, label, lock_named, policy};
use super::push_record::{self, Of};
use super::record::{Record, unknown};
use super::session::{self, Session, values};
use crate::ids::draw_key;
use crate::{
    BROADCAST_TAKES_MAX, BroadcastsOf, DueBroadcast, Error, FinishedBroadcast, Idempotency, NewBroadcast,
    PushRecord, SENDER_ENDED, StoredBroadcast, TakenBroadcasts, Then,
};

/// Records of one broadcast, which is tried for up to 28 days.
const RECORDS_MAX: usize = 100;

/// Columns of a new row; the others have the values of [`NEW`].
pub(crate) const COLUMNS: &str = "id, app, channel, name, notification, payload, priority, replaceable, accepted_at, expires_at, \
     state, attempt, takes";
/// State, attempts and takes of a new row.
pub(crate) const NEW: &str = "1, 0, 0";

const STORED: &str = "b.id, b.name, b.notification, b.priority, b.replaceable, b.accepted_at, b.expires_at, b.state, b.reason, \
     b.attempt, b.ended_at";

fn stored_of(row: &dyn Record) -> Result<StoredBroadcast, Error> {
    let notification = row.bytes_or_null(2)?.map(uuid_of).transpose()?;
    Ok(StoredBroadcast {
        id: BroadcastId::from_bytes(uuid_of(row.bytes(0)?)?),
        channel: label(row.text(1)?)?,
        notification: notification.map(NotificationId::from_bytes),
        priority: row.code(3)?,
        replaceable: row.int(4)? != 0,
        accepted_at: row.time(5)?,
        expires_at: row.time(6)?,
        state: BroadcastState::from_code(row.code(7)?).ok_or_else(|| unknown("state of a broadcast"))?,
        reason: row.string_or_null(8)?,
        attempts: row.int(9)? as u32,
        ended_at: row.time_or_null(10)?,
    })
}

fn uuid_of(bytes: &[u8]) -> Result<[u8; 16], Error> {
    bytes.try_into().map_err(|_| unknown("id of a broadcast"))
}

/// The id of a new broadcast.
pub(crate) fn draw_id() -> [u8; 16] {
    *uuid::Builder::from_random_bytes(draw_key()).as_uuid().as_bytes()
}

pub(crate) async fn accept<S: Session>(
    session: &S,
    new: &NewBroadcast,
    waiting_max: usize,
    now: Timestamp,
) -> Result<(StoredBroadcast, bool), S::Error> {
    let NewBroadcast { app, channel, broadcast, expires_at, idempotency } = new;
    let locked = lock_named(session, *app, channel).await?.ok_or(Error::NotFound)?;
    if let Some(key) = idempotency
        && let Some(earlier) = answered_before(session, locked.num, key, now).await?
    {
        return Ok((earlier, true));
    }
    if !locked.is_complete {
        return Err(Error::Conflict.into());
    }
    let sql =
        "SELECT count(*) FROM (SELECT 1 FROM broadcasts WHERE channel = $1 AND state = 1 LIMIT $2) AS w";
    let waiting = session::one(session, sql, &values![locked.num, waiting_max], |row| row.count(0)).await?;
    if waiting >= waiting_max as u64 {
        return Err(Error::Limit(too_many(waiting_max)).into());
    }
    let sql = format!(
        "INSERT INTO broadcasts ({COLUMNS}, key, body_hash)
         VALUES ($1, $2, $3, $4, NULL, $5, $6, $7, $8, $9, {NEW}, $10, $11)"
    );
    let id = draw_id();
    let Broadcast { payload, priority, replaceable } = broadcast;
    let key = idempotency.as_ref();
    let values = values![
        &id,
        *app,
        locked.num,
        channel.as_str(),
        payload.as_str(),
        *priority,
        *replaceable,
        now,
        *expires_at,
        key.map(|key| &*key.key),
        key.map(|key| &key.body_hash)
    ];
    session.execute(&sql, &values).await?;
    let sql = "UPDATE push_channels SET due_at = coalesce(due_at, $2) WHERE num = $1";
    session.execute(sql, &values![locked.num, now]).await?;
    let stored = find(session, *app, BroadcastId::from_bytes(id)).await?.ok_or(Error::NotFound)?;
    Ok((stored, false))
}

/// The text of [`Error::Limit`] when too many wait.
pub(crate) fn too_many(waiting_max: usize) -> String {
    format!("{waiting_max} broadcasts of the channel wait already")
}

/// The broadcast that was accepted with the key, while it is remembered.
async fn answered_before<S: Session>(
    session: &S,
    channel: i64,
    idempotency: &Idempotency,
    now: Timestamp,
) -> Result<Option<StoredBroadcast>, S::Error> {
    let since = Timestamp(now.0.saturating_sub(limits::IDEMPOTENCY_WINDOW.as_millis() as u64));
    let forget = "UPDATE broadcasts SET key = NULL WHERE channel = $1 AND key = $2 AND accepted_at <= $3";
    session.execute(forget, &values![channel, &*idempotency.key, since]).await?;
    let sql = format!("SELECT {STORED}, b.body_hash FROM broadcasts b WHERE b.channel = $1 AND b.key = $2");
    let found = session::first(session, &sql, &values![channel, &*idempotency.key], |row| {
        Ok((stored_of(row)?, row.bytes(11)?.to_vec()))
    })
    .await?;
    match found {
        Some((_, hash)) if hash != idempotency.body_hash => Err(Error::IdempotencyConflict.into()),
        found => Ok(found.map(|(stored, _)| stored)),
    }
}

pub(crate) async fn find<S: Session>(
    session: &S,
    app: AppId,
    id: BroadcastId,
) -> Result<Option<StoredBroadcast>, S::Error> {
    let sql = format!("SELECT {STORED} FROM broadcasts b WHERE b.id = $1 AND b.app = $2");
    session::first(session, &sql, &values![id.as_bytes(), app], stored_of).await
}

pub(crate) async fn list<S: Session>(
    session: &S,
    app: AppId,
    of: &BroadcastsOf,
    limit: usize,
) -> Result<Vec<StoredBroadcast>, S::Error> {
    match of {
        BroadcastsOf::Channel(name) => {
            let sql = "SELECT num FROM push_channels WHERE app = $1 AND name = $2";
            let found = session::first(session, sql, &values![app, name.as_str()], |row| row.int(0)).await?;
            let channel = found.ok_or(Error::NotFound)?;
            let sql = format!(
                "SELECT {STORED} FROM broadcasts b WHERE b.channel = $1 ORDER BY b.num DESC LIMIT $2"
            );
            session.query(&sql, &values![channel, limit], stored_of).await
        }
        BroadcastsOf::Notification(id) => {
            // At most one for each environment.
            let sql = format!(
                "SELECT {STORED} FROM broadcasts b WHERE b.notification = $1 AND b.app = $2 LIMIT $3"
            );
            session.query(&sql, &values![id.as_bytes(), app, limit], stored_of).await
        }
    }
}

/// Cancels what no sender has taken. Returns whether there was any.
pub(crate) async fn cancel_notification<S: Session>(
    session: &S,
    id: NotificationId,
    now: Timestamp,
) -> Result<bool, S::Error> {
    let sql = "UPDATE broadcasts SET state = $2, ended_at = $3, payload = ''
               WHERE notification = $1 AND state = 1 AND takes = 0";
    Ok(session.execute(sql, &values![id.as_bytes(), BroadcastState::Cancelled as u8, now]).await? > 0)
}

/// With a ttl of 0, Apple gets it once (RFC 8030 §5.2).
const HAS_EXPIRED: &str = "b.expires_at <= $3 AND (b.expires_at > b.accepted_at OR b.attempt > 0)";
const IS_REPLACED: &str = "b.replaceable = 1 AND EXISTS (
     SELECT 1 FROM broadcasts n WHERE n.channel = b.channel AND n.state = 1 AND n.num > b.num)";

pub(crate) async fn take<S: Session>(
    session: &S,
    now: Timestamp,
    lease: Duration,
    limit: usize,
) -> Result<TakenBroadcasts, S::Error> {
    let mut taken = TakenBroadcasts::default();
    let sql = format!(
        "SELECT num FROM push_channels WHERE due_at <= $1 ORDER BY due_at LIMIT $2 {}",
        S::FOR_UPDATE_SKIP_LOCKED
    );
    let due = session.query(&sql, &values![now, limit], |row| row.int(0)).await?;
    let until = now.saturating_add(lease);
    for channel in due {
        taken.expired += end_waiting(session, channel, BroadcastState::Expired, HAS_EXPIRED, now).await?;
        taken.replaced += end_waiting(session, channel, BroadcastState::Replaced, IS_REPLACED, now).await?;
        match head(session, channel, until, now, &mut taken.set_aside).await? {
            Some(broadcast) => {
                let sql = "UPDATE push_channels SET due_at = $2, lease = $2 WHERE num = $1";
                session.execute(sql, &values![channel, until]).await?;
                taken.due.push(broadcast);
            }
            None => {
                let sql = "UPDATE push_channels SET due_at = NULL, lease = 0 WHERE num = $1";
                session.execute(sql, &values![channel]).await?;
            }
        }
    }
    let sql = "SELECT min(due_at) FROM push_channels WHERE due_at IS NOT NULL";
    taken.next_due = session::one(session, sql, &[], |row| row.time_or_null(0)).await?;
    Ok(taken)
}

/// Takes the first broadcast of a channel that may be sent. Those that were taken too often are refused.
async fn head<S: Session>(
    session: &S,
    channel: i64,
    leased_until: Timestamp,
    now: Timestamp,
    set_aside: &mut u64,
) -> Result<Option<DueBroadcast>, S::Error> {
    let sql = "SELECT b.num, b.id, b.payload, b.priority, b.expires_at, b.attempt, b.takes,
                      c.num, c.app, c.environment, c.bundle, c.apple, c.policy
               FROM (SELECT * FROM broadcasts WHERE channel = $1 AND state = 1 ORDER BY num LIMIT 1) AS b
               JOIN push_channels c ON c.num = b.channel WHERE c.num = $1 AND c.apple IS NOT NULL";
    loop {
        let found = session
            .query(sql, &values![channel], |row| {
                let broadcast = DueBroadcast {
                    channel: row.count(7)?,
                    leased_until,
                    num: row.count(0)?,
                    app: row.app(8)?,
                    id: BroadcastId::from_bytes(uuid_of(row.bytes(1)?)?),
                    environment: environment(row, 9)?,
                    bundle: row.string(10)?,
                    apple: row.string(11)?,
                    policy: policy(row, 12)?,
                    payload: JsonText::from_valid(row.string(2)?),
                    priority: row.code(3)?,
                    expires_at: row.time(4)?,
                    attempt: row.int(5)? as u32,
                };
                Ok((broadcast, row.count(6)?))
            })
            .await?;
        match found.into_iter().next() {
            Some((broadcast, takes)) if takes >= u64::from(BROADCAST_TAKES_MAX) => {
                end(session, broadcast.num, BroadcastState::Refused, Some(SENDER_ENDED), now).await?;
                *set_aside += 1;
            }
            Some((broadcast, _)) => {
                // Not if its notification was cancelled meanwhile.
                let sql = "UPDATE broadcasts SET takes = takes + 1 WHERE num = $1 AND state = 1";
                if session.execute(sql, &values![broadcast.num]).await? > 0 {
                    return Ok(Some(broadcast));
                }
            }
            None => return Ok(None),
        }
    }
}

async fn end<S: Session>(
    session: &S,
    num: u64,
    state: BroadcastState,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), S::Error> {
    let sql =
        "UPDATE broadcasts SET state = $2, reason = $3, ended_at = $4, attempt = attempt + 1, payload = ''
               WHERE num = $1 AND state = 1";
    session.execute(sql, &values![num, state as u8, reason, now]).await.map(drop)
}

pub(crate) async fn finish<S: Session>(
    session: &S,
    finished: &[FinishedBroadcast],
    now: Timestamp,
) -> Result<(), S::Error> {
    // Channels are locked in the order of their numbers, as by all others.
    let mut sorted: Vec<&FinishedBroadcast> = finished.iter().collect();
    sorted.sort_by_key(|one| one.channel);
    for one in sorted {
        let sql = format!("SELECT lease FROM push_channels WHERE num = $1 {}", S::FOR_NO_KEY_UPDATE);
        let lease = session::first(session, &sql, &values![one.channel], |row| row.time(0)).await?;
        match one.then {
            Then::End(state) => end(session, one.num, state, one.reason, now).await?,
            Then::Again(_) => {
                let sql = "UPDATE broadcasts SET reason = $2, attempt = attempt + 1, takes = 0
                           WHERE num = $1 AND state = 1";
                session.execute(sql, &values![one.num, one.reason]).await?;
            }
        }
        if let Some(record) = &one.record {
            add_record(session, one.num, record).await?;
        }
        if lease != Some(one.leased_until) {
            // Another sender has the channel, or it was deleted.
            continue;
        }
        let due_at = match one.then {
            Then::Again(due_at) => due_at,
            Then::End(_) => now,
        };
        let sql = "UPDATE push_channels SET lease = 0, due_at = CASE WHEN EXISTS (
                       SELECT 1 FROM broadcasts WHERE channel = $1 AND state = 1) THEN CAST($2 AS BIGINT) END
                   WHERE num = $1";
        session.execute(sql, &values![one.channel, due_at]).await?;
    }
    Ok(())
}

/// Once, also if the result is written again.
async fn add_record<S: Session>(session: &S, num: u64, record: &PushRecord) -> Result<(), S::Error> {
    let sql = "SELECT app, id FROM broadcasts WHERE num = $1";
    let of_row = |row: &dyn Record| Ok((row.app(0)?, BroadcastId::from_bytes(uuid_of(row.bytes(1)?)?)));
    let Some((app, id)) = session::first(session, sql, &values![num], of_row).await? else { return Ok(()) };
    let sql = "SELECT id FROM push_records WHERE app = $1 AND work = $2 AND attempts = $3";
    let of = Of::Broadcast(id);
    let found = session.query(sql, &values![app, &of.key(), &record.attempts], |row| row.int(0)).await?;
    match found.is_empty() {
        true => push_record::add(session, app, of, record, RECORDS_MAX).await,
        false => Ok(()),
    }
}

/// Broadcasts that ended before this time are removed: after the trace retention, and not while their idempotency keys
/// are remembered.
pub(crate) fn forgotten_broadcasts(retained_since: Timestamp, now: Timestamp) -> Timestamp {
    let window = limits::IDEMPOTENCY_WINDOW.as_millis() as u64;
    retained_since.min(Timestamp(now.0.saturating_sub(window)))
}
