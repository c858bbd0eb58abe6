//! Reader threads: each has its own read-only connection, and all take reads from one bounded queue.
//!
//! A read runs in one transaction, so it sees one state, which includes every commit that was answered before the
//! read was requested.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::RwLock;
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use noroshi_supervision::{Heartbeat, Kind, Threads};
use tokio::sync::oneshot;

use super::statement::Db;
use crate::Error;
use crate::ids::Ids;
use crate::metrics::Metrics;

/// The context of a read.
#[derive(Clone, Copy)]
pub(crate) struct Read<'a> {
    pub db: &'a Db,
    pub ids: &'a Ids,
}

type Job = Box<dyn FnOnce(Read<'_>) + Send>;

/// The handle of the reader threads.
pub(super) struct Readers {
    /// None once closed. The lock is held for a `try_send` and never across an await.
    queue: RwLock<Option<Sender<Job>>>,
    threads: Threads,
    metrics: Metrics,
}

impl Readers {
    /// Returns the handle, and the queue that the threads take reads from.
    pub(super) fn new(queue_max: usize, threads: Threads, metrics: Metrics) -> (Self, Receiver<Job>) {
        let (queue, jobs) = bounded(queue_max);
        (Self { queue: RwLock::new(Some(queue)), threads, metrics }, jobs)
    }

    /// Reads on one of the threads. Cancel-safe: dropping the future only loses the answer.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(Read<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let seconds = self.metrics.read_seconds.clone();
        let job: Job = Box::new(move |read| {
            if !answer.is_closed() {
                let started = Instant::now();
                let result = in_transaction(read, work);
                seconds.observe(started.elapsed().as_secs_f64());
                // The caller may be gone and no longer need the answer.
                let _ = answer.send(result);
            }
        });
        self.queue_up(job)?;
        answered.await.unwrap_or_else(|_| Err(Error::Engine("a read panicked".to_owned())))
    }

    /// Reads on one of the threads, which then calls `done` outside the transaction. `done` is called exactly once: at
    /// once if the queue is full or closed.
    pub(super) fn read_then<T: Send + 'static>(
        &self,
        work: impl FnOnce(Read<'_>) -> Result<T, Error> + Send + 'static,
        done: impl FnOnce(Result<T, Error>) + Send + 'static,
    ) {
        let seconds = self.metrics.read_seconds.clone();
        let mut answer = Answer { done: Some(done), result: PhantomData };
        let job: Job = Box::new(move |read| {
            let started = Instant::now();
            let result = in_transaction(read, work);
            seconds.observe(started.elapsed().as_secs_f64());
            answer.give(result);
        });
        // The job that was refused has reported this when it was dropped.
        let _ = self.queue_up(job);
    }

    fn queue_up(&self, job: Job) -> Result<(), Error> {
        let queue = self.threads.unpoison("the read queue", Kind::StoreReader, self.queue.read());
        queue.as_ref().ok_or(Error::Closed)?.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => {
                self.metrics.refused.inc();
                Error::Overloaded
            }
            TrySendError::Disconnected(_) => Error::Closed,
        })
    }

    /// Accepts no more reads; the threads end when the queue is empty.
    pub(super) fn close(&self) {
        self.threads.unpoison("the read queue", Kind::StoreReader, self.queue.write()).take();
    }
}

/// Who waits for a read. If the read is dropped, it never began, or it panicked.
struct Answer<T, F: FnOnce(Result<T, Error>)> {
    done: Option<F>,
    result: PhantomData<fn(T)>,
}

impl<T, F: FnOnce(Result<T, Error>)> Answer<T, F> {
    fn give(&mut self, result: Result<T, Error>) {
        if let Some(done) = self.done.take() {
            done(result);
        }
    }
}

impl<T, F: FnOnce(Result<T, Error>)> Drop for Answer<T, F> {
    fn drop(&mut self) {
        self.give(Err(match std::thread::panicking() {
            true => Error::Engine("a read panicked".to_owned()),
            false => Error::Overloaded,
        }));
    }
}

/// The loop of a reader thread, until the queue is closed and empty.
pub(super) fn run(jobs: &Receiver<Job>, read: Read<'_>, pulse: &Heartbeat) {
    loop {
        pulse.waiting();
        let Ok(job) = jobs.recv() else { return };
        pulse.working();
        if catch_unwind(AssertUnwindSafe(|| job(read))).is_err() {
            tracing::error!("a read panicked");
        }
    }
}

fn in_transaction<T>(read: Read<'_>, work: impl FnOnce(Read<'_>) -> Result<T, Error>) -> Result<T, Error> {
    // The drop rolls back, also after a panic; a read has nothing to commit.
    let _transaction = read.db.unchecked_transaction()?;
    work(read)
}
