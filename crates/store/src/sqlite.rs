//! SQLite: being written.
use noroshi_types::Timestamp;
pub struct Sqlite;
pub struct Options { pub inbox_rows: u32 }
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct OpenError(pub Timestamp);
