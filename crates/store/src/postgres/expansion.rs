//! Accepting a notification to a large condition in several transactions (see [`crate::engine::expansion`]).
//!
//! ```text
//!   acceptor ─► measure ─► [count] ─► begin ─► slice ─► slice ─► … ─► acceptor: the group that accepts it
//!                                     └── each under the order lock ──┘
//! ```
//!
//! The row of `expansions` keeps notifications of the app from being accepted, on every node: it is read and changed
//! under the order lock. Its lease ends if the node disappears. A node that finds it ended sets it to 0, and the writer
//! gives up at its next slice. Nodes of an older version do not read the row: while they run, they may accept later
//! notifications of the app first.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::{DeviceNum, Outcome, Target, Timestamp, limits};

use super::group::{self, Expanded, Form, Found, Inboxes};
use super::ids::ordered_after;
use super::transaction::{Failed, Tx};
use super::{Postgres, audience, inbox, order, outcome};
use crate::engine::accept::is_stored;
use crate::engine::device_list;
use crate::engine::expansion::{AT_ONCE, Row, SETTLED_MAX, SLICE, SliceSize, SlicedDevices, State};
use crate::engine::outcome::Part;
use crate::engine::preferences;
use crate::engine::record::Record;
use crate::ids::Num;
use crate::{Accept, Error, Gate, Pruned, RemovedMessages, Work};

/// How long the node may be silent before others go on.
const LEASE_MS: i64 = 15_000;
/// Between two looks at an expansion of another node.
const PAUSE: Duration = Duration::from_millis(20);
/// Devices of the first slice.
const FIRST: usize = 250;
/// Devices of a page that is only counted.
const COUNT_PAGE: usize = 5_000;

/// Which of these select so many devices that they need several transactions. `None`: that could not be read.
pub(super) async fn measure(store: &Postgres, accepts: &[&Accept]) -> Option<Vec<bool>> {
    let (mut places, mut apps, mut topics) = (Vec::new(), Vec::new(), Vec::new());
    let (mut all_places, mut all_apps) = (Vec::new(), Vec::new());
    for (place, accept) in (0_i64..).zip(accepts) {
        let Target::Condition(condition) = &accept.request.target else { continue };
        if !is_stored(accept) {
            continue;
        }
        let app = i64::from(accept.app.0);
        for topic in condition.topics() {
            places.push(place);
            apps.push(app);
            topics.push(topic.as_str().to_owned());
        }
        if condition.matches_none() {
            all_places.push(place);
            all_apps.push(app);
        }
    }
    let mut is_large = vec![false; accepts.len()];
    if places.is_empty() && all_places.is_empty() {
        return Some(is_large);
    }
    let values = Arc::new((places, apps, topics, all_places, all_apps));
    let found = store.read(move |tx| {
        let values = Arc::clone(&values);
        async move {
            let (places, apps, topics, all_places, all_apps) = &*values;
            let limit = AT_ONCE as i64;
            let of_topics =
                "SELECT u.place FROM unnest($1::bigint[], $2::bigint[], $3::text[]) u (place, app, name)
                 JOIN topics t ON t.app = u.app AND t.name = u.name
                 WHERE (SELECT count(*) FROM (
                     SELECT 1 FROM subscriptions s WHERE s.topic = t.num AND s.named = 1 LIMIT $4) l) >= $4";
            let of_apps = "SELECT u.place FROM unnest($1::bigint[], $2::bigint[]) u (place, app)
                 WHERE (SELECT count(*) FROM (SELECT 1 FROM devices d WHERE d.app = u.app LIMIT $3) l) >= $3";
            let mut large = tx.query(of_topics, &[places, apps, topics, &limit]).await?;
            if !all_places.is_empty() {
                large.extend(tx.query(of_apps, &[all_places, all_apps, &limit]).await?);
            }
            Ok(large.iter().map(|row| row.get::<_, i64>(0) as usize).collect::<Vec<_>>())
        }
    });
    for place in found.await.ok()? {
        if let Some(is_large) = is_large.get_mut(place) {
            *is_large = true;
        }
    }
    Some(is_large)
}

