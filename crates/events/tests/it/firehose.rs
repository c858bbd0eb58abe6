//! Against the strict fake: limits, failed records, order, throttling, an outage, a full spool, restarts. Each test
//! runs in its own process, because the SDK takes its credentials from the environment.

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

/// A line: its number in the log, and the number of its event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    n: u64,
    event: u64,
}

struct Bench {
    fake: Fake,
    heard: Arc<Mutex<Vec<Line>>>,
    largest: Arc<AtomicU64>,
    folder: tempfile::TempDir,
    runtime: tokio::runtime::Runtime,
}

impl Bench {
    fn new() -> Self {
        let (heard, largest) = (Arc::<Mutex<Vec<Line>>>::default(), Arc::<AtomicU64>::default());
        let (told, size) = (heard.clone(), largest.clone());
        let listener = Arc::new(move |data: &[u8]| {
            size.fetch_max(data.len() as u64, Ordering::SeqCst);
            told.lock().extend(lines(std::str::from_utf8(data).expect("text")));
        });
        let fake = Fake::start("events", listener).expect("fake");
        Self { fake, heard, largest, folder: tempfile::tempdir().expect("folder"), runtime: runtime() }
    }

    fn config(&self, change: impl FnOnce(&mut Firehose)) -> Config {
        let connection = noroshi_egress::aws::Connection { endpoint: Some(self.fake.origin()), region: None };
        let mut firehose = Firehose::new(connection, "events");
        change(&mut firehose);
        Config { sinks: vec![Sink::Firehose(firehose)], ..config(self.folder.path()) }
    }

    fn start(&self, config: &Config) -> Log {
        start(config, Some(&self.runtime))
    }

    fn heard(&self) -> Vec<u64> {
        self.heard.lock().iter().map(|line| line.event).collect()
    }

    /// The events below `count`: each once, and those of each of the `threads` in order.
    fn in_order(&self, count: u64, threads: u64) {
        assert_eq!(self.fake.violation(), None);
        in_order(&self.heard(), 0..count, threads);
    }
}

fn in_order(heard: &[u64], expected: std::ops::Range<u64>, threads: u64) {
    assert_eq!(heard.len() as u64, expected.end - expected.start);
    for thread in 0..threads {
        let of_thread = |event: &u64| *event % threads == thread;
        let heard = heard.iter().copied().filter(of_thread);
        assert!(heard.eq(expected.clone().filter(of_thread)), "thread {thread}: in order, each once");
    }
}

fn lines(text: &str) -> Vec<Line> {
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON"));
    let line = |line: serde_json::Value| {
        Some(Line { n: line["n"].as_u64().expect("a number"), event: line["devices"][0].as_u64()? })
    };
    lines.filter_map(line).collect()
}

/// Emits events on several threads: each emits those whose number, modulo the number of threads, is its own.
fn tell_on_threads(events: &Events, range: std::ops::Range<u64>, threads: u64) {
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let own = range.clone().filter(move |event| event % threads == thread);
            scope.spawn(move || own.for_each(|event| tell(events, event)));
        }
    });
}

#[test]
fn calls_and_records_keep_the_limits() {
    if !has_credentials("calls_and_records_keep_the_limits") {
        return;
    }
    // With a record per line, 20,000 lines need 40 calls of 500; with shared records few.
    for record_bytes in [0, 8_000, 1_000 << 10] {
        let bench = Bench::new();
        let log = bench.start(&bench.config(|firehose| firehose.record_bytes = record_bytes));
        (0..20_000).for_each(|n| tell(&log.events, n));
        // A drain has a deadline.
        wait_until("all arrived", || bench.heard.lock().len() >= 20_000);
        assert_eq!(log.service.drain().spooled, 0);
        bench.in_order(20_000, 1);
        let counts = bench.fake.counts();
        match record_bytes {
            0 => assert!(counts.calls >= 40 && counts.records == 20_001, "{counts:?}"),
            _ => assert!(counts.records < 1_000, "{counts:?}"),
        }
        assert!(bench.largest.load(Ordering::SeqCst) <= record_bytes.max(300) as u64);
    }
}

