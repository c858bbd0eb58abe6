//! Topics of which a message did not come by: a shard saw the one behind it.
//!
//! A device confirms a topic by its position, so the one that is missing must be offered before a confirmation of what
//! stands behind it is written: a gateway that dies between the two would leave the device with a position behind a
//! message that it never heard. So the topic's log is read at once, without waiting for a sweep, and confirmations
//! that were queued when a gap was found wait until it is closed ([`crate::ack`]).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::{AppId, Position, Topic};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::cluster::{Peers, sweep};
use crate::delivery::Delivery;

/// Topics that wait; where more have gaps, all are looked at ([`sweep`]).
const TOPICS_MAX: usize = 10_000;
/// Between two looks: what is found meanwhile is one.
const BREATH: Duration = Duration::from_millis(20);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);
/// How long confirmations wait: a store that does not answer does not take them either.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Gaps {
    /// Guards what was found only.
    found: Mutex<Found>,
    asked: Notify,
    /// All gaps up to this number are closed.
    closed: watch::Sender<u64>,
}

#[derive(Default)]
struct Found {
    /// By topic, behind which position one is missing.
    topics: HashMap<(AppId, Topic), Position>,
    /// Of the last gap.
    number: u64,
}

impl Default for Gaps {
    fn default() -> Self {
        Self { found: Mutex::default(), asked: Notify::new(), closed: watch::Sender::new(0) }
    }
}

impl Gaps {
    /// False if there is no room to remember it.
    fn add(&self, app: AppId, topic: Topic, behind: Position) -> bool {
        let mut found = self.found.lock();
        let has_room = found.topics.len() < TOPICS_MAX;
        if has_room {
            found.number += 1;
            let first = found.topics.entry((app, topic)).or_insert(behind);
            if first.epoch != behind.epoch || behind.offset < first.offset {
                *first = behind;
            }
        }
        drop(found);
        self.asked.notify_one();
        has_room
    }

    /// What was found, and the number of the last. Cancel-safe.
    async fn next(&self) -> (HashMap<(AppId, Topic), Position>, u64) {
        loop {
            {
                let mut found = self.found.lock();
                if !found.topics.is_empty() {
                    return (std::mem::take(&mut found.topics), found.number);
                }
            }
            self.asked.notified().await;
        }
    }

    /// Resolves when the gaps that are known now are closed, or cannot be for some time. Cancel-safe.
    pub(crate) async fn closed_so_far(&self) {
        let number = self.found.lock().number;
        let mut closed = self.closed.subscribe();
        // The sender is here: it cannot be gone.
        let _ = tokio::time::timeout(PATIENCE, closed.wait_for(|closed| *closed >= number)).await;
    }
}

impl Delivery {
    /// A message of a topic came by, and the one behind `behind` did not. For the gateway: called on shards, never
    /// waits; to be called before the message is written to any connection.
    pub fn topic_gap(&self, app: AppId, topic: Topic, behind: Position) {
        let Some(peers) = self.peers() else { return };
        peers.metrics.gaps.inc();
        if !peers.gaps.add(app, topic, behind) {
            peers.sweeps.lost(peers.places.before(Instant::now(), self.clock.now()));
        }
    }
}

/// Closes gaps as they are found, until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>, peers: &Arc<Peers>) {
    loop {
        let (topics, number) = peers.gaps.next().await;
        let mut failed = false;
        for ((app, topic), behind) in topics {
            if let Err(error) = close(delivery, peers, app, &topic, behind).await {
                tracing::warn!(%error, app = app.0, "a gap in a topic could not be read; trying again");
                failed = true;
                peers.gaps.add(app, topic, behind);
            }
        }
        if !failed {
            peers.gaps.closed.send_replace(number);
        }
        tokio::time::sleep(if failed { PAUSE } else { BREATH }).await;
    }
}

/// Offers what the topic's log has behind the position.
async fn close(
    delivery: &Delivery,
    peers: &Peers,
    app: AppId,
    topic: &Topic,
    behind: Position,
) -> Result<(), noroshi_store::Error> {
    let missing = sweep::behind(delivery, app, topic, behind).await?;
    if let Some(edge) = delivery.edge() {
        sweep::offer(peers, &**edge, topic, missing).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use noroshi_types::Epoch;

    use super::*;

    fn at(epoch: u32, offset: u64) -> Position {
        Position { epoch: Epoch(epoch), offset }
    }

    #[tokio::test]
    async fn confirmations_wait_for_the_gaps_that_were_known() {
        let gaps = Gaps::default();
        gaps.closed_so_far().await;
        let topic = Topic::from_trusted("news");
        for position in [at(1, 7), at(1, 4), at(1, 9)] {
            assert!(gaps.add(AppId(1), topic.clone(), position));
        }
        let waiting = gaps.closed_so_far();
        let mut waiting = std::pin::pin!(waiting);
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let (topics, number) = gaps.next().await;
        assert_eq!(topics.into_iter().collect::<Vec<_>>(), [((AppId(1), topic.clone()), at(1, 4))]);
        // One that is found later is another's to wait for.
        gaps.add(AppId(1), topic, at(2, 1));
        gaps.closed.send_replace(number);
        assert!(futures_util::poll!(&mut waiting).is_ready());
    }
}
