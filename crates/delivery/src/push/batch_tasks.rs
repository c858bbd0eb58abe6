//! The tasks of batches in flight.
//!
//! The sender and the puller start tasks; both use the same bounds (`in_flight`) and end together at the drain.

use std::time::Instant;

use noroshi_cluster::batches::Receipt;
use noroshi_store::{Batch, Lease};
use tokio::task::{JoinHandle, JoinSet};

use super::batch::{BatchRunner, LeasedBatch};
use super::in_flight::BatchLease;
use super::{lease, take};

pub(super) struct BatchTasks {
    pub(super) runner: BatchRunner,
    tasks: JoinSet<()>,
}

impl BatchTasks {
    pub(super) fn new(runner: BatchRunner) -> Self {
        Self { runner, tasks: JoinSet::new() }
    }

    /// Starts the task of a batch.
    pub(super) fn start(&mut self, batch: Batch, held: BatchLease) {
        let pipeline = &self.runner.pipeline;
        let receipt: Option<Receipt> = held.receipt().cloned();
        let lease = Lease { batch: batch.id, until: batch.leased_until };
        let Some((recipients, held)) = pipeline.in_flight.begin(&batch, held) else {
            lease::uncount(&self.runner.pipeline, lease);
            return lease::done(pipeline, receipt.into_iter().collect());
        };
        let turn = match pipeline.queue.get() {
            // The dispatcher waited for its turn.
            Some(_) => None,
            None => take::turn(pipeline, &batch),
        };
        let leased = LeasedBatch { batch, recipients, held, taken: Instant::now(), turn };
        self.tasks.spawn(self.runner.clone().run(leased));
    }

    /// Removes the handles of finished tasks.
    pub(super) fn remove_finished(&mut self) {
        while self.tasks.try_join_next().is_some() {}
    }

    /// Sets the metrics of work in flight.
    pub(super) fn report(&self) {
        let (flight, metrics) = (&self.runner.pipeline.in_flight, &self.runner.pipeline.metrics);
        metrics.recipients_in_flight.set(i64::try_from(flight.recipients()).unwrap_or(i64::MAX));
        metrics.batches_in_flight.set(i64::try_from(flight.batch_count()).unwrap_or(i64::MAX));
    }

    /// Waits for all batches in flight, and until their results are written.
    pub(super) async fn finish(self, finisher: JoinHandle<()>) {
        let BatchTasks { runner, mut tasks } = self;
        while tasks.join_next().await.is_some() {}
        // The finisher ends when nothing can send to it.
        drop(runner);
        let _ = finisher.await;
    }
}
