//! A row that a query returned, read column by column in the same way for every engine. Integers are 64 bits wide in
//! every table, conditions are integers in SQLite and booleans in PostgreSQL.
//!
//! The mappers of this folder take a `Record`, so that the order of columns and their meaning are written once.

use noroshi_types::{AppId, DeviceNum, JsonText, Timestamp, TraceContext};

use crate::Error;

pub(crate) trait Record {
    fn int_or_null(&self, column: usize) -> Result<Option<i64>, Error>;
    fn text_or_null(&self, column: usize) -> Result<Option<&str>, Error>;
    fn bytes_or_null(&self, column: usize) -> Result<Option<&[u8]>, Error>;
    /// False for NULL.
    fn flag(&self, column: usize) -> Result<bool, Error>;

    fn int(&self, column: usize) -> Result<i64, Error> {
        self.int_or_null(column)?.ok_or_else(|| unexpected_null(column))
    }

    fn text(&self, column: usize) -> Result<&str, Error> {
        self.text_or_null(column)?.ok_or_else(|| unexpected_null(column))
    }

    fn bytes(&self, column: usize) -> Result<&[u8], Error> {
        self.bytes_or_null(column)?.ok_or_else(|| unexpected_null(column))
    }

    fn string(&self, column: usize) -> Result<String, Error> {
        Ok(self.text(column)?.to_owned())
    }

    fn string_or_null(&self, column: usize) -> Result<Option<String>, Error> {
        Ok(self.text_or_null(column)?.map(str::to_owned))
    }

    fn json_or_null(&self, column: usize) -> Result<Option<JsonText>, Error> {
        Ok(self.string_or_null(column)?.map(JsonText::from_valid))
    }

    /// A number that is never negative.
    fn count(&self, column: usize) -> Result<u64, Error> {
        Ok(self.int(column)? as u64)
    }

    fn count_or_null(&self, column: usize) -> Result<Option<u64>, Error> {
        Ok(self.int_or_null(column)?.map(|count| count as u64))
    }

    fn time(&self, column: usize) -> Result<Timestamp, Error> {
        Ok(Timestamp(self.count(column)?))
    }

    fn time_or_null(&self, column: usize) -> Result<Option<Timestamp>, Error> {
        Ok(self.count_or_null(column)?.map(Timestamp))
    }

    /// The code of an enum. A number that no code has becomes 255, which every enum rejects.
    fn code(&self, column: usize) -> Result<u8, Error> {
        Ok(u8::try_from(self.int(column)?).unwrap_or(u8::MAX))
    }

    fn code_or_null(&self, column: usize) -> Result<Option<u8>, Error> {
        Ok(self.int_or_null(column)?.map(|code| u8::try_from(code).unwrap_or(u8::MAX)))
    }

    fn app(&self, column: usize) -> Result<AppId, Error> {
        Ok(AppId(self.int(column)? as u32))
    }

    fn device(&self, column: usize) -> Result<DeviceNum, Error> {
        Ok(DeviceNum(self.count(column)?))
    }
}

/// Bytes of a fixed length: an id or a hash.
pub(crate) fn array<const N: usize>(row: &(impl Record + ?Sized), column: usize) -> Result<[u8; N], Error> {
    to_array(row.bytes(column)?)
}

pub(crate) fn to_array<const N: usize>(bytes: &[u8]) -> Result<[u8; N], Error> {
    let wrong = |_| Error::Engine(format!("stored value has {} bytes instead of {N}", bytes.len()));
    bytes.try_into().map_err(wrong)
}

/// The trace context in a column; `None` too if only a newer program can read it.
pub(crate) fn trace_of(row: &(impl Record + ?Sized), column: usize) -> Result<Option<TraceContext>, Error> {
    Ok(row.bytes_or_null(column)?.and_then(TraceContext::from_stored))
}

/// A stored value that this program cannot interpret: a newer program wrote it, or the database is damaged.
pub(crate) fn invalid(what: &str, reason: impl std::fmt::Display) -> Error {
    Error::Engine(format!("invalid stored {what}: {reason}"))
}

/// A stored code that this program does not know.
pub(crate) fn unknown(what: &str) -> Error {
    Error::Engine(format!("unknown stored {what}"))
}

fn unexpected_null(column: usize) -> Error {
    Error::Engine(format!("column {column} of a query is NULL"))
}