#[test]
fn only_failed_records_are_sent_again() {
    if !has_credentials("only_failed_records_are_sent_again") {
        return;
    }
    let bench = Bench::new();
    bench.fake.behave(Mood::Failing { every: 7 });
    let log = bench.start(&bench.config(|firehose| firehose.record_bytes = 0));
    (0..2_000).for_each(|n| tell(&log.events, n));
    wait_until("all arrived", || bench.heard.lock().len() >= 2_000);
    log.service.drain();
    assert_eq!(bench.fake.violation(), None);
    let heard = bench.heard();
    // A line that fails arrives after the others of its call, but before those of the next one.
    assert!(heard.iter().enumerate().all(|(place, event)| event.abs_diff(place as u64) < 500));
    let mut sorted = heard;
    sorted.sort_unstable();
    assert!(sorted.into_iter().eq(0..2_000), "each once");
    let counts = bench.fake.counts();
    assert!(counts.failed > 0 && counts.records == 2_001, "{counts:?}");
    assert_eq!(log_failures(&log.metrics), 0);
}

#[test]
fn lines_of_a_thread_stay_in_order_when_records_fail_and_calls_overtake_each_other() {
    if !has_credentials("lines_of_a_thread_stay_in_order_when_records_fail_and_calls_overtake_each_other") {
        return;
    }
    for record_bytes in [8_000, 1_000 << 10] {
        let bench = Bench::new();
        bench.fake.delay(Duration::from_millis(2));
        bench.fake.delay_some(3, Duration::from_millis(20));
        bench.fake.behave(Mood::Failing { every: 3 });
        let log = bench.start(&bench.config(|firehose| firehose.record_bytes = record_bytes));
        // Enough that the records of a thread are worth a call of their own.
        let count = if record_bytes == 8_000 { 10_000 } else { 100_000 };
        tell_on_threads(&log.events, 0..count, 4);
        wait_until("all arrived", || bench.heard.lock().len() as u64 >= count);
        log.service.drain();
        bench.in_order(count, 4);
        let counts = bench.fake.counts();
        assert!(counts.failed > 0 && counts.in_flight_max <= 4, "{counts:?}");
        assert!(counts.in_flight_max > 1 || record_bytes == 8_000, "{counts:?}");
        assert_eq!(log_failures(&log.metrics), 0);
    }
}

#[test]
fn calls_that_fail_now_and_then_neither_change_the_order_nor_slow_down_the_others_for_long() {
    if !has_credentials(
        "calls_that_fail_now_and_then_neither_change_the_order_nor_slow_down_the_others_for_long",
    ) {
        return;
    }
    let bench = Bench::new();
    bench.fake.delay(Duration::from_millis(1));
    bench.fake.delay_some(4, Duration::from_millis(5));
    bench.fake.behave(Mood::Faltering { every: 3 });
    let log = bench.start(&bench.config(|firehose| firehose.record_bytes = 300 << 10));
    tell_on_threads(&log.events, 0..200_000, 4);
    // Pauses that grow until a whole window succeeds would last for minutes.
    wait_until("all arrived", || bench.heard.lock().len() >= 200_000);
    log.service.drain();
    bench.in_order(200_000, 4);
    assert_eq!(log_failures(&log.metrics), 0);
}

#[test]
fn with_one_call_in_flight_all_lines_of_a_node_stay_in_order() {
    if !has_credentials("with_one_call_in_flight_all_lines_of_a_node_stay_in_order") {
        return;
    }
    let bench = Bench::new();
    bench.fake.behave(Mood::Failing { every: 2 });
    let log = bench.start(&bench.config(|firehose| (firehose.calls, firehose.record_bytes) = (1, 64_000)));
    tell_on_threads(&log.events, 0..20_000, 4);
    wait_until("all arrived", || bench.heard.lock().len() >= 20_000);
    log.service.drain();
    bench.in_order(20_000, 4);
    assert!(bench.heard.lock().is_sorted_by_key(|line| line.n));
    let counts = bench.fake.counts();
    assert!(counts.failed > 0 && counts.in_flight_max == 1, "{counts:?}");
}

#[test]
fn a_used_up_quota_delays_lines_and_loses_none() {
    if !has_credentials("a_used_up_quota_delays_lines_and_loses_none") {
        return;
    }
    let bench = Bench::new();
    bench.fake.behave(Mood::Quota { bytes_per_second: 2 << 20 });
    let config = Config { memory_bytes: 1 << 20, batch_bytes: 128 << 10, ..bench.config(|_| {}) };
    let log = bench.start(&config);
    tell_on_threads(&log.events, 0..60_000, 4);
    assert!(log.metrics.waiting_bytes("firehose").0 <= 1 << 20);
    wait_until("all arrived", || bench.heard.lock().len() >= 60_000);
    log.service.drain();
    bench.in_order(60_000, 4);
    assert!(bench.fake.counts().failed > 0);
    assert_eq!(log_failures(&log.metrics), 0);
}

