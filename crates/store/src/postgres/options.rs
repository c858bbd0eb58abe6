//! Options of the PostgreSQL store, and why it could not be opened.

use std::time::Duration;

use noroshi_supervision::Threads;
use noroshi_types::limits;

/// The database's URL, and limits.
#[derive(Clone)]
pub struct PostgresOptions {
    /// `postgres://USER:PASSWORD@HOST[,HOST2]/DATABASE?…`. Of several hosts the writable one is used. `sslmode`:
    /// `disable`, `prefer`, `require` or `verify-full`. With TLS the certificate is always verified, against the
    /// authorities in the PEM file of `sslrootcert`, or else those that browsers trust.
    pub url: String,
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
    /// Connections of the pool. Three more are open: for accepting, for background writes, and for this node's slot.
    pub connections: usize,
    /// How long a call waits for a free connection of the pool.
    pub pool_wait: Duration,
    /// How long accepting and other calls wait for an unavailable server or the order lock.
    pub accept_wait: Duration,
    pub connect_timeout: Duration,
    /// The server cancels a statement that takes longer.
    pub statement_timeout: Duration,
    /// The server cancels a statement that waits longer for a lock.
    pub lock_timeout: Duration,
    /// The server ends a session that is idle in a transaction for this long, and with it the order lock.
    pub idle_timeout: Duration,
    /// How long the order lock is held for handing over accepted messages.
    pub hand_over_timeout: Duration,
    /// Operations that may wait for acceptance.
    pub write_queue: usize,
    /// Rows that waiting operations may write in total.
    pub write_queue_rows: usize,
    /// Operations of one commit.
    pub group_operations_max: usize,
    /// Rows of one commit, not counting the last operation.
    pub group_rows_max: usize,
    /// Where the store's tasks report failures.
    pub threads: Threads,
}

impl PostgresOptions {
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), ..Self::default() }
    }
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            url: String::new(),
            inbox_rows: limits::INBOX_ROWS,
            item_rows: limits::ITEM_ROWS,
            topic_log_rows: limits::TOPIC_LOG_ROWS,
            trace_retention: limits::TRACE_RETENTION,
            unused_topic_retention: limits::UNUSED_TOPIC_RETENTION,
            device_token_ttl: limits::DEVICE_TOKEN_TTL,
            connections: 16,
            pool_wait: Duration::from_secs(5),
            accept_wait: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(5),
            hand_over_timeout: Duration::from_millis(300),
            write_queue: 4_096,
            write_queue_rows: 262_144,
            group_operations_max: 512,
            group_rows_max: 8_192,
            threads: Threads::default(),
        }
    }
}

/// The URL may contain a password.
impl std::fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PostgresOptions").field("connections", &self.connections).finish_non_exhaustive()
    }
}

/// Why the store could not be opened, in one line without the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error("the URL of the store is invalid: {0}")]
    Url(String),
    #[error("the authorities in {path} cannot be used: {reason}")]
    Authorities { path: String, reason: String },
    #[error("the database at {server} cannot be reached: {reason}")]
    Unreachable { server: String, reason: String },
    #[error("the server at {server} is too old: PostgreSQL {found}; version 14 or newer is required")]
    Server { server: String, found: String },
    #[error(
        "the database at {server} was written by a newer version (schema {found}; this program supports up to {known}): \
         upgrade this program"
    )]
    Newer { server: String, found: i64, known: i64 },
    #[error("the database at {server} is already used by 64 nodes, the maximum")]
    Slots { server: String },
    #[error("the database at {server} cannot be opened: {reason}")]
    Engine { server: String, reason: String },
}
