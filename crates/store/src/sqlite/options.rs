//! Options of the SQLite store, and why it could not be opened.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use noroshi_supervision::Threads;
use noroshi_types::limits;

/// Limits of the SQLite store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows kept in the inbox of one device; the oldest are evicted. At least 1. An inbox may exceed this by
    /// [`limits::inbox_slack`] before it is trimmed.
    pub inbox_rows: u32,
    /// Items kept for one user; the oldest are removed. At least 1.
    pub item_rows: u32,
    /// Rows kept in the log of one topic; the oldest are trimmed. At least 1.
    pub topic_log_rows: u64,
    /// The minimum time that a notification and its outcomes are kept after acceptance.
    pub trace_retention: Duration,
    /// How long a topic is kept that nothing needs. At least a day: no write takes that long.
    pub unused_topic_retention: Duration,
    /// Lifetime of the device tokens that this node issues. The store remembers the greatest of all starts.
    pub device_token_ttl: Duration,
    /// Reader threads, each with its own connection.
    pub reader_threads: usize,
    /// Operations that may wait for the writer.
    pub write_queue: usize,
    /// Rows that waiting operations may write in total: 262,144 at 60,000 rows/s is about 4 s of work, and about 20
    /// MB of ids.
    pub write_queue_rows: usize,
    /// Reads that may wait for a thread.
    pub read_queue: usize,
    /// Operations of one commit.
    pub group_operations_max: usize,
    /// Rows of one commit, not counting the last operation: 16,384 rows take about 100 ms, which is short compared
    /// with slow fsyncs. Twice as many rows cost 10 % less CPU each, and half as many 15 % more.
    pub group_rows_max: usize,
    /// The size at which nothing more is accepted ([`crate::Error::Full`]); `None`: limited by the disk.
    pub database_bytes_max: Option<u64>,
    /// Where the store's threads report progress.
    pub threads: Threads,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            inbox_rows: limits::INBOX_ROWS,
            item_rows: limits::ITEM_ROWS,
            topic_log_rows: limits::TOPIC_LOG_ROWS,
            trace_retention: limits::TRACE_RETENTION,
            unused_topic_retention: limits::UNUSED_TOPIC_RETENTION,
            device_token_ttl: limits::DEVICE_TOKEN_TTL,
            reader_threads: std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 8),
            write_queue: 4_096,
            write_queue_rows: 262_144,
            read_queue: 4_096,
            group_operations_max: 512,
            group_rows_max: 16_384,
            database_bytes_max: None,
            threads: Threads::default(),
        }
    }
}

/// Why the store could not be opened, in one line with the path.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the data folder {path} cannot be written: {source}")]
    Unwritable { path: PathBuf, source: io::Error },
    #[error("the data folder {path} is in use by another process")]
    Locked { path: PathBuf },
    #[error(
        "the database {path} was written by a newer version (schema {found}; this program supports up to {known}): \
         upgrade this program"
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("the database {path} is damaged or not a database: {reason}")]
    Corrupt { path: PathBuf, reason: String },
    #[error("the database {path} cannot be opened: {reason}")]
    Engine { path: PathBuf, reason: String },
}