#[test]
fn a_stop_sends_everything_that_slow_calls_allow() {
    if !has_credentials("a_stop_sends_everything_that_slow_calls_allow") {
        return;
    }
    let bench = Bench::new();
    bench.fake.delay(Duration::from_millis(100));
    bench.fake.behave(Mood::Failing { every: 5 });
    let config = Config { drain: Duration::from_secs(60), ..bench.config(|_| {}) };
    let log = bench.start(&config);
    tell_on_threads(&log.events, 0..50_000, 4);
    let drained = log.service.drain();
    assert_eq!((drained.lost, drained.spooled), (0, 0));
    bench.in_order(50_000, 4);
}

#[test]
fn a_restart_continues_from_disk_and_keeps_the_order() {
    if !has_credentials("a_restart_continues_from_disk_and_keeps_the_order") {
        return;
    }
    let bench = Bench::new();
    let config = Config {
        drain: Duration::from_secs(1),
        memory_bytes: 1 << 20,
        batch_bytes: 64 << 10,
        ..bench.config(|firehose| firehose.record_bytes = 32 << 10)
    };
    bench.fake.delay(Duration::from_millis(200));
    bench.fake.behave(Mood::Failing { every: 3 });
    for round in 0..3 {
        let log = bench.start(&config);
        tell_on_threads(&log.events, round * 20_000..(round + 1) * 20_000, 4);
        let drained = log.service.drain();
        assert_eq!(drained.lost, 0);
        assert!(drained.spooled > 0, "the first stop is too early for all of it");
    }
    bench.fake.behave(Mood::Well);
    bench.fake.delay(Duration::ZERO);
    let log = bench.start(&Config { drain: Duration::from_secs(60), ..config });
    assert_eq!(log.service.drain().spooled, 0);
    assert_eq!(bench.fake.violation(), None);
    // What was in transit, or accepted out of turn, is sent again. The first of each has its place.
    let mut seen = std::collections::HashSet::new();
    let firsts: Vec<u64> = bench.heard().into_iter().filter(|event| seen.insert(*event)).collect();
    for round in 0..3 {
        let range = round * 20_000..(round + 1) * 20_000;
        let of_round: Vec<u64> = firsts.iter().copied().filter(|event| range.contains(event)).collect();
        in_order(&of_round, range, 4);
    }
}

/// Counts what this process logs at a level that operators see.
struct Logged(AtomicU64);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("noroshi") && *metadata.level() <= tracing::Level::INFO
    }

    fn event(&self, _event: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn new_span(&self, _attributes: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _span: &tracing::span::Id, _values: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _span: &tracing::span::Id, _follows: &tracing::span::Id) {}
    fn enter(&self, _span: &tracing::span::Id) {}
    fn exit(&self, _span: &tracing::span::Id) {}
}

#[test]
fn many_partial_failures_are_one_line_in_the_log() {
    if !has_credentials("many_partial_failures_are_one_line_in_the_log") {
        return;
    }
    let logged = Arc::new(Logged(AtomicU64::new(0)));
    tracing::subscriber::set_global_default(logged.clone()).expect("the first");
    let bench = Bench::new();
    bench.fake.behave(Mood::Failing { every: 3 });
    let log = bench.start(&bench.config(|firehose| firehose.record_bytes = 8_000));
    tell_on_threads(&log.events, 0..10_000, 4);
    wait_until("all arrived", || bench.heard.lock().len() >= 10_000);
    log.service.drain();
    assert!(bench.fake.counts().failed > 10);
    assert_eq!(logged.0.load(Ordering::SeqCst), 1);
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
    let config = Config { memory_bytes: 1 << 20, batch_bytes: 128 << 10, ..bench.config(|_| {}) };
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
    bench.in_order(60_000, 1);
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
        ..bench.config(|_| {})
    };
    let log = bench.start(&config);
    (0..30_000).for_each(|n| tell(&log.events, n));
    wait_until("it is full", || log.metrics.lost("firehose", Loss::SpoolFull) > 0);
    assert!(log.metrics.waiting_bytes("firehose").1 <= 1 << 20);
    bench.fake.behave(Mood::Well);
    wait_until("it is empty", || log.metrics.waiting_bytes("firehose") == (0, 0));
    let lost = log.metrics.lost("firehose", Loss::SpoolFull);
    log.service.drain();
    let kept = bench.heard();
    assert_eq!(kept.len() as u64 + lost, 30_000);
    assert!(kept.is_sorted(), "in order");
    assert!(kept.iter().copied().take(1_000).eq(0..1_000), "the oldest are kept");
}
