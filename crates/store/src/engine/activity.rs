//! Live Activities: rows, slices and the devices in them.
//!
//! A transaction that changes slices of an activity has locked the activity's row, except where it changes slices that
//! it has leased. Lists of numbers and names are one value, a JSON array (see [`Session::numbers`]).

use std::time::{Duration, Instant};

use noroshi_types::{
    ActivityId, AppId, DeviceId, DeviceNum, JsonText, Outcome, PushEnvironment, PushService, PushToken,
    Timestamp, TokenKey, TokenKind, limits,
};

use super::push_record::{self, Of};
use super::record::{Record, invalid, to_array};
use super::session::{self, Session, values};
use crate::{
    Activity, ActivityChange, ActivityMember, ActivityProgress, ActivityRecipient, ActivityToken,
    CreatedActivity, Error, Joined, Names, NewActivity, SettledSlice, Slice, TakeSlices, TakenSlices,
};

/// The columns of [`activity_of`]; the target is read where it is needed, because it may be long.
const COLUMNS: &str = "num, app, id, version, spec, state, of_users, joinable, devices, cursor, created_at, updated_at, \
     expires_at, ended_at";

/// For how long one commit removes rows. Others wait for SQLite's writer meanwhile.
const SLICE_TIME: Duration = Duration::from_millis(20);
/// Rows that one statement removes between two looks at the clock.
const CHUNK: usize = 200;

const LIVE: u8 = TokenKind::LiveActivity as u8;
const START: u8 = TokenKind::LiveActivityStart as u8;
const FCM: u8 = TokenKind::Fcm as u8;

fn activity_of(row: &dyn Record) -> Result<Activity, Error> {
    Ok(Activity {
        num: row.count(0)?,
        app: row.app(1)?,
        id: id_of(row, 2)?,
        version: row.count(3)?,
        spec: JsonText::from_valid(row.string(4)?),
        target: None,
        state: JsonText::from_valid(row.string(5)?),
        of_users: row.flag(6)?,
        joinable: row.flag(7)?,
        devices: row.count(8)?,
        cursor: row.count_or_null(9)?,
        created_at: row.time(10)?,
        updated_at: row.time(11)?,
        expires_at: row.time(12)?,
        ended_at: row.time_or_null(13)?,
    })
}

/// Reads the target too, which follows [`COLUMNS`].
fn with_target(row: &dyn Record) -> Result<Activity, Error> {
    Ok(Activity { target: row.json_or_null(14)?, ..activity_of(row)? })
}

fn id_of(row: &dyn Record, column: usize) -> Result<ActivityId, Error> {
    ActivityId::parse(row.text(column)?).map_err(|error| invalid("id of an activity", error))
}

