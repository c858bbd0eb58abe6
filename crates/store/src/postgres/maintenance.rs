//! Removes expired rows, a bounded number per call, and elects leaders.

use std::collections::HashMap;
use std::time::Duration;

use noroshi_types::{DeviceNum, Outcome, Timestamp};

use super::outcome::{self, StoredPart};
use super::transaction::{Failed, Tx};
use super::{Postgres, expansion, inbox, order, topic_log};
use crate::engine::broadcast::forgotten_broadcasts;
use crate::engine::outcome::{LISTED_PER_ROW, Part, outstanding};
use crate::engine::record::Record;
use crate::engine::unused_topic::{self, REMOVED_MAX, Settled};
use crate::engine::{campaign, clean_up, item, preferences, purge};
use crate::ids::Num;
use crate::{Error, Place, Pruned, Work};

pub(crate) async fn prune(store: &Postgres, now: Timestamp, rows_max: usize) -> Result<Pruned, Error> {
    let rows_max = rows_max.max(1);
    // Separate transactions, so that none of them holds locks for long.
    let expired = store.write(move |tx| expire(tx, now, rows_max)).await?;
    let forgotten = store.write(move |tx| forget(tx, now, rows_max)).await?;
    let retention = store.context.options.trace_retention;
    let before = Timestamp(now.0.saturating_sub(retention.as_millis() as u64));
    let small = store.write(move |tx| forget_small(tx, now, before, rows_max)).await?;
    let purging = store.write(move |tx| async move { purge::resume(&tx, now, rows_max).await }).await?;
    let pruned = store.write(move |tx| async move { item::prune(&tx, now, rows_max).await });
    let (items, more_items) = pruned.await?;
    let expanded = store.write(move |tx| expansion::settle(tx, now)).await?;
    let (topics, more_topics) = forget_topics(store, now, rows_max).await?;
    let mut departed = expired.departed;
    departed.append(expanded.departed);
    Ok(Pruned {
        inbox: expired.inbox + expanded.inbox,
        departed,
        topic_log: expired.topic_log,
        notifications: forgotten.notifications,
        more: expired.more
            || forgotten.more
            || small.more
            || purging
            || more_items
            || expanded.more
            || more_topics,
        items,
        topics,
        ..small
    })
}

/// The last commit that accepted a notification, as this transaction sees it. A notification whose rows are still being
/// written comes later.
pub(crate) async fn place(tx: &Tx) -> Result<Place, Failed> {
    let sql = "SELECT least(last, (SELECT min(num) - 1 FROM expansions WHERE state = 0 AND until > 0)) FROM accept_order";
    Ok(Place(tx.query_one(sql, &[]).await?.int(0)?))
}

pub(crate) async fn lead(store: &Postgres, task: &str, holder: u64, lease: Duration) -> Result<bool, Error> {
    let (task, holder, lease) = (task.to_owned(), holder as i64, lease.as_secs_f64());
    let lead = move |tx: Tx| {
        let task = task.clone();
        async move {
            let sql = "INSERT INTO leaders AS l (task, holder, until)
                       VALUES ($1, $2, clock_timestamp() + make_interval(secs => $3))
                       ON CONFLICT (task) DO UPDATE SET holder = excluded.holder, until = excluded.until
                       WHERE l.holder = excluded.holder OR l.until < clock_timestamp()";
            Ok(tx.execute(sql, &[&task, &holder, &lease]).await? > 0)
        }
    };
    store.write(lead).await
}

pub(crate) async fn release_lead(store: &Postgres, task: &str, holder: u64) -> Result<(), Error> {
    let (task, holder) = (task.to_owned(), holder as i64);
    let release = move |tx: Tx| {
        let task = task.clone();
        async move {
            let sql = "DELETE FROM leaders WHERE task = $1 AND holder = $2";
            tx.execute(sql, &[&task, &holder]).await.map(drop)
        }
    };
    store.write(release).await
}

impl Postgres {
    /// Accepts no more work and waits until queued work is done.
    pub(crate) async fn close_and_wait(&self) {
        self.tasks.close();
        self.accepts.close();
        self.background.close();
        self.acks.close();
        self.tasks.wait().await;
        self.closing.cancel();
        self.pool.close();
    }
}

