//! The target of `noroshi migrate`: fills an empty database in one transaction, and verifies row counts before the
//! commit.

use std::collections::HashMap;
use std::io::Cursor;

use deadpool_postgres::ClientWrapper;
use futures_util::{SinkExt, pin_mut};
use tokio::sync::mpsc;

use super::{MigrateError, Page, Table};
use crate::postgres::connect::Connector;
use crate::postgres::schema;
use crate::postgres::transaction::text_of;
use crate::{PostgresError, PostgresOptions};

/// The header of COPY data: a signature, flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// The trailer of COPY data.
const END: [u8; 2] = (-1i16).to_be_bytes();

/// Tables that have rows in a new database.
const ENGINE_TABLES: [&str; 4] = ["accept_marks", "accept_order", "leaders", "noroshi_schema"];

pub(super) struct Target {
    connector: Connector,
    session: ClientWrapper,
}

impl Target {
    /// Creates the tables if there are none.
    pub(super) async fn open(url: &str) -> Result<Self, PostgresError> {
        let connector = Connector::new(&PostgresOptions::new(url))?;
        let session = connector.session().await.map_err(|error| connector.failed(&error))?;
        connector.check_server(&session).await?;
        schema::migrate(&connector, &session).await?;
        Ok(Self { connector, session })
    }

    pub(super) fn server(&self) -> String {
        self.connector.server()
    }

    fn failed(&self, error: &tokio_postgres::Error) -> MigrateError {
        self.connector.failed(error).into()
    }

    /// Begins the transaction. Fails if the database is not empty or lacks a column.
    pub(super) async fn begin(&self, tables: &[Table]) -> Result<(), MigrateError> {
        let sql =
            "SET statement_timeout = 0; SET lock_timeout = 0; SET idle_in_transaction_session_timeout = 0;
                   BEGIN; LOCK TABLE secrets IN ACCESS EXCLUSIVE MODE";
        self.session.batch_execute(sql).await.map_err(|error| self.failed(&error))?;
        let sql = "SELECT table_name::text, column_name::text FROM information_schema.columns
                   WHERE table_schema = current_schema()";
        let rows = self.session.query(sql, &[]).await.map_err(|error| self.failed(&error))?;
        let mut known: HashMap<String, Vec<String>> = HashMap::new();
        for row in rows {
            known.entry(row.get(0)).or_default().push(row.get(1));
        }
        for table in tables {
            let columns = known.get(&table.name).map(Vec::as_slice).unwrap_or_default();
            // A table that only SQLite has need not be copied while it is empty.
            let missing = table.columns.iter().find(|column| !columns.contains(column));
            if let Some(column) = missing.filter(|_| table.rows > 0) {
                let reason = format!("PostgreSQL has no place for its column {column}");
                return Err(MigrateError::Failed { table: table.name.clone(), reason });
            }
        }
        for table in known.keys().filter(|table| !ENGINE_TABLES.contains(&table.as_str())) {
            let sql = format!("SELECT EXISTS (SELECT 1 FROM \"{table}\")");
            let row = self.session.query_one(&sql, &[]).await.map_err(|error| self.failed(&error))?;
            if row.get(0) {
                return Err(MigrateError::NotEmpty { server: self.server(), table: table.clone() });
            }
        }
        Ok(())
    }

    /// Copies all rows of a table and reports each page to `on`.
    pub(super) async fn copy(
        &self,
        table: &Table,
        mut pages: mpsc::Receiver<Page>,
        mut on: impl FnMut(u64),
    ) -> Result<(), MigrateError> {
        let failed = |error: tokio_postgres::Error| MigrateError::Failed {
            table: table.name.clone(),
            reason: text_of(&error),
        };
        let columns: Vec<_> = table.columns.iter().map(|column| format!("\"{column}\"")).collect();
        let sql = format!("COPY \"{}\" ({}) FROM STDIN (FORMAT binary)", table.name, columns.join(", "));
        let sink = self.session.copy_in(&sql).await.map_err(failed)?;
        pin_mut!(sink);
        sink.send(Cursor::new(HEADER.to_vec())).await.map_err(failed)?;
        while let Some(Page { bytes, rows }) = pages.recv().await {
            sink.send(Cursor::new(bytes)).await.map_err(failed)?;
            on(rows);
        }
        sink.send(Cursor::new(END.to_vec())).await.map_err(failed)?;
        sink.finish().await.map_err(failed)?;
        Ok(())
    }

    /// Continues sequences after the greatest number ever given out, verifies row counts, and commits.
    pub(super) async fn finish(
        &self,
        tables: &[Table],
        sequences: &HashMap<String, i64>,
        secrets: &[(String, Vec<u8>)],
    ) -> Result<(), MigrateError> {
        let failed = |error: tokio_postgres::Error| self.failed(&error);
        for table in tables.iter().filter(|table| table.rows > 0) {
            let sql = format!("SELECT count(*) FROM \"{}\"", table.name);
            let found = self.session.query_one(&sql, &[]).await.map_err(failed)?.get::<_, i64>(0) as u64;
            if found != table.rows {
                let (table, expected) = (table.name.clone(), table.rows);
                return Err(MigrateError::Differs { table, expected, found });
            }
        }
        for (table, last) in sequences {
            self.continue_sequence(table, *last).await?;
        }
        for (name, value) in secrets {
            let sql = "INSERT INTO secrets (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING";
            self.session.execute(sql, &[name, value]).await.map_err(failed)?;
        }
        self.session.batch_execute("COMMIT; ANALYZE").await.map_err(failed)
    }

    /// The next number of the table will be greater than `last`.
    async fn continue_sequence(&self, table: &str, last: i64) -> Result<(), MigrateError> {
        let failed = |error: tokio_postgres::Error| self.failed(&error);
        if last < 1 {
            return Ok(());
        }
        if table == "notifications" {
            let sql = "UPDATE accept_order SET last = greatest(last, $1)";
            self.session.execute(sql, &[&last]).await.map_err(failed)?;
            return Ok(());
        }
        let sql =
            "SELECT pg_get_serial_sequence(c.table_name, c.column_name) FROM information_schema.columns c
                   WHERE c.table_schema = current_schema() AND c.table_name = $1 AND c.is_identity = 'YES'";
        let Some(row) = self.session.query_opt(sql, &[&table]).await.map_err(failed)? else { return Ok(()) };
        let sequence: String = row.get(0);
        let sql = "SELECT setval($1::text::regclass, $2)";
        self.session.query_one(sql, &[&sequence, &last]).await.map_err(failed)?;
        Ok(())
    }
}
