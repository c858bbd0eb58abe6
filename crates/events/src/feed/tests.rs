//! The queue of one sink: its order across memory and disk, and its behaviour when both are full.

use std::path::Path;

use bytes::Bytes;
use prometheus_client::registry::Registry;

use super::*;
use crate::metrics::Metrics;

fn batch(text: &str) -> Batch {
    Batch::of_one_source(Bytes::copy_from_slice(text.as_bytes()), 1, Instant::now())
}

struct Bench {
    feed: Feed,
    metrics: Metrics,
}

fn bench(bytes_max: usize, spool: Option<(&Path, u64)>) -> Bench {
    let metrics = Metrics::new(&mut Registry::default());
    let spool = spool.map(|(folder, bytes_max)| Spool::open(folder, bytes_max).expect("spool"));
    let feed = Feed::new(bytes_max, Duration::from_secs(3_600), spool, metrics.of_sink("file"));
    Bench { feed, metrics }
}

impl Bench {
    fn take(&self) -> String {
        let head = self.head(0).remove(0);
        self.feed.taken(std::slice::from_ref(&head), 0);
        String::from_utf8(head.bytes.to_vec()).expect("text")
    }

    fn head(&self, bytes_max: usize) -> Vec<Batch> {
        match self.feed.head(bytes_max, None) {
            Head::Batches(batches) => batches,
            Head::Calm | Head::Over => panic!("no batch"),
        }
    }
}

#[test]
fn order_holds_from_memory_to_disk_and_back() {
    let folder = tempfile::tempdir().expect("folder");
    let bench = bench(4, Some((folder.path(), 1 << 20)));
    let push = |text| bench.feed.push(batch(text));
    push("a1");
    let head = bench.head(0);
    push("b2");
    assert_eq!(bench.metrics.waiting_bytes("file").1, 0, "all in memory");
    push("c3");
    assert!(bench.metrics.waiting_bytes("file").1 > 0, "no room in memory: all on disk");
    // The worker's batch is on disk now; accepting it removes it there.
    bench.feed.taken(&head, 0);
    push("d4");
    assert_eq!([bench.take(), bench.take(), bench.take()], ["b2", "c3", "d4"]);
    push("e5");
    assert_eq!(bench.metrics.waiting_bytes("file"), (2, 0), "in memory again");
    assert_eq!(bench.take(), "e5");
    assert_eq!(bench.metrics.sent("file"), 5);
}

#[test]
fn batches_that_wait_long_go_to_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let bench = bench(1 << 20, Some((folder.path(), 1 << 20)));
    bench.feed.push(batch("a"));
    bench.feed.tick(Instant::now());
    assert_eq!(bench.metrics.waiting_bytes("file").1, 0);
    bench.feed.tick(Instant::now() + Duration::from_secs(3_601));
    assert!(bench.metrics.waiting_bytes("file").1 > 0);
    assert_eq!(bench.take(), "a");
}

#[test]
fn when_the_disk_is_full_too_the_newest_are_lost_and_counted() {
    let folder = tempfile::tempdir().expect("folder");
    let bench = bench(2, Some((folder.path(), 60)));
    for text in ["a1", "b2", "c3", "d4", "e5", "f6", "g7"] {
        bench.feed.push(batch(text));
    }
    let lost = bench.metrics.lost("file", Loss::SpoolFull);
    assert!(lost > 0 && lost < 6, "{lost}");
    let kept: Vec<_> = (0..7 - lost).map(|_| bench.take()).collect();
    assert_eq!(kept, ["a1", "b2", "c3", "d4", "e5", "f6", "g7"][..kept.len()]);
    bench.feed.push(batch("h8"));
    assert_eq!(bench.take(), "h8");
}

#[test]
fn a_sink_without_a_spool_loses_the_newest_once_it_fails() {
    let bench = bench(4, None);
    bench.feed.push(batch("a1"));
    bench.feed.push(batch("b2"));
    assert!(bench.feed.failed(Duration::ZERO));
    bench.feed.push(batch("c3"));
    assert_eq!(bench.metrics.lost("file", Loss::SpoolFull), 1);
    assert_eq!([bench.take(), bench.take()], ["a1", "b2"]);
}

#[test]
fn at_the_deadline_the_queue_moves_to_disk() {
    let folder = tempfile::tempdir().expect("folder");
    let with = bench(1 << 20, Some((folder.path(), 1 << 20)));
    with.feed.push(batch("a"));
    with.feed.close();
    assert!(!with.feed.failed(Duration::from_secs(60)), "a failing sink is not retried");
    assert_eq!(with.feed.abandon(), (0, 1));
    assert!(matches!(with.feed.head(0, None), Head::Over));
    drop(with);
    let again = bench(1 << 20, Some((folder.path(), 1 << 20)));
    assert_eq!(again.take(), "a");

    let without = bench(1 << 20, None);
    without.feed.push(batch("a"));
    assert_eq!(without.feed.abandon(), (1, 0));
    assert_eq!(without.metrics.lost("file", Loss::Ended), 1);
}

#[test]
fn a_window_continues_from_disk_to_memory_and_is_removed_where_it_is_then() {
    let folder = tempfile::tempdir().expect("folder");
    let bench = bench(4, Some((folder.path(), 1 << 20)));
    let texts = |batches: &[Batch]| batches.iter().map(|batch| batch.bytes.to_vec()).collect::<Vec<_>>();
    ["a1", "b2"].iter().for_each(|text| bench.feed.push(batch(text)));
    let window = bench.head(usize::MAX);
    assert_eq!(texts(&window), [b"a1", b"b2"]);
    assert_eq!(bench.head(1).len(), 1);
    // All of it moves to disk while it is sent; later ones stay in memory once there is room.
    bench.feed.push(batch("c3"));
    bench.feed.taken(&window, 0);
    assert_eq!(texts(&bench.head(usize::MAX)), [b"c3"]);
    bench.feed.push(batch("d4"));
    let window = bench.head(usize::MAX);
    assert_eq!(texts(&window), [b"c3", b"d4"]);
    bench.feed.taken(&window, 0);
    assert_eq!(bench.metrics.waiting_bytes("file"), (0, 0));
}

#[test]
fn a_worker_without_work_wakes_up_at_its_deadline() {
    let bench = bench(4, None);
    assert!(matches!(bench.feed.head(0, Some(Instant::now())), Head::Calm));
}
