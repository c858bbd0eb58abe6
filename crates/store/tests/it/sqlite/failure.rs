//! A full disk, a full queue, and answers that panic.

use std::sync::mpsc;
use std::time::Duration;

use noroshi_store::{Accept, Apps, Error, FirstRead, Maintenance, Notifications, Options, Sessions};
use noroshi_types::{AppId, JsonText, NotificationId, Outcome, Request};

use super::{fresh, open, options};
use crate::conformance::fixture::*;

/// A request that fills the disk quickly.
fn large() -> Request {
    Request {
        data: Some(JsonText::from_valid(format!("\"{}\"", "x".repeat(4_000)))),
        ..stored(users(&["u1"]))
    }
}

fn request(app: AppId, request: Request) -> Accept {
    Accept { app, request: request.into(), now: NOW, idempotency: None, campaign: None, gate: None }
}

#[tokio::test]
async fn a_full_disk_rejects_writes_and_loses_nothing() {
    let limited = Options { database_bytes_max: Some(1 << 20), inbox_rows: 10_000, ..options() };
    let (folder, store) = fresh(limited.clone());
    let (app, filler) = (app(&store, "shop").await, app(&store, "filler").await);
    let d1 = join(&store, app, "d1", "u1", &[]).await;
    join(&store, filler, "d1", "u1", &[]).await;
    let mut accepted: Vec<NotificationId> = Vec::new();
    for _ in 0..20 {
        accepted.push(send(&store, app, large()).await);
    }
    let error = loop {
        match accept(&store, request(filler, large())).await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Full), "{error}");
    // Reads still work, and everything accepted is there.
    assert_eq!(waiting(&store, app, "d1", NOW).await, accepted);
    assert!(
        matches!(accept(&store, request(filler, large())).await, Err(Error::Full)),
        "the disk is still full"
    );
    // Removals free space.
    assert_eq!(ack(&store, d1, &accepted[..1]).await, 1, "an acknowledgement needs no new space");
    store.delete_app(filler).await.expect("deleted");
    accepted.push(send(&store, app, large()).await);
    assert_eq!(waiting(&store, app, "d1", NOW).await, accepted[1..]);
    // A restart with a larger limit frees space too.
    store.close().await;
    drop(store);
    let store = open(folder.path(), Options { database_bytes_max: None, ..limited }).expect("opened");
    for _ in 0..500 {
        send(&store, app, large()).await;
    }
    assert_eq!(waiting(&store, app, "d1", NOW).await[..10], accepted[1..11]);
}

#[tokio::test]
async fn a_full_inbox_evicts_its_oldest_rows_together() {
    let (_folder, store) = fresh(Options { inbox_rows: 32, ..options() });
    crate::conformance::inbox::the_oldest_rows_are_evicted_together(&store).await;
}

/// Blocks the writer's thread until the sender is dropped.
fn block_writer(store: &impl Notifications, app: AppId) -> mpsc::SyncSender<()> {
    let (release, released) = mpsc::sync_channel::<()>(0);
    let (entered, inside) = mpsc::sync_channel(1);
    store.accept(
        request(app, stored(users(&["u1"]))),
        Box::new(move |_| {
            entered.send(()).expect("the test waits for it");
            assert!(released.recv().is_err(), "released by dropping the sender");
        }),
    );
    inside.recv_timeout(Duration::from_secs(60)).expect("the answer comes");
    release
}

