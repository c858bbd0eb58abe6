//! Gaps in topics: a shard received a message of a topic but not the one before it.
//!
//! A device acknowledges a topic by its position, over its connection or over HTTP at any node. So the missing message must
//! be written before those behind it: if a gateway died between the two, the device would keep a position behind a
//! message that it never received. A shard that sees a gap therefore writes no further stored message of the topic.
//! This task reads the topic's log at once, without waiting for a sweep, offers what it has in order, and reports to
//! the shards how far that reaches. Messages that are not stored move no position, and are written as they arrive.

use std::collections::HashMap;
use std::time::Duration;

use noroshi_types::{AppId, Position, Topic};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::cluster::{Peers, sweep};

/// Topics that may wait; beyond it a sweep looks at all topics ([`sweep`]).
const TOPICS_MAX: usize = 10_000;
/// The pause between two rounds, in which gaps of the same topic merge.
const INTERVAL: Duration = Duration::from_millis(20);
/// After a failure of the store.
const PAUSE: Duration = Duration::from_secs(1);

/// For each topic, the position behind which a message is missing.
type Found = HashMap<(AppId, Topic), Position>;

#[derive(Default)]
pub(crate) struct Gaps {
    /// Guards only the map.
    found: Mutex<Found>,
    filled: Notify,
}

impl Gaps {
    /// Returns false if there is no room.
    pub(crate) fn add(&self, app: AppId, topic: Topic, behind: Position) -> bool {
        let mut found = self.found.lock();
        let has_room = found.len() < TOPICS_MAX;
        if has_room {
            let first = found.entry((app, topic)).or_insert(behind);
            if first.epoch != behind.epoch || behind.offset < first.offset {
                *first = behind;
            }
        }
        drop(found);
        self.filled.notify_one();
        has_room
    }

    /// All gaps, as soon as there is one. Cancel-safe.
    async fn next(&self) -> Found {
        loop {
            {
                let mut found = self.found.lock();
                if !found.is_empty() {
                    return std::mem::take(&mut *found);
                }
            }
            self.filled.notified().await;
        }
    }
}

/// Closes gaps until it is dropped.
pub(crate) async fn run(peers: &Peers) {
    loop {
        let mut failed = false;
        for ((app, topic), behind) in peers.gaps.next().await {
            if let Err(error) = close(peers, app, &topic, behind).await {
                tracing::warn!(%error, app = app.0, "could not close a gap in a topic; retrying");
                failed = true;
                peers.gaps.add(app, topic, behind);
            }
        }
        tokio::time::sleep(if failed { PAUSE } else { INTERVAL }).await;
    }
}

/// Offers the messages that the topic's log has behind the position.
async fn close(
    peers: &Peers,
    app: AppId,
    topic: &Topic,
    behind: Position,
) -> Result<(), noroshi_store::Error> {
    let (missing, head) = sweep::behind(peers, app, topic, behind).await?;
    if let Some(edge) = peers.context.edge() {
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
    async fn gaps_of_a_topic_merge_at_the_lowest_position() {
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
