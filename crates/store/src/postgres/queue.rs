//! A bounded queue to one task, limited by operations and by the rows that they may write.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, RwLock};

use noroshi_supervision::{Kind, Threads};
use tokio::sync::mpsc::{
    self, Receiver, Sender,
    error::{TryRecvError, TrySendError},
};

use crate::Error;

/// The name of the lock in failure reports.
const LOCK: &str = "a queue of the store";

/// The sending end.
pub(super) struct Queue<T> {
    /// None once closed. The lock is held for a `try_send` and never across an await.
    sender: RwLock<Option<Sender<(usize, T)>>>,
    rows: Arc<AtomicUsize>,
    rows_max: usize,
    threads: Threads,
}

/// The task's end.
pub(super) struct Queued<T> {
    receiver: Receiver<(usize, T)>,
    rows: Arc<AtomicUsize>,
}

pub(super) fn queue<T>(operations_max: usize, rows_max: usize, threads: &Threads) -> (Queue<T>, Queued<T>) {
    let (sender, receiver) = mpsc::channel(operations_max.max(1));
    let rows = Arc::new(AtomicUsize::new(0));
    let queued = Queued { receiver, rows: Arc::clone(&rows) };
    (Queue { sender: RwLock::new(Some(sender)), rows, rows_max, threads: threads.clone() }, queued)
}

impl<T> Queue<T> {
    /// Queues without waiting, or returns the item with an error. A single item is always accepted, however many rows
    /// it has.
    pub(super) fn push(&self, rows: usize, one: T) -> Result<(), (T, Error)> {
        let sender = self.threads.unpoison(LOCK, Kind::StoreTask, self.sender.read());
        let Some(sender) = sender.as_ref() else { return Err((one, Error::Closed)) };
        if self.rows.fetch_add(rows, Ordering::Relaxed) > self.rows_max {
            self.rows.fetch_sub(rows, Ordering::Relaxed);
            return Err((one, Error::Overloaded));
        }
        sender.try_send((rows, one)).map_err(|error| {
            self.rows.fetch_sub(rows, Ordering::Relaxed);
            match error {
                TrySendError::Full((_, one)) => (one, Error::Overloaded),
                TrySendError::Closed((_, one)) => (one, Error::Closed),
            }
        })
    }

    /// Accepts no more items; the task ends when the queue is empty.
    pub(super) fn close(&self) {
        self.threads.unpoison(LOCK, Kind::StoreTask, self.sender.write()).take();
    }
}

impl<T> Queued<T> {
    /// Waits for an item and takes those queued after it, up to both limits (not counting the rows of the last one).
    /// `None` once the queue is closed and empty.
    pub(super) async fn group(&mut self, operations_max: usize, rows_max: usize) -> Option<Vec<T>> {
        let (rows, first) = self.receiver.recv().await?;
        self.rows.fetch_sub(rows, Ordering::Relaxed);
        let mut group = vec![first];
        self.add_to(&mut group, operations_max, rows_max.saturating_sub(rows));
        Some(group)
    }

    /// Takes queued items without waiting, until the group has `operations_max` items or `rows_max` rows were taken
    /// (not counting those of the last one). False once the queue is closed and empty.
    pub(super) fn add_to(&mut self, group: &mut Vec<T>, operations_max: usize, rows_max: usize) -> bool {
        let (mut rows, mut is_open) = (0, true);
        while rows < rows_max && group.len() < operations_max {
            match self.receiver.try_recv() {
                Ok((more, one)) => {
                    rows += more;
                    group.push(one);
                }
                Err(error) => {
                    is_open = error == TryRecvError::Empty;
                    break;
                }
            }
        }
        self.rows.fetch_sub(rows, Ordering::Relaxed);
        is_open
    }
}
