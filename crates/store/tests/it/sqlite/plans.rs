//! SQLite reads every table that grows through an index, and sorts no unbounded number of rows.
//!
//! The database has no statistics (nothing runs ANALYZE), so its plans do not depend on its rows: an empty database
//! shows the plans of a full one.

use rusqlite::Connection;

use crate::conformance::{cells_tests, conformance_tests};
use crate::statements;
use futures_util::{StreamExt as _, stream};

/// Tests of the suite that run at the same time: some wait for time to pass.
const AT_ONCE: usize = 8;

/// Statements that may scan or sort, by a part of their text, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    // Tables with few rows.
    ("FROM apps ORDER BY id", "a node keeps all apps in memory"),
    ("FROM keys ORDER BY id", "a node keeps all keys in memory"),
    ("DELETE FROM keys WHERE app = $1", "a node keeps all keys in memory"),
    ("FROM push_credentials ORDER BY id", "a node keeps all credentials in memory"),
    ("FROM deleted_apps", "one row for each app whose deletion has not ended"),
    ("FROM expansions ORDER BY num", "one row for each large condition that is being written"),
    ("FROM sqlite_sequence WHERE", "one row for each table"),
    ("FROM cells ORDER BY num", "one row for each cell"),
    (
        "FROM share_groups AS g",
        "the leader of shared subscriptions reads all groups, which are limited for each app",
    ),
    ("SELECT count(*) FROM people", "there are at most 10,000 people"),
    ("FROM tickets WHERE expires_at > $1 AND person IS NULL", "there are at most 1,000 tickets"),
    // Partial indexes that hold few rows.
    ("FROM campaigns WHERE state < 5 ORDER BY num", "the index holds only campaigns that run"),
    (
        "IS NULL AND archived_at IS NULL ORDER BY app",
        "live definitions are limited, and a node keeps them in memory",
    ),
    ("FROM cell_parts WHERE state = 0 GROUP BY cell", "counts what waits, for the gauges of a front"),
    ("SELECT (SELECT count(*) FROM push_channels)", "for the gauges, once a minute on the leader"),
    ("FROM activities WHERE cursor IS NOT NULL ORDER BY num", "few activities are being collected"),
    // Sorts of few rows.
    ("SELECT cell FROM cell_users WHERE app = ?1 AND user = ?2", "a user has few cells"),
    (
        "FROM subscriptions s JOIN topics t ON t.num = s.topic WHERE s.device = ?1",
        "a device has limited topics",
    ),
    ("FROM push_tokens WHERE device = ?1 AND kind IN", "a device has one message token for each service"),
    ("ORDER BY device LIMIT $4) s CROSS JOIN devices d", "one page"),
    ("ORDER BY seq LIMIT $4) page) l LEFT JOIN devices d", "one page"),
    ("ORDER BY due_at LIMIT 10000) AS w", "the walks that have been due longest"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_uses_an_index() {
    statements::collect();
    let mut suite = conformance_tests! { @list super::fresh(super::options()) };
    suite.extend(cells_tests! { @list super::fresh(super::options()) });
    stream::iter(suite).buffer_unordered(AT_ONCE).collect::<()>().await;
    super::expansion::undo_without_space().await;
    let (folder, store) = super::fresh(super::options());
    drop(store);
    let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
    let mut findings = statements::unseen("sqlite", &["sqlite", "sqlite.rs", "engine"]);
    let statements = statements::of("sqlite");
    assert!(statements.len() > 200, "only {} statements were collected", statements.len());
    for sql in statements {
        findings.extend(plan(&db, &sql).into_iter().map(|what| (sql.clone(), what)));
    }
    statements::check(&findings, EXCEPTIONS);
}

/// What is wrong with the plan of a statement.
fn plan(db: &Connection, sql: &str) -> Vec<String> {
    if ["BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA"]
        .iter()
        .any(|verb| sql.starts_with(verb))
    {
        return Vec::new();
    }
    let explained = db
        .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
        .and_then(|mut statement| statement.raw_query().mapped(|row| row.get::<_, String>(3)).collect());
    let steps: Vec<String> = explained.unwrap_or_else(|error| panic!("{sql}: {error}"));
    let tables: Vec<String> = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table'")
        .and_then(|mut statement| statement.query_map((), |row| row.get(0))?.collect())
        .expect("listed");
    steps.into_iter().filter(|step| is_finding(step, sql, &tables)).collect()
}

fn is_finding(step: &str, sql: &str, tables: &[String]) -> bool {
    if step.contains("TEMP B-TREE") {
        return true;
    }
    // `SCAN name` or `SCAN name USING …`; the name is an alias if the table has one.
    let Some(name) = step.strip_prefix("SCAN ").and_then(|rest| rest.split(' ').next()) else { return false };
    let sql = statements::on_one_line(sql);
    tables.iter().any(|table| {
        table == name
            || sql.contains(&format!(" {table} {name}"))
            || sql.contains(&format!(" {table} AS {name}"))
    })
}
