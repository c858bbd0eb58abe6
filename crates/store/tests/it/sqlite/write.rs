//! The writer: groups of operations and their results.

use std::sync::mpsc;
use std::time::Duration;

use noroshi_store::{
    Accept, Accepted, Error, Idempotency, Maintenance, Notifications, Options, OutcomePart, Sqlite,
};
use noroshi_types::{AppId, DeviceNum, NotificationId, Outcome, Request, limits};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use rusqlite::Connection;

use super::{fresh, options};
use crate::conformance::fixture::*;

#[tokio::test]
async fn a_failed_operation_rolls_back_only_itself() {
    let mut registry = Registry::with_prefix("noroshi");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let store = Sqlite::open(folder.path(), options(), &mut registry).expect("opened");
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    // The first answer blocks the writer until all others are queued, so they share one commit.
    let (release, released) = mpsc::sync_channel::<()>(0);
    let (answer, answers) = mpsc::sync_channel(64);
    let request = |body: u8| Accept {
        app,
        request: stored(users(&["u1"])).into(),
        now: NOW,
        idempotency: Some(Idempotency { key: "k".into(), body_hash: [body; 32] }),
        campaign: None,
        gate: None,
    };
    store.accept(request(1), Box::new(move |_| assert!(released.recv().is_err())));
    for body in [1, 2, 1, 3] {
        let answer = answer.clone();
        store.accept(request(body), Box::new(move |result| answer.send(result).expect("room")));
    }
    drop(release);
    let replayed: Vec<_> = (0..4)
        .map(|_| answers.recv_timeout(Duration::from_secs(60)).expect("answered"))
        .map(|result| result.ok().map(|accepted| accepted.replayed))
        .collect();
    assert_eq!(replayed, [Some(true), None, Some(true), None], "in order, one by one");
    assert_eq!(waiting(&store, app, "d1", NOW).await.len(), 1);

    drop(store);
    let mut text = String::new();
    encode(&mut text, &registry).expect("encodes");
    let value = |name: &str| -> f64 {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name} in\n{text}"));
        line.rsplit(' ').next().and_then(|number| number.parse().ok()).expect("a number")
    };
    assert_eq!(value("noroshi_store_queue_operations "), 0.0);
    assert_eq!(value("noroshi_store_commit_operations_sum "), 7.0, "1 app, 1 device, 5 requests");
    assert!(value("noroshi_store_commits_total ") < 7.0, "some requests shared a commit");
    assert!(value("noroshi_store_read_seconds_count ") >= 1.0);
    assert_eq!(value("noroshi_store_dropped_behind_total "), 0.0);
    assert_eq!(value("noroshi_store_refused_total "), 0.0);
}

/// Runs `requests` in one group, and returns the answers in order.
fn accept_together(store: &Sqlite, app: AppId, requests: Vec<Request>) -> Vec<Result<Accepted, Error>> {
    let (release, released) = mpsc::sync_channel::<()>(0);
    let (answer, answers) = mpsc::sync_channel(requests.len());
    let accept = |request: Request| Accept {
        app,
        request: request.into(),
        now: NOW,
        idempotency: None,
        campaign: None,
        gate: None,
    };
    // The first answer blocks the writer until all others are queued.
    store.accept(accept(stored(users(&["nobody"]))), Box::new(move |_| assert!(released.recv().is_err())));
    let count = requests.len();
    for request in requests {
        let answer = answer.clone();
        store.accept(accept(request), Box::new(move |result| answer.send(result).expect("room")));
    }
    drop(release);
    (0..count).map(|_| answers.recv_timeout(Duration::from_secs(60)).expect("answered")).collect()
}

