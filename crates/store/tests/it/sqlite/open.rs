//! Errors that an operator sees at startup.

use std::os::unix::fs::PermissionsExt;

use noroshi_store::{Accept, Apps, Maintenance, Notifications, OpenError, Options, Store};
use noroshi_types::Timestamp;
use rusqlite::Connection;

use super::{fresh, open, options};
use crate::conformance::fixture::*;
use crate::conformance::{clean_up, push_tokens};

#[tokio::test]
async fn written_rows_survive_a_restart() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    let num = join(&store, app, "d1", "u1", &["news"]).await;
    let direct = send(&store, app, stored(users(&["u1"]))).await;
    let on_topic = send(&store, app, stored(to_topic("news"))).await;
    let secret = store.secret("tokens", vec![1; 32]).await.expect("drawn");
    store.close().await;
    drop(store);

    let store = open(folder.path(), options()).expect("opened again");
    assert_eq!(store.apps().await.expect("read")[0].id, app);
    assert_eq!(store.secret("tokens", vec![2; 32]).await.expect("found"), secret);
    let logged = log_in(&store, login(app, "d1")).await;
    assert_eq!((logged.num, ids(&logged.page.messages)), (num, vec![direct, on_topic]));
    assert_eq!(ack(&store, num, &[direct, on_topic]).await, 2, "ids still refer to the same messages");
}

#[tokio::test]
async fn ids_increase_after_a_restart_even_if_the_clock_went_back() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let last = send_at(&store, app, stored(users(&["u1"])), at(1_000_000)).await.message.id;
    // Also if the row with the last number is gone.
    store.prune(at(30_000_000), 10).await.expect("pruned");
    assert!(store.notification(app, last, NOW).await.expect("read").is_none());
    drop(store);
    let store = open(folder.path(), options()).expect("dropping it released the folder");
    let next = send_at(&store, app, stored(users(&["u1"])), Timestamp(1)).await.message.id;
    assert!(next > last, "{next} after {last}");
}

#[tokio::test]
async fn close_finishes_queued_work() {
    let (folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &["news"]).await;
    let request = Accept {
        app,
        request: stored(to_topic("news")).into(),
        now: NOW,
        idempotency: None,
        campaign: None,
        gate: None,
    };
    for _ in 0..200 {
        store.accept(request.clone(), Box::new(|result| drop(result.expect("accepted"))));
    }
    drop(store);
    let store = open(folder.path(), options()).expect("opened again");
    let state = noroshi_store::Topics::topic(&store, app, &topic("news")).await.expect("read");
    assert_eq!(state.position.expect("published").offset, 200);
}

#[test]
fn the_folder_is_private_to_its_owner() {
    let parent = tempfile::tempdir().expect("a temporary folder");
    let folder = parent.path().join("a/b");
    let store = open(&folder, options()).expect("created");
    let mode = std::fs::metadata(&folder).expect("it exists").permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    drop(store);
    let left: Vec<_> = std::fs::read_dir(&folder)
        .expect("readable")
        .map(|entry| entry.expect("readable").file_name())
        .collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with("-wal")), "{left:?}");
}

/// One line with the path.
fn check_line(error: &OpenError, path: &std::path::Path) {
    let line = error.to_string();
    assert!(line.contains(&path.display().to_string()) && !line.contains('\n'), "{line}");
}

#[test]
fn a_folder_in_use_is_rejected() {
    let (folder, store) = fresh(options());
    let error = open(folder.path(), options()).err().expect("refused");
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    check_line(&error, folder.path());
    drop(store);
    open(folder.path(), options()).expect("free again");
}

#[test]
fn an_unwritable_folder_is_rejected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // A file in place of the folder stops even root.
    let file = folder.path().join("file");
    std::fs::write(&file, "x").expect("written");
    for path in [file.clone(), file.join("data")] {
        let error = open(&path, options()).err().expect("refused");
        assert!(matches!(error, OpenError::Unwritable { .. }), "{error}");
        check_line(&error, &path);
    }
}

#[test]
fn a_newer_database_is_rejected_unchanged() {
    let (folder, store) = fresh(options());
    drop(store);
    let file = folder.path().join("noroshi.db");
    let set = |version: u32| {
        let db = Connection::open(&file).expect("opened");
        db.execute_batch(&format!("PRAGMA user_version = {version}")).expect("set");
    };
    let known: u32 = {
        let db = Connection::open(&file).expect("opened");
        db.query_row("PRAGMA user_version", (), |row| row.get(0)).expect("a version")
    };
    set(99);
    let error = open(folder.path(), options()).err().expect("refused");
    assert!(
        matches!(error, OpenError::Newer { found: 99, known: reported, .. } if reported == known),
        "{error}"
    );
    check_line(&error, &file);
    set(known);
    open(folder.path(), options()).expect("nothing was changed");
}

#[test]
fn a_damaged_database_is_rejected() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("noroshi.db");
    std::fs::write(&file, "this is not a database, ".repeat(400)).expect("written");
    let error = open(folder.path(), options()).err().expect("refused");
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    check_line(&error, &file);
}