/// A JSON array of numbers.
fn list(numbers: impl Iterator<Item = u64>) -> String {
    let numbers: Vec<String> = numbers.map(|number| number.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

fn devices_of(devices: &[DeviceNum]) -> String {
    list(devices.iter().map(|device| device.0))
}

/// A JSON array of texts, which have no control characters.
fn texts<'t>(texts: impl Iterator<Item = &'t str>) -> String {
    let quoted = texts.map(|text| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")));
    format!("[{}]", quoted.collect::<Vec<_>>().join(","))
}

pub(crate) async fn create<S: Session>(
    session: &S,
    new: &NewActivity,
    now: Timestamp,
) -> Result<CreatedActivity, S::Error> {
    let NewActivity { app, id, spec, target, state, of_users, joinable, expires_at, idempotency } = new;
    session::require_app(session, *app, S::FOR_KEY_SHARE).await?;
    // The row of the app serializes creations of an app, so that two with one key do not both insert.
    let sql = "INSERT INTO activity_apps (app, activities) VALUES ($1, 1)
               ON CONFLICT (app) DO UPDATE SET activities = activity_apps.activities + 1 RETURNING activities";
    let count = session::one(session, sql, &values![*app], |row| row.count(0)).await?;
    let uncounted = "UPDATE activity_apps SET activities = activities - 1 WHERE app = $1";
    if let Some(idempotency) = idempotency {
        let sql = format!("SELECT {COLUMNS}, body_hash FROM activities WHERE app = $1 AND key = $2");
        let values = values![*app, &*idempotency.key];
        let found = session::first(session, &sql, &values, |row| {
            Ok((activity_of(row)?, row.bytes_or_null(14)?.map(to_array::<32>).transpose()?))
        });
        if let Some((activity, hash)) = found.await? {
            if hash != Some(idempotency.body_hash) {
                return Err(Error::IdempotencyConflict.into());
            }
            session.execute(uncounted, &values![*app]).await?;
            return Ok(CreatedActivity { activity, replayed: true });
        }
    }
    if count > limits::ACTIVITIES_PER_APP_MAX {
        let limit = limits::ACTIVITIES_PER_APP_MAX;
        return Err(Error::Limit(format!("an app has at most {limit} activities")).into());
    }
    let sql = format!(
        "INSERT INTO activities (app, id, version, spec, target, state, of_users, joinable, devices, cursor, created_at,
                                 updated_at, expires_at, key, body_hash)
         VALUES ($1, $2, 1, $3, $4, $5, $6, $7, 0, 0, $8, $8, $9, $10, $11)
         ON CONFLICT (app, id) DO NOTHING RETURNING {COLUMNS}"
    );
    let key = idempotency.as_ref().map(|idempotency| &*idempotency.key);
    let hash = idempotency.as_ref().map(|idempotency| &idempotency.body_hash);
    let values = values![
        *app,
        id.as_str(),
        spec.as_str(),
        target.as_str(),
        state.as_str(),
        *of_users,
        *joinable,
        now,
        *expires_at,
        key,
        hash,
    ];
    let created = session::first(session, &sql, &values, activity_of).await?;
    Ok(CreatedActivity { activity: created.ok_or(Error::Exists)?, replayed: false })
}

pub(crate) async fn find<S: Session>(
    session: &S,
    app: AppId,
    id: &ActivityId,
) -> Result<Option<Activity>, S::Error> {
    let sql = format!("SELECT {COLUMNS}, target FROM activities WHERE app = $1 AND id = $2");
    session::first(session, &sql, &values![app, id.as_str()], with_target).await
}

pub(crate) async fn progress<S: Session>(session: &S, num: u64) -> Result<ActivityProgress, S::Error> {
    let sql = "SELECT coalesce(CAST(sum(CASE WHEN s.version = a.version THEN s.members END) AS BIGINT), 0),
                      coalesce(CAST(sum(CASE WHEN s.version < a.version THEN s.members END) AS BIGINT), 0)
               FROM activities a JOIN activity_slices s ON s.activity = a.num WHERE a.num = $1";
    let (in_current, in_older) =
        session::one(session, sql, &values![num], |row| Ok((row.count(0)?, row.count(1)?))).await?;
    let sql = "SELECT outcome, reason, count FROM activity_counts WHERE activity = $1";
    let values = values![num];
    let counts = session.query(sql, &values, |row| {
        let sum = (row.string(1)?, row.count(2)?);
        Ok(Outcome::from_code(row.code(0)?).map(|outcome| (outcome, sum.0, sum.1)))
    });
    let counts = counts.await?.into_iter().flatten().collect();
    let sql = "SELECT count(*) FROM activity_slices s JOIN activities a ON a.num = s.activity
                   JOIN activity_devices d ON d.slice = s.id
               WHERE s.activity = $1 AND s.version = a.version AND d.behind > 0";
    let behind = session::one(session, sql, &values![num], |row| row.count(0)).await?;
    let (current, waiting) = (in_current.saturating_sub(behind), in_older + behind);
    Ok(ActivityProgress { current, waiting, counts })
}

pub(crate) async fn member<S: Session>(
    session: &S,
    activity: u64,
    device: &DeviceId,
    attributes: &str,
) -> Result<Option<ActivityMember>, S::Error> {
    let sql = "SELECT m.started, s.version, s.sent_at, s.version < a.version OR m.behind > 0, s.due_at, m.outcome, m.reason,
                      m.at,
                      EXISTS (SELECT 1 FROM push_tokens t WHERE t.device = m.device AND t.kind = $3 AND t.name = a.id),
                      EXISTS (SELECT 1 FROM push_tokens t
                              WHERE t.device = m.device AND t.kind = $4 AND t.name IN ('', $5)),
                      d.push_service = $6
                          OR EXISTS (SELECT 1 FROM push_tokens t
                                     WHERE t.device = m.device AND t.kind = $7 AND t.name = ''),
                      a.of_users > 0 AND d.user_at IS NOT NULL AND d.user_at > a.created_at, d.num, a.app, s.id
               FROM activities a JOIN devices d ON d.app = a.app AND d.id = $2
                   JOIN activity_devices m ON m.activity = a.num AND m.device = d.num
                   JOIN activity_slices s ON s.id = m.slice
               WHERE a.num = $1";
    let values = values![activity, device.as_str(), LIVE, START, attributes, PushService::Fcm as u8, FCM];
    let found = session::first(session, sql, &values, |row| {
        let member = ActivityMember {
            num: row.device(12)?,
            started: row.count(0)?,
            version: row.count(1)?,
            sent_at: row.time_or_null(2)?,
            waits: row.flag(3)?,
            due_at: row.time_or_null(4)?,
            outcome: row.code_or_null(5)?.and_then(Outcome::from_code),
            reason: row.string_or_null(6)?.filter(|reason| !reason.is_empty()),
            at: row.time_or_null(7)?,
            has_token: row.flag(8)?,
            has_start_token: row.flag(9)?,
            has_fcm_token: row.flag(10)?,
            is_of_another_user: row.flag(11)?,
            attempts: Vec::new(),
        };
        Ok((member, row.app(13)?, row.count(14)?))
    });
    let Some((mut member, app, slice)) = found.await? else { return Ok(None) };
    for failed in [true, false] {
        let of = Of::Slice { activity, slice, failed };
        member.attempts.extend(push_record::of_device(session, app, of, member.num).await?);
    }
    Ok(Some(member))
}

pub(crate) async fn page<S: Session>(
    session: &S,
    app: AppId,
    before: Option<u64>,
    limit: usize,
) -> Result<Vec<Activity>, S::Error> {
    let sql =
        format!("SELECT {COLUMNS} FROM activities WHERE app = $1 AND num < $2 ORDER BY num DESC LIMIT $3");
    let before = before.map_or(i64::MAX, |num| i64::try_from(num).unwrap_or(i64::MAX));
    session.query(&sql, &values![app, before, limit], activity_of).await
}

pub(crate) async fn change<S: Session>(
    session: &S,
    change: &ActivityChange,
    now: Timestamp,
) -> Result<Activity, S::Error> {
    let ActivityChange { app, id, from, state, forget_at } = change;
    let sql = format!(
        "UPDATE activities SET version = version + 1, state = $4, updated_at = $5,
                               ended_at = CASE WHEN CAST($6 AS BIGINT) IS NULL THEN NULL ELSE CAST($5 AS BIGINT) END,
                               forget_at = CAST($6 AS BIGINT)
         WHERE app = $1 AND id = $2 AND version = $3 AND coalesce(ended_at, 0) = 0 RETURNING {COLUMNS}"
    );
    let values = values![*app, id.as_str(), *from, state.as_str(), now, *forget_at];
    let Some(activity) = session::first(session, &sql, &values, activity_of).await? else {
        let sql = "SELECT num FROM activities WHERE app = $1 AND id = $2";
        let found = session::first(session, sql, &values![*app, id.as_str()], |row| row.count(0)).await?;
        return Err(if found.is_some() { Error::Conflict } else { Error::NotFound }.into());
    };
    let sql = "UPDATE activity_slices SET due_at = $2, attempt = 0
               WHERE activity = $1 AND (due_at IS NULL OR due_at > $2)";
    session.execute(sql, &values![activity.num, now]).await?;
    Ok(activity)
}

pub(crate) async fn to_collect<S: Session>(session: &S, limit: usize) -> Result<Vec<Activity>, S::Error> {
    let sql =
        format!("SELECT {COLUMNS}, target FROM activities WHERE cursor IS NOT NULL ORDER BY num LIMIT $1");
    session.query(&sql, &values![limit], with_target).await
}

pub(crate) async fn named<S: Session>(
    session: &S,
    app: AppId,
    names: &Names,
) -> Result<Vec<DeviceNum>, S::Error> {
    let (column, names) = match names {
        Names::Users(users) => ("\"user\"", texts(users.iter().map(|user| user.as_str()))),
        Names::Devices(devices) => ("id", texts(devices.iter().map(DeviceId::as_str))),
    };
    let sql = format!(
        "SELECT d.num FROM {} AS n {} devices AS d ON d.app = $1 AND d.{column} = n.text",
        S::texts("$2"),
        S::ORDERED_JOIN
    );
    session.query(&sql, &values![app, &names], |row| row.device(0)).await
}

pub(crate) async fn add<S: Session>(
    session: &S,
    activity: u64,
    cursor: u64,
    next: Option<u64>,
    devices: &[DeviceNum],
    now: Timestamp,
) -> Result<bool, S::Error> {
    let sql = format!(
        "SELECT app, devices FROM activities WHERE num = $1 AND cursor = $2 {}",
        S::FOR_NO_KEY_UPDATE
    );
    let values = values![activity, cursor];
    let found = session::first(session, &sql, &values, |row| Ok((row.app(0)?, row.count(1)?))).await?;
    let Some((app, count)) = found else { return Ok(false) };
    let room = limits::ACTIVITY_DEVICES_MAX.saturating_sub(count);
    let kept = devices.len().min(usize::try_from(room).unwrap_or(usize::MAX));
    let next = next.filter(|_| kept == devices.len());
    session.execute("UPDATE activities SET cursor = $2 WHERE num = $1", &values![activity, next]).await?;
    for devices in devices[..kept].chunks(limits::ACTIVITY_SLICE_DEVICES) {
        insert(session, (activity, app), devices, now).await?;
    }
    Ok(true)
}

/// Adds at most a slice of devices, to the newest slice if there is room in it.
async fn insert<S: Session>(
    session: &S,
    (activity, app): (u64, AppId),
    devices: &[DeviceNum],
    now: Timestamp,
) -> Result<(), S::Error> {
    if devices.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "SELECT id, members, take FROM activity_slices WHERE activity = $1 ORDER BY id DESC LIMIT 1 {}",
        S::FOR_NO_KEY_UPDATE
    );
    let values = values![activity];
    let last =
        session::first(session, &sql, &values, |row| Ok((row.count(0)?, row.count(1)?, row.count(2)?)))
            .await?;
    let fits = |members: u64| members + devices.len() as u64 <= limits::ACTIVITY_SLICE_DEVICES as u64;
    let (slice, take) = match last {
        Some((slice, members, take)) if fits(members) => (slice, take),
        _ => {
            let sql = "INSERT INTO activity_slices (activity, app, members, version, due_at, attempt, leased_until, holder,
                                                    takes, take)
                       VALUES ($1, $2, 0, 0, $3, 0, 0, 0, 0, 0) RETURNING id";
            (session::one(session, sql, &values![activity, app, now], |row| row.count(0)).await?, 0)
        }
    };
    let sql = format!(
        "INSERT INTO activity_devices (activity, device, slice, started, behind)
         SELECT CAST($1 AS BIGINT), n.num, CAST($2 AS BIGINT), 0, CAST($3 AS BIGINT) FROM {} AS n WHERE n.num > 0
         ON CONFLICT DO NOTHING",
        S::numbers("$4")
    );
    let added = session.execute(&sql, &values![activity, slice, take + 1, &devices_of(devices)]).await?;
    let sql = "UPDATE activity_slices
               SET members = members + $2,
                   due_at = CASE WHEN due_at < CAST($3 AS BIGINT) THEN due_at ELSE CAST($3 AS BIGINT) END
               WHERE id = $1";
    session.execute(sql, &values![slice, added, now]).await?;
    let sql = "UPDATE activities SET devices = devices + $2 WHERE num = $1";
    session.execute(sql, &values![activity, added]).await.map(drop)
}

