//! A node that ends during its work.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use noroshi_types::{Outcome, PushMode, Target, When};

use super::{Bench, config, eventually, open, pushed};

const DEVICES: usize = 3_000;

fn everyone() -> noroshi_types::Request {
    pushed(Target::Everyone, When::Stored, PushMode::Always, Duration::ZERO)
}

fn times(bench: &Bench) -> HashMap<String, usize> {
    let mut times = HashMap::new();
    for token in bench.outlet.tokens() {
        *times.entry(token).or_default() += 1;
    }
    times
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_loses_no_recipient_and_repeats_at_most_batches_in_flight() {
    let folder = tempfile::tempdir().expect("a folder");
    // Three batches at a time.
    let small = noroshi_delivery::push::Config {
        recipients_max: 1_500,
        recipients_per_service_max: 1_500,
        reserved_percent: 0,
        ..config()
    };
    let bench = open(folder.path(), small.clone()).await;
    bench.many(DEVICES).await;
    bench.outlet.hold_all(true);
    let id = bench.publish(everyone()).await;
    eventually("batches are under way", || bench.outlet.count() >= 1_000).await;
    let before = times(&bench);
    assert!(before.len() < DEVICES, "{} of {DEVICES} are under way", before.len());
    bench.crash().await;

    let bench = open(folder.path(), small).await;
    bench.until(id, Outcome::Pushed, DEVICES as u64).await;
    let after = times(&bench);
    assert_eq!(after.len(), DEVICES, "nobody is lost");
    assert!(after.values().all(|times| *times == 1));
    assert_eq!(bench.count(id, Outcome::Pushed).await, DEVICES as u64);
    bench.stop().await;

    let bench = open(folder.path(), config()).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bench.outlet.count(), 0, "nothing is left");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_repeats_only_pushes_without_an_answer() {
    const HELD: usize = 40;
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(DEVICES).await;
    bench.outlet.hold_after(DEVICES - HELD);
    let id = bench.publish(everyone()).await;
    // Each batch is unfinished or written as a whole; nothing else ends.
    bench.until(id, Outcome::Pushed, (DEVICES - HELD) as u64).await;
    eventually("all are sent", || bench.outlet.count() == DEVICES).await;
    let unanswered: HashSet<String> = bench.outlet.tokens().split_off(DEVICES - HELD).into_iter().collect();
    bench.crash().await;

    let bench = open(folder.path(), config()).await;
    bench.until(id, Outcome::Pushed, DEVICES as u64).await;
    let repeated: HashSet<String> = bench.outlet.tokens().into_iter().collect();
    assert_eq!(repeated, unanswered);
    assert_eq!(bench.outlet.count(), HELD);
    assert_eq!(bench.count(id, Outcome::Pushed).await, DEVICES as u64, "each counts once");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_finishes_batches_in_flight_and_starts_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let bench = open(folder.path(), config()).await;
    bench.many(10).await;
    bench.outlet.hold_all(true);
    let id = bench.publish(everyone()).await;
    eventually("the batch is under way", || bench.outlet.count() == 10).await;
    let outlet = bench.outlet.clone();
    let stopping = tokio::spawn(bench.stop());
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!stopping.is_finished(), "it waits for the batch");
    outlet.release();
    stopping.await.expect("no panic");

    let bench = open(folder.path(), config()).await;
    bench.until(id, Outcome::Pushed, 10).await;
    assert_eq!(bench.outlet.count(), 0, "it was finished before");
    bench.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_unfinished_at_the_drain_are_sent_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let short = noroshi_delivery::push::Config { drain: Duration::from_millis(50), ..config() };
    let bench = open(folder.path(), short).await;
    bench.many(10).await;
    bench.outlet.hold("t-u00003");
    let id = bench.publish(everyone()).await;
    eventually("the batch is under way", || bench.outlet.count() == 10).await;
    bench.until(id, Outcome::Pushed, 9).await;
    bench.stop().await;

    let bench = open(folder.path(), config()).await;
    bench.until(id, Outcome::Pushed, 10).await;
    assert_eq!(bench.outlet.tokens(), ["t-u00003"], "the others are written");
    bench.stop().await;
}
