//! PostgreSQL reads every table that grows through an index, and sorts no unbounded number of rows.
//!
//! Plans depend on the number of rows, so every table that grows has [`ROWS`] rows of made-up values and statistics.
//! Plans are generic, as those of prepared statements are after their first executions. `enable_seqscan = off` leaves
//! scans that no index can replace.

use serde_json::Value;

use super::server;
use crate::conformance::{cells_tests, conformance_tests};
use crate::statements;
use futures_util::{StreamExt as _, stream};

/// Tests of the suite that run at the same time: some wait for time to pass.
const AT_ONCE: usize = 8;

/// Statements that may scan or sort, by a part of their text, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("FROM cell_apps WHERE cell = $1 ORDER BY app", "one row for each app"),
    // The planner takes a limit that is a value for a tenth of the rows, and joins whole tables here.
    (
        "SELECT app, name FROM topics WHERE num IN (SELECT topic FROM (SELECT num, topic FROM topic_log",
        "one page",
    ),
    ("SELECT num, topic FROM topic_log WHERE num > $1 ORDER BY num LIMIT $3) l JOIN topics t", "one page"),
    ("AND NOT EXISTS (SELECT 1 FROM push_walks p WHERE p.num = n.num) LIMIT $2", "few walks wait"),
    ("FROM campaigns WHERE state < 5 ORDER BY num", "the index holds only campaigns that run"),
    (
        "IS NULL AND archived_at IS NULL ORDER BY app",
        "live definitions are limited, and a node keeps them in memory",
    ),
    ("FROM cell_parts WHERE state = 0 GROUP BY cell", "counts what waits, for the gauges of a front"),
    (
        "FROM share_groups AS g",
        "the leader of shared subscriptions reads all groups, which are limited for each app",
    ),
    ("ORDER BY due_at LIMIT 10000) AS w", "the walks that have been due longest"),
    ("SELECT g.* FROM groups g LEFT JOIN campaigns c", "joins few groups; the planner does not know how few"),
    ("AND leased_until > 0 LIMIT $2)", "few batches are leased at a time"),
    ("WITH lapsed AS ( SELECT id FROM push_queue WHERE leased_until > 0", "few batches are leased at a time"),
    ("SELECT (SELECT count(*) FROM push_channels)", "for the gauges, once a minute on the leader"),
    ("FROM activity_slices WHERE leased_until > 0 AND", "few slices are leased at a time"),
    // Run once for each start or connection.
    ("current_setting('server_version_num')", "reads no table"),
    ("SELECT pg_advisory_unlock(", "reads no table"),
    ("SELECT pg_try_advisory_lock(", "reads no table"),
    ("SELECT indisvalid FROM pg_index", "a catalog, runs once at the start"),
    ("SELECT to_regclass('noroshi_schema')", "runs once at the start"),
    ("SELECT coalesce(max(version), 0) FROM noroshi_schema", "one row, runs once at the start"),
    ("SELECT CASE WHEN pg_postmaster_start_time()", "reads no table"),
    ("INTO secrets (name, value) VALUES ('$ids', $1)", "a row by its key, runs once at the start"),
    ("SELECT value FROM secrets WHERE name = '$ids'", "a row by its key, runs once at the start"),
    ("INSERT INTO clean_up (one,", "a row by its key, runs once at the start"),
    ("SELECT greatest((SELECT last FROM accept_order)", "both ends of an index, runs once at the start"),
    (
        "SELECT 1 FROM accept_marks WHERE instance = $1 AND mark = $2",
        "a row by its key, after a lost connection",
    ),
];

/// Rows of each table that grows.
const ROWS: i64 = 20_000;
/// A sort of more rows than this, by the planner's estimate, grows with the tables.
const SORTED_MAX: f64 = 1_500.0;
/// Tables with few rows: scanning them costs nothing.
const FEW: [&str; 15] = [
    "accept_marks",
    "accept_order",
    "activity_apps",
    "apps",
    "cells",
    "clean_up",
    "deleted_apps",
    "expansions",
    "keys",
    "leaders",
    "noroshi_schema",
    "people",
    "push_credentials",
    "secrets",
    "tickets",
];