pub(crate) async fn join<S: Session>(
    session: &S,
    app: AppId,
    id: &ActivityId,
    device: DeviceNum,
    now: Timestamp,
) -> Result<Joined, S::Error> {
    // Not locked: of an update that commits meanwhile, the slice is due after the device's token was committed.
    let sql = "SELECT num, version, joinable FROM activities WHERE app = $1 AND id = $2";
    let values = values![app, id.as_str()];
    let found = session::first(session, sql, &values, |row| Ok((row.count(0)?, row.count(1)?, row.flag(2)?)));
    let Some((activity, version, joinable)) = found.await? else {
        return Ok(Joined::NoActivity);
    };
    let sql = "SELECT slice, started FROM activity_devices WHERE activity = $1 AND device = $2";
    let values = values![activity, device.0];
    let member = session::first(session, sql, &values, |row| Ok((row.count(0)?, row.count(1)?))).await?;
    let Some((slice, started)) = member else {
        let sql = "SELECT num FROM devices WHERE num = $1 AND app = $2";
        let is_ours =
            session::first(session, sql, &values![device.0, app], |row| row.count(0)).await?.is_some();
        if !joinable || !is_ours {
            return Ok(Joined::NotInvited);
        }
        // Locked: of two devices that join at once, each finds room in a slice.
        let sql = format!("SELECT devices FROM activities WHERE num = $1 {}", S::FOR_NO_KEY_UPDATE);
        let devices = session::first(session, &sql, &values![activity], |row| row.count(0)).await?;
        if devices.is_none_or(|devices| devices >= limits::ACTIVITY_DEVICES_MAX) {
            return Ok(Joined::NotInvited);
        }
        insert(session, (activity, app), &[device], now).await?;
        return Ok(Joined::Behind);
    };
    if started == version {
        return Ok(Joined::Current);
    }
    // From the next take on; the current one may have read the device's tokens already.
    let sql = "UPDATE activity_slices
               SET due_at = CASE WHEN due_at < CAST($2 AS BIGINT) THEN due_at ELSE CAST($2 AS BIGINT) END
               WHERE id = $1 RETURNING take";
    let take = session::one(session, sql, &values![slice, now], |row| row.count(0)).await?;
    let sql = "UPDATE activity_devices SET behind = $3, outcome = NULL, reason = NULL, at = NULL
               WHERE activity = $1 AND device = $2";
    session.execute(sql, &values![activity, device.0, take + 1]).await?;
    Ok(Joined::Behind)
}

