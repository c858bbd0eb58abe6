//! Upgrades the database to the schema of this program.
//!
//! Migrations are the files of `migrations/postgres/`, applied in order. Each runs in its own transaction, which also
//! sets the version; one that commits in between may run again. None waits for a lock for longer than `STEP_WAIT`, because
//! running nodes would wait behind it. An advisory lock serializes nodes that start at the same
//! time; a database of a newer program is rejected before anything is written.

use std::time::Duration;

use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::connect::Connector;
use super::options::PostgresError;

/// Applied in order; the version of a database is the number of migrations applied.
const MIGRATIONS: [&str; 33] = [
    include_str!("../../migrations/postgres/0001_initial.sql"),
    include_str!("../../migrations/postgres/0002_cells.sql"),
    include_str!("../../migrations/postgres/0003_deleted_apps.sql"),
    include_str!("../../migrations/postgres/0004_takes.sql"),
    include_str!("../../migrations/postgres/0005_endpoints.sql"),
    include_str!("../../migrations/postgres/0006_conversations.sql"),
    include_str!("../../migrations/postgres/0007_definitions.sql"),
    include_str!("../../migrations/postgres/0008_openings.sql"),
    include_str!("../../migrations/postgres/0009_trace.sql"),
    include_str!("../../migrations/postgres/0010_front_trace.sql"),
    include_str!("../../migrations/postgres/0011_drawn.sql"),
    include_str!("../../migrations/postgres/0012_permissions.sql"),
    include_str!("../../migrations/postgres/0013_revocations.sql"),
    include_str!("../../migrations/postgres/0014_shares.sql"),
    include_str!("../../migrations/postgres/0015_share_ends.sql"),
    include_str!("../../migrations/postgres/0016_deleted_apps.sql"),
    include_str!("../../migrations/postgres/0017_expansions.sql"),
    include_str!("../../migrations/postgres/0018_explanations.sql"),
    include_str!("../../migrations/postgres/0019_push_tokens.sql"),
    include_str!("../../migrations/postgres/0020_push_records.sql"),
    include_str!("../../migrations/postgres/0021_providers.sql"),
    include_str!("../../migrations/postgres/0022_broadcasts.sql"),
    include_str!("../../migrations/postgres/0023_activities.sql"),
    include_str!("../../migrations/postgres/0024_items.sql"),
    include_str!("../../migrations/postgres/0025_preferences.sql"),
    include_str!("../../migrations/postgres/0026_clean_up.sql"),
    include_str!("../../migrations/postgres/0027_people.sql"),
    include_str!("../../migrations/postgres/0028_series.sql"),
    include_str!("../../migrations/postgres/0029_mapped_roles.sql"),
    include_str!("../../migrations/postgres/0030_drafts.sql"),
    include_str!("../../migrations/postgres/0031_key_expiry.sql"),
    include_str!("../../migrations/postgres/0032_device_seen.sql"),
    include_str!("../../migrations/postgres/0033_authors.sql"),
];

/// Indexes of large tables, made without keeping writers out. That takes no transaction, so each start makes those that
/// are missing, or that a start left unfinished.
const LARGE_INDEXES: [(&str, &str); 6] = [
    // The notifications as which a campaign's batches were published, and those of its variants.
    ("notifications_by_campaign", "notifications (campaign) WHERE campaign IS NOT NULL"),
    // Main tokens that are suspended.
    ("devices_suspended", "devices (app, push_suspect_at) WHERE push_suspect_at IS NOT NULL"),
    // Deleted devices whose tokens have expired.
    ("deleted_devices_by_age", "deleted_devices (deleted_at)"),
    // Campaigns, with all that a list filters by.
    ("campaigns_listed", "campaigns (app, id, state, created_by, name, start_at)"),
    // The notifications of an app, newest first.
    ("notifications_by_app", "notifications (app, num)"),
    // Topics that nothing needs.
    ("topics_unused", "topics (unused_since) WHERE unused_since > 0"),
];

/// The schema version this program writes.
const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// Held during the upgrade.
const MIGRATION_LOCK: i64 = 0x6e6f_726f_7368_6902;

