//! Slots for batches that compute.
//!
//! A batch that computes for milliseconds keeps its thread from requests that are due, such as those of other apps:
//! tokio takes a thread from a task only when the task waits. And when a push service fails, hundreds of batches become
//! ready at once; a request would wait for each of them. So batches share slots: at most [`ComputeSlots::new`]'s number
//! of them compute at a time, each for a short time slice, and a batch without a slot is in no thread's queue.

use std::pin::pin;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The time slice: about the time of one API request.
const TIME_SLICE: Duration = Duration::from_micros(200);

pub(crate) struct ComputeSlots {
    /// Never closed.
    free: Semaphore,
}

impl ComputeSlots {
    /// One slot for each processor but one, which stays free for requests.
    pub(crate) fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Self { free: Semaphore::new(processors.saturating_sub(1).max(1)) }
    }

    /// Waits for a slot, first come, first served.
    pub(crate) async fn acquire(&self) -> ComputeSlot<'_> {
        ComputeSlot { slots: self, permit: self.free.acquire().await.ok(), began: Instant::now() }
    }
}

/// A slot, until it is dropped.
pub(crate) struct ComputeSlot<'a> {
    slots: &'a ComputeSlots,
    /// `None` while the batch waits.
    permit: Option<SemaphorePermit<'a>>,
    began: Instant,
}

impl ComputeSlot<'_> {
    /// Lets other tasks and batches run if the time slice is used up.
    pub(crate) async fn yield_if_used(&mut self) {
        if self.began.elapsed() >= TIME_SLICE {
            self.permit = None;
            tokio::task::yield_now().await;
            self.resume().await;
        }
    }

    /// Awaits `future`, and gives up the slot while it is not ready.
    pub(crate) async fn release_while<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        if let std::task::Poll::Ready(done) = futures_util::poll!(&mut future) {
            return done;
        }
        self.permit = None;
        let done = future.await;
        self.resume().await;
        done
    }

    async fn resume(&mut self) {
        self.permit = self.slots.free.acquire().await.ok();
        self.began = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn no_more_batches_compute_than_there_are_slots() {
        let slots = Arc::new(ComputeSlots { free: Semaphore::new(2) });
        let (computing, most, rounds) =
            (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let tasks = (0..8).map(|_| {
            let (slots, computing, most, rounds) =
                (slots.clone(), computing.clone(), most.clone(), rounds.clone());
            tokio::spawn(async move {
                let mut slot = slots.acquire().await;
                for _ in 0..10 {
                    most.fetch_max(computing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    std::thread::sleep(TIME_SLICE);
                    computing.fetch_sub(1, Ordering::SeqCst);
                    rounds.fetch_add(1, Ordering::SeqCst);
                    slot.yield_if_used().await;
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
    async fn a_waiting_batch_has_no_slot() {
        let slots = ComputeSlots { free: Semaphore::new(1) };
        let mut waits = slots.acquire().await;
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let waiting = waits.release_while(gone);
        let computing = async {
            drop(slots.acquire().await);
            go.send(()).expect("a batch waits");
        };
        let (done, ()) = tokio::join!(waiting, computing);
        done.expect("was sent");
        assert!(waits.permit.is_some());
        assert_eq!(slots.free.available_permits(), 0);
    }
}
