//! SQLite: the conformance suite, and tests for this engine only.

mod expansion;
mod failure;
mod open;
mod plans;
mod push;
mod write;

use std::path::Path;
use std::time::Duration;

use noroshi_store::{OpenError, Options, Sqlite};
use prometheus_client::registry::Registry;
use tempfile::TempDir;

use crate::conformance::{INBOX_ROWS, ITEM_ROWS, TOPIC_LOG_ROWS, maintenance::RETENTION_SECONDS};

fn options() -> Options {
    Options {
        inbox_rows: INBOX_ROWS,
        item_rows: ITEM_ROWS,
        topic_log_rows: TOPIC_LOG_ROWS,
        trace_retention: Duration::from_secs(RETENTION_SECONDS),
        reader_threads: 2,
        ..Options::default()
    }
}

fn open(folder: &Path, options: Options) -> Result<Sqlite, OpenError> {
    Sqlite::open(folder, options, &mut Registry::default())
}

/// A store in its own folder.
fn fresh(options: Options) -> (TempDir, Sqlite) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = open(folder.path(), options).expect("opened a fresh store");
    (folder, store)
}

mod conformance {
    crate::conformance::conformance_tests!(crate::sqlite::fresh(crate::sqlite::options()));
    crate::conformance::cells_tests!(crate::sqlite::fresh(crate::sqlite::options()));
}