/// Writes the inbox rows of a large condition. Returns the form in which a group accepts it.
pub(super) async fn write(store: &Postgres, accept: Arc<Accept>) -> Result<Form, Error> {
    if let Some(gate) = accept.gate.as_ref().filter(|gate| gate.decides()) {
        let count = count(store, &accept).await?;
        Gate::check(Some(gate), usize::try_from(count).unwrap_or(usize::MAX))?;
    }
    let num = loop {
        let beginning = Arc::clone(&accept);
        match store.write_here(|tx| begin(tx, Arc::clone(&beginning))).await? {
            Begun::Repeated => return Ok(Form::Repeated),
            Begun::Waits => tokio::time::sleep(PAUSE).await,
            Begun::Numbered(num) => break num,
        }
    };
    let written = write_rows(store, &accept, num).await;
    if written.is_err() {
        abandon(store, num).await;
    }
    written.map(Form::Expanded)
}

/// Ends an expansion that its group has not accepted. Otherwise its lease ends after [`LEASE_MS`].
pub(super) async fn abandon(store: &Postgres, num: Num) {
    let abandoned = store.write_here(move |tx| async move {
        let sql = "UPDATE expansions SET until = 0 WHERE num = $1 AND state = 0";
        tx.execute(sql, &[&num]).await.map(drop)
    });
    if let Err(error) = abandoned.await {
        tracing::debug!(%error, "an expansion was not ended; its lease ends soon");
    }
}

async fn count(store: &Postgres, accept: &Accept) -> Result<u64, Error> {
    let Target::Condition(condition) = &accept.request.target else { return Ok(0) };
    let (mut after, mut count) = (0_i64, 0_u64);
    loop {
        let page =
            |tx: Tx| async move { audience::numbers(&tx, accept.app, condition, after, COUNT_PAGE).await };
        let (devices, next) = store.read(page).await?;
        count += devices.len() as u64;
        match next {
            Some(next) => after = next as i64,
            None => return Ok(count),
        }
    }
}

enum Begun {
    /// Another expansion of the app has not ended.
    Waits,
    Repeated,
    Numbered(Num),
}

/// Takes the order lock until the transaction ends.
async fn lock(tx: &Tx) -> Result<(), Failed> {
    tx.execute("SELECT pg_advisory_xact_lock($1)", &[&order::LOCK]).await.map(drop)
}