const LOCK_INTERVAL: Duration = Duration::from_millis(50);

/// The longest wait of a step for one lock on a table. Meanwhile the statements of running nodes on that table wait behind
/// it, and they may wait for 5 s (`lock_timeout` of the options).
const STEP_WAIT: Duration = Duration::from_millis(250);

/// For the statements that waited, before the step is tried again.
const STEP_PAUSE: Duration = Duration::from_secs(1);

/// Upgrades the database.
pub(crate) async fn migrate(connector: &Connector, client: &Client) -> Result<(), PostgresError> {
    let failed = |error: tokio_postgres::Error| connector.failed(&error);
    let settings = format!("SET lock_timeout = {}; SET statement_timeout = 0", STEP_WAIT.as_millis());
    client.batch_execute(&settings).await.map_err(failed)?;
    // Another node may be upgrading, which may take long. It may build an index, which waits for every statement that
    // runs: also for one that waits for this lock.
    while !lock(client).await.map_err(failed)? {
        tokio::time::sleep(LOCK_INTERVAL).await;
    }
    let found = version(client).await.map_err(failed)?;
    if found > KNOWN_VERSION {
        return Err(PostgresError::Newer { server: connector.server(), found, known: KNOWN_VERSION });
    }
    for (number, sql) in (1..=KNOWN_VERSION).zip(MIGRATIONS).skip(usize::try_from(found).unwrap_or(0)) {
        let sql = format!(
            "BEGIN;
             CREATE TABLE IF NOT EXISTS noroshi_schema (version BIGINT NOT NULL);
             {sql};
             DELETE FROM noroshi_schema;
             INSERT INTO noroshi_schema VALUES ({number});
             COMMIT"
        );
        apply(client, number, &sql).await.map_err(failed)?;
    }
    // An index is made once all earlier transactions have ended, and keeps nobody out meanwhile.
    client.batch_execute("SET lock_timeout = 0").await.map_err(failed)?;
    for (name, columns) in LARGE_INDEXES {
        make_index(client, name, columns).await.map_err(failed)?;
    }
    let release = format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})");
    client.batch_execute(&release).await.map_err(failed)
}

/// Applies a step, again and again while a long transaction, such as that of a backup, has locked one of its tables. Each
/// step may run again: what it has committed makes no difference.
async fn apply(client: &Client, number: i64, sql: &str) -> Result<(), tokio_postgres::Error> {
    let mut waited = false;
    loop {
        match client.batch_execute(sql).await {
            Err(error) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                client.batch_execute("ROLLBACK").await?;
                if !waited {
                    tracing::warn!(
                        step = number,
                        "the upgrade of the database waits for a long transaction, such as that of a backup"
                    );
                }
                waited = true;
                tokio::time::sleep(STEP_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Whether this connection holds the migration lock now.
async fn lock(client: &Client) -> Result<bool, tokio_postgres::Error> {
    Ok(client.query_one("SELECT pg_try_advisory_lock($1)", &[&MIGRATION_LOCK]).await?.get(0))
}

async fn make_index(client: &Client, name: &str, columns: &str) -> Result<(), tokio_postgres::Error> {
    let sql = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)";
    match client.query_opt(sql, &[&name]).await?.map(|row| row.get(0)) {
        Some(true) => return Ok(()),
        Some(false) => client.batch_execute(&format!("DROP INDEX CONCURRENTLY {name}")).await?,
        None => {}
    }
    client.batch_execute(&format!("CREATE INDEX CONCURRENTLY {name} ON {columns}")).await
}

/// 0 for an empty database.
async fn version(client: &Client) -> Result<i64, tokio_postgres::Error> {
    let row = client.query_one("SELECT to_regclass('noroshi_schema') IS NOT NULL", &[]).await?;
    if !row.get::<_, bool>(0) {
        return Ok(0);
    }
    let row = client.query_one("SELECT coalesce(max(version), 0) FROM noroshi_schema", &[]).await?;
    Ok(row.get(0))
}
