//! The queue of messages and records for the bus, first in, first out, with its progress.
//!
//! Filled by the store's completions, in commit order, and by requests; emptied by the one dispatcher. `push` never
//! refuses: callers check [`Outbox::has_room`] before they accept a request.

use std::collections::VecDeque;
use std::sync::Arc;

use noroshi_cluster::{Epoch, SessionKey};
use noroshi_types::{Message, Request, Target};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cluster::wire::Record;

/// Bounds of one round, which needs one directory look-up and one frame for each node.
const ROUND_ITEMS: usize = 2_048;
const ROUND_BYTES: usize = 8 << 20;
/// The size of a short message without its text.
const ITEM_BYTES: usize = 256;
/// The size of one target: an id of usual length and its entries in lists.
const TARGET_BYTES: usize = 64;

/// The nodes that a record is for.
#[derive(Debug, Clone)]
pub(crate) enum To {
    /// The nodes that hold the device.
    Holders(SessionKey),
    Gateways,
    Senders,
    /// The nodes that answer first calls.
    Apis,
    All,
    One(Epoch),
}

pub(crate) enum Item {
    Deliver { message: Arc<Message>, request: Arc<Request> },
    Record { to: To, record: Record },
}

pub(crate) struct Outbox {
    requests_max: usize,
    bytes_max: usize,
    /// Guards the queue only; nothing is called or awaited under it.
    queued: Mutex<Queued>,
    filled: Notify,
    /// Everything up to this number was handed over, or had no recipient.
    done: watch::Sender<u64>,
}

#[derive(Default)]
struct Queued {
    items: VecDeque<(Item, usize)>,
    /// Of the queue and of the round in progress.
    count: usize,
    bytes: usize,
    /// The number of the last item ever queued.
    last: u64,
}

/// Items that are handed over together.
pub(crate) struct Round {
    pub(crate) items: Vec<Item>,
    bytes: usize,
    /// The number of its last item.
    up_to: u64,
}

impl Outbox {
    pub(crate) fn new(requests_max: usize, bytes_max: usize) -> Self {
        let (queued, filled, done) = (Mutex::default(), Notify::new(), watch::Sender::new(0));
        Self { requests_max, bytes_max, queued, filled, done }
    }

    pub(crate) fn has_room(&self) -> bool {
        let queued = self.queued.lock();
        queued.count < self.requests_max && queued.bytes < self.bytes_max
    }

    /// Returns the number to pass to [`Outbox::reached`].
    pub(crate) fn push(&self, item: Item) -> u64 {
        self.push_all([item])
    }

    /// Queues several items, which leave together with one look-up. Returns the number of the last.
    pub(crate) fn push_all(&self, items: impl IntoIterator<Item = Item>) -> u64 {
        let mut queued = self.queued.lock();
        for item in items {
            let bytes = item.bytes();
            queued.items.push_back((item, bytes));
            queued.count += 1;
            queued.bytes += bytes;
            queued.last += 1;
        }
        let last = queued.last;
        drop(queued);
        self.filled.notify_one();
        last
    }

    pub(crate) fn last(&self) -> u64 {
        self.queued.lock().last
    }

    pub(crate) fn waiting(&self) -> usize {
        self.queued.lock().count
    }

    /// Resolves when everything up to `number` was handed over. Cancel-safe.
    pub(crate) async fn reached(&self, number: u64) {
        // The sender is here: it cannot be gone.
        let _ = self.done.subscribe().wait_for(|done| *done >= number).await;
    }

    /// Changes whenever items were handed over, so that there may be room.
    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.done.subscribe()
    }

    /// The next round, when there is something. Cancel-safe.
    pub(crate) async fn next(&self) -> Round {
        loop {
            if let Some(round) = self.take() {
                return round;
            }
            self.filled.notified().await;
        }
    }

    fn take(&self) -> Option<Round> {
        let mut queued = self.queued.lock();
        let (mut items, mut bytes) = (Vec::new(), 0);
        while items.len() < ROUND_ITEMS
            && bytes < ROUND_BYTES
            && let Some((item, item_bytes)) = queued.items.pop_front()
        {
            bytes += item_bytes;
            items.push(item);
        }
        let up_to = queued.last - queued.items.len() as u64;
        (!items.is_empty()).then_some(Round { items, bytes, up_to })
    }

    /// A round was handed over.
    pub(crate) fn finish(&self, round: &Round) {
        let mut queued = self.queued.lock();
        queued.count -= round.items.len();
        queued.bytes -= round.bytes;
        drop(queued);
        self.done.send_replace(round.up_to);
    }
}

impl Item {
    fn bytes(&self) -> usize {
        match self {
            Item::Deliver { message, request } => {
                let text =
                    |json: &Option<noroshi_types::JsonText>| json.as_ref().map_or(0, |json| json.len());
                let targets = match &request.target {
                    Target::Users(users) => users.len(),
                    Target::Devices(devices) => devices.len(),
                    Target::Topic(_) | Target::Condition(_) | Target::Everyone => 1,
                };
                ITEM_BYTES + text(&message.notification) + text(&message.data) + targets * TARGET_BYTES
            }
            Item::Record {
                record: Record::Figures { report: body } | Record::Tail { report: body }, ..
            }
            | Item::Record { record: Record::AskTail { tail: body }, .. } => ITEM_BYTES + body.len(),
            Item::Record { .. } => ITEM_BYTES,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(number: u64) -> Item {
        Item::Record { to: To::All, record: Record::Marker { number } }
    }

    #[tokio::test]
    async fn rounds_keep_the_order_and_free_room_when_finished() {
        let outbox = Outbox::new(3, usize::MAX);
        let tickets: Vec<u64> = (0..3).map(|number| outbox.push(record(number))).collect();
        assert_eq!((tickets, outbox.has_room()), (vec![1, 2, 3], false));
        let round = outbox.next().await;
        assert!(!outbox.has_room(), "the round is not finished");
        outbox.push(record(3));
        let numbers: Vec<u64> = round
            .items
            .iter()
            .map(|item| match item {
                Item::Record { record: Record::Marker { number }, .. } => *number,
                _ => u64::MAX,
            })
            .collect();
        assert_eq!(numbers, [0, 1, 2]);
        outbox.finish(&round);
        assert!(outbox.has_room());
        outbox.reached(3).await;
        let late = tokio::time::timeout(std::time::Duration::from_millis(1), outbox.reached(4));
        assert!(late.await.is_err(), "the fourth waits");
    }

    #[tokio::test]
    async fn a_round_is_bounded() {
        let outbox = Outbox::new(usize::MAX, usize::MAX);
        for number in 0..=ROUND_ITEMS as u64 {
            outbox.push(record(number));
        }
        assert_eq!(outbox.next().await.items.len(), ROUND_ITEMS);
        assert_eq!(outbox.next().await.items.len(), 1);
    }
}