/// Draws the number, unless another expansion of the app has not ended.
async fn begin(tx: Tx, accept: Arc<Accept>) -> Result<Begun, Failed> {
    lock(&tx).await?;
    let app = i64::from(accept.app.0);
    if let Some(idempotency) = &accept.idempotency {
        let sql = "SELECT 1 FROM idempotency WHERE app = $1 AND key = $2 AND expires_at > $3";
        let values = [&app as _, &&*idempotency.key as _, &(accept.now.0 as i64) as _];
        if tx.query_opt(sql, &values).await?.is_some() {
            return Ok(Begun::Repeated);
        }
    }
    tx.execute(group::END_LEASES, &[]).await?;
    if tx.query_opt("SELECT 1 FROM expansions WHERE app = $1 AND until > 0", &[&app]).await?.is_some() {
        return Ok(Begun::Waits);
    }
    let last = tx.query_one("SELECT last FROM accept_order FOR UPDATE", &[]).await?.int(0)?;
    let num = ordered_after(last, accept.now);
    tx.execute("UPDATE accept_order SET last = $1", &[&num]).await?;
    let sql = "INSERT INTO expansions (num, app, state, place, until)
               VALUES ($1, $2, 0, 0, (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $3)";
    tx.execute(sql, &[&num, &app, &LEASE_MS]).await?;
    Ok(Begun::Numbered(num))
}

async fn write_rows(store: &Postgres, accept: &Arc<Accept>, num: Num) -> Result<Expanded, Error> {
    let (mut after, mut slices) = (0, SliceSize::new(FIRST));
    let (mut kept, mut muted) = (SlicedDevices::default(), SlicedDevices::default());
    let mut departed = RemovedMessages::default();
    loop {
        let (size, started) = (slices.size(), Instant::now());
        let slice = store.write_here(|tx| slice(tx, Arc::clone(accept), num, after, size)).await?;
        slices.took(slice.devices.len() + slice.muted.len(), started.elapsed());
        kept.add(&slice.devices);
        muted.add(&slice.muted);
        departed.append(slice.evicted);
        match slice.next {
            Some(next) => after = next as i64,
            None => return Ok(Expanded { num, kept, muted, departed }),
        }
    }
}

struct Slice {
    devices: Vec<DeviceNum>,
    muted: Vec<DeviceNum>,
    evicted: RemovedMessages,
    next: Option<u64>,
}

/// Writes the rows of the next devices, at most `limit`.
async fn slice(tx: Tx, accept: Arc<Accept>, num: Num, after: i64, limit: usize) -> Result<Slice, Failed> {
    let Accept { app, request, now, .. } = &*accept;
    let Target::Condition(condition) = &request.target else {
        return Err(Error::Engine("an expansion without a condition".to_owned()).into());
    };
    lock(&tx).await?;
    let sql = "UPDATE expansions SET until = (extract(epoch FROM clock_timestamp()) * 1000)::bigint + $2
               WHERE num = $1 AND state = 0 AND until > 0";
    if tx.execute(sql, &[&num, &LEASE_MS]).await? == 0 {
        // This node was silent for too long.
        return Err(Error::Overloaded.into());
    }
    if tx.query_opt("SELECT 1 FROM apps WHERE id = $1", &[&i64::from(app.0)]).await?.is_none() {
        return Err(Error::NotFound.into());
    }
    let (devices, next) = audience::numbers(&tx, *app, condition, after, limit).await?;
    let devices = devices.into_iter().map(|device| DeviceNum(device as u64)).collect();
    let (devices, muted) = preferences::split_muted(&tx, request.category.as_ref(), devices).await?;
    let inbox_rows = tx.context().options.inbox_rows;
    let nums: Vec<i64> = devices.iter().map(|device| device.0 as i64).collect();
    let evicted = add_rows(&tx, num, request.collapse_key.as_deref(), &nums, inbox_rows).await?;
    let (mut parts, mut departed) = (Vec::new(), RemovedMessages::default());
    parts.push(Part::of(num, Outcome::Kept, *now, devices.clone()));
    if !muted.is_empty() {
        parts.push(Part::of(num, Outcome::Muted, *now, muted.clone()));
    }
    for removal in evicted {
        let of = Some(Work::Notification(tx.ids().id(removal.num)));
        departed.add(*app, of, removal.outcome, *now, &removal.devices);
        parts.push(Part::of(removal.num, removal.outcome, *now, removal.devices));
    }
    outcome::add(&tx, &parts).await?;
    Ok(Slice { devices, muted, evicted: departed, next })
}

/// Adds rows to inboxes, and evicts the oldest where they are full.
async fn add_rows(
    tx: &Tx,
    num: Num,
    key: Option<&str>,
    devices: &[i64],
    inbox_rows: u32,
) -> Result<Vec<group::InboxRemoval>, Failed> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let sql = "SELECT u.num, (SELECT i.rank FROM inbox i WHERE i.device = u.num ORDER BY i.num DESC LIMIT 1)
               FROM unnest($1::bigint[]) WITH ORDINALITY AS u (num, place) ORDER BY u.place";
    let rows = tx.query(sql, &[&devices]).await?;
    let found: Vec<_> = rows.iter().map(|row| Found::of(row.get(0), row.get(1))).collect();
    let mut inboxes = Inboxes::new(inbox_rows);
    // Without its collapse key: older rows with the key stay for now.
    inboxes.put(0, num, None, &found);
    let (crowded, new) = inboxes.over_limit();
    if !crowded.is_empty() {
        let rows_max = i64::from(inbox_rows.max(1));
        let slack = i64::from(limits::inbox_slack(inbox_rows));
        let (no_devices, no_keys): (Vec<i64>, Vec<&str>) = (Vec::new(), Vec::new());
        tx.query(group::INBOX_LOCK, &[&no_devices, &no_keys, &crowded, &new, &slack]).await?;
        let room = tx.query(group::MAKE_ROOM, &[&crowded, &new, &rows_max, &slack]).await?;
        inboxes.apply_room(&room);
    }
    let (mut columns, removals) = inboxes.finish();
    columns.keys.fill(key);
    tx.execute(group::INBOX_INSERT, &[&columns.devices, &columns.nums, &columns.keys, &columns.ranks])
        .await?;
    Ok(removals)
}

