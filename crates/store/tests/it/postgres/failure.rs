//! Failures of the server, and errors that an operator sees at startup.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use noroshi_store::{
    Accept, Apps as _, Error, Maintenance as _, Notifications as _, Postgres, PostgresOptions,
};
use noroshi_types::{AppId, JsonText, NotificationId, Request};
use prometheus_client::registry::Registry;

use super::server::Server;
use super::{open, options, server};
use crate::conformance::fixture::*;

/// Distinct data, so that duplicates are found.
fn numbered(app: AppId, number: u64) -> Accept {
    let request = Request { data: Some(JsonText::from_valid(number.to_string())), ..stored(users(&["u1"])) };
    Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_inbox_evicts_its_oldest_rows_together() {
    let database = server().database().await;
    let options = PostgresOptions { inbox_rows: 32, ..options(&database) };
    let store = Postgres::open(options, &mut Registry::default()).await.expect("opened");
    crate::conformance::inbox::the_oldest_rows_are_evicted_together(&store).await;
}

async fn fails(url: &str) -> String {
    let options = PostgresOptions { connect_timeout: Duration::from_secs(1), ..PostgresOptions::new(url) };
    Postgres::open(options, &mut Registry::default()).await.err().expect("refused").to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_restart_neither_loses_nor_repeats_answered_requests() {
    let server = Server::start(true);
    let database = server.database().await;
    let wide = PostgresOptions { inbox_rows: 1_000_000, ..options(&database) };
    let one = Postgres::open(wide.clone(), &mut Registry::default()).await.expect("opened");
    let other = Postgres::open(wide, &mut Registry::default()).await.expect("opened");
    let app = app(&one, "shop").await;
    join(&one, app, "d1", "u1", &[]).await;
    let (numbers, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut senders = Vec::new();
    for lane in 0..8 {
        let store = if lane % 2 == 0 { one.clone() } else { other.clone() };
        let (numbers, stop) = (Arc::clone(&numbers), Arc::clone(&stop));
        senders.push(tokio::spawn(async move {
            let mut answered: Vec<NotificationId> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                if let Ok(accepted) = accept(&store, numbered(app, number)).await {
                    answered.push(accepted.message.id);
                }
            }
            answered
        }));
    }
    for mode in ["immediate", "fast", "immediate"] {
        let before = numbers.load(Ordering::Relaxed);
        for _ in 0..600 {
            if numbers.load(Ordering::Relaxed) > before + 30 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        assert!(numbers.load(Ordering::Relaxed) > before, "nothing is accepted before {mode}");
        tokio::task::block_in_place(|| {
            server.stop(mode);
            server.start_again();
        });
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = HashSet::new();
    for sender in senders {
        for id in sender.await.expect("it does not panic") {
            assert!(answered.insert(id), "{id} was answered twice");
        }
    }
    let client = database.client().await;
    let rows =
        client.query("SELECT data, count(*) FROM notifications GROUP BY data HAVING count(*) > 1", &[]);
    assert!(rows.await.expect("read").is_empty(), "nothing is stored twice");
    let inbox: i64 = client.query_one("SELECT count(*) FROM inbox", &[]).await.expect("read").get(0);
    let all: i64 = client.query_one("SELECT count(*) FROM notifications", &[]).await.expect("read").get(0);
    assert_eq!(inbox, all, "each is stored completely");
    assert!(answered.len() > 30, "only {} were answered", answered.len());
    for id in &answered {
        let state = other.notification(app, *id, NOW).await.expect("read");
        assert!(state.is_some(), "{id} was answered but is not stored");
    }
    one.close().await;
    other.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_fail_while_the_server_is_away_and_work_again_later() {
    let server = Server::start(false);
    let database = server.database().await;
    let hasty = PostgresOptions { accept_wait: Duration::from_millis(300), ..options(&database) };
    let store = Postgres::open(hasty, &mut Registry::default()).await.expect("opened");
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    send(&store, app, stored(users(&["u1"]))).await;
    tokio::task::block_in_place(|| server.stop("fast"));
    let burst = (0..40).map(|i| accept(&store, numbered(app, i)));
    for answer in futures_util::future::join_all(burst).await {
        assert!(matches!(answer, Err(Error::Engine(_) | Error::Overloaded)), "{answer:?}");
    }
    assert!(store.apps().await.is_err());
    assert!(store.check().await.is_err());
    tokio::task::block_in_place(|| server.start_again());
    let mut accepted = Err(Error::Closed);
    for _ in 0..100 {
        accepted = accept(&store, numbered(app, 99)).await;
        if accepted.is_ok() {
            break;
        }
    }
    accepted.expect("working again");
    store.check().await.expect("working again");
    assert_eq!(waiting(&store, app, "d1", NOW).await.len(), 2, "what was refused is not there");
}

/// Ends the committing session, once.
const LOSE_A_COMMIT: &str = "CREATE SEQUENCE lost;
     CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
         IF nextval('lost') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;
         RETURN NULL;
     END $$;
     CREATE CONSTRAINT TRIGGER lose AFTER INSERT ON notifications DEFERRABLE INITIALLY DEFERRED
     FOR EACH ROW EXECUTE FUNCTION lose()";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_commit_is_retried() {
    let (database, store) = super::fresh().await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let client = database.client().await;
    client.batch_execute(LOSE_A_COMMIT).await.expect("a trigger");
    let id = send(&store, app, stored(users(&["u1"]))).await;
    let tries: i64 = client.query_one("SELECT last_value FROM lost", &[]).await.expect("read").get(0);
    assert_eq!(tries, 2, "the first connection was lost");
    assert_eq!(waiting(&store, app, "d1", NOW).await, [id]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_with_a_lost_answer_is_not_repeated() {
    // A separate server: commits of all databases wait for a standby that never connects.
    let server = Server::start(false);
    let database = server.database().await;
    let store = open(&database).await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let client = database.client().await;
    let wait_for = async |standby: &str| {
        let sql = format!("ALTER SYSTEM SET synchronous_standby_names = '{standby}'");
        client.batch_execute(&sql).await.expect("set");
        client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    };
    wait_for("nobody").await;
    let waiting_commit = async {
        let sql =
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'SyncRep'
                   AND query LIKE 'COMMIT AND%'";
        let mut committing = Vec::new();
        for _ in 0..1_000 {
            committing = client.query(sql, &[]).await.expect("read");
            if !committing.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let pid: i32 = committing.first().expect("a commit that waits for its standby").get(0);
        wait_for("").await;
        // It may have continued already.
        client.query("SELECT pg_terminate_backend($1)", &[&pid]).await.expect("ended");
    };
    let (id, ()) = tokio::join!(send(&store, app, stored(users(&["u1"]))), waiting_commit);
    assert_eq!(waiting(&store, app, "d1", NOW).await, [id]);
    let rows: i64 = client.query_one("SELECT count(*) FROM notifications", &[]).await.expect("read").get(0);
    assert_eq!(rows, 1);
    let next = send(&store, app, stored(users(&["u1"]))).await;
    assert!(next > id);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_agree_on_a_schema() {
    let database = server().empty_database().await;
    let opens = (0..6).map(|_| open(&database));
    let stores = futures_util::future::join_all(opens).await;
    let app = app(&stores[0], "shop").await;
    let mut slots = HashMap::new();
    for store in &stores {
        assert_eq!(store.apps().await.expect("read")[0].id, app);
        // Loose numbers of different slots differ within a millisecond.
        let id = store.note(numbered(app, 1)).message.id;
        assert!(slots.insert(id, ()).is_none(), "{id} was issued twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_newer_database_is_rejected_unchanged() {
    let (database, store) = super::fresh().await;
    store.close().await;
    let client = database.client().await;
    client.batch_execute("UPDATE noroshi_schema SET version = version + 1000").await.expect("set");
    let text = fails(&database.url()).await;
    assert!(text.contains("newer version (schema 10") && !text.contains('\n'), "{text}");
    client.batch_execute("UPDATE noroshi_schema SET version = version - 1000").await.expect("set");
    open(&database).await.check().await.expect("nothing was changed");
}

#[tokio::test]
async fn an_unreachable_server_is_reported_without_the_password() {
    let text = fails("postgres://u:secret@127.0.0.1:1/noroshi").await;
    assert!(text.contains("127.0.0.1:1/noroshi") && text.contains("refused"), "{text}");
    assert!(!text.contains("secret") && !text.contains('\n'), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ids_increase_after_a_restart_even_if_the_clock_went_back() {
    let (database, store) = super::fresh().await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let last = send_at(&store, app, stored(users(&["u1"])), at(1_000_000)).await.message.id;
    // Also if the row with the last number is gone.
    store.prune(at(30_000_000), 10).await.expect("pruned");
    assert!(store.notification(app, last, NOW).await.expect("read").is_none());
    let noted = store.note(numbered(app, 1)).message.id;
    store.close().await;
    let store = open(&database).await;
    let next = send_at(&store, app, stored(users(&["u1"])), noroshi_types::Timestamp(1)).await.message.id;
    assert!(next > last, "{next} after {last}");
    assert_ne!(store.note(numbered(app, 2)).message.id, noted);
}

/// After a failover the old primary is read-only, and its open connections are useless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_only_connections_are_dropped() {
    let server = Server::start(false);
    let database = server.database().await;
    let store = open(&database).await;
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    send(&store, app, stored(users(&["u1"]))).await;
    let client = database.client().await;
    // New sessions may write, existing ones may not.
    let new_ones = "DO $$ BEGIN
        EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = off', current_database()); END $$";
    client.batch_execute(new_ones).await.expect("set");
    client.batch_execute("ALTER SYSTEM SET default_transaction_read_only = on").await.expect("set");
    client.batch_execute("SELECT pg_reload_conf()").await.expect("reloaded");
    let mut read_only = false;
    for _ in 0..500 {
        let setting = "SELECT current_setting('default_transaction_read_only') = 'on'";
        read_only = client.query_one(setting, &[]).await.expect("read").get(0);
        if read_only {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(read_only, "idle sessions are notified");
    let hasty = Duration::from_secs(20);
    tokio::time::timeout(hasty, join(&store, app, "d2", "u1", &[])).await.expect("another connection writes");
    let id = tokio::time::timeout(hasty, send(&store, app, stored(users(&["u1"])))).await.expect("accepted");
    assert!(waiting(&store, app, "d2", NOW).await.contains(&id));
}