/// Removes notifications whose ttl has ended from inboxes and logs.
async fn expire(tx: Tx, now: Timestamp, rows_max: usize) -> Result<Pruned, Failed> {
    let sql = "SELECT num, topic, app FROM notifications
               WHERE standing = 1 AND expires_at <= $1 ORDER BY expires_at LIMIT $2";
    let rows = tx.query(sql, &[&(now.0 as i64), &(rows_max as i64)]).await?;
    let mut pruned = Pruned { more: rows.len() == rows_max, ..Pruned::default() };
    let (mut topics, mut in_topics) = (Vec::new(), Vec::new());
    let (mut in_inboxes, mut apps) = (Vec::new(), HashMap::new());
    for row in &rows {
        match row.get::<_, Option<i64>>(1) {
            Some(topic) => {
                topics.push(topic);
                in_topics.push(row.get::<_, Num>(0));
            }
            None => {
                in_inboxes.push(row.get::<_, Num>(0));
                apps.insert(row.get::<_, Num>(0), row.app(2)?);
            }
        }
    }
    pruned.topic_log = topic_log::remove(&tx, &topics, &in_topics).await?;
    let mut settled = in_topics;
    let emptied = empty_inboxes(&tx, &in_inboxes, now, rows_max).await?;
    pruned.inbox = emptied.expired.iter().map(|part| part.count).sum();
    for part in &emptied.expired {
        let of = Some(Work::Notification(tx.ids().id(part.num)));
        pruned.departed.add(apps[&part.num], of, part.outcome, part.at, &part.devices);
    }
    pruned.more |= emptied.more;
    settled.extend(emptied.settled);
    settled.sort_unstable();
    // Notifications that were cancelled or replaced at this moment keep their standing.
    let sql = "UPDATE notifications SET standing = 3 WHERE num = ANY($1) AND standing = 1";
    tx.execute(sql, &[&settled]).await?;
    Ok(pruned)
}

#[derive(Default)]
struct EmptiedInboxes {
    /// The removed rows.
    expired: Vec<Part>,
    more: bool,
    /// Notifications without remaining rows.
    settled: Vec<Num>,
}

/// Removes remaining inbox rows of these notifications, at most `rows_max`.
async fn empty_inboxes(
    tx: &Tx,
    nums: &[Num],
    now: Timestamp,
    rows_max: usize,
) -> Result<EmptiedInboxes, Failed> {
    let mut emptied = EmptiedInboxes::default();
    if nums.is_empty() {
        return Ok(emptied);
    }
    let sums = outcome::sums(tx, nums).await?;
    let (mut listed, mut wanted) = (0, Vec::new());
    for num in nums {
        let Some(sums) = sums.get(num).filter(|sums| outstanding(sums) > 0) else {
            emptied.settled.push(*num);
            continue;
        };
        // Reading lists costs time too, however few of their devices are left.
        if listed >= rows_max as u64 * LISTED_PER_ROW {
            emptied.more = true;
            break;
        }
        listed += sums[Outcome::Kept as usize];
        wanted.push(*num);
    }
    let mut parts: HashMap<Num, Vec<StoredPart>> = HashMap::new();
    for part in outcome::parts(tx, &wanted).await? {
        parts.entry(part.num).or_default().push(part);
    }
    let (mut devices, mut of) = (Vec::new(), Vec::new());
    for num in wanted {
        let left = outcome::outstanding_devices(parts.get(&num).into_iter().flatten());
        let room = rows_max - devices.len();
        devices.extend(left.iter().take(room).map(|device| device.0 as i64));
        of.resize(devices.len(), num);
        if left.len() >= room {
            // This notification may have more rows: its standing stays.
            emptied.more = true;
            break;
        }
        emptied.settled.push(num);
    }
    let mut removed: HashMap<Num, Vec<DeviceNum>> = HashMap::new();
    for (device, num) in inbox::remove(tx, &devices, &of).await? {
        removed.entry(num).or_default().push(device);
    }
    let expired = removed.into_iter().map(|(num, mut devices)| {
        devices.sort_unstable();
        Part::of(num, Outcome::Expired, now, devices)
    });
    emptied.expired = expired.collect();
    outcome::add(tx, &emptied.expired).await?;
    Ok(emptied)
}

