//! Orders the writes of one device's connections to the store at their end.
//!
//! A device may reconnect before its old connection's state is written. The new session continues from the state in the
//! node's memory. Its own writes wait for the older write, which would otherwise overwrite them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::registry::Key;

/// Sessions whose connection ended and whose state is not in the store yet.
#[derive(Default)]
pub(crate) struct FinalWrites {
    /// By device: the generations of the connections, and whether the session ends. At most as many as jobs wait.
    pending: Mutex<HashMap<Key, Vec<(u64, bool)>>>,
    done: Notify,
}

impl FinalWrites {
    /// Announces the write of a connection that ended. `ends`: its session ends too.
    pub(crate) fn announce(self: &Arc<Self>, key: Key, generation: u64, ends: bool) -> FinalWrite {
        self.pending.lock().entry(key).or_default().push((generation, ends));
        FinalWrite { writes: self.clone(), key, generation }
    }

    /// Whether a session of the device has ended and the store still has it.
    pub(crate) fn ends_session(&self, key: Key) -> bool {
        self.pending.lock().get(&key).is_some_and(|pending| pending.last().is_some_and(|(_, ends)| *ends))
    }

    /// Waits for the writes of the device's earlier connections.
    pub(crate) async fn wait_for_earlier(&self, key: Key, generation: u64) {
        loop {
            let done = self.done.notified();
            let mut done = std::pin::pin!(done);
            // From here on it is woken.
            done.as_mut().enable();
            let waits = |pending: &Vec<(u64, bool)>| pending.iter().any(|(earlier, _)| *earlier < generation);
            if !self.pending.lock().get(&key).is_some_and(waits) {
                return;
            }
            done.await;
        }
    }
}

/// Dropped when the announced write is done or given up.
pub(crate) struct FinalWrite {
    writes: Arc<FinalWrites>,
    key: Key,
    generation: u64,
}

impl Drop for FinalWrite {
    fn drop(&mut self) {
        let mut pending = self.writes.pending.lock();
        if let Some(of_device) = pending.get_mut(&self.key) {
            of_device.retain(|(generation, _)| *generation != self.generation);
            if of_device.is_empty() {
                pending.remove(&self.key);
            }
        }
        drop(pending);
        self.writes.done.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_writes_after_the_final_write_of_the_one_before() {
        let writes = Arc::new(FinalWrites::default());
        let key = 7;
        writes.wait_for_earlier(key, 2).await;
        let write = writes.announce(key, 1, true);
        assert!(writes.ends_session(key) && !writes.ends_session(8));
        writes.wait_for_earlier(key, 1).await;
        writes.wait_for_earlier(8, 2).await;
        let mut waits = std::pin::pin!(writes.wait_for_earlier(key, 2));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(write);
        waits.await;
        assert!(writes.pending.lock().is_empty());
    }
}
