//! Accepts messages: concurrent requests share one commit and are answered after it.
//!
//! The answer does not wait for the cells. Waiting would take as long as the slowest cell, and `202` promises the same
//! either way: the message is on disk and will be forwarded.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use noroshi_api::{Code, Problem};
use noroshi_store::cells::{CellNum, NewMessage, Taken};
use noroshi_types::{AppId, NotificationId};
use tokio::sync::{mpsc, oneshot};

use crate::cell::Cell;
use crate::cell_set::CellSet;

/// Requests that wait for a commit; further ones are answered 503.
const WAITERS_MAX: usize = 4_096;
/// Messages in one commit.
pub(crate) const COMMIT_MESSAGES_MAX: usize = 500;

/// A request that waits for its commit.
pub(crate) struct Waiter {
    message: NewMessage,
    answer: oneshot::Sender<Result<Taken, Problem>>,
}

/// Queues messages for the next commit.
pub(crate) struct Outbox(mpsc::Sender<Waiter>);

pub(crate) fn new() -> (Outbox, mpsc::Receiver<Waiter>) {
    let (sender, receiver) = mpsc::channel(WAITERS_MAX);
    (Outbox(sender), receiver)
}

impl Outbox {
    /// The message is stored when this returns. If the future is dropped, it may be stored as well.
    pub(crate) async fn keep(&self, message: NewMessage) -> Result<Taken, Problem> {
        let (answer, answered) = oneshot::channel();
        let full = || Problem::new(Code::Overloaded, "the front is overloaded; try again");
        self.0.try_send(Waiter { message, answer }).map_err(|_| full())?;
        answered
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Unavailable, "the front is stopping; try again")))
    }
}

pub(crate) async fn run(cells: Arc<CellSet>, mut waiters: mpsc::Receiver<Waiter>) {
    let mut group = Vec::new();
    while waiters.recv_many(&mut group, COMMIT_MESSAGES_MAX).await > 0 {
        let (messages, answers): (Vec<_>, Vec<_>) =
            group.drain(..).map(|Waiter { message, answer }| (message, answer)).unzip();
        for (answer, result) in answers.into_iter().zip(keep_all(&cells, messages).await) {
            // Fails only if the client is gone.
            let _ = answer.send(result);
        }
    }
}

/// An id of the front. Cells assign their own in the order of their commits.
pub(crate) fn new_id() -> NotificationId {
    NotificationId(uuid::Uuid::now_v7())
}

/// Stores messages in one commit. Answers in order.
pub(crate) async fn keep_all(cells: &CellSet, messages: Vec<NewMessage>) -> Vec<Result<Taken, Problem>> {
    let count = messages.len();
    match cells.store.keep(messages, cells.state.now()).await {
        Ok(kept) => {
            for num in kept.iter().flatten().flat_map(|taken| &taken.cells) {
                if let Ok(cell) = cells.get(*num) {
                    cell.waiting.fetch_add(1, Ordering::Relaxed);
                    cell.work.notify_one();
                }
            }
            kept.into_iter().map(|answer| answer.map_err(Problem::from)).collect()
        }
        Err(error) => vec![Err(error.into()); count],
    }
}

/// Cells whose outbox is full for the app. An app that the cell rejects for now may use half of the outbox.
pub(crate) fn full(cells: &CellSet, app: AppId) -> Arc<[CellNum]> {
    let max = cells.config.outbox_parts_max;
    let is_full = |cell: &&Arc<Cell>| {
        let max = if cell.refuses(app) { max / 2 } else { max };
        cell.waiting.load(Ordering::Relaxed) >= max
    };
    cells.iter().filter(is_full).map(|cell| cell.num).collect()
}
