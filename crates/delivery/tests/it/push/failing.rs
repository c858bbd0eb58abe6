//! Batches that fail their sender: by a defect in their own task, or with the whole process. They are retried a bounded
//! number of times and reported, while all other pushes continue.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_delivery::Clock;
use noroshi_store::{Notifications, TAKES_MAX};
use noroshi_types::{NotificationId, Outcome, Timestamp};

use super::{Bench, DEADLINE, always, config, eventually, open_at};
use crate::fake_outlet::FakeOutlet;
use crate::{event_log, written_events};

/// Longer than a lease and the spread of expired batches.
const PASS: Duration = Duration::from_secs(120);
/// Longer than the delay of a due batch.
const PATIENCE: Duration = Duration::from_millis(500);

/// A node whose clock the test moves.
async fn open(folder: &Path, clock: &Clock) -> Bench {
    let outlet = Arc::new(FakeOutlet::default());
    let bench = open_at(folder, outlet.clone(), config(), clock.clone()).await;
    Bench { outlet, ..bench }
}

fn clock() -> Clock {
    Clock::fixed(Timestamp(1_700_000_000_000))
}

/// Leases expire, and the sender looks: a push to another device succeeds.
async fn pass(bench: &Bench, clock: &Clock) {
    clock.set(clock.now().saturating_add(PASS));
    let other = bench.publish(always(&["other"])).await;
    bench.until(other, Outcome::Pushed, 1).await;
}

fn times(bench: &Bench, token: &str) -> usize {
    bench.outlet.tokens().iter().filter(|other| *other == token).count()
}

fn metric(bench: &Bench, name: &str) -> u64 {
    let text = noroshi_telemetry::encode(&bench.registry).expect("text");
    let found = text.lines().find_map(|one| one.strip_prefix(&format!("noroshi_push_{name}_total ")));
    found.expect("a metric").parse().expect("a number")
}

/// Moves the clock until the push of the device was tried this often, and no further.
async fn until_tried(bench: &Bench, clock: &Clock, count: usize) {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience {
            if times(bench, "t-a") >= count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        pass(bench, clock).await;
    }
    panic!("tried {} times, not {count}", times(bench, "t-a"));
}

async fn reason(bench: &Bench, id: NotificationId) -> Option<String> {
    let device = noroshi_types::DeviceId::parse("d-a").expect("an id");
    let trace = bench.store.trace(bench.app, id, &device).await.expect("read").expect("known");
    trace.steps.into_iter().find(|step| step.outcome == Outcome::PushRefused)?.reason
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panicking_batch_is_retried_and_the_sender_continues() {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let bench = open(folder.path(), &clock).await;
    bench.devices(&["a", "other"]).await;
    bench.outlet.fail("t-a", 2);
    let id = bench.publish(always(&["a"])).await;
    until_tried(&bench, &clock, 3).await;
    bench.until(id, Outcome::Pushed, 1).await;
    assert_eq!((metric(&bench, "batches_failed"), metric(&bench, "batches_set_aside")), (2, 0));
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_always_fails_is_set_aside() {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let bench = open(folder.path(), &clock).await;
    bench.devices(&["a", "other"]).await;
    bench.outlet.fail("t-a", usize::MAX);
    let id = bench.publish(always(&["a"])).await;
    until_tried(&bench, &clock, 5).await;
    bench.until(id, Outcome::PushRefused, 1).await;
    assert_eq!(reason(&bench, id).await.as_deref(), Some("sender_failed"));
    assert_eq!(metric(&bench, "batches_set_aside"), 1);
    pass(&bench, &clock).await;
    assert_eq!(times(&bench, "t-a"), 5);
    bench.stop().await;
}

/// `hold`: the process ends while it waits for an answer; otherwise while it sends.
async fn a_batch_that_ends_processes(hold: bool) {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let (mut id, mut num) = (None, None);
    for round in 0..TAKES_MAX {
        let bench = open(folder.path(), &clock).await;
        match hold {
            true => bench.outlet.hold("t-a"),
            // Retried before the process ends, it gets no answer.
            false => {
                bench.outlet.fail("t-a", 1);
                bench.outlet.hold("t-a");
            }
        }
        if id.is_none() {
            num = Some(bench.devices(&["a", "other"]).await[0].1);
            id = Some(bench.publish(always(&["a"])).await);
        }
        until_tried(&bench, &clock, 1).await;
        assert_eq!(bench.counts(id.expect("published")).await, [(Outcome::Kept, 1)], "{round}");
        bench.crash().await;
    }
    let (bench, id) = (open(folder.path(), &clock).await, id.expect("published"));
    let log = event_log(&bench.delivery, folder.path());
    for _ in 0..2 {
        pass(&bench, &clock).await;
    }
    bench.until(id, Outcome::PushRefused, 1).await;
    assert_eq!(reason(&bench, id).await.as_deref(), Some("sender_ended"));
    assert_eq!((times(&bench, "t-a"), metric(&bench, "batches_set_aside")), (0, 1));
    let why = r#""service":"fcm","result":"push_refused","reason":"sender_ended""#;
    let line = format!(r#""id":"{id}",{why},"count":1,"devices":[{}]}}"#, num.expect("registered").0);
    eventually(&line, || written_events(folder.path()).contains(&line)).await;
    bench.stop().await;
    tokio::task::spawn_blocking(move || log.drain()).await.expect("drained");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_ends_its_process_is_set_aside() {
    a_batch_that_ends_processes(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_after_every_start_is_set_aside() {
    a_batch_that_ends_processes(false).await;
}

/// Restarts do not count as failures of batches in flight.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_unfinished_at_the_drain_are_never_set_aside() {
    let (folder, clock) = (tempfile::tempdir().expect("a folder"), clock());
    let mut id = None;
    for _ in 0..TAKES_MAX + 2 {
        let outlet = Arc::new(FakeOutlet::default());
        let short = noroshi_delivery::push::Config { drain: Duration::from_millis(50), ..config() };
        let bench = open_at(folder.path(), outlet.clone(), short, clock.clone()).await;
        let bench = Bench { outlet, ..bench };
        bench.outlet.hold("t-a");
        if id.is_none() {
            bench.devices(&["a", "other"]).await;
            id = Some(bench.publish(always(&["a"])).await);
        }
        until_tried(&bench, &clock, 1).await;
        bench.stop().await;
    }
    let bench = open(folder.path(), &clock).await;
    bench.until(id.expect("published"), Outcome::Pushed, 1).await;
    bench.stop().await;
}
