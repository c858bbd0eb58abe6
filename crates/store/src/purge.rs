//! What a deleted app leaves behind goes a bounded number of rows at a time: which rows, in which order. The engines
//! run it ([`crate::sqlite`], [`crate::postgres`]); the SQL is the same for both.
//!
//! The app's row and its keys go first, in the commit that `delete_app` answers for; from then on nobody can ask for
//! the rest. A row of `deleted_apps` remembers it until everything is gone and nodes that had not heard of it have:
//! what they wrote meanwhile goes too.

use std::sync::LazyLock;
use std::time::Duration;

/// Rows that one commit removes, about: some 10 µs each.
pub(crate) const ROWS: i64 = 1_000;
/// `delete_app` removes rows itself for so long; the rest is left to the clean-up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);
/// Nodes hear of a deleted app within seconds, and requests end within a minute.
pub(crate) const LATE: Duration = Duration::from_secs(3_600);
/// Notifications looked at by one commit. No index has their app: one for so rare a question would cost every
/// message.
pub(crate) const NOTIFICATIONS: i64 = 5_000;
/// Parents whose children are removed by one commit.
const PARENTS: i64 = 100;

/// In the commit that deletes the app itself; `$1` is the app.
pub(crate) const AT_ONCE: [&str; 3] = [
    "DELETE FROM keys WHERE app = $1",
    "DELETE FROM push_credentials WHERE app = $1",
    "INSERT INTO deleted_apps (app) VALUES ($1) ON CONFLICT DO NOTHING",
];

/// Rows of one table, of the app or of its parents.
struct Owned {
    table: &'static str,
    /// Its primary key.
    key: &'static str,
    /// Children: table, primary key, and the column that names the parent. They go before the parents.
    children: &'static [(&'static str, &'static str, &'static str)],
}

const fn alone(table: &'static str, key: &'static str) -> Owned {
    Owned { table, key, children: &[] }
}

/// Push work first, so that nothing more goes out.
const OWNED: [Owned; 15] = [
    alone("push_queue", "id"),
    alone("push_walks", "id"),
    Owned {
        table: "campaigns",
        key: "num",
        children: &[
            ("campaign_lines", "campaign, seq", "campaign"),
            ("campaign_counts", "campaign, outcome, reason", "campaign"),
            ("campaign_latency", "campaign, bucket", "campaign"),
            ("campaign_variants", "campaign, variant", "campaign"),
            ("campaign_variant_counts", "campaign, variant, outcome, reason", "campaign"),
        ],
    },
    Owned { table: "cell_messages", key: "num", children: &[("cell_parts", "num, cell", "num")] },
    Owned {
        table: "devices",
        key: "num",
        children: &[
            ("endpoints", "id", "device"),
            ("inbox", "device, num", "device"),
            ("subscriptions", "device, topic", "device"),
            ("share_members", "share, device", "device"),
        ],
    },
    alone("share_groups", "num"),
    Owned { table: "topics", key: "num", children: &[("topic_log", "topic, topic_offset", "topic")] },
    alone("definitions", "num"),
    alone("deleted_devices", "app, id"),
    alone("revocations", "app, kind, id"),
    alone("push_invalidations", "seq"),
    alone("idempotency", "app, key"),
    alone("cell_devices", "app, device"),
    alone("cell_users", "app, \"user\", cell"),
    alone("cell_keys", "app, key"),
];

/// A table's statements, children first. Each is given the app ($1) and how many rows it may remove ($2), and is
/// repeated with the others of its table as long as they remove any.
pub(crate) static STATEMENTS: LazyLock<Vec<Vec<String>>> =
    LazyLock::new(|| OWNED.iter().map(Owned::statements).collect());

impl Owned {
    fn statements(&self) -> Vec<String> {
        let Self { table, key, children } = self;
        if children.is_empty() {
            let rows = format!("SELECT {key} FROM {table} WHERE app = $1 LIMIT $2");
            return vec![format!("DELETE FROM {table} WHERE ({key}) IN ({rows})")];
        }
        let parents = format!("SELECT {key} FROM {table} WHERE app = $1 ORDER BY {key} LIMIT {PARENTS}");
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

/// The last of the notifications that are looked at next ($1: behind, $2: how many).
pub(crate) const UP_TO: &str =
    "SELECT max(num) FROM (SELECT num FROM notifications WHERE num > $1 ORDER BY num LIMIT $2) AS p";

/// Of the app ($1), behind $2 and up to $3, at most $4: what hangs on notifications before them.
pub(crate) const PARTS: [&str; 4] = [
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
];
pub(crate) const WHOLE: &str = "DELETE FROM notifications WHERE app = $1 AND num > $2 AND num <= $3";

/// The mark of an app whose rows are being removed.
pub(crate) const MARKED: &str = "SELECT app FROM deleted_apps ORDER BY app";
pub(crate) const LOOKED_AT: &str = "UPDATE deleted_apps SET cursor = $2 WHERE app = $1";
/// Nothing was left of it at $2.
pub(crate) const EMPTY: &str = "UPDATE deleted_apps SET since = $2 WHERE app = $1 AND since IS NULL";
/// Nothing was left of them, and nothing came since, for long enough.
pub(crate) const OVER: &str = "DELETE FROM deleted_apps WHERE since <= $1";