pub(crate) async fn take<S: Session>(session: &S, asked: &TakeSlices) -> Result<TakenSlices, S::Error> {
    let TakeSlices { now, lease, holder, slices_max, busy } = asked;
    let sql = format!(
        "UPDATE activity_slices SET leased_until = 0 WHERE id IN (
             SELECT id FROM activity_slices WHERE leased_until > 0 AND leased_until <= {} LIMIT 1000 {})",
        S::engine_now("$1"),
        S::FOR_UPDATE_SKIP_LOCKED
    );
    session.execute(&sql, &values![*now]).await?;
    let sql = format!(
        "UPDATE activity_slices SET leased_until = {} + $2, holder = $3, takes = takes + 1, take = take + 1
         WHERE id IN (
             SELECT id FROM activity_slices
             WHERE leased_until = 0 AND due_at IS NOT NULL AND due_at <= $1 AND app NOT IN (SELECT num FROM {} AS b)
             ORDER BY due_at LIMIT $4 {})
         RETURNING id, activity, version, members, attempt, takes, take",
        S::engine_now("$1"),
        S::numbers("$5"),
        S::FOR_UPDATE_SKIP_LOCKED
    );
    let busy = list(busy.iter().map(|app| app.0.into()));
    let lease_ms = lease.as_millis() as i64;
    let values = values![*now, lease_ms, *holder, *slices_max, &busy];
    let slices = session
        .query(&sql, &values, |row| {
            Ok(Slice {
                id: row.count(0)?,
                activity: row.count(1)?,
                version: row.count(2)?,
                members: row.count(3)?,
                attempt: row.int(4)? as u32,
                takes: row.int(5)? as u32,
                take: row.count(6)?,
            })
        })
        .await?;
    let mut nums: Vec<u64> = slices.iter().map(|slice| slice.activity).collect();
    nums.sort_unstable();
    nums.dedup();
    let mut activities = Vec::new();
    if !nums.is_empty() {
        let columns = COLUMNS.split(", ").map(|column| format!("a.{column}")).collect::<Vec<_>>().join(", ");
        let sql = format!(
            "SELECT {columns} FROM {} AS n {} activities AS a ON a.num = n.num",
            S::numbers("$1"),
            S::ORDERED_JOIN
        );
        activities = session.query(&sql, &values![&list(nums.into_iter())], activity_of).await?;
    }
    let sql = "SELECT due_at FROM activity_slices WHERE leased_until = 0 AND due_at IS NOT NULL
               ORDER BY due_at LIMIT 1";
    let next_due = session::first(session, sql, &[], |row| row.time(0)).await?;
    Ok(TakenSlices { slices, activities, next_due })
}

