//! Expansions that do not end.

use std::time::Duration;

use noroshi_store::{Devices, Error, Maintenance, Notifications, Sqlite};
use rusqlite::{Connection, OpenFlags};

use super::{fresh, open, options};
use crate::conformance::expansions::{crowd, plain, prune_all, submit, to_all};
use crate::conformance::fixture::{NOW, app, device, devices, send, stored, waiting};

/// Several slices.
const CROWD: usize = 8_000;

fn count(db: &Connection, table: &str) -> i64 {
    db.query_row(&format!("SELECT count(*) FROM {table}"), (), |row| row.get(0)).expect("counted")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_expansion_was_never_accepted() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    crowd(&store, app, CROWD).await;
    let before = send(&store, app, stored(devices(&["d0"]))).await;
    let answer = submit(&store, plain(app, to_all()));
    let file = folder.path().join("noroshi.db");
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opened");
    while count(&db, "inbox") < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    // What a process that is killed now leaves behind.
    let killed = tempfile::tempdir().expect("a folder");
    for name in ["noroshi.db", "noroshi.db-wal"] {
        std::fs::copy(folder.path().join(name), killed.path().join(name)).expect("copied");
    }
    let accepted = answer.await.expect("answered").expect("accepted");
    assert_eq!(accepted.kept(), CROWD as u64);
    let (file, restarted) =
        (killed.path().join("noroshi.db"), open(killed.path(), options()).expect("opened"));
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opened");
    assert_eq!(count(&db, "expansions"), 1, "the copy was made in time");
    let id = accepted.message.id;
    assert!(restarted.notification(app, id, NOW).await.expect("read").is_none());
    assert_eq!(waiting(&restarted, app, "d0", NOW).await, [before]);
    // Nothing waits for it, and its number is not given out again.
    let after = send(&restarted, app, stored(devices(&["d0"]))).await;
    assert!(after > id);
    prune_all(&restarted, 1).await;
    assert_eq!((count(&db, "expansions"), count(&db, "inbox")), (0, 2));
    assert_eq!(waiting(&restarted, app, "d0", NOW).await, [before, after]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expansion_without_space_is_undone() {
    undo_without_space().await;
}

/// Also for the test of plans: no test of the suite undoes an expansion.
pub(super) async fn undo_without_space() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    crowd(&store, app, CROWD).await;
    store.close().await;
    drop(store);
    let bytes = std::fs::metadata(folder.path().join("noroshi.db")).expect("a file").len();
    // Room for some slices and the reserve of the store.
    let bytes_max = bytes + (80 << 10) + (32 << 10);
    let limited = noroshi_store::Options { database_bytes_max: Some(bytes_max), ..options() };
    let store: Sqlite = open(folder.path(), limited).expect("opened");
    let behind = submit(&store, plain(app, to_all()));
    let next = submit(&store, plain(app, stored(devices(&["d0"]))));
    assert!(matches!(behind.await.expect("answered"), Err(Error::Full)));
    assert!(next.await.is_ok(), "it is answered, whatever the answer");
    prune_all(&store, 1).await;
    let file = folder.path().join("noroshi.db");
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY).expect("opened");
    assert_eq!(count(&db, "expansions"), 0);
    assert!(count(&db, "inbox") <= 1);
    let one = store.device(app, &device("d0")).await.expect("read");
    assert!(one.is_some());
    let id = send(&store, app, stored(devices(&["d1"]))).await;
    assert_eq!(waiting(&store, app, "d1", NOW).await, [id]);
}
