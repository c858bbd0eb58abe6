//! Turns of batches that compute.
//!
//! A batch that computes for milliseconds keeps its thread from requests that are due, such as those of other apps:
//! tokio takes a thread from a task only where that waits. And when a push service fails, hundreds of batches are ready
//! to run at once; a request would wait for a stint of each. So batches take turns: at most [`Turns::new`]'s number of
//! them compute at a time, each for a stint, and a batch that waits for a turn is in no thread's queue.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// About what one request of the API costs.
const STINT: Duration = Duration::from_micros(200);

pub(crate) struct Turns {
    /// Never closed.
    free: Semaphore,
}

impl Turns {
    /// All processors but one, which stays free for requests.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { free: Semaphore::new(processors.saturating_sub(1).max(1)) }
    }

    /// Waits for a turn, first come, first served.
    pub(crate) async fn begin(&self) -> Stint<'_> {
        Stint { turns: self, turn: self.free.acquire().await.ok(), began: Instant::now() }
    }
}

/// A turn, until it is dropped.
pub(crate) struct Stint<'a> {
    turns: &'a Turns,
    /// None while it waits.
    turn: Option<SemaphorePermit<'a>>,
    began: Instant,
}

impl Stint<'_> {
    /// Lets other tasks and the next batch run where this one has computed for long enough.
    pub(crate) async fn rest(&mut self) {
        if self.began.elapsed() >= STINT {
            self.turn = None;
            tokio::task::yield_now().await;
            self.resume().await;
        }
    }

    /// Others have the turn while `what` is not ready.
    pub(crate) async fn wait_for<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = pin!(what);
        if let std::task::Poll::Ready(done) = futures_util::poll!(&mut what) {
            return done;
        }
        self.turn = None;
        let done = what.await;
        self.resume().await;
        done
    }

    async fn resume(&mut self) {
        self.turn = self.turns.free.acquire().await.ok();
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_compute_at_once_than_have_a_turn() {
        let turns = Arc::new(Turns { free: Semaphore::new(2) });
        let (computing, most, rounds) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..8).map(|_| {
            let (turns, computing, most, rounds) =
                (turns.clone(), computing.clone(), most.clone(), rounds.clone());
            tokio::spawn(async move {
                let mut stint = turns.begin().await;
                for _ in 0..10 {
                    most.fetch_max(computing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(STINT);
                    computing.fetch_sub(1, Ordering::SeqCst);
                    rounds.fetch_add(1, Ordering::SeqCst);
                    stint.rest().await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("no panic");
        }
        assert_eq!(rounds.load(Ordering::SeqCst), 80);
        assert!(most.load(Ordering::SeqCst) <= 2, "{most:?} computed at once");
    }

    #[tokio::test]
    async fn who_waits_has_no_turn() {
        let turns = Turns { free: Semaphore::new(1) };
        let mut waits = turns.begin().await;
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let waiting = waits.wait_for(gone);
        let computing = async {
            drop(turns.begin().await);
            go.send(()).expect("somebody waits");
        };
        let (done, ()) = tokio::join!(waiting, computing);
        done.expect("was sent");
        assert!(waits.turn.is_some());
        assert_eq!(turns.free.available_permits(), 0);
    }
}