/// Does what expansions left to the clean-up: one slice.
pub(super) async fn settle(tx: Tx, now: Timestamp) -> Result<Pruned, Failed> {
    let started = Instant::now();
    let mut pruned = Pruned::default();
    // Rows of which the lease has not ended belong to a node.
    let sql = "SELECT num, app, state, place FROM expansions
               WHERE state <> 0 OR until <= (extract(epoch FROM clock_timestamp()) * 1000)::bigint
               ORDER BY num LIMIT $1 FOR UPDATE SKIP LOCKED";
    for row in tx.query(sql, &[&SETTLED_MAX]).await? {
        let (app, state) = (row.app(1)?, State::from_code(row.code(2)?));
        let row = Row { num: row.int(0)?, app, state, place: row.int(3)? };
        let has_ended = match row.state {
            State::Writing => undo(&tx, row.num, &mut pruned).await?,
            State::Collapsing => collapse(&tx, row, now, &mut pruned).await?,
        };
        if has_ended {
            tx.execute("DELETE FROM expansions WHERE num = $1", &[&row.num]).await?;
        }
        if !has_ended || started.elapsed() >= SLICE {
            pruned.more = true;
            break;
        }
    }
    Ok(pruned)
}

/// Removes the rows of one slice of a notification that was never accepted. Returns true if there was none.
async fn undo(tx: &Tx, num: Num, pruned: &mut Pruned) -> Result<bool, Failed> {
    let sql = "UPDATE expansions SET until = 0 WHERE num = $1";
    tx.execute(sql, &[&num]).await?;
    // A part has the devices of one slice, or a device that was deleted meanwhile.
    let sql = "DELETE FROM outcomes WHERE num = $1
               AND seq = (SELECT seq FROM outcomes WHERE num = $1 ORDER BY seq LIMIT 1) RETURNING outcome, devices";
    let Some(row) = tx.query_opt(sql, &[&num]).await? else { return Ok(true) };
    if row.code(0)? == Outcome::Kept as u8 {
        let devices: Vec<i64> = device_list::decode(row.bytes(1)?).map(|device| device.0 as i64).collect();
        pruned.inbox += inbox::remove(tx, &devices, &vec![num; devices.len()]).await?.len() as u64;
    }
    Ok(false)
}

/// Removes older rows with the collapse key of an accepted notification, of the devices of its next slice. Returns true
/// after the last.
async fn collapse(
    tx: &Tx,
    Row { num, app, place, .. }: Row,
    now: Timestamp,
    pruned: &mut Pruned,
) -> Result<bool, Failed> {
    let key = tx.query_opt("SELECT collapse_key FROM notifications WHERE num = $1", &[&num]).await?;
    let Some(key) = key.and_then(|row| row.get::<_, Option<String>>(0)) else { return Ok(true) };
    let part =
        "SELECT seq, devices FROM outcomes WHERE num = $1 AND outcome = $2 AND seq > $3 ORDER BY seq LIMIT 1";
    let Some(row) = tx.query_opt(part, &[&num, &(Outcome::Kept as i64), &place]).await? else {
        return Ok(true);
    };
    let (place, devices): (i64, Vec<i64>) =
        (row.int(0)?, device_list::decode(row.bytes(1)?).map(|device| device.0 as i64).collect());
    let sql = "WITH found AS (
             SELECT i.device, i.num FROM unnest($1::bigint[]) AS asked (device)
             JOIN inbox i ON i.device = asked.device AND i.collapse_key = $2 AND i.num < $3
             ORDER BY i.device, i.num FOR UPDATE OF i)
         DELETE FROM inbox i USING found WHERE i.device = found.device AND i.num = found.num
         RETURNING i.device, i.num";
    let removed = tx.query(sql, &[&devices, &key, &num]).await?;
    let mut by_num: BTreeMap<Num, Vec<DeviceNum>> = BTreeMap::new();
    for (device, num) in removed.iter().map(inbox::pair_of) {
        by_num.entry(num).or_default().push(device);
    }
    let mut parts = Vec::new();
    for (num, mut devices) in by_num {
        devices.sort_unstable();
        pruned.inbox += devices.len() as u64;
        let of = Some(Work::Notification(tx.ids().id(num)));
        pruned.departed.add(app, of, Outcome::Collapsed, now, &devices);
        parts.push(Part::of(num, Outcome::Collapsed, now, devices));
    }
    outcome::add(tx, &parts).await?;
    tx.execute("UPDATE expansions SET place = $2 WHERE num = $1", &[&num, &place]).await?;
    Ok(false)
}
