//! Against the strict fake: limits, failed records, throttling, an outage, a full spool. Each test runs in its own
//! process, because the SDK takes its credentials from the environment.

use std::sync::atomic::{AtomicU64, Ordering};

use noroshi_events::config::{Firehose, Sink};
use noroshi_events::metrics::Loss;
use noroshi_testkit::firehose::{ENVIRONMENT, Firehose as Fake, Mood};
use parking_lot::Mutex;

use super::*;

/// Runs the test again with credentials; true in the process that has them.
fn has_credentials(test: &str) -> bool {
    if std::env::var_os(ENVIRONMENT[0].0).is_some_and(|key| key == *ENVIRONMENT[0].1) {
        return true;
    }
    let status = std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", &format!("firehose::{test}")])
        .envs(ENVIRONMENT)
        .status()
        .expect("started");
    assert!(status.success(), "{test}: {status}");
    false
}

struct Bench {
    fake: Fake,
    heard: Arc<Mutex<Vec<u64>>>,
    largest: Arc<AtomicU64>,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let (heard, largest) = (Arc::<Mutex<Vec<u64>>>::default(), Arc::<AtomicU64>::default());
        let (told, size) = (heard.clone(), largest.clone());
        let listener = Arc::new(move |data: &[u8]| {
            size.fetch_max(data.len() as u64, Ordering::SeqCst);
            told.lock().extend(numbers(std::str::from_utf8(data).expect("text")));
        });
        let fake = Fake::start("events", listener).expect("fake");
        Self { fake, heard, largest, folder: tempfile::tempdir().expect("folder"), runtime: runtime() }
    }

    fn config(&self, record_bytes: usize) -> Config {
        let connection = noroshi_egress::aws::Connection { endpoint: Some(self.fake.origin()), region: None };
        let firehose = Firehose { record_bytes, ..Firehose::new(connection, "events") };
        Config { sinks: vec![Sink::Firehose(firehose)], ..config(self.folder.path()) }
    }

    fn start(&self, config: &Config) -> Log {
        start(config, Some(&self.runtime))
    }

    fn in_order(&self, count: u64) {
        assert_eq!(self.fake.violation(), None);
        let heard = self.heard.lock();
        assert_eq!(heard.len() as u64, count);
        assert!(heard.iter().copied().eq(0..count), "in order, each once");
    }
}

#[test]
fn calls_and_records_keep_the_limits() {
    if !has_credentials("calls_and_records_keep_the_limits") {
        return;
    }
    // With a record per line, a batch of 20,000 lines needs 40 calls of 500; with shared records one or two.
    for record_bytes in [0, 8_000] {
        let bench = Bench::new();
        let log = bench.start(&bench.config(record_bytes));
        (0..20_000).for_each(|n| tell(&log.events, n));
        assert_eq!(log.service.drain().spooled, 0);
        bench.in_order(20_000);
        let counts = bench.fake.counts();
        match record_bytes {
            0 => assert!(counts.calls >= 40 && counts.records == 20_001, "{counts:?}"),
            _ => assert!(counts.records < 1_000, "{counts:?}"),
        }
        assert!(bench.largest.load(Ordering::SeqCst) <= 8_000);
    }
}

#[test]
fn only_failed_records_are_sent_again() {
    if !has_credentials("only_failed_records_are_sent_again") {
        return;
    }
    let bench = Bench::new();
    bench.fake.behave(Mood::Failing { every: 7 });
    let log = bench.start(&bench.config(0));
    (0..2_000).for_each(|n| tell(&log.events, n));
    wait_until("all arrived", || bench.heard.lock().len() >= 2_000);
    log.service.drain();
    assert_eq!(bench.fake.violation(), None);
    let mut heard = bench.heard.lock().clone();
    heard.sort_unstable();
    assert!(heard.into_iter().eq(0..2_000), "each once");
    let counts = bench.fake.counts();
    assert!(counts.failed > 0 && counts.records == 2_001, "{counts:?}");
    assert!(log_failures(&log.metrics) == 0);
}

/// Events that were lost for any reason.
fn log_failures(metrics: &Metrics) -> u64 {
    [Loss::SpoolFull, Loss::Refused, Loss::Ended, Loss::Damaged]
        .into_iter()
        .map(|why| metrics.lost("firehose", why))
        .sum::<u64>()
        + metrics.lost_by_rings()
}

#[test]
fn throttling_and_an_outage_lose_and_duplicate_nothing() {
    if !has_credentials("throttling_and_an_outage_lose_and_duplicate_nothing") {
        return;
    }
    let bench = Bench::new();
    let config = Config { memory_bytes: 1 << 20, batch_bytes: 128 << 10, ..bench.config(8_000) };
    let log = bench.start(&config);
    let mut told = 0..60_000_u64;
    let mut tell_some = |count: usize| told.by_ref().take(count).for_each(|n| tell(&log.events, n));
    tell_some(5_000);
    bench.fake.behave(Mood::Throttling);
    tell_some(25_000);
    wait_until("the disk is used", || log.metrics.waiting_bytes("firehose").1 > 1 << 20);
    bench.fake.behave(Mood::Away);
    tell_some(25_000);
    wait_until("the outage is noticed", || log.metrics.waiting_bytes("firehose").1 > 4 << 20);
    assert!(log.metrics.waiting_bytes("firehose").0 <= 1 << 20);
    bench.fake.behave(Mood::Well);
    tell_some(5_000);
    wait_until("all arrived", || bench.heard.lock().len() >= 60_000);
    assert_eq!(log_failures(&log.metrics), 0);
    log.service.drain();
    bench.in_order(60_000);
}

#[test]
fn a_full_spool_loses_the_newest_and_counts_them() {
    if !has_credentials("a_full_spool_loses_the_newest_and_counts_them") {
        return;
    }
    let bench = Bench::new();
    bench.fake.behave(Mood::Throttling);
    let config = Config {
        memory_bytes: 256 << 10,
        batch_bytes: 64 << 10,
        spool_bytes: 1 << 20,
        ..bench.config(8_000)
    };
    let log = bench.start(&config);
    (0..30_000).for_each(|n| tell(&log.events, n));
    wait_until("it is full", || log.metrics.lost("firehose", Loss::SpoolFull) > 0);
    assert!(log.metrics.waiting_bytes("firehose").1 <= 1 << 20);
    bench.fake.behave(Mood::Well);
    wait_until("it is empty", || log.metrics.waiting_bytes("firehose") == (0, 0));
    let lost = log.metrics.lost("firehose", Loss::SpoolFull);
    log.service.drain();
    let kept = bench.heard.lock().clone();
    assert_eq!(kept.len() as u64 + lost, 30_000);
    assert!(kept.is_sorted(), "in order");
    assert!(kept.iter().copied().take(1_000).eq(0..1_000), "the oldest are kept");
}
