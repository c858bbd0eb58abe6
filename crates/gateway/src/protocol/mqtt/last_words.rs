//! Orders what the connections of one device write to the store at their end.
//!
//! A device may come back before its old connection's state is written. The new session continues from what the node
//! remembers. Its own writes wait for that older write, which would otherwise overwrite them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::session::registry::Key;

/// Sessions whose connection ended and whose state is not in the store yet.
#[derive(Default)]
pub(crate) struct LastWords {
    /// By device: the generations of the connections, and whether the session ends. At most as many as jobs wait.
    untold: Mutex<HashMap<Key, Vec<(u64, bool)>>>,
    told: Notify,
}

impl LastWords {
    /// Announces the write of a connection that ended. `ends`: its session ends too.
    pub(crate) fn announce(self: &Arc<Self>, key: Key, generation: u64, ends: bool) -> Turn {
        self.untold.lock().entry(key).or_default().push((generation, ends));
        Turn { words: self.clone(), key, generation }
    }

    /// Whether a session of the device has ended and the store still has it.
    pub(crate) fn tells_an_end(&self, key: Key) -> bool {
        self.untold.lock().get(&key).is_some_and(|untold| untold.last().is_some_and(|(_, ends)| *ends))
    }

    /// Waits for the writes of the device's earlier connections.
    pub(crate) async fn wait_for_earlier(&self, key: Key, generation: u64) {
        loop {
            let told = self.told.notified();
            let mut told = std::pin::pin!(told);
            // From here on it is woken.
            told.as_mut().enable();
            let waits = |untold: &Vec<(u64, bool)>| untold.iter().any(|(earlier, _)| *earlier < generation);
            if !self.untold.lock().get(&key).is_some_and(waits) {
                return;
            }
            told.await;
        }
    }
}

/// Dropped when the announced write is done or given up.
pub(crate) struct Turn {
    words: Arc<LastWords>,
    key: Key,
    generation: u64,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Turn({})", self.generation)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut untold = self.words.untold.lock();
        if let Some(of_device) = untold.get_mut(&self.key) {
            of_device.retain(|(generation, _)| *generation != self.generation);
            if of_device.is_empty() {
                untold.remove(&self.key);
            }
        }
        drop(untold);
        self.words.told.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_session_writes_behind_the_last_word_of_the_one_before() {
        let words = Arc::new(LastWords::default());
        let key = 7;
        words.wait_for_earlier(key, 2).await;
        let turn = words.announce(key, 1, true);
        assert!(words.tells_an_end(key) && !words.tells_an_end(8));
        words.wait_for_earlier(key, 1).await;
        words.wait_for_earlier(8, 2).await;
        let mut waits = std::pin::pin!(words.wait_for_earlier(key, 2));
        assert!(futures_util::poll!(&mut waits).is_pending());
        drop(turn);
        waits.await;
        assert!(words.untold.lock().is_empty());
    }
}