/// Removes notifications whose retention has ended and that no push work needs, with their rows: acknowledgements that
/// no claim needed, openings, and outcomes, of which a campaign of small batches has many.
async fn forget(tx: Tx, now: Timestamp, rows_max: usize) -> Result<Pruned, Failed> {
    let limit = rows_max as i64;
    let sql = "SELECT num FROM notifications n WHERE keep_until <= $1 AND standing <> 1
                   AND NOT EXISTS (SELECT 1 FROM push_queue q WHERE q.num = n.num AND q.num > 0)
                   AND NOT EXISTS (SELECT 1 FROM push_walks p WHERE p.num = n.num) LIMIT $2";
    let nums: Vec<Num> =
        tx.query(sql, &[&(now.0 as i64), &limit]).await?.iter().map(|row| row.get(0)).collect();
    let mut pruned = Pruned { more: nums.len() == rows_max, ..Pruned::default() };
    let acknowledged = "DELETE FROM push_confirmed c USING (
                         SELECT num, device FROM push_confirmed WHERE num = ANY($1) LIMIT $2) v
                     WHERE c.num = v.num AND c.device = v.device";
    let mut removed = tx.execute(acknowledged, &[&nums, &limit]).await?;
    let outcomes =
        "DELETE FROM outcomes o USING (SELECT num, seq FROM outcomes WHERE num = ANY($1) LIMIT $2) v
                    WHERE o.num = v.num AND o.seq = v.seq";
    removed += tx.execute(outcomes, &[&nums, &(limit - removed as i64).max(0)]).await?;
    let openings = "DELETE FROM openings o USING (
                        SELECT num, device FROM openings WHERE num = ANY($1) LIMIT $2) v
                    WHERE o.num = v.num AND o.device = v.device";
    removed += tx.execute(openings, &[&nums, &(limit - removed as i64).max(0)]).await?;
    let of_variants = "DELETE FROM variant_notifications WHERE num = ANY($1)";
    removed += tx.execute(of_variants, &[&nums]).await?;
    if removed >= rows_max as u64 {
        // There may be more rows: the notification is removed after its last row.
        pruned.more = true;
    }
    let sql = "DELETE FROM notifications n WHERE num = ANY($1)
                   AND NOT EXISTS (SELECT 1 FROM outcomes o WHERE o.num = n.num)
                   AND NOT EXISTS (SELECT 1 FROM push_confirmed c WHERE c.num = n.num)
                   AND NOT EXISTS (SELECT 1 FROM openings p WHERE p.num = n.num)";
    pruned.notifications = tx.execute(sql, &[&nums]).await?;
    // Removes outcomes and openings that were committed while their notification was removed. An expansion has outcomes
    // before its notification.
    // The planner takes a limit that is a value for a tenth of the rows, and would join two scans of the whole table.
    // An array makes it look up each row.
    let sql = "DELETE FROM outcomes WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM outcomes
                   WHERE num < least((SELECT min(num) FROM notifications), (SELECT min(num) FROM expansions))
                   ORDER BY num, seq LIMIT $1))";
    tx.execute(sql, &[&limit]).await?;
    let sql = "DELETE FROM openings WHERE ctid = ANY(ARRAY(
                   SELECT ctid FROM openings WHERE num < (SELECT min(num) FROM notifications)
                   ORDER BY num, device LIMIT $1))";
    tx.execute(sql, &[&limit]).await?;
    Ok(pruned)
}