pub(crate) async fn renew<S: Session>(
    session: &S,
    holder: u64,
    slices: &[u64],
    lease: Duration,
    now: Timestamp,
) -> Result<(), S::Error> {
    let engine_now = S::engine_now("$3");
    // A lease whose row another call holds is renewed the next time.
    let sql = format!(
        "UPDATE activity_slices SET leased_until = {engine_now} + $2 WHERE id IN (
             SELECT s.id FROM {} AS n {} activity_slices AS s ON s.id = n.num
             WHERE s.leased_until > {engine_now} AND s.holder = $1 {})",
        S::numbers("$4"),
        S::ORDERED_JOIN,
        // Of the slices only: the other table is a list.
        if S::FOR_UPDATE_SKIP_LOCKED.is_empty() { "" } else { "FOR UPDATE OF s SKIP LOCKED" },
    );
    let slices = list(slices.iter().copied());
    session.execute(&sql, &values![holder, lease.as_millis() as i64, now, &slices]).await.map(drop)
}

pub(crate) async fn recipients<S: Session>(
    session: &S,
    activity: &Activity,
    slice: &Slice,
    attributes: &str,
) -> Result<Vec<ActivityRecipient>, S::Error> {
    let whole = slice.version < activity.version;
    // Two statements, because each has its own index.
    let behind = if whole { "m.behind <= $2" } else { "m.behind > 0 AND m.behind <= $2" };
    let of_users = match activity.of_users {
        true => "AND (d.user_at IS NULL OR d.user_at <= $3)",
        false => "AND CAST($3 AS BIGINT) > 0",
    };
    let token = |table: &str| {
        let columns =
            ["service", "environment", "token", "registered_at", "suspect_at IS NOT NULL", "expires_at"];
        columns.map(|column| format!("{table}.{column}")).join(", ")
    };
    let sql = format!(
        "SELECT m.device, d.platform, m.started, {}, {}, {}, {},
                d.push_service, d.push_environment, d.push_token, d.push_token_at, d.push_suspect_at IS NOT NULL
         FROM activity_devices AS m {join} devices AS d ON d.num = m.device
             LEFT JOIN push_tokens AS t ON t.device = m.device AND t.kind = {LIVE} AND t.name = $4
             LEFT JOIN push_tokens AS s ON s.device = m.device AND s.kind = {START} AND s.name = $5
             LEFT JOIN push_tokens AS u ON u.device = m.device AND u.kind = {START} AND u.name = ''
             LEFT JOIN push_tokens AS f ON f.device = m.device AND f.kind = {FCM} AND f.name = ''
         WHERE m.slice = $1 AND {behind} {of_users}",
        token("t"),
        token("s"),
        token("u"),
        token("f"),
        join = S::ORDERED_JOIN,
    );
    let key = |kind: TokenKind, name: &str| {
        TokenKey::new(kind, name).map_err(|error| invalid("name of a push token", error))
    };
    let keys = [
        key(TokenKind::LiveActivity, activity.id.as_str())?,
        key(TokenKind::LiveActivityStart, attributes)?,
        key(TokenKind::LiveActivityStart, "")?,
        key(TokenKind::Fcm, "")?,
    ];
    let values = values![slice.id, slice.take, activity.created_at, activity.id.as_str(), attributes];
    let mut found = session.query(&sql, &values, |row| recipient_of(row, &keys)).await?;
    found.sort_unstable_by_key(|recipient| recipient.num);
    Ok(found)
}

