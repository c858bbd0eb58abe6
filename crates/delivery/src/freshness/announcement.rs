//! The names of changed devices that wait to be announced to other nodes.
//!
//! At most [`TAGS_MAX`] names are announced in [`INTERVAL`], however much is published. If more devices change, the
//! announcement means that everything is stale.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::wire::{Record, STALE_TAGS_MAX as TAGS_MAX};

/// How long a change waits for others, so that they leave together.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(super) struct Announcement {
    /// Guards only itself.
    pending: Mutex<Pending>,
    filled: Notify,
}

#[derive(Default)]
struct Pending {
    /// At most [`TAGS_MAX`]; empty while `all` is set.
    tags: Vec<u64>,
    /// There were more than [`TAGS_MAX`]: everything is stale.
    all: bool,
}

impl Announcement {
    pub(super) fn add(&self, tags: impl Iterator<Item = u64>) {
        let mut pending = self.pending.lock();
        for tag in tags {
            if pending.all {
                continue;
            }
            if pending.tags.len() == TAGS_MAX {
                *pending = Pending { tags: Vec::new(), all: true };
                continue;
            }
            pending.tags.push(tag);
        }
        drop(pending);
        self.filled.notify_one();
    }

    /// The next announcement, once there is something to announce and [`INTERVAL`] has passed.
    pub(super) async fn next(&self) -> Record {
        loop {
            self.filled.notified().await;
            tokio::time::sleep(INTERVAL).await;
            if let Some(record) = self.take() {
                return record;
            }
        }
    }

    fn take(&self) -> Option<Record> {
        let Pending { tags, all } = std::mem::take(&mut *self.pending.lock());
        (all || !tags.is_empty()).then_some(Record::Stale { tags, all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_announced_names_is_bounded() {
        let announcement = Announcement::default();
        assert_eq!(announcement.take(), None);
        announcement.add([1, 2].into_iter());
        announcement.add([3].into_iter());
        assert_eq!(announcement.take(), Some(Record::Stale { tags: vec![1, 2, 3], all: false }));
        announcement.add(0..TAGS_MAX as u64);
        announcement.add([1].into_iter());
        announcement.add([2].into_iter());
        assert_eq!(announcement.take(), Some(Record::Stale { tags: Vec::new(), all: true }));
        announcement.add([1].into_iter());
        assert_eq!(announcement.take(), Some(Record::Stale { tags: vec![1], all: false }));
    }
}
