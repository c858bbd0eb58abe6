//! Statements whose text is the same for every engine. The rows of `calls` that say `shared` are written on top of them.
//!
//! A [`Session`] is SQLite's connection on one of the store's threads, or a PostgreSQL transaction. SQLite answers at
//! once, so its futures are ready when they are first polled. Statements number their values (`$1`), which both
//! engines understand. Whatever needs many values in one statement is written in the engine's own folder.

use noroshi_types::{AppId, Timestamp};

use super::record::Record;
use crate::Error;

pub(crate) trait Session {
    type Error: From<Error> + Send;

    /// Clauses that lock rows until the transaction ends. Empty where one writer has the database to itself.
    const FOR_KEY_SHARE: &str;
    const FOR_NO_KEY_UPDATE: &str;
    const FOR_UPDATE_SKIP_LOCKED: &str;
    /// The order in which a statement inserts rows for `devices d`, so that transactions do not wait for each other in a
    /// circle. Empty likewise.
    const BY_DEVICE: &str;
    /// An inner join. The engine reads its left table first, or its planner chooses a good order.
    const ORDERED_JOIN: &str;
    /// The table of topics' logs, read by the messages' numbers.
    const TOPIC_LOG_BY_AGE: &str;

    /// A table with the column `num`: the numbers of a value that is a JSON array. `value` is how the statement writes it.
    fn numbers(value: &str) -> String;

    /// As [`Self::numbers`], for the column `text`.
    fn texts(value: &str) -> String;

    /// Now: by the clock that all processes of the store share, or `value` if there is only one process.
    fn engine_now(value: &str) -> String;

    /// The rows of a statement, in its order.
    fn query<T: Send>(
        &self,
        sql: &str,
        values: &[Value<'_>],
        map: impl FnMut(&dyn Record) -> Result<T, Error> + Send,
    ) -> impl Future<Output = Result<Vec<T>, Self::Error>> + Send;

    /// How many rows the statement changed.
    fn execute(
        &self,
        sql: &str,
        values: &[Value<'_>],
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;
}

/// The first row, if there is one.
pub(crate) async fn first<S: Session, T: Send>(
    session: &S,
    sql: &str,
    values: &[Value<'_>],
    map: fn(&dyn Record) -> Result<T, Error>,
) -> Result<Option<T>, S::Error> {
    Ok(session.query(sql, values, map).await?.into_iter().next())
}

/// The first row of a statement whose result is never empty.
pub(crate) async fn one<S: Session, T: Send>(
    session: &S,
    sql: &str,
    values: &[Value<'_>],
    map: fn(&dyn Record) -> Result<T, Error>,
) -> Result<T, S::Error> {
    let found = first(session, sql, values, map).await?;
    Ok(found.ok_or_else(|| Error::Engine("a query returned no row".to_owned()))?)
}

/// Fails with [`Error::NotFound`] if the statement changed nothing.
pub(crate) async fn change<S: Session>(session: &S, sql: &str, values: &[Value<'_>]) -> Result<(), S::Error> {
    match session.execute(sql, values).await? {
        0 => Err(Error::NotFound.into()),
        _ => Ok(()),
    }
}

/// Fails with [`Error::NotFound`] if there is no such app; `lock` keeps it until the transaction ends.
pub(crate) async fn require_app<S: Session>(session: &S, app: AppId, lock: &str) -> Result<(), S::Error> {
    let sql = format!("SELECT id FROM apps WHERE id = $1 {lock}");
    first(session, &sql, &values![app], |row| row.int(0)).await?.ok_or(Error::NotFound)?;
    Ok(())
}

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// The values of a statement, in the order of their numbers.
macro_rules! values {
    ($($value:expr),* $(,)?) => { [$($crate::engine::session::Value::from($value)),*] };
}
pub(crate) use values;

macro_rules! from_int {
    ($($int:ty)*) => { $(impl From<$int> for Value<'_> {
        fn from(int: $int) -> Self {
            Self::Int(int as i64)
        }
    })* };
}
from_int!(u8 u32 u64 usize i64 bool);

impl From<AppId> for Value<'_> {
    fn from(app: AppId) -> Self {
        Self::Int(app.0.into())
    }
}

impl From<Timestamp> for Value<'_> {
    fn from(time: Timestamp) -> Self {
        Self::Int(time.0 as i64)
    }
}

macro_rules! from_slice {
    ($($slice:ty => $variant:ident),*) => { $(impl<'a> From<&'a $slice> for Value<'a> {
        fn from(slice: &'a $slice) -> Self {
            Self::$variant(slice)
        }
    })* };
}
from_slice!(str => Text, String => Text, [u8] => Bytes, Vec<u8> => Bytes);

impl<'a, const N: usize> From<&'a [u8; N]> for Value<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a, T: Into<Value<'a>>> From<Option<T>> for Value<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}