fn recipient_of(row: &dyn Record, keys: &[TokenKey; 4]) -> Result<ActivityRecipient, Error> {
    let token = |key: &TokenKey, first: usize, expires: bool| {
        let Some(service) = row.code_or_null(first)?.and_then(PushService::from_code) else {
            return Ok(None);
        };
        let Some(json) = row.json_or_null(first + 2)? else { return Ok(None) };
        let environment =
            row.code_or_null(first + 1)?.and_then(PushEnvironment::from_code).unwrap_or_default();
        Ok::<_, Error>(Some(ActivityToken {
            key: key.clone(),
            token: PushToken { service, environment, json },
            registered_at: row.time_or_null(first + 3)?.unwrap_or(Timestamp(0)),
            suspect: row.flag(first + 4)?,
            expires_at: if expires { row.time_or_null(first + 5)? } else { None },
        }))
    };
    let main = token(&keys[3], 27, false)?.filter(|main| main.token.service == PushService::Fcm);
    Ok(ActivityRecipient {
        num: row.device(0)?,
        platform: row.string_or_null(1)?,
        started: row.count(2)?,
        token: token(&keys[0], 3, true)?,
        start: match token(&keys[1], 9, true)? {
            None => token(&keys[2], 15, true)?,
            own => own,
        },
        fcm: match main {
            None => token(&keys[3], 21, true)?,
            main => main,
        },
    })
}

