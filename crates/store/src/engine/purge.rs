//! Removes what a deleted app owned, a bounded number of rows per commit.
//!
//! The commit of `delete_app` removes the app's row and its keys; after that no caller can reach the rest. A row of
//! `deleted_apps` marks the app until nothing is left and every node has learned of the deletion, because a node that
//! has not may still write rows of the app. Only one node at a time removes rows of an app: it locks the mark, and the
//! others skip a locked mark.

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use noroshi_types::{AppId, Timestamp};

use super::session::{self, Session, values};

/// Rows removed by one commit at most, approximately: 10 µs each, more if they are not in memory.
pub(crate) const ROWS: i64 = 1_000;
/// For how long one commit removes rows. Others wait for SQLite's writer meanwhile.
const SLICE: Duration = Duration::from_millis(20);
/// Rows that one statement removes between two looks at the clock.
const CHUNK: i64 = 200;
/// For how long `delete_app` itself removes rows. The clean-up task removes the rest.
pub(crate) const INLINE_LIMIT: Duration = Duration::from_secs(10);
/// Every node learns of a deleted app within seconds, and a request ends within a minute.
const MARK_RETENTION: Duration = Duration::from_secs(3_600);
/// Notifications of all apps that one commit scans.
const NOTIFICATIONS: i64 = 5_000;
/// Parents whose children one commit removes.
const PARENTS: i64 = 100;

/// Run in the commit that deletes the app ($1).
const BEGIN: [&str; 3] = [
    "DELETE FROM keys WHERE app = $1",
    "DELETE FROM push_credentials WHERE app = $1",
    "INSERT INTO deleted_apps (app) VALUES ($1) ON CONFLICT DO NOTHING",
];

/// A table whose rows belong to an app.
struct Owned {
    table: &'static str,
    /// Its primary key.
    key: &'static str,
    /// The column by which an index lists the rows of an app. Only for a table with children.
    order: &'static str,
    /// Conditions that together select all rows: each is that of a partial index by app. Only for a table without
    /// children.
    conditions: &'static [&'static str],
    /// Tables whose rows belong to a row of this one: name, primary key, and the column that names the parent. Children
    /// are removed before their parents.
    children: &'static [(&'static str, &'static str, &'static str)],
}

const fn without_children(table: &'static str, key: &'static str) -> Owned {
    in_parts(table, key, &["TRUE"])
}

const fn in_parts(table: &'static str, key: &'static str, conditions: &'static [&'static str]) -> Owned {
    Owned { table, key, order: key, conditions, children: &[] }
}

const fn with_children(
    table: &'static str,
    key: &'static str,
    order: &'static str,
    children: &'static [(&'static str, &'static str, &'static str)],
) -> Owned {
    Owned { table, key, order, conditions: &[], children }
}

