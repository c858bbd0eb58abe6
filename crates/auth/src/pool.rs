//! Threads that verify signatures made with public keys, so that neither a shard nor a thread of the API's runtime does.
//!
//! The queue is bounded. A task that finds no room is handed back, and its log-in is refused with advice to retry. Tasks
//! of suspects (`failures`) only take the first half of the queue, so they leave room for the others.
//!
//! The threads end when the pool is dropped, after the tasks that are queued.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crossbeam_channel::{Receiver, Sender, bounded};
use noroshi_supervision::{Kind, Pulse, Threads};

use crate::failures::Standing;

/// 4,096 verifications take one thread some 0.2 s (RSA-2048 or P-256, 50 µs each).
const QUEUE_MAX: usize = 4_096;
/// A quarter of the cores: the others deliver.
const THREADS_MAX: usize = 8;

pub(crate) type Task = Box<dyn FnOnce() + Send>;

pub(crate) struct Pool {
    queue: Sender<Task>,
}

impl Pool {
    pub(crate) fn start(threads: &Threads) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with((cores / 4).clamp(1, THREADS_MAX), QUEUE_MAX, threads)
    }

    fn with(count: usize, queue_max: usize, threads: &Threads) -> io::Result<Self> {
        let (queue, tasks) = bounded::<Task>(queue_max);
        for index in 0..count {
            let tasks = tasks.clone();
            threads.spawn(Kind::Verifier, format!("verify-{index}"), move |pulse| work(&tasks, pulse))?;
        }
        Ok(Self { queue })
    }

    /// False if there was no room; the task is dropped then.
    pub(crate) fn submit(&self, standing: Standing, task: Task) -> bool {
        let half = self.queue.capacity().unwrap_or(QUEUE_MAX) / 2;
        let has_room = standing == Standing::Good || self.queue.len() < half;
        has_room && self.queue.try_send(task).is_ok()
    }
}

fn work(tasks: &Receiver<Task>, pulse: &Pulse) {
    loop {
        pulse.waiting();
        let Ok(task) = tasks.recv() else { return };
        pulse.working();
        // Whoever waits for the task is told when it is dropped (`verify::Answer`).
        if catch_unwind(AssertUnwindSafe(task)).is_err() {
            tracing::error!("the verification of a token panicked; its log-in is refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_full_queue_refuses_and_suspects_have_half_of_it() {
        let pool = Pool::with(1, 4, &Threads::default()).expect("threads");
        let (release, held) = mpsc::sync_channel::<()>(1);
        let (began, begun) = mpsc::sync_channel(1);
        let first = pool.submit(
            Standing::Good,
            Box::new(move || {
                began.send(()).expect("the test listens");
                let _ = held.recv();
            }),
        );
        begun.recv().expect("the first task runs");
        let submit = |standing| pool.submit(standing, Box::new(|| {}));
        assert!(first && submit(Standing::Suspect) && submit(Standing::Suspect));
        assert!(!submit(Standing::Suspect), "half of the queue is for the others");
        assert!(submit(Standing::Good) && submit(Standing::Good));
        assert!(!submit(Standing::Good));
        drop(release);
    }

    #[test]
    fn a_panic_ends_its_task_only() {
        let pool = Pool::with(1, 4, &Threads::default()).expect("threads");
        let (done, finished) = mpsc::sync_channel(1);
        assert!(pool.submit(Standing::Good, Box::new(|| panic!("a task of the test"))));
        assert!(pool.submit(Standing::Good, Box::new(move || done.send(()).expect("the test listens"))));
        finished.recv().expect("the next task ran");
    }
}