pub(crate) async fn settle<S: Session>(
    session: &S,
    holder: u64,
    settled: &[SettledSlice],
    now: Timestamp,
) -> Result<Option<Timestamp>, S::Error> {
    // In the order of every call.
    let mut settled: Vec<&SettledSlice> = settled.iter().collect();
    settled.sort_unstable_by_key(|one| one.slice);
    let mut first_due: Option<Timestamp> = None;
    for one in settled {
        let due = settle_one(session, holder, one, now).await?;
        first_due = first_due.into_iter().chain(due).min();
    }
    Ok(first_due)
}

async fn settle_one<S: Session>(
    session: &S,
    holder: u64,
    one: &SettledSlice,
    now: Timestamp,
) -> Result<Option<Timestamp>, S::Error> {
    // Locked by a statement of its own: the next one then sees what others committed before they released the row.
    let sql = format!(
        "SELECT app FROM activity_slices WHERE id = $1 AND holder = $2 AND take = $3 AND leased_until > 0 {}",
        S::FOR_NO_KEY_UPDATE
    );
    let values = values![one.slice, holder, one.take];
    let Some(app) = session::first(session, &sql, &values, |row| row.app(0)).await? else { return Ok(None) };
    let sql = "UPDATE activity_slices SET version = $3, sent_at = $4, leased_until = 0, takes = 0, attempt = $5,
                   due_at = CASE WHEN (SELECT a.version FROM activities a WHERE a.num = activity_slices.activity) > $3
                                 THEN CAST($4 AS BIGINT)
                                 WHEN EXISTS (SELECT 1 FROM activity_devices d
                                              WHERE d.slice = activity_slices.id AND d.behind > $2)
                                 THEN CAST($4 AS BIGINT)
                                 ELSE CAST($6 AS BIGINT) END
               WHERE id = $1 RETURNING due_at";
    let values = values![one.slice, one.take, one.version, now, one.attempt, one.due_at];
    let due = session::one(session, sql, &values, |row| row.time_or_null(0)).await?;
    let sql = "UPDATE activity_devices SET behind = 0 WHERE slice = $1 AND behind > 0 AND behind <= $2";
    session.execute(sql, &values![one.slice, one.take]).await?;
    let mark = |set: &str| {
        format!(
            "UPDATE activity_devices SET {set}
             WHERE activity = $1 AND device IN (SELECT num FROM {} AS n) AND slice = $3",
            S::numbers("$2")
        )
    };
    if !one.again.is_empty() {
        let sql = mark("behind = CAST($4 AS BIGINT)");
        let devices = devices_of(&one.again);
        session.execute(&sql, &values![one.activity, &devices, one.slice, one.take + 1]).await?;
    }
    if !one.started.is_empty() {
        let sql = mark("started = $4, outcome = $5, reason = NULL, at = $6");
        let devices = devices_of(&one.started);
        let pushed = Outcome::Pushed as u8;
        let values = values![one.activity, &devices, one.slice, one.version, pushed, now];
        session.execute(&sql, &values).await?;
    }
    for (outcome, reason, devices) in one.parts.iter().filter(|(.., devices)| !devices.is_empty()) {
        let sql = mark("outcome = $4, reason = $5, at = $6");
        let devices = devices_of(devices);
        let values = values![one.activity, &devices, one.slice, *outcome as u8, *reason, now];
        session.execute(&sql, &values).await?;
    }
    for (outcome, reason, count) in one.counts.iter().filter(|(.., count)| *count > 0) {
        let sql = "INSERT INTO activity_counts (activity, outcome, reason, count) VALUES ($1, $2, $3, $4)
                   ON CONFLICT (activity, outcome, reason)
                   DO UPDATE SET count = activity_counts.count + excluded.count";
        let values = values![one.activity, *outcome as u8, reason.unwrap_or_default(), *count];
        session.execute(sql, &values).await?;
    }
    for (record, failed) in [(&one.accepted, false), (&one.failed, true)] {
        if let Some(record) = record {
            let of = Of::Slice { activity: one.activity, slice: one.slice, failed };
            push_record::add(session, app, of, record, limits::ACTIVITY_SLICE_RECORDS).await?;
        }
    }
    if one.ended {
        // Those that stay behind still need theirs.
        let sql = format!(
            "DELETE FROM push_tokens WHERE kind = {LIVE} AND name = (SELECT id FROM activities WHERE num = $1)
                 AND device IN (SELECT device FROM activity_devices WHERE slice = $2 AND behind = 0)"
        );
        session.execute(&sql, &values![one.activity, one.slice]).await?;
    }
    Ok(due)
}