/// Push work comes first, so that no more pushes are sent. Few batches are leased at a time.
const OWNED: [Owned; 24] = [
    in_parts("push_queue", "id", &["lane IN (1, 2, 3) AND leased_until = 0", "leased_until > 0"]),
    without_children("push_walks", "id"),
    without_children("push_records", "id"),
    without_children("broadcasts", "num"),
    without_children("push_channels", "num"),
    with_children(
        "activities",
        "num",
        "num",
        &[
            ("activity_slices", "id", "activity"),
            ("activity_devices", "activity, device", "activity"),
            ("activity_counts", "activity, outcome, reason", "activity"),
        ],
    ),
    without_children("activity_apps", "app"),
    with_children(
        "campaigns",
        "num",
        "id",
        &[
            ("campaign_lines", "campaign, seq", "campaign"),
            ("campaign_counts", "campaign, outcome, reason", "campaign"),
            ("campaign_latency", "campaign, bucket", "campaign"),
            ("campaign_variants", "campaign, variant", "campaign"),
            ("campaign_variant_counts", "campaign, variant, outcome, reason", "campaign"),
            ("campaign_definitions", "campaign", "campaign"),
        ],
    ),
    with_children("cell_messages", "num", "num", &[("cell_parts", "num, cell", "num")]),
    with_children(
        "devices",
        "num",
        "num",
        &[
            ("endpoints", "id", "device"),
            ("inbox", "device, num", "device"),
            ("subscriptions", "device, topic", "device"),
            ("share_members", "share, device", "device"),
        ],
    ),
    without_children("items", "app, \"user\", num"),
    without_children("item_contents", "num"),
    without_children("person_roles", "person, app"),
    without_children("user_preferences", "app, \"user\""),
    without_children("share_groups", "num"),
    with_children("topics", "num", "name", &[("topic_log", "topic, topic_offset", "topic")]),
    in_parts("definitions", "num", &["archived_at IS NULL", "archived_at IS NOT NULL"]),
    without_children("deleted_devices", "app, id"),
    without_children("revocations", "app, kind, id"),
    without_children("push_invalidations", "seq"),
    without_children("idempotency", "app, key"),
    without_children("cell_devices", "app, device"),
    without_children("cell_users", "app, \"user\", cell"),
    without_children("cell_keys", "app, key"),
];

/// The statements of each table, children first. Values: the app ($1) and how many rows to remove at most ($2). The
/// statements of a table repeat until none of them removes a row.
static STATEMENTS: LazyLock<Vec<Vec<String>>> =
    LazyLock::new(|| OWNED.iter().map(Owned::statements).collect());

impl Owned {
    fn statements(&self) -> Vec<String> {
        let Self { table, key, order, conditions, children } = self;
        if children.is_empty() {
            let part = |condition: &&str| {
                let rows = format!("SELECT {key} FROM {table} WHERE app = $1 AND {condition} LIMIT $2");
                format!("DELETE FROM {table} WHERE ({key}) IN ({rows})")
            };
            return conditions.iter().map(part).collect();
        }
        let parents = format!("SELECT {key} FROM {table} WHERE app = $1 ORDER BY {order} LIMIT {PARENTS}");
        let child = |(child, child_key, parent): &(&str, &str, &str)| {
            let columns = child_key.split(", ").map(|column| format!("c.{column}"));
            let columns = columns.collect::<Vec<_>>().join(", ");
            let rows = format!(
                "SELECT {columns} FROM ({parents}) AS p JOIN {child} AS c ON c.{parent} = p.{key} LIMIT $2"
            );
            format!("DELETE FROM {child} WHERE ({child_key}) IN ({rows})")
        };
        let parent = format!("DELETE FROM {table} WHERE CAST($2 AS BIGINT) > 0 AND {key} IN ({parents})");
        children.iter().map(child).chain([parent]).collect()
    }
}

/// The last of the notifications of one scan ($1: after which number, $2: how many).
const SCAN_END: &str =
    "SELECT max(num) FROM (SELECT num FROM notifications WHERE num > $1 ORDER BY num LIMIT $2) AS p";

/// Rows that belong to notifications of the app ($1) with numbers above $2 and up to $3, then the notifications; at
/// most $4.
const PARTS: [&str; 5] = [
    "DELETE FROM outcomes WHERE (num, seq) IN (
         SELECT o.num, o.seq FROM notifications AS n JOIN outcomes AS o ON o.num = n.num
         WHERE n.app = $1 AND n.num > $2 AND n.num <= $3 LIMIT $4)",
    "DELETE FROM push_confirmed WHERE (num, device) IN (
         SELECT o.num, o.device FROM notifications AS n JOIN push_confirmed AS o ON o.num = n.num
         WHERE n.app = $1 AND n.num > $2 AND n.num <= $3 LIMIT $4)",
    "DELETE FROM openings WHERE (num, device) IN (
         SELECT o.num, o.device FROM notifications AS n JOIN openings AS o ON o.num = n.num
         WHERE n.app = $1 AND n.num > $2 AND n.num <= $3 LIMIT $4)",
    "DELETE FROM variant_notifications WHERE num IN (
         SELECT o.num FROM notifications AS n JOIN variant_notifications AS o ON o.num = n.num
         WHERE n.app = $1 AND n.num > $2 AND n.num <= $3 LIMIT $4)",
    "DELETE FROM notifications WHERE num IN (
         SELECT num FROM notifications WHERE app = $1 AND num > $2 AND num <= $3 LIMIT $4)",
];

