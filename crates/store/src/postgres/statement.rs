//! What the shared code of [`crate::engine`] needs of PostgreSQL: rows, values and row locks.

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, private::BytesMut, to_sql_checked};

use super::push_queue::ENGINE_NOW;
use super::transaction::{Failed, Tx};
use crate::Error;
use crate::engine::record::Record;
use crate::engine::session::{Session, Value};

impl Record for Row {
    fn int_or_null(&self, column: usize) -> Result<Option<i64>, Error> {
        get(self, column)
    }

    fn text_or_null(&self, column: usize) -> Result<Option<&str>, Error> {
        get(self, column)
    }

    fn bytes_or_null(&self, column: usize) -> Result<Option<&[u8]>, Error> {
        get(self, column)
    }

    fn flag(&self, column: usize) -> Result<bool, Error> {
        if self.columns().get(column).is_some_and(|column| *column.type_() == Type::BOOL) {
            return Ok(get::<Option<bool>>(self, column)?.unwrap_or(false));
        }
        Ok(self.int_or_null(column)?.is_some_and(|flag| flag != 0))
    }
}

fn get<'r, T: FromSql<'r>>(row: &'r Row, column: usize) -> Result<T, Error> {
    row.try_get(column).map_err(|error| Error::Engine(error.to_string()))
}

impl Session for Tx {
    type Error = Failed;

    const FOR_KEY_SHARE: &str = "FOR KEY SHARE";
    const FOR_NO_KEY_UPDATE: &str = "FOR NO KEY UPDATE";
    const FOR_UPDATE_SKIP_LOCKED: &str = "FOR UPDATE SKIP LOCKED";
    const BY_DEVICE: &str = "ORDER BY d.num";
    const ORDERED_JOIN: &str = "JOIN";
    const TOPIC_LOG_BY_AGE: &str = "topic_log";

    fn numbers(value: &str) -> String {
        let list = format!("json_array_elements_text(CAST(CAST({value} AS TEXT) AS JSON))");
        format!("(SELECT CAST(value AS BIGINT) AS num FROM {list})")
    }

    fn texts(value: &str) -> String {
        let list = format!("json_array_elements_text(CAST(CAST({value} AS TEXT) AS JSON))");
        format!("(SELECT value AS text FROM {list})")
    }

    fn engine_now(value: &str) -> String {
        format!("coalesce({ENGINE_NOW}, CAST({value} AS BIGINT))")
    }

    async fn query<T: Send>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut map: impl FnMut(&dyn Record) -> Result<T, Error> + Send,
    ) -> Result<Vec<T>, Failed> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        let rows = Tx::query(self, sql, &values).await?;
        rows.iter().map(|row| Ok(map(row)?)).collect()
    }

    async fn execute(&self, sql: &str, values: &[Value<'_>]) -> Result<u64, Failed> {
        let values: Vec<&(dyn ToSql + Sync)> = values.iter().map(|value| value as _).collect();
        Tx::execute(self, sql, &values).await
    }
}

impl ToSql for Value<'_> {
    fn to_sql(
        &self,
        ty: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Int(int) => int.to_sql_checked(ty, out),
            Self::Text(text) => text.to_sql_checked(ty, out),
            Self::Bytes(bytes) => bytes.to_sql_checked(ty, out),
        }
    }

    fn accepts(_: &Type) -> bool {
        // The value itself checks the type.
        true
    }

    to_sql_checked!();
}
