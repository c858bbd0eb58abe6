//! SQLite.
pub struct Sqlite;
pub struct Options { pub inbox_rows: u32 }
