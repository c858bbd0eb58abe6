//! Statements on a connection: short forms for one row and many rows, and what the shared code of [`crate::engine`]
//! needs of SQLite.

use std::ops::Deref;

use futures_util::FutureExt as _;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, OptionalExtension, Params, Row, ToSql};

use crate::Error;
use crate::engine::record::Record;
use crate::engine::session::{Session, Value};
use crate::statement_log;

/// A connection.
pub(crate) struct Db(pub(super) Connection);

impl Deref for Db {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.0
    }
}

impl Db {
    /// As [`Connection::prepare_cached`], which it hides.
    pub(super) fn prepare_cached(&self, sql: &str) -> rusqlite::Result<CachedStatement<'_>> {
        statement_log::sqlite(sql);
        self.0.prepare_cached(sql)
    }

    /// The first row, if there is one.
    pub(super) fn first<T>(
        &self,
        sql: &str,
        values: impl Params,
        map: impl FnOnce(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Option<T>, Error> {
        self.prepare_cached(sql)?.query_row(values, |row| Ok(map(row))).optional()?.transpose()
    }

    /// All rows, in the statement's order.
    pub(super) fn all<T>(
        &self,
        sql: &str,
        values: impl Params,
        mut map: impl FnMut(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        self.prepare_cached(sql)?.query_map(values, |row| Ok(map(row)))?.map(|row| row?).collect()
    }

    /// As [`Self::all`], for a statement whose text the engines share.
    pub(super) fn all_shared<T>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut map: impl FnMut(&Row<'_>) -> Result<T, Error>,
    ) -> Result<Vec<T>, Error> {
        let mut statement = self.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        let mut rows = statement.raw_query();
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            found.push(map(row)?);
        }
        Ok(found)
    }

    /// How many rows it changed.
    pub(super) fn run(&self, sql: &str, values: impl Params) -> Result<usize, Error> {
        Ok(self.prepare_cached(sql)?.execute(values)?)
    }

    /// Whether it has a row.
    pub(super) fn has_row(&self, sql: &str, values: impl Params) -> Result<bool, Error> {
        Ok(self.prepare_cached(sql)?.exists(values)?)
    }

    /// The first column of the first row of a statement whose result is never empty.
    pub(super) fn int(&self, sql: &str, values: impl Params) -> Result<i64, Error> {
        Ok(self.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
    }
}

impl Record for Row<'_> {
    fn int_or_null(&self, column: usize) -> Result<Option<i64>, Error> {
        Ok(self.get_ref(column)?.as_i64_or_null().map_err(rusqlite::Error::from)?)
    }

    fn text_or_null(&self, column: usize) -> Result<Option<&str>, Error> {
        Ok(self.get_ref(column)?.as_str_or_null().map_err(rusqlite::Error::from)?)
    }

    fn bytes_or_null(&self, column: usize) -> Result<Option<&[u8]>, Error> {
        Ok(self.get_ref(column)?.as_blob_or_null().map_err(rusqlite::Error::from)?)
    }

    fn flag(&self, column: usize) -> Result<bool, Error> {
        Ok(self.int_or_null(column)?.is_some_and(|flag| flag != 0))
    }
}

/// The numbered values of the shared statements; SQLite reads `$1` as the name of a value.
const NAMES: [&str; 12] = ["$1", "$2", "$3", "$4", "$5", "$6", "$7", "$8", "$9", "$10", "$11", "$12"];

impl Session for Db {
    type Error = Error;

    // There is only one writer.
    const FOR_KEY_SHARE: &str = "";
    const FOR_NO_KEY_UPDATE: &str = "";
    const FOR_UPDATE_SKIP_LOCKED: &str = "";
    const BY_DEVICE: &str = "";
    const ORDERED_JOIN: &str = "CROSS JOIN";
    const TOPIC_LOG_BY_AGE: &str = "topic_log INDEXED BY topic_log_by_age";

    fn numbers(value: &str) -> String {
        format!("(SELECT CAST(value AS INTEGER) AS num FROM json_each({value}))")
    }

    fn texts(value: &str) -> String {
        format!("(SELECT value AS text FROM json_each({value}))")
    }

    fn engine_now(value: &str) -> String {
        value.to_owned()
    }

    fn query<T: Send>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        mut map: impl FnMut(&dyn Record) -> Result<T, Error> + Send,
    ) -> impl Future<Output = Result<Vec<T>, Error>> + Send {
        std::future::ready(self.all_shared(sql, values, |row| map(row)))
    }

    fn execute(&self, sql: &str, values: &[Value<'_>]) -> impl Future<Output = Result<u64, Error>> + Send {
        let executed = || {
            let mut statement = self.prepare_cached(sql)?;
            bind(&mut statement, values)?;
            Ok(statement.raw_execute()? as u64)
        };
        std::future::ready(executed())
    }
}

fn bind(statement: &mut rusqlite::Statement<'_>, values: &[Value<'_>]) -> Result<(), Error> {
    for (name, value) in NAMES.iter().zip(values) {
        if let Some(index) = statement.parameter_index(name)? {
            statement.raw_bind_parameter(index, value)?;
        }
    }
    Ok(())
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match *self {
            Self::Null => ValueRef::Null,
            Self::Int(int) => ValueRef::Integer(int),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

/// The result of shared code that ran on a connection.
pub(crate) fn ready<T>(work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    work.now_or_never().expect("statements on SQLite are ready when first polled")
}
