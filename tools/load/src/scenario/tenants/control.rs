//! The control measurement: threads that use as much CPU as the noisy app did, without contacting the server.
//!
//! On few cores the noise delays the steady app in two ways: inside the server, and because the kernel shares
//! the cores. The second effect is not the server's fault: any other program causes it. The latency next to
//! these threads shows its size.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::crowd::{Crowd, Priority};
use crate::Error;
use crate::scenario::Load;

/// A thread computes for its share of each period, and sleeps for the rest.
const PERIOD: Duration = Duration::from_millis(20);
/// Steps between two clock reads.
const STEPS: u32 = 1_000;

/// Starts threads at normal priority for the CPU of the noisy app in the server, and at the lowest for that
/// of its clients, which have these priorities.
pub(super) fn start(load: Load) -> Result<Crowd, Error> {
    let mut crowd = Crowd::default();
    for (cores, priority) in [(load.server, Priority::Normal), (load.clients, Priority::Lowest)] {
        for share in shares(cores) {
            crowd.spawn("control", priority, move |ends| compute(share, ends))?;
        }
    }
    Ok(crowd)
}

/// The share of a core for each thread. Whole cores first: a server thread may be busy all the time.
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
    fn load_is_distributed_over_as_few_threads_as_possible() {
        assert_eq!((shares(0.0), shares(-0.1), shares(0.25)), (vec![], vec![], vec![0.25]));
        assert_eq!((shares(1.0), shares(2.5)), (vec![1.0], vec![1.0, 1.0, 0.5]));
    }
}