#[tokio::test]
async fn a_full_queue_rejects_requests_and_drops_background_writes_first() {
    let (_folder, store) = fresh(Options { write_queue: 8, ..options() });
    let app = app(&store, "shop").await;
    let d1 = join(&store, app, "d1", "u1", &[]).await;
    let id = send(&store, app, stored(users(&["u1"]))).await;
    let release = block_writer(&store, app);
    let (answer, answers) = mpsc::sync_channel(64);
    let submit = |count: usize| {
        for _ in 0..count {
            let answer = answer.clone();
            store.accept(
                request(app, stored(users(&["u1"]))),
                Box::new(move |result| answer.send(result).expect("room")),
            );
        }
    };
    submit(4);
    let part = noroshi_store::OutcomePart {
        app,
        id,
        outcome: Outcome::Written,
        at: NOW,
        devices: vec![d1],
        count: 1,
    };
    for _ in 0..10 {
        store.record(vec![part.clone()]);
    }
    submit(10);
    let refused: Vec<_> = answers.try_iter().collect();
    assert_eq!(refused.len(), 6, "the half-full queue drops records, and 8 requests fit");
    assert!(refused.iter().all(|result| matches!(result, Err(Error::Overloaded))));
    drop(release);
    for _ in 0..8 {
        let result = answers.recv_timeout(Duration::from_secs(60)).expect("answered");
        assert!(result.is_ok(), "{result:?}");
    }
    assert_eq!(counts(&store, app, id).await, [(Outcome::Kept, 1), (Outcome::Evicted, 1)]);
    store.record(vec![part]);
    store.check().await.expect("written in the background");
    assert!(
        counts(&store, app, id).await.contains(&(Outcome::Written, 1)),
        "they are recorded when the queue has space"
    );
}

#[tokio::test]
async fn a_queue_is_also_bounded_in_rows() {
    let (_folder, store) = fresh(Options { write_queue_rows: 10, ..options() });
    let app = app(&store, "shop").await;
    let release = block_writer(&store, app);
    let (answer, answers) = mpsc::sync_channel(64);
    let many: Vec<String> = (0..20).map(|i| format!("u{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for _ in 0..3 {
        let answer = answer.clone();
        store.accept(
            request(app, stored(users(&many))),
            Box::new(move |result| answer.send(result).expect("room")),
        );
    }
    assert_eq!(answers.try_iter().filter(|result| matches!(result, Err(Error::Overloaded))).count(), 2);
    drop(release);
    assert!(answers.recv_timeout(Duration::from_secs(60)).expect("answered").is_ok());
}

#[tokio::test]
async fn an_answer_that_panics_does_not_stop_the_writer() {
    let (_folder, store) = fresh(options());
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    store.accept(request(app, stored(users(&["u1"]))), Box::new(|_| panic!("as this test wants it")));
    let second = send(&store, app, stored(users(&["u1"]))).await;
    let waiting = waiting(&store, app, "d1", NOW).await;
    assert_eq!((waiting.len(), waiting.last()), (2, Some(&second)), "both were committed");
}

/// Requests a log-in of a device that exists; each answer goes to the sender.
fn request_log_in(store: &impl Sessions, app: AppId, answers: &mpsc::SyncSender<FirstRead>) {
    let answers = answers.clone();
    store.read_log_ins(vec![login(app, "d1")], Box::new(move |read| drop(answers.send(read))));
}

#[tokio::test]
async fn every_log_in_is_answered_once_also_by_a_full_or_closed_queue() {
    let (_folder, store) = fresh(Options { reader_threads: 1, read_queue: 1, ..options() });
    let app = app(&store, "shop").await;
    join(&store, app, "d1", "u1", &[]).await;
    let (answer, answers) = mpsc::sync_channel(8);
    let next = || answers.recv_timeout(Duration::from_secs(60)).expect("the answer comes");
    let (release, released) = mpsc::sync_channel::<()>(0);
    let (entered, inside) = mpsc::sync_channel(1);
    store.read_log_ins(
        vec![login(app, "d1")],
        Box::new(move |_| {
            entered.send(()).expect("the test waits for it");
            assert!(released.recv().is_err(), "released by dropping the sender");
            panic!("an answer that panics ends nothing but itself");
        }),
    );
    inside.recv_timeout(Duration::from_secs(60)).expect("the thread of the reads is busy");
    request_log_in(&store, app, &answer); // waits
    request_log_in(&store, app, &answer);
    assert!(matches!(next(), FirstRead::Failed(Error::Overloaded)));
    drop(release);
    assert!(matches!(next(), FirstRead::Answered(read) if read[0].is_ok()));
    store.close().await;
    request_log_in(&store, app, &answer);
    assert!(matches!(next(), FirstRead::Failed(_)));
    assert!(answers.try_recv().is_err(), "each was answered once");
}
