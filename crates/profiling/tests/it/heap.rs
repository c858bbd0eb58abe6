//! Heap profiles of a process that uses jemalloc as its allocator.

use noroshi_profiling::heap::Jemalloc;
use noroshi_profiling::{Detail, folded};

use crate::take::profiler;

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

#[inline(never)]
fn hold_a_lot() -> Vec<Vec<u8>> {
    // 64 times the sampling period.
    (0..64_u8).map(|byte| vec![byte; 512 << 10]).collect()
}

#[tokio::test]
async fn a_heap_profile_names_the_caller_and_not_the_allocator() {
    let held = std::hint::black_box(hold_a_lot());
    for detail in [Detail::Functions, Detail::Lines] {
        let taken = profiler().heap(detail).await.expect("a profile");
        let folded = folded::fold(&taken.pprof).expect("a profile");
        assert_eq!((folded.what.as_str(), folded.unit.as_str()), ("inuse_space", "bytes"));
        let bytes = |line: &String| line.rsplit(' ').next().and_then(|bytes| bytes.parse::<i64>().ok());
        let ours =
            folded.lines.iter().filter(|line| line.contains("hold_a_lot")).filter_map(bytes).sum::<i64>();
        // About 32 MiB: sampled values are estimates.
        assert!((16 << 20..64 << 20).contains(&ours), "{ours} of {}", folded.sum);
        let allocator =
            folded.lines.iter().find(|line| line.contains("rjem_") || line.contains("prof_backtrace"));
        assert_eq!(allocator, None);
    }
    drop(held);
}