/// Removes rows that have their own expiry.
async fn forget_small(
    tx: Tx,
    now: Timestamp,
    retained_since: Timestamp,
    rows_max: usize,
) -> Result<Pruned, Failed> {
    let (at, limit) = (now.0 as i64, rows_max as i64);
    let mut pruned = Pruned::default();
    // Two statements: one that orders by number would read all topics to find the few that expire.
    let sql = "SELECT num FROM topics WHERE retained IS NOT NULL AND retained_expires_at <= $1
               ORDER BY retained_expires_at LIMIT $2";
    let topics: Vec<i64> = tx.query(sql, &[&at, &limit]).await?.iter().map(|row| row.get(0)).collect();
    let sql = "SELECT num FROM topics WHERE num = ANY($1) ORDER BY num FOR NO KEY UPDATE";
    tx.query(sql, &[&topics]).await?;
    let sql = "UPDATE topics SET retained = NULL, retained_expires_at = NULL
               WHERE num = ANY($1) AND retained_expires_at <= $2";
    tx.execute(sql, &[&topics, &at]).await?;
    // A locked key is being replaced.
    let sql = "DELETE FROM idempotency i USING (
                   SELECT app, key FROM idempotency WHERE expires_at <= $1 LIMIT $2 FOR UPDATE SKIP LOCKED) v
               WHERE i.app = v.app AND i.key = v.key";
    pruned.idempotency = tx.execute(sql, &[&at, &limit]).await?;
    let sql = "DELETE FROM push_invalidations WHERE seq = ANY(ARRAY(
                   SELECT seq FROM push_invalidations WHERE at <= $1 ORDER BY at LIMIT $2))";
    pruned.invalidations = tx.execute(sql, &[&(retained_since.0 as i64), &limit]).await?;
    // A locked token is being replaced, or its device is being removed.
    let sql = "DELETE FROM push_tokens p USING (
                   SELECT device, kind, name FROM push_tokens WHERE expires_at <= $1
                   ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED) v
               WHERE p.device = v.device AND p.kind = v.kind AND p.name = v.name";
    pruned.push_tokens = tx.execute(sql, &[&at, &limit]).await?;
    let sql = "DELETE FROM push_records WHERE id = ANY(ARRAY(
                   SELECT id FROM push_records WHERE keep_until <= $1 ORDER BY keep_until LIMIT $2))";
    pruned.push_records = tx.execute(sql, &[&at, &limit]).await?;
    let (deleted_devices, more_deleted) = forget_deleted(&tx, now, limit).await?;
    pruned.deleted_devices = deleted_devices;
    let before = forgotten_broadcasts(retained_since, now).0 as i64;
    let sql = "DELETE FROM broadcasts WHERE num = ANY(ARRAY(
                   SELECT num FROM broadcasts WHERE ended_at <= $1 ORDER BY ended_at LIMIT $2))";
    let more_broadcasts = tx.execute(sql, &[&before, &limit]).await? == rows_max as u64;
    let (_, more_counts) = preferences::prune(&tx, now, rows_max).await?;
    // Marks of closed stores; an open store writes its mark again with the next group.
    tx.execute("DELETE FROM accept_marks WHERE at < now() - interval '1 day'", &[]).await?;
    let (lines, more_lines) = campaign::prune_lines(&tx, retained_since, rows_max).await?;
    pruned.campaign_lines = lines;
    let Pruned { idempotency, invalidations, push_tokens, push_records, .. } = pruned;
    let removed = [idempotency, invalidations, push_tokens, push_records];
    let is_full = removed.contains(&(rows_max as u64));
    pruned.more = more_counts || more_lines || more_broadcasts || more_deleted || is_full;
    Ok(pruned)
}

/// Removes deleted devices whose tokens have expired; true if there may be more. A locked row is being written by the next
/// deletion.
async fn forget_deleted(tx: &Tx, now: Timestamp, limit: i64) -> Result<(u64, bool), Failed> {
    // Of older programs, now or before an upgrade.
    let sql = "UPDATE deleted_devices g SET deleted_at = $1 FROM (
                   SELECT app, id FROM deleted_devices WHERE deleted_at = 0 LIMIT $2 FOR UPDATE SKIP LOCKED) v
               WHERE g.app = v.app AND g.id = v.id";
    let old = tx.execute(sql, &[&(now.0 as i64), &limit]).await?;
    let before = clean_up::tokens_expired(tx, now).await?.0 as i64;
    let sql = "DELETE FROM deleted_devices g USING (
                   SELECT app, id FROM deleted_devices WHERE deleted_at > 0 AND deleted_at <= $1
                   ORDER BY deleted_at LIMIT $2 FOR UPDATE SKIP LOCKED) v
               WHERE g.app = v.app AND g.id = v.id";
    let removed = tx.execute(sql, &[&before, &limit]).await?;
    Ok((removed, old.max(removed) == limit as u64))
}

/// Removes unused topics; true if there may be more.
async fn forget_topics(store: &Postgres, now: Timestamp, rows_max: usize) -> Result<(u64, bool), Error> {
    store.write(move |tx| async move { unused_topic::mark(&tx, now, rows_max).await }).await?;
    let retention = store.context.options.unused_topic_retention;
    let before = Timestamp(now.0.saturating_sub(retention.as_millis() as u64));
    let limit = rows_max.min(REMOVED_MAX);
    let marked = store.ask(async |tx: Tx| unused_topic::marked(&tx, before, limit).await).await?;
    if marked.is_empty() {
        return Ok((0, false));
    }
    let may_have_more = marked.len() == limit;
    let settle = move |tx: Tx| {
        let marked = marked.clone();
        async move {
            order::keep_accepts_out(&tx).await?;
            unused_topic::settle(&tx, &marked, before).await
        }
    };
    let Settled { settled, removed } = store.write(settle).await?;
    Ok((removed, may_have_more && settled > 0))
}
