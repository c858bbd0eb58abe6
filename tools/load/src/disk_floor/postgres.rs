//! PostgreSQL over one connection: COPY of the rows of a commit into tables of the shape of `noroshi_store::postgres`,
//! in a schema of their own in the node's database. Acknowledgements are one DELETE per commit.

use std::pin::pin;

use tokio::runtime::Runtime;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Transaction};

use super::{Engine, FloorPlan, Rows, Source};
use crate::Error;

const TABLES: &str = "DROP SCHEMA IF EXISTS noroshi_floor CASCADE; CREATE SCHEMA noroshi_floor;
     SET search_path = noroshi_floor;
     CREATE TABLE inbox (device BIGINT NOT NULL, num BIGINT NOT NULL, collapse_key TEXT COLLATE \"C\",
         rank BIGINT NOT NULL, PRIMARY KEY (device, num));
     CREATE INDEX inbox_by_collapse_key ON inbox (device, collapse_key) WHERE collapse_key IS NOT NULL;
     CREATE TABLE topic_log (topic BIGINT NOT NULL, topic_offset BIGINT NOT NULL, num BIGINT NOT NULL,
         collapse_key TEXT COLLATE \"C\", PRIMARY KEY (topic, topic_offset));
     CREATE UNIQUE INDEX topic_log_by_num ON topic_log (topic, num);
     CREATE INDEX topic_log_by_collapse_key ON topic_log (topic, collapse_key) WHERE collapse_key IS NOT NULL;
     CREATE INDEX topic_log_by_age ON topic_log (num);
     CREATE TABLE notifications (num BIGINT PRIMARY KEY, app BIGINT NOT NULL, created_at BIGINT NOT NULL,
         expires_at BIGINT NOT NULL, keep_until BIGINT NOT NULL, topic BIGINT, topic_offset BIGINT,
         data TEXT COLLATE \"C\", standing BIGINT NOT NULL);
     CREATE INDEX notifications_to_forget ON notifications (keep_until);
     CREATE INDEX notifications_to_expire ON notifications (expires_at) WHERE standing = 1;";

const INBOX: &str = "COPY inbox (device, num, rank) FROM STDIN (FORMAT binary)";
const LOG: &str = "COPY topic_log (topic, topic_offset, num) FROM STDIN (FORMAT binary)";
const MESSAGES: &str =
    "COPY notifications (num, app, created_at, expires_at, keep_until, topic, topic_offset, data,
                                            standing) FROM STDIN (FORMAT binary)";
const DELETE: &str = "DELETE FROM inbox i USING unnest($1::bigint[], $2::bigint[]) u (device, num)
                      WHERE i.device = u.device AND i.num = u.num";

pub(crate) struct PostgresFloor {
    runtime: Runtime,
    client: Client,
    data: String,
}

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

fn failed(error: tokio_postgres::Error) -> Error {
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
    Error::Floor(format!("PostgreSQL: {error}{}", cause.unwrap_or_default()))
}

impl PostgresFloor {
    pub(crate) fn open(url: &str, plan: FloorPlan) -> std::result::Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(Error::system("a runtime"))?;
        let client = runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
            tokio::spawn(connection);
            client.batch_execute(TABLES).await?;
            Ok(client)
        });
        let client = client.map_err(failed)?;
        Ok(Self { runtime, client, data: "x".repeat(plan.payload) })
    }
}

/// Copies rows of bigints; `row` appends the values of the next one.
async fn copy(
    transaction: &Transaction<'_>,
    sql: &str,
    types: &[Type],
    rows: impl Iterator<Item = Vec<Box<dyn ToSql + Sync>>>,
) -> Result<()> {
    let sink = transaction.copy_in(sql).await?;
    let mut writer = pin!(BinaryCopyInWriter::new(sink, types));
    for row in rows {
        let values: Vec<&(dyn ToSql + Sync)> = row.iter().map(|value| &**value).collect();
        writer.as_mut().write(&values).await?;
    }
    writer.finish().await?;
    Ok(())
}

fn values<const N: usize>(values: [i64; N]) -> Vec<Box<dyn ToSql + Sync>> {
    values.into_iter().map(|value| Box::new(value) as Box<dyn ToSql + Sync>).collect()
}

impl Engine for PostgresFloor {
    fn describe(&self) -> String {
        "PostgreSQL alone: one connection, COPY of the rows of a commit (DELETE for acknowledgements)"
            .to_owned()
    }

    fn fill(&mut self, rows: &mut Source) -> std::result::Result<(), Error> {
        let all = rows.fill();
        let Self { runtime, client, .. } = self;
        let filled = runtime.block_on(async {
            let transaction = client.transaction().await?;
            copy_inbox(&transaction, &all).await?;
            transaction.commit().await?;
            // As autovacuum does in time.
            client.batch_execute("VACUUM ANALYZE inbox").await
        });
        filled.map_err(failed)
    }

    fn commit(&mut self, rows: &mut Source, count: usize) -> std::result::Result<usize, Error> {
        let Self { runtime, client, data } = self;
        let committed = runtime.block_on(async {
            let written = match rows.plan.rows {
                Rows::Inbox => {
                    let new: Vec<_> = (0..count).map(|_| rows.inbox_row()).collect();
                    let transaction = client.transaction().await?;
                    copy_inbox(&transaction, &new).await?;
                    transaction.commit().await?;
                    new.len()
                }
                Rows::Topic => {
                    let new: Vec<_> = (0..count).map(|_| rows.log_row()).collect();
                    let transaction = client.transaction().await?;
                    copy_log(&transaction, &new, data).await?;
                    transaction.commit().await?;
                    new.len()
                }
                Rows::Ack => {
                    let (devices, nums): (Vec<i64>, Vec<i64>) = rows.take(count).into_iter().unzip();
                    client.execute(DELETE, &[&devices, &nums]).await? as usize
                }
            };
            Ok(written)
        });
        committed.map_err(failed)
    }
}

async fn copy_inbox(transaction: &Transaction<'_>, rows: &[(i64, i64)]) -> Result<()> {
    let types = [Type::INT8, Type::INT8, Type::INT8];
    copy(transaction, INBOX, &types, rows.iter().map(|(device, num)| values([*device, *num, 1]))).await
}

async fn copy_log(transaction: &Transaction<'_>, rows: &[(i64, i64, i64)], data: &str) -> Result<()> {
    let mut types = vec![Type::INT8; 7];
    types.extend([Type::TEXT, Type::INT8]);
    let messages = rows.iter().map(|&(topic, offset, num)| {
        let at = num >> 20;
        let mut row = values([num, 1, at, at + 86_400_000, at + 86_400_000, topic, offset]);
        row.push(Box::new(data.to_owned()));
        row.push(Box::new(1_i64));
        row
    });
    copy(transaction, MESSAGES, &types, messages).await?;
    let types = [Type::INT8, Type::INT8, Type::INT8];
    copy(transaction, LOG, &types, rows.iter().map(|&(topic, offset, num)| values([topic, offset, num])))
        .await
}
