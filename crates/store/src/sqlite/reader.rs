//! Reader threads: each has its own read-only connection, and all take reads from one bounded queue.
//!
//! A read runs in one transaction, so it sees one state, which includes every commit that was answered before the
//! read was requested.
//!
//! Bounds: [`READ_WAIT_MAX`] by the usual time of a read, and `Options::read_queue` reads.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use noroshi_supervision::{Heartbeat, Kind, Threads};
use tokio::sync::oneshot;

use super::options::Options;
use super::statement::Db;
use crate::Error;
use crate::ids::Ids;
use crate::metrics::Metrics;

/// A read that would wait for longer is refused, since its caller would have given up or asked again.
const READ_WAIT_MAX: Duration = Duration::from_secs(1);
/// As many reads wait however long they take: one slow read does not turn a few others away.
const READS_WAITING_ALWAYS: usize = 64;

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
    reader_threads: usize,
    threads: Threads,
    pace: Arc<Pace>,
    metrics: Metrics,
}

/// The usual time of a read, measured over the last dozens.
#[derive(Default)]
struct Pace {
    read_ns: AtomicU64,
}

impl Pace {
    fn observe(&self, read: Duration) {
        let sample = u64::try_from(read.as_nanos()).unwrap_or(u64::MAX);
        let mean = self.read_ns.load(Ordering::Relaxed);
        // Two threads may overwrite each other's sample.
        self.read_ns.store(mean - mean / 16 + sample / 16, Ordering::Relaxed);
    }

    /// How long `reads` take on `threads`.
    fn wait(&self, reads: usize, threads: usize) -> Duration {
        let read_ns = self.read_ns.load(Ordering::Relaxed);
        Duration::from_nanos(read_ns.saturating_mul(reads as u64) / threads.max(1) as u64)
    }
}

impl Readers {
    /// Returns the handle, and the queue that the threads take reads from.
    pub(super) fn new(options: &Options, metrics: Metrics) -> (Self, Receiver<Job>) {
        let (queue, jobs) = bounded(options.read_queue);
        let readers = Self {
            queue: RwLock::new(Some(queue)),
            reader_threads: options.reader_threads.max(1),
            threads: options.threads.clone(),
            pace: Arc::default(),
            metrics,
        };
        (readers, jobs)
    }

    /// Reads on one of the threads. Cancel-safe: dropping the future only loses the answer.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(Read<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let timed = self.timed(work);
        let job: Job = Box::new(move |read| {
            if !answer.is_closed() {
                let result = timed(read);
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
        let timed = self.timed(work);
        let mut answer = Answer { done: Some(done), result: PhantomData };
        let job: Job = Box::new(move |read| answer.give(timed(read)));
        // The job that was refused has reported this when it was dropped.
        let _ = self.queue_up(job);
    }

    /// Reads in a transaction, and measures how long that takes.
    fn timed<T, W: FnOnce(Read<'_>) -> Result<T, Error>>(
        &self,
        work: W,
    ) -> impl FnOnce(Read<'_>) -> Result<T, Error> + use<T, W> {
        let (seconds, pace) = (self.metrics.read_seconds.clone(), self.pace.clone());
        move |read| {
            let started = Instant::now();
            let result = in_transaction(read, work);
            let took = started.elapsed();
            pace.observe(took);
            seconds.observe(took.as_secs_f64());
            result
        }
    }

    fn queue_up(&self, job: Job) -> Result<(), Error> {
        let queue = self.threads.unpoison("the read queue", Kind::StoreReader, self.queue.read());
        let queue = queue.as_ref().ok_or(Error::Closed)?;
        let waiting = queue.len();
        if waiting >= READS_WAITING_ALWAYS && self.pace.wait(waiting, self.reader_threads) > READ_WAIT_MAX {
            self.metrics.refused.inc();
            return Err(Error::Overloaded);
        }
        queue.try_send(job).map_err(|error| match error {
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

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn reads_that_would_wait_for_too_long_are_refused() {
        let options = Options { read_queue: 1_000, reader_threads: 2, ..Options::default() };
        // Nothing takes the reads.
        let (readers, _jobs) = Readers::new(&options, Metrics::register(&mut Registry::default()));
        let queue_up = || readers.queue_up(Box::new(|_| ()));
        for _ in 0..200 {
            assert!(queue_up().is_ok(), "the time of a read is unknown");
        }
        (0..100).for_each(|_| readers.pace.observe(Duration::from_millis(8)));
        assert!(queue_up().is_ok(), "200 reads of 8 ms on two threads: 0.8 s");
        (0..100).for_each(|_| readers.pace.observe(Duration::from_millis(20)));
        assert!(matches!(queue_up(), Err(Error::Overloaded)), "2 s");
        (0..200).for_each(|_| readers.pace.observe(Duration::from_micros(100)));
        assert!(queue_up().is_ok());
    }

    #[test]
    fn a_few_reads_wait_behind_a_slow_one() {
        let (readers, _jobs) = Readers::new(&Options::default(), Metrics::register(&mut Registry::default()));
        readers.pace.observe(Duration::from_secs(600));
        for _ in 0..READS_WAITING_ALWAYS {
            assert!(readers.queue_up(Box::new(|_| ())).is_ok());
        }
        assert!(matches!(readers.queue_up(Box::new(|_| ())), Err(Error::Overloaded)));
    }
}