/// The app is gone with this commit; what it owned follows page by page.
pub(crate) async fn begin<S: Session>(session: &S, app: AppId) -> Result<(), S::Error> {
    for sql in BEGIN {
        session.execute(sql, &values![app]).await?;
    }
    Ok(())
}

/// Removes about `rows_max` rows; true if there may be more.
pub(crate) async fn page<S: Session>(session: &S, app: AppId, rows_max: i64) -> Result<bool, S::Error> {
    let sql = format!("SELECT cursor FROM deleted_apps WHERE app = $1 {}", S::FOR_UPDATE_SKIP_LOCKED);
    let cursor = session::first(session, &sql, &values![app], |row| row.int(0)).await?;
    let Some(cursor) = cursor else { return Ok(false) };
    let (started, mut left) = (Instant::now(), rows_max);
    for table in STATEMENTS.iter() {
        loop {
            let before = left;
            for sql in table {
                // Until nothing is left for the statement, because children are removed before their parents.
                loop {
                    let chunk = left.min(CHUNK);
                    let rows = session.execute(sql, &values![app, chunk]).await? as i64;
                    left -= rows;
                    if left <= 0 || (rows > 0 && started.elapsed() >= SLICE) {
                        return Ok(true);
                    }
                    if rows < chunk {
                        break;
                    }
                }
            }
            if left == before {
                break;
            }
        }
    }
    notifications(session, app, cursor, (left, started)).await
}

async fn notifications<S: Session>(
    session: &S,
    app: AppId,
    after: i64,
    (mut left, started): (i64, Instant),
) -> Result<bool, S::Error> {
    let end =
        session::one(session, SCAN_END, &values![after, NOTIFICATIONS], |row| row.int_or_null(0)).await?;
    let Some(end) = end else { return Ok(false) };
    for sql in PARTS {
        loop {
            let chunk = left.min(CHUNK);
            let rows = session.execute(sql, &values![app, after, end, chunk]).await? as i64;
            left -= rows;
            if left <= 0 || (rows > 0 && started.elapsed() >= SLICE) {
                return Ok(true);
            }
            if rows < chunk {
                break;
            }
        }
    }
    session.execute("UPDATE deleted_apps SET cursor = $2 WHERE app = $1", &values![app, end]).await?;
    Ok(true)
}

/// Continues with all deleted apps; true if there may be more.
pub(crate) async fn resume<S: Session>(
    session: &S,
    now: Timestamp,
    rows_max: usize,
) -> Result<bool, S::Error> {
    let marked = session.query("SELECT app FROM deleted_apps ORDER BY app", &[], |row| row.app(0)).await?;
    for app in marked {
        if page(session, app, rows_max as i64).await? {
            return Ok(true);
        }
        let sql = "UPDATE deleted_apps SET since = $2 WHERE app = $1 AND since IS NULL";
        session.execute(sql, &values![app, now]).await?;
    }
    let before = now.0 as i64 - MARK_RETENTION.as_millis() as i64;
    session.execute("DELETE FROM deleted_apps WHERE since <= $1", &values![before]).await?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use noroshi_types::Lane;

    use super::*;

    #[test]
    fn push_work_of_every_lane_is_removed() {
        let lanes = Lane::ALL.iter().map(|lane| (*lane as u8).to_string()).collect::<Vec<_>>().join(", ");
        assert!(OWNED[0].conditions[0].contains(&format!("({lanes})")));
    }
}
