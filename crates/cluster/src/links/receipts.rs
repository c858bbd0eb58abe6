//! Which frames other nodes have confirmed, over whichever way the confirmation came.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Epoch;

#[derive(Default)]
pub(crate) struct Receipts {
    /// Sender and receiver, and the number of the last frame that the receiver confirmed. Guards the map only.
    confirmed: Mutex<HashMap<(Epoch, Epoch), u64>>,
    /// Notified of each receipt, and of each link that ends.
    progress: Notify,
}

impl Receipts {
    /// The receiver has all frames up to `number`.
    pub(crate) fn note(&self, from: Epoch, to: Epoch, number: u64) {
        let mut confirmed = self.confirmed.lock();
        let last = confirmed.entry((from, to)).or_default();
        *last = (*last).max(number);
        drop(confirmed);
        self.progress.notify_one();
    }

    /// 0: none.
    pub(crate) fn confirmed(&self, from: Epoch, to: Epoch) -> u64 {
        self.confirmed.lock().get(&(from, to)).copied().unwrap_or(0)
    }

    /// Forgets a receiver that no longer exists.
    pub(super) fn remove(&self, to: Epoch) {
        self.confirmed.lock().retain(|(_, known), _| *known != to);
    }

    /// Forgets everything: this node has another lease.
    pub(super) fn forget(&self) {
        self.confirmed.lock().clear();
    }

    pub(crate) fn wake(&self) {
        self.progress.notify_one();
    }

    /// Resolves at the next progress, or at once if there was some since the last call. One caller at a time.
    pub(crate) async fn progress(&self) {
        self.progress.notified().await;
    }
}