/// Removes what the last migrations added.
const BEFORE_PUSH_TOKENS: &str =
    "DROP TRIGGER device_seen_of_device; DROP TABLE device_seen; ALTER TABLE keys DROP COLUMN expires_at;
    DROP INDEX notifications_by_app; DROP TABLE campaign_definitions; DROP INDEX campaigns_by_app;
    ALTER TABLE campaigns DROP COLUMN revision; ALTER TABLE campaigns DROP COLUMN complete; ALTER TABLE campaigns DROP COLUMN name;
    ALTER TABLE campaigns DROP COLUMN start_at; ALTER TABLE campaigns DROP COLUMN created_by; ALTER TABLE campaigns DROP COLUMN edited_by;
    ALTER TABLE campaigns DROP COLUMN edited_at; ALTER TABLE campaigns DROP COLUMN approved_by; ALTER TABLE campaigns DROP COLUMN approved_at;
    ALTER TABLE campaigns DROP COLUMN authors;
    CREATE INDEX campaigns_by_app ON campaigns (app, id);
    DROP TABLE series; DROP TABLE people; DROP TABLE person_roles; DROP TABLE person_sessions; DROP TABLE tickets; DROP TABLE audit;
    DROP INDEX deleted_devices_by_age; ALTER TABLE deleted_devices DROP COLUMN deleted_at;
    DROP INDEX topics_unused; ALTER TABLE topics DROP COLUMN unused_since; DROP TABLE clean_up;
    DROP TRIGGER preferences_of_device; DROP TABLE user_preferences; DROP TABLE device_preferences; DROP TABLE preference_counts;
    ALTER TABLE apps DROP COLUMN essential_categories; DROP TABLE items; DROP TABLE item_contents; DROP TABLE push_channels; DROP TABLE broadcasts; DROP TABLE push_records; DROP INDEX devices_suspended;
    DROP INDEX push_tokens_suspended; DROP INDEX push_credentials_by_use;
    ALTER TABLE push_credentials DROP COLUMN provider;
    CREATE UNIQUE INDEX push_credentials_by_use ON push_credentials (app, service, environment);
    DROP TRIGGER push_tokens_of_device; DROP TABLE push_tokens;
    ALTER TABLE push_queue DROP COLUMN token; ALTER TABLE push_walks DROP COLUMN token;
    ALTER TABLE push_invalidations DROP COLUMN kind; ALTER TABLE push_invalidations DROP COLUMN name;
    DROP TABLE activities; DROP TABLE activity_apps; DROP TABLE activity_slices; DROP TABLE activity_devices;
    DROP TABLE activity_counts;
    PRAGMA user_version = 20";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_without_push_tokens_is_upgraded() {
    let (folder, store) = fresh(options());
    let (app, nums) = push_tokens::before_the_upgrade(&store).await;
    store.close().await;
    drop(store);
    let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
    db.execute_batch(BEFORE_PUSH_TOKENS).expect("the former schema");
    drop(db);
    let store = open(folder.path(), options()).expect("upgraded");
    push_tokens::after_the_upgrade(&store, app, &nums).await;
    // As an older program does.
    let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
    let rows =
        || db.query_row("SELECT count(*) FROM push_tokens", (), |row| row.get::<_, i64>(0)).expect("read");
    assert_eq!(rows(), 2);
    db.execute("DELETE FROM devices WHERE num = ?1", (nums[0].0 as i64,)).expect("deleted");
    assert_eq!(rows(), 1);
}

/// Removes what the last three migrations added.
const BEFORE_THE_CLEAN_UP: &str =
    "DROP TRIGGER device_seen_of_device; DROP TABLE device_seen; ALTER TABLE keys DROP COLUMN expires_at;
    DROP INDEX notifications_by_app; DROP TABLE campaign_definitions; DROP INDEX campaigns_by_app;
    ALTER TABLE campaigns DROP COLUMN revision; ALTER TABLE campaigns DROP COLUMN complete; ALTER TABLE campaigns DROP COLUMN name;
    ALTER TABLE campaigns DROP COLUMN start_at; ALTER TABLE campaigns DROP COLUMN created_by; ALTER TABLE campaigns DROP COLUMN edited_by;
    ALTER TABLE campaigns DROP COLUMN edited_at; ALTER TABLE campaigns DROP COLUMN approved_by; ALTER TABLE campaigns DROP COLUMN approved_at;
    ALTER TABLE campaigns DROP COLUMN authors;
    CREATE INDEX campaigns_by_app ON campaigns (app, id);
    DROP TABLE series; DROP TABLE people; DROP TABLE person_roles; DROP TABLE person_sessions; DROP TABLE tickets; DROP TABLE audit;
    DROP INDEX deleted_devices_by_age; ALTER TABLE deleted_devices DROP COLUMN deleted_at;
    DROP INDEX topics_unused; ALTER TABLE topics DROP COLUMN unused_since; DROP TABLE clean_up;
    PRAGMA user_version = 27";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deleted_devices_and_topics_of_an_older_database_are_kept_for_a_while() {
    let (folder, store) = fresh(options());
    let app = clean_up::before_the_upgrade(&store).await;
    store.close().await;
    drop(store);
    let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
    db.execute_batch(BEFORE_THE_CLEAN_UP).expect("the former schema");
    drop(db);
    let store = open(folder.path(), options()).expect("upgraded");
    clean_up::after_the_upgrade(&store, app).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_greatest_lifetime_of_device_tokens_counts() {
    let with = |device_token_ttl| Options { device_token_ttl, ..options() };
    let (folder, store) = fresh(with(clean_up::GREATER_TTL));
    let app = clean_up::before_a_lower_ttl(&store).await;
    store.close().await;
    drop(store);
    let store = open(folder.path(), with(clean_up::LOWER_TTL)).expect("opened again");
    clean_up::after_a_lower_ttl(&store, app).await;
}

/// The rest of a node holds a trait object.
#[tokio::test]
async fn it_is_a_store() {
    let (_folder, store) = fresh(options());
    let store: std::sync::Arc<dyn Store> = std::sync::Arc::new(store);
    store.check().await.expect("working");
}