#[tokio::test]
async fn rows_of_a_group_are_written_in_the_order_of_acceptance() {
    let (_folder, store) = fresh(Options::default());
    let app = app(&store, "shop").await;
    for number in 0..20 {
        join(&store, app, &format!("d{number}"), &format!("u{number}"), &[]).await;
    }
    let names: Vec<String> = (0..20).rev().map(|number| format!("u{number}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    let keyed = |key: &str| Request { collapse_key: Some(key.into()), ..stored(users(&all)) };
    let requests = vec![
        stored(users(&all)),
        keyed("k"),
        // The same user twice is one recipient.
        stored(users(&["u3", "u3"])),
        keyed("k"),
        stored(users(&all)),
    ];
    let ids: Vec<_> =
        accept_together(&store, app, requests).into_iter().map(|result| result.expect("accepted")).collect();
    assert_eq!(ids[3].departed.parts.len(), 1, "the second with the key replaces the first");
    let id = |at: usize| ids[at].message.id;
    for number in 0..20 {
        let expected = match number {
            3 => vec![id(0), id(2), id(3), id(4)],
            _ => vec![id(0), id(3), id(4)],
        };
        assert_eq!(waiting(&store, app, &format!("d{number}"), NOW).await, expected, "d{number}");
    }
    store.check().await.expect("sound");
}

#[tokio::test]
async fn a_group_evicts_the_oldest_rows_whatever_it_adds() {
    for inbox_rows in [1, 2, 3, 40] {
        let (_folder, store) = fresh(Options { inbox_rows, ..options() });
        let app = app(&store, "shop").await;
        join(&store, app, "d1", "u1", &[]).await;
        join(&store, app, "d2", "u2", &[]).await;
        let mut sent = Vec::new();
        for size in [1, 30, 100] {
            let requests = (0..size).map(|at| match at % 5 {
                0 => Request { collapse_key: Some(format!("{at}").into()), ..stored(users(&["u1"])) },
                1 => stored(users(&["u1", "u2"])),
                _ => stored(users(&["u1"])),
            });
            let accepted = accept_together(&store, app, requests.collect());
            sent.extend(accepted.into_iter().map(|result| result.expect("accepted").message.id));
        }
        let kept = waiting(&store, app, "d1", NOW).await;
        let (least, most) = (inbox_rows as usize, (inbox_rows + limits::inbox_slack(inbox_rows)) as usize);
        assert!((least..=most).contains(&kept.len()), "{} of {inbox_rows}", kept.len());
        assert_eq!(kept, sent[sent.len() - kept.len()..], "{inbox_rows}");
    }
}

#[tokio::test]
async fn acknowledgements_of_a_group_share_a_row_of_the_trace() {
    // A database with a limit writes each acknowledgement's row within its operation.
    for (database_bytes_max, rows_expected) in [(None, 1), (Some(64 << 20), 20)] {
        let (folder, store) = fresh(Options { database_bytes_max, ..options() });
        let app = app(&store, "shop").await;
        let names: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
        let all: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = join_many(&store, app, &all).await;
        let id = send(&store, app, stored(users(&all))).await;
        // This answer blocks the writer until all acknowledgements are queued.
        let (release, released) = mpsc::sync_channel::<()>(0);
        let blocked = Accept {
            app,
            request: stored(users(&["nobody"])).into(),
            now: NOW,
            idempotency: None,
            campaign: None,
            gate: None,
        };
        store.accept(blocked, Box::new(move |_| assert!(released.recv().is_err())));
        let ids = [id];
        let calls = futures_util::future::join_all(found.iter().map(|device| ack(&store, *device, &ids)));
        let queued = async { drop(release) };
        // Polled in this order.
        let (counted, ()) = tokio::join!(biased; calls, queued);
        assert_eq!(counted, [1; 20]);
        assert_eq!(counts(&store, app, id).await, [(Outcome::Kept, 20), (Outcome::Acked, 20)]);
        store.close().await;
        let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
        let sql = "SELECT count(*) FROM outcomes WHERE outcome = ?1";
        let rows: i64 = db.query_row(sql, [Outcome::Acked as u8], |row| row.get(0)).expect("read");
        assert_eq!(rows, rows_expected);
    }
}

#[tokio::test]
async fn outcomes_of_unknown_notifications_are_not_stored() {
    let (folder, store) = fresh(options());
    let id = NotificationId::from_bytes([9; 16]);
    let app = app(&store, "shop").await;
    let gone = send_at(&store, app, stored(users(&["u1"])), NOW).await.message.id;
    store.prune(at(30 * 86_400), 10).await.expect("pruned");
    for id in [id, gone] {
        store.record(vec![OutcomePart {
            app,
            id,
            outcome: Outcome::Slow,
            at: NOW,
            devices: vec![DeviceNum(1)],
            count: 1,
        }]);
    }
    store.close().await;
    let db = Connection::open(folder.path().join("noroshi.db")).expect("opened");
    let rows: i64 = db.query_row("SELECT count(*) FROM outcomes", (), |row| row.get(0)).expect("read");
    assert_eq!(rows, 0);
}