/// Fills the tables. Columns by their name: what a row belongs to has few values, all others differ in every row.
async fn fill(client: &tokio_postgres::Client) {
    let sql = "SELECT c.table_name::text, c.column_name::text, c.data_type::text
               FROM information_schema.columns c JOIN information_schema.tables t
                   ON t.table_schema = c.table_schema AND t.table_name = c.table_name
               WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.is_generated = 'NEVER'
               ORDER BY 1, c.ordinal_position";
    let mut tables: std::collections::BTreeMap<String, (Vec<String>, Vec<String>)> = Default::default();
    for row in client.query(sql, &[]).await.expect("listed") {
        let (table, column, kind): (String, String, String) = (row.get(0), row.get(1), row.get(2));
        if FEW.contains(&table.as_str()) {
            continue;
        }
        let value = match (kind.as_str(), column.as_str()) {
            ("bigint" | "integer", "app") => "i % 997",
            // One row for each device.
            ("bigint" | "integer", "device") if table == "device_preferences" => "i",
            ("bigint" | "integer", "device") => "i % 3989",
            // One row for each campaign.
            ("bigint" | "integer", "campaign") if table == "campaign_definitions" => "i",
            ("bigint" | "integer", "topic" | "campaign") => "i % 2003",
            ("bigint" | "integer", "cell" | "kind" | "lane" | "state" | "standing" | "outcome" | "named") => {
                "i % 5"
            }
            ("bigint" | "integer", "leased_until" | "fallback" | "takes" | "until") => "i % 3",
            ("bigint" | "integer", _) => "i",
            ("text", _) => "'x' || i",
            ("bytea", _) => "decode(md5(i::text), 'hex')",
            ("boolean", _) => "i % 2 = 0",
            ("timestamp with time zone", _) => "now()",
            (kind, _) => panic!("{table}.{column}: no values for the type {kind}"),
        };
        let (columns, values) = tables.entry(table).or_default();
        columns.push(format!("\"{column}\""));
        values.push(value.to_owned());
    }
    for (table, (columns, values)) in tables {
        let sql = format!(
            "INSERT INTO {table} ({}) OVERRIDING SYSTEM VALUE SELECT {} FROM generate_series(1, {ROWS}) AS i",
            columns.join(", "),
            values.join(", ")
        );
        client.batch_execute(&sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }
    client.batch_execute("ANALYZE").await.expect("analysed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_uses_an_index() {
    statements::collect();
    let mut suite = conformance_tests! { @list super::fresh().await };
    suite.extend(cells_tests! { @list super::fresh().await });
    stream::iter(suite).buffer_unordered(AT_ONCE).collect::<()>().await;
    let database = server().database().await;
    let client = database.client().await;
    fill(&client).await;
    let settings = "SET enable_seqscan = off; SET jit = off; SET plan_cache_mode = force_generic_plan";
    client.batch_execute(settings).await.expect("set");
    let mut findings = statements::unseen("postgres", &["postgres", "postgres.rs", "engine"]);
    let statements = statements::of("postgres");
    assert!(statements.len() > 200, "only {} statements were collected", statements.len());
    for (number, sql) in statements.iter().enumerate() {
        if !["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"]
            .iter()
            .any(|verb| sql.trim_start().starts_with(verb))
        {
            continue;
        }
        let values =
            client.prepare(sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).params().len();
        client.batch_execute(&format!("PREPARE s{number} AS {sql}")).await.expect("prepared");
        let nulls = vec!["NULL"; values].join(", ");
        let nulls = if values == 0 { String::new() } else { format!("({nulls})") };
        let explain = format!("EXPLAIN (FORMAT JSON) EXECUTE s{number}{nulls}");
        let answers = client.simple_query(&explain).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        let text = answers.iter().find_map(|answer| match answer {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        let plan: Value = serde_json::from_str(&text.expect("a plan")).expect("JSON");
        let mut found = Vec::new();
        examine(&plan[0]["Plan"], &[], &mut found);
        findings.extend(found.into_iter().map(|what| (sql.clone(), what)));
        client.batch_execute(&format!("DEALLOCATE s{number}")).await.expect("deallocated");
    }
    statements::check(&findings, EXCEPTIONS);
}

/// Walks a plan. `above` are the types of the nodes above this one, outermost first.
fn examine(node: &Value, above: &[&str], found: &mut Vec<String>) {
    let kind = node["Node Type"].as_str().unwrap_or_default();
    let table = node["Relation Name"].as_str().unwrap_or_default();
    match kind {
        "Seq Scan" | "Index Scan" | "Index Only Scan" if FEW.contains(&table) => {}
        "Seq Scan" => found.push(format!("Seq Scan on {table}")),
        // The whole index, unless a limit ends the scan and nothing is filtered.
        "Index Scan" | "Index Only Scan" if node["Index Cond"].is_null() => {
            let mut path =
                above.iter().rev().take_while(|kind| !["Sort", "Hash", "Materialize"].contains(kind));
            let is_limited = node["Filter"].is_null() && path.any(|kind| *kind == "Limit");
            if !is_limited {
                found.push(format!("{kind} without a condition on {table}"));
            }
        }
        "Sort" if node["Plan Rows"].as_f64().is_none_or(|rows| rows > SORTED_MAX) => {
            found.push(format!("{kind} by {}", node["Sort Key"]))
        }
        _ => {}
    }
    let above = [above, &[kind]].concat();
    for part in node["Plans"].as_array().into_iter().flatten() {
        examine(part, &above, found);
    }
}
