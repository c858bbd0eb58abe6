//! Accepting: what concurrent requests want to be kept goes into one commit, and whoever waits is told after it.
//!
//! The answer does not wait for the cells. Even where all of them answer at once it would be the slowest one's time,
//! and the promise of `202` is the same: it is on disk, and goes out whatever happens.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use noroshi_api::{Code, Problem};
use noroshi_store::cells::{CellNum, NewMessage, Taken};
use noroshi_types::AppId;
use tokio::sync::{mpsc, oneshot};

use crate::cell::Cell;
use crate::front::Front;

/// Requests that wait for a commit; one more is answered 503.
const WAITERS_MAX: usize = 4_096;
/// Messages in one commit.
pub(crate) const COMMIT_MESSAGES_MAX: usize = 500;

/// Who waits for a message to be kept.
pub(crate) struct Waiter {
    message: NewMessage,
    answer: oneshot::Sender<Result<Taken, Problem>>,
}

/// The way to the commits.
pub(crate) struct Outbox(mpsc::Sender<Waiter>);

pub(crate) fn new() -> (Outbox, mpsc::Receiver<Waiter>) {
    let (sender, receiver) = mpsc::channel(WAITERS_MAX);
    (Outbox(sender), receiver)
}

impl Outbox {
    /// Kept when it is answered. Dropped, the message may be kept all the same.
    pub(crate) async fn keep(&self, message: NewMessage) -> Result<Taken, Problem> {
        let (answer, answered) = oneshot::channel();
        let full = || Problem::new(Code::Overloaded, "the front has more to accept than it can; try again");
        self.0.try_send(Waiter { message, answer }).map_err(|_| full())?;
        answered
            .await
            .unwrap_or_else(|_| Err(Problem::new(Code::Unavailable, "the front is stopping; try again")))
    }
}

pub(crate) async fn run(front: Arc<Front>, mut waiters: mpsc::Receiver<Waiter>) {
    let mut group = Vec::new();
    while waiters.recv_many(&mut group, COMMIT_MESSAGES_MAX).await > 0 {
        let (messages, answers): (Vec<_>, Vec<_>) =
            group.drain(..).map(|Waiter { message, answer }| (message, answer)).unzip();
        for (answer, result) in answers.into_iter().zip(keep_all(&front, messages).await) {
            // Whoever asked may have gone away.
            let _ = answer.send(result);
        }
    }
}

/// In one commit, answers in order.
pub(crate) async fn keep_all(front: &Front, messages: Vec<NewMessage>) -> Vec<Result<Taken, Problem>> {
    let count = messages.len();
    match front.store.keep(messages, front.state.now()).await {
        Ok(kept) => {
            for num in kept.iter().flatten().flat_map(|taken| &taken.cells) {
                if let Ok(cell) = front.cell(*num) {
                    cell.waiting.fetch_add(1, Ordering::Relaxed);
                    cell.work.notify_one();
                }
            }
            kept.into_iter().map(|answer| answer.map_err(Problem::from)).collect()
        }
        Err(error) => vec![Err(error.into()); count],
    }
}

/// Cells for which nothing more of the app can be kept. An app that the cell refuses for now leaves half of the outbox
/// to the others.
pub(crate) fn full(front: &Front, app: AppId) -> Arc<[CellNum]> {
    let max = front.config.outbox_parts_max;
    let is_full = |cell: &&Arc<Cell>| {
        let max = if cell.refuses(app) { max / 2 } else { max };
        cell.waiting.load(Ordering::Relaxed) >= max
    };
    front.cells.iter().filter(is_full).map(|cell| cell.num).collect()
}
