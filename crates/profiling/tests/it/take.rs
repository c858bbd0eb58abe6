//! CPU profiles under load. The sampler belongs to the process, so tests take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use noroshi_profiling::{Ask, Error, Profiler, folded};
use noroshi_testkit::pyroscope::pprof;

/// One sampler for all tests of this process.
pub(crate) static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

pub(crate) const ASK: Ask = Ask { duration: Duration::from_secs(1), hz: 199 };

/// All in the same folder, whichever test is first.
pub(crate) fn profiler() -> Profiler {
    Profiler::new(concat!(env!("CARGO_TARGET_TMPDIR"), "/profiles"))
}

#[inline(never)]
pub(crate) fn spin_in_a_leaf(until: &AtomicBool) -> u64 {
    let mut x = 1_u64;
    while !until.load(Ordering::Relaxed) {
        for i in 0..1_000 {
            x = std::hint::black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
        }
    }
    x
}

/// Runs until it is dropped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<u64>>,
}

impl Load {
    pub(crate) fn start(threads: usize, work: fn(&AtomicBool) -> u64) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spawn = |number: usize| {
            let stop = stop.clone();
            let thread = std::thread::Builder::new().name(format!("load-{number}"));
            thread.spawn(move || work(&stop)).expect("a thread")
        };
        let threads = (0..threads).map(spawn).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            thread.join().expect("no panic");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_running_function_is_on_top() {
    let _turn = TURN.lock().await;
    let profiler = profiler();
    let load = Load::start(1, spin_in_a_leaf);
    let taken = profiler.cpu(ASK).await.expect("a profile");
    drop(load);
    let profile = pprof::read(&taken.pprof).expect("by the rules");
    let [samples, cpu] = &profile.types[..] else { panic!("{:?}", profile.types) };
    assert_eq!((samples.0.as_str(), samples.1.as_str()), ("samples", "count"));
    assert_eq!((cpu.0.as_str(), cpu.1.as_str()), ("cpu", "nanoseconds"));
    assert_eq!(profile.period, 1_000_000_000 / 199);
    assert!(profile.duration_nanos >= 1_000_000_000, "{}", profile.duration_nanos);
    assert!(profile.mappings.iter().any(|file| file.contains("it-")), "{:?}", profile.mappings);
    let of_load: Vec<_> = profile
        .samples
        .iter()
        .filter(|sample| sample.labels.get("thread").is_some_and(|name| name == "load-0"))
        .collect();
    let all: i64 = of_load.iter().map(|sample| sample.values[0]).sum();
    let inside = |name: &String| name.contains("spin_in_a_leaf");
    let leaf: i64 = of_load
        .iter()
        .filter(|sample| sample.stack.iter().take(8).any(inside))
        .map(|sample| sample.values[0])
        .sum();
    assert!(all > 0 && leaf * 10 >= all * 9, "{leaf} of {all}");
    let folded = folded::fold(&taken.pprof).expect("lines");
    assert_eq!((folded.what.as_str(), folded.unit.as_str()), ("cpu", "nanoseconds"));
    assert!(
        folded.lines.iter().any(|line| line.starts_with("load;") && line.contains("spin_in_a_leaf")),
        "{:?}",
        folded.lines
    );
}

/// Allocates, frees, logs and panics: a handler that takes a lock or allocates would deadlock here.
fn allocate_log_and_unwind(until: &AtomicBool) -> u64 {
    let mut count = 0_u64;
    let mut kept: Vec<Vec<u8>> = Vec::new();
    while !until.load(Ordering::Relaxed) {
        count += 1;
        let length = usize::try_from(count * 7_919 % 70_000).unwrap_or(0);
        kept.push(vec![1; length]);
        if kept.len() > 64 {
            kept.clear();
        }
        eprint!("{}", if count.is_multiple_of(4_096) { format!("{count}\n") } else { String::new() });
        if count.is_multiple_of(512) {
            let unwound = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(count_up(3))));
            assert!(unwound.is_err());
            std::thread::spawn(|| std::hint::black_box(count_up(5))).join().expect("a short thread");
        }
    }
    count
}

#[inline(never)]
fn count_up(depth: u64) -> u64 {
    if depth == 0 { 0 } else { 1 + std::hint::black_box(count_up(depth - 1)) }
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_that_allocate_log_and_unwind_survive_sampling() {
    let _turn = TURN.lock().await;
    let profiler = profiler();
    let load = Load::start(4, allocate_log_and_unwind);
    let began = Instant::now();
    for _ in 0..4 {
        let ask = Ask { hz: 250, ..ASK };
        let taken = tokio::time::timeout(Duration::from_secs(120), profiler.cpu(ask)).await;
        let taken = taken.expect("no deadlock").expect("a profile");
        assert!(pprof::read(&taken.pprof).expect("by the rules").samples.len() > 1);
    }
    // A child is not signalled, and waiting for it is not disturbed.
    let child = std::process::Command::new("sleep").arg("0.1").status().expect("a child");
    assert!(child.success() && began.elapsed() < Duration::from_secs(480));
    drop(load);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_request_is_busy_and_a_dropped_one_stops_the_sampler() {
    let _turn = TURN.lock().await;
    let profiler = profiler();
    let _load = Load::start(1, spin_in_a_leaf);
    let first = profiler.clone();
    let long = tokio::spawn(async move {
        let ask = Ask { duration: Duration::from_secs(60), ..ASK };
        // The request below may be first.
        while first.cpu(ask).await == Err(Error::Busy) {
            tokio::task::yield_now().await;
        }
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    // Gives the first one a chance between two attempts.
    while profiler.cpu(Ask { duration: Duration::from_millis(1), ..ASK }).await != Err(Error::Busy) {
        assert!(Instant::now() < deadline, "the first never began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    long.abort();
    assert!(long.await.is_err());
    // Long before the first would have ended.
    let next = tokio::time::timeout(Duration::from_secs(40), profiler.cpu(ASK)).await.expect("in time");
    assert!(next.is_ok(), "{next:?}");
}
