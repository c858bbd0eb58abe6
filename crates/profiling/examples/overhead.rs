//! The cost of sampling for a working thread: the same work alternately without and with a profile in progress, 30
//! calls deep, computing, allocating and calling the kernel. Prints each ratio of CPU times and their median.
//!
//! `cargo run --release -p noroshi-profiling --features cpu --example overhead`

use std::hint::black_box;
use std::io::Write as _;
use std::time::Duration;

use noroshi_profiling::{Ask, Profiler};

const PAIRS: usize = 9;

#[inline(never)]
fn deep(calls: u32) -> usize {
    match calls {
        0 => work().expect("/dev/null takes all"),
        calls => black_box(deep(black_box(calls - 1))) + 1,
    }
}

fn work() -> std::io::Result<usize> {
    let mut nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    let mut sum = 0_usize;
    for turn in 0..40_000_usize {
        for step in 0..50 {
            sum = black_box(sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(step));
        }
        sum = sum.wrapping_add(black_box(vec![0_u8; turn % 4_000]).len());
        nowhere.write_all(b"x")?;
    }
    Ok(sum)
}

/// CPU time of this thread for the work, in nanoseconds (proc(5), schedstat).
fn measured() -> f64 {
    let cpu = || -> f64 {
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        text.split(' ').next().and_then(|first| first.parse().ok()).expect("a number")
    };
    let before = cpu();
    for _ in 0..40 {
        black_box(deep(30));
    }
    cpu() - before
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let folder = std::env::temp_dir().join(format!("noroshi-overhead-{}", std::process::id()));
    let profiler = Profiler::new(&folder);
    let take = |duration| {
        let profiler = profiler.clone();
        async move { profiler.cpu(Ask { duration, hz: 99 }).await }
    };
    // The first profile creates what stays.
    runtime.block_on(take(Duration::from_millis(100))).expect("a profile");
    measured();
    let mut ratios = Vec::new();
    for _ in 0..PAIRS {
        let without = measured();
        let sampling = runtime.spawn(take(Duration::from_secs(60)));
        std::thread::sleep(Duration::from_millis(200));
        let with = measured();
        sampling.abort();
        // Dropping it stops the sampler.
        let _ = runtime.block_on(sampling);
        std::thread::sleep(Duration::from_millis(200));
        println!("without {:.0} ms, with {:.0} ms: {:.4}", without / 1e6, with / 1e6, with / without);
        ratios.push(with / without);
    }
    ratios.sort_by(f64::total_cmp);
    println!("median {:.4}", ratios[PAIRS / 2]);
    // Only this process used the folder.
    let _ = std::fs::remove_dir_all(folder);
}
