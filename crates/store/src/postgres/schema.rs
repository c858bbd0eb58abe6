//! Upgrades the database to the schema of this program.
//!
//! Migrations are the files of `migrations/postgres/`, applied in order. Each runs in its own transaction, which also
//! sets the version. An advisory lock serializes nodes that start at the same time; a database of a newer program is
//! rejected before anything is written.

use tokio_postgres::Client;

use super::connect::Connector;
use super::options::PostgresError;

/// Applied in order; the version of a database is the number of migrations applied.
const MIGRATIONS: [&str; 16] = [
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
];

/// The schema version this program writes.
const KNOWN_VERSION: i64 = MIGRATIONS.len() as i64;

/// Held during the upgrade.
const MIGRATION_LOCK: i64 = 0x6e6f_726f_7368_6902;

/// Upgrades the database.
pub(crate) async fn migrate(connector: &Connector, client: &Client) -> Result<(), PostgresError> {
    let failed = |error: tokio_postgres::Error| connector.failed(&error);
    // Another node may be upgrading, which may take long.
    let patient =
        format!("SET lock_timeout = 0; SET statement_timeout = 0; SELECT pg_advisory_lock({MIGRATION_LOCK})");
    client.batch_execute(&patient).await.map_err(failed)?;
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
        client.batch_execute(&sql).await.map_err(failed)?;
    }
    let release = format!("SELECT pg_advisory_unlock({MIGRATION_LOCK})");
    client.batch_execute(&release).await.map_err(failed)
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