pub(crate) async fn expired<S: Session>(
    session: &S,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(AppId, ActivityId)>, S::Error> {
    let sql = "SELECT app, id FROM activities WHERE ended_at IS NULL AND expires_at <= $1
               ORDER BY expires_at LIMIT $2";
    session.query(sql, &values![now, limit], |row| Ok((row.app(0)?, id_of(row, 1)?))).await
}

/// The rows of one activity ($1), at most $2 by each statement.
const PARTS: [&str; 3] = [
    "DELETE FROM activity_devices WHERE (activity, device) IN (
         SELECT activity, device FROM activity_devices WHERE activity = $1 LIMIT $2)",
    "DELETE FROM activity_slices WHERE id IN (SELECT id FROM activity_slices WHERE activity = $1 LIMIT $2)",
    "DELETE FROM activity_counts WHERE (activity, outcome, reason) IN (
         SELECT activity, outcome, reason FROM activity_counts WHERE activity = $1 LIMIT $2)",
];

pub(crate) async fn prune<S: Session>(
    session: &S,
    now: Timestamp,
    rows_max: usize,
) -> Result<(u64, bool), S::Error> {
    let (started, mut removed) = (Instant::now(), 0);
    loop {
        let sql = format!(
            "SELECT num, app FROM activities WHERE forget_at IS NOT NULL AND forget_at <= $1 ORDER BY forget_at LIMIT 1 {}",
            S::FOR_UPDATE_SKIP_LOCKED
        );
        let found =
            session::first(session, &sql, &values![now], |row| Ok((row.count(0)?, row.app(1)?))).await?;
        let Some((num, app)) = found else { return Ok((removed, false)) };
        for part in 0..=PARTS.len() {
            loop {
                let rows = match PARTS.get(part) {
                    Some(sql) => session.execute(sql, &values![num, CHUNK]).await?,
                    // Without slices, nothing adds more.
                    None => push_record::remove_activity(session, app, num, CHUNK).await?,
                };
                removed += rows;
                // Every call makes progress, however slow the disk is.
                if removed >= rows_max as u64 || (rows > 0 && started.elapsed() >= SLICE_TIME) {
                    return Ok((removed, true));
                }
                if rows < CHUNK as u64 {
                    break;
                }
            }
        }
        removed += session.execute("DELETE FROM activities WHERE num = $1", &values![num]).await?;
        let sql = "UPDATE activity_apps SET activities = activities - 1 WHERE app = $1 AND activities > 0";
        session.execute(sql, &values![app]).await?;
        if removed >= rows_max as u64 || started.elapsed() >= SLICE_TIME {
            return Ok((removed, true));
        }
    }
}
