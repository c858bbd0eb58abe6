//! The control of the measurement: threads that use as much CPU as the noisy app did, and never talk to the server.
//!
//! On few cores the noise delays the steady app in two ways: inside the server, and because the kernel has to share the
//! cores. The second part is no fault of the server: any other program on the machine causes it. The latency beside
//! these threads shows how large it is.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::crowd::{Crowd, Priority};
use crate::Error;
use crate::scenario::Load;

/// A thread computes for its share of each period, and sleeps for the rest.
const PERIOD: Duration = Duration::from_millis(20);
/// Between two looks at the clock.
const STEPS: u32 = 1_000;

/// At normal priority what the noisy app cost in the server, at the lowest what its clients took: these are their
/// priorities.
pub(super) fn start(load: Load) -> Result<Crowd, Error> {
    let mut crowd = Crowd::default();
    for (cores, priority) in [(load.server, Priority::Normal), (load.clients, Priority::Lowest)] {
        for share in shares(cores) {
            crowd.spawn("control", priority, move |ends| compute(share, ends))?;
        }
    }
    Ok(crowd)
}

/// For each thread its share of a core. Whole cores first: one of the server's threads may be busy all the time.
fn shares(cores: f64) -> Vec<f64> {
    let whole = cores.max(0.0).floor();
    let rest = cores.max(0.0) - whole;
    let mut shares = vec![1.0; whole as usize];
    shares.extend((rest > 0.0).then_some(rest));
    shares
}

fn compute(share: f64, ends: &AtomicBool) {
    while !ends.load(Relaxed) {
        let begun = Instant::now();
        let busy = PERIOD.mul_f64(share);
        let mut number = 0_u32;
        while begun.elapsed() < busy {
            for _ in 0..STEPS {
                number = std::hint::black_box(number.wrapping_mul(31).wrapping_add(1));
            }
        }
        std::thread::sleep(PERIOD.saturating_sub(begun.elapsed()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_shared_by_as_few_threads_as_can_bear_it() {
        assert_eq!((shares(0.0), shares(-0.1), shares(0.25)), (vec![], vec![], vec![0.25]));
        assert_eq!((shares(1.0), shares(2.5)), (vec![1.0], vec![1.0, 1.0, 0.5]));
    }
}
