//! Telling other nodes what is stale: some at once, and where too much changes to be named, whole apps.
//!
//! What is told is at most [`TAGS_MAX`] names in [`INTERVAL`] to each node, whatever is published.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::outbox::To;
use crate::cluster::wire::{Record, STALE_TAGS_MAX as TAGS_MAX};
use crate::delivery::Delivery;

/// How long a change waits for company.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Default)]
pub(crate) struct Told {
    /// Guards the list only. At most [`TAGS_MAX`] of them, and none once there are more: then everything is stale.
    waiting: Mutex<Waiting>,
    filled: Notify,
}

#[derive(Default)]
struct Waiting {
    tags: Vec<u64>,
    all: bool,
}

impl Told {
    pub(crate) fn add(&self, tags: impl Iterator<Item = u64>) {
        let mut waiting = self.waiting.lock();
        for tag in tags {
            if waiting.all {
                continue;
            }
            if waiting.tags.len() == TAGS_MAX {
                *waiting = Waiting { tags: Vec::new(), all: true };
                continue;
            }
            waiting.tags.push(tag);
        }
        drop(waiting);
        self.filled.notify_one();
    }

    fn take(&self) -> Option<Record> {
        let Waiting { tags, all } = std::mem::take(&mut *self.waiting.lock());
        (all || !tags.is_empty()).then_some(Record::Stale { tags, all })
    }
}

/// Until it is dropped. A node alone has nobody to tell.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let Some(peers) = delivery.peers() else { return std::future::pending().await };
    loop {
        delivery.first_calls.told.filled.notified().await;
        tokio::time::sleep(INTERVAL).await;
        if let Some(record) = delivery.first_calls.told.take() {
            peers.tell(To::Apis, record);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_bounded() {
        let told = Told::default();
        assert_eq!(told.take(), None);
        told.add([1, 2].into_iter());
        told.add([3].into_iter());
        assert_eq!(told.take(), Some(Record::Stale { tags: vec![1, 2, 3], all: false }));
        told.add(0..TAGS_MAX as u64);
        told.add([1].into_iter());
        told.add([2].into_iter());
        assert_eq!(told.take(), Some(Record::Stale { tags: Vec::new(), all: true }));
        told.add([1].into_iter());
        assert_eq!(told.take(), Some(Record::Stale { tags: vec![1], all: false }));
    }
}
