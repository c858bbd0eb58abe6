//! Topics of which a message did not come by: a shard saw the one behind it.
//!
//! A device confirms a topic by its position, over its connection or over HTTP at any node, so what is missing must be
//! written before what stands behind it: a gateway that dies between the two would leave the device with a position
//! behind a message that it never heard. So a shard that sees a gap writes nothing more that is kept of the topic; the
//! topic's log is read at once, without waiting for a sweep, what it has is offered in order, and the shards are told
//! how far that reaches. What is not kept moves no position and is written as it comes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use noroshi_types::{AppId, Position, Topic};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::{Peers, sweep};
use crate::delivery::Delivery;

/// Topics that wait; where more have gaps, all are looked at ([`sweep`]).
const TOPICS_MAX: usize = 10_000;
/// Between two looks: what is found meanwhile is one.
const BREATH: Duration = Duration::from_millis(20);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// By topic, behind which position one is missing.
type Found = HashMap<(AppId, Topic), Position>;

#[derive(Default)]
pub(crate) struct Gaps {
    /// Guards what was found only.
    found: Mutex<Found>,
    asked: Notify,
}

impl Gaps {
    /// False if there is no room to remember it.
    fn add(&self, app: AppId, topic: Topic, behind: Position) -> bool {
        let mut found = self.found.lock();
        let has_room = found.len() < TOPICS_MAX;
        if has_room {
            let first = found.entry((app, topic)).or_insert(behind);
            if first.epoch != behind.epoch || behind.offset < first.offset {
                *first = behind;
            }
        }
        drop(found);
        self.asked.notify_one();
        has_room
    }

    /// What was found. Cancel-safe.
    async fn next(&self) -> Found {
        loop {
            {
                let mut found = self.found.lock();
                if !found.is_empty() {
                    return std::mem::take(&mut *found);
                }
            }
            self.asked.notified().await;
        }
    }
}

impl Delivery {
    /// A message of a topic came by, and the one behind `behind` did not. For the gateway: called on shards, never
    /// waits. What is kept of the topic is written to no connection until [`crate::Edge::offered`] says how far the log
    /// was offered.
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
        let mut failed = false;
        for ((app, topic), behind) in peers.gaps.next().await {
            if let Err(error) = close(delivery, peers, app, &topic, behind).await {
                tracing::warn!(%error, app = app.0, "a gap in a topic could not be read; trying again");
                failed = true;
                peers.gaps.add(app, topic, behind);
            }
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
    let (missing, head) = sweep::behind(delivery, app, topic, behind).await?;
    if let Some(edge) = delivery.edge() {
        sweep::offer(peers, &**edge, topic, missing).await;
        if let Some(head) = head {
            edge.offered(app, topic, head);
        }
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
    async fn gaps_of_a_topic_are_one_from_the_first_missing_on() {
        let gaps = Gaps::default();
        let topic = Topic::from_trusted("news");
        for position in [at(1, 7), at(1, 4), at(1, 9)] {
            assert!(gaps.add(AppId(1), topic.clone(), position));
        }
        let found = gaps.next().await;
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [((AppId(1), topic.clone()), at(1, 4))]);
        gaps.add(AppId(1), topic.clone(), at(2, 1));
        assert_eq!(gaps.next().await.into_values().collect::<Vec<_>>(), [at(2, 1)]);
    }
}
