//! Apache Kafka: each line is a record, its key the node's name.
//!
//! All lines of a node go to the one partition that its name chooses, so they are there in the order of `n`; or, where
//! the configuration spreads them, call by call to all partitions in turn, and only the lines of one call are in order.
//! A call is confirmed by all replicas in sync (acks=all). What was confirmed of a batch is remembered until all of it
//! is: after an answer that was lost, one call is sent again and no more.
//!
//! What the records are at fault for is cut down to the one that is, and that one is refused; everything else, a topic
//! that is not there and wrong credentials too, is tried again for as long as it takes.

mod cluster;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use self::cluster::{Cluster, Wrong};
use super::{Failure, Network, wait};
use crate::batch::Batch;
use crate::config;

/// Beside its key and value a record has lengths, a time and an offset, at most ten bytes each and most of them one.
const RECORD_OVERHEAD: usize = 32;
/// The head of a batch of records has 61 bytes.
const CALL_OVERHEAD: usize = 64;

pub(crate) struct Kafka {
    config: config::Kafka,
    network: Network,
    /// The node's name.
    key: Bytes,
    /// None until it is first needed, and after each failure: leaders move.
    cluster: Option<Cluster>,
    /// Of the batch that was given last: lines that were not confirmed yet, and how many never will be.
    left: VecDeque<Bytes>,
    refused: u64,
    /// Of the next call.
    bounds: Bounds,
    /// Calls that were confirmed.
    calls: usize,
    /// A quota of the brokers is used up until then.
    not_before: Option<Instant>,
}

/// What one call may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// Smaller once the topic turned out to take less than is configured.
    bytes: usize,
    /// Fewer while one line is looked for that the brokers refuse.
    lines: usize,
}

impl Kafka {
    pub(crate) fn new(config: config::Kafka, node: &str, network: Network) -> Self {
        let bounds = Bounds { bytes: config.request_bytes, lines: usize::MAX };
        Self {
            config,
            network,
            key: Bytes::copy_from_slice(node.as_bytes()),
            cluster: None,
            left: VecDeque::new(),
            refused: 0,
            bounds,
            calls: 0,
            not_before: None,
        }
    }

    pub(crate) fn send(&mut self, batch: &Batch) -> Result<u64, Failure> {
        if self.left.is_empty() {
            self.left = batch.lines().map(|line| line.slice(..line.len().saturating_sub(1))).collect();
        }
        let network = self.network.clone();
        wait(&network, self.send_left())?;
        Ok(std::mem::take(&mut self.refused))
    }

    async fn send_left(&mut self) -> Result<(), Failure> {
        while !self.left.is_empty() {
            if let Some(not_before) = self.not_before.take() {
                tokio::time::sleep_until(not_before).await;
            }
            let count = self.bounds.call(&self.left, self.key.len());
            match self.produce(count).await {
                Ok(quota_used_for) => {
                    self.left.drain(..count);
                    self.calls = self.calls.wrapping_add(1);
                    self.bounds.lines = self.bounds.lines.saturating_mul(2);
                    if !quota_used_for.is_zero() {
                        // The brokers hold the connection up themselves for as long as they say.
                        self.not_before = Some(Instant::now() + quota_used_for.min(self.config.timeout));
                    }
                }
                Err(Wrong::Passing(error)) => {
                    self.cluster = None;
                    // Of several partitions another one may have a leader.
                    self.calls = self.calls.wrapping_add(1);
                    return Err(Failure(error));
                }
                Err(Wrong::TooLarge(error)) if count > 1 => {
                    self.bounds.bytes = bytes(self.left.iter().take(count), self.key.len()) / 2;
                    tracing::warn!(bytes = self.bounds.bytes, %error, "Kafka takes less at once; so much from now on");
                }
                Err(Wrong::Invalid(_)) if count > 1 => self.bounds.lines = count / 2,
                Err(Wrong::TooLarge(error) | Wrong::Invalid(error)) => {
                    tracing::error!(%error, "Kafka refused an event for good");
                    self.left.pop_front();
                    self.refused += 1;
                }
            }
        }
        Ok(())
    }

    /// Sends the first `count` lines. For how long the brokers' quota is used up then.
    async fn produce(&mut self, count: usize) -> Result<Duration, Wrong> {
        let cluster = match &mut self.cluster {
            Some(cluster) => cluster,
            None => {
                let cluster = Cluster::open(&self.config, self.network.egress.clone()).await;
                self.cluster.insert(cluster.map_err(Wrong::Passing)?)
            }
        };
        let chosen = match self.config.spread {
            true => self.calls,
            false => crc32fast::hash(&self.key) as usize,
        };
        let lines = self.left.iter().take(count);
        cluster.produce(chosen, &self.key, lines).await
    }
}

impl Bounds {
    /// How many of the first lines make one call: one at least.
    fn call(self, lines: &VecDeque<Bytes>, key_bytes: usize) -> usize {
        let mut sum = CALL_OVERHEAD;
        let fits = |line: &&Bytes| {
            sum += line.len() + key_bytes + RECORD_OVERHEAD;
            sum <= self.bytes
        };
        lines.iter().take(self.lines).take_while(fits).count().max(1).min(lines.len())
    }
}

/// What these lines are at most as a call.
fn bytes<'a>(lines: impl Iterator<Item = &'a Bytes>, key_bytes: usize) -> usize {
    CALL_OVERHEAD + lines.map(|line| line.len() + key_bytes + RECORD_OVERHEAD).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_line_at_least_and_no_more_than_it_may() {
        let lines: VecDeque<Bytes> = (0..10).map(|_| Bytes::from(vec![b'x'; 100])).collect();
        // A record of 100 bytes with a key of 2 counts 134.
        let call = |bytes, count| Bounds { bytes, lines: count }.call(&lines, 2);
        assert_eq!([call(0, 9), call(64 + 134 * 3, 9), call(64 + 134 * 4 - 1, 9)], [1, 3, 3]);
        assert_eq!([call(1 << 20, 4), call(1 << 20, usize::MAX)], [4, 10]);
        assert_eq!(bytes(lines.iter().take(3), 2), 64 + 134 * 3);
        let none = VecDeque::new();
        assert_eq!(Bounds { bytes: 9, lines: 9 }.call(&none, 2), 0);
    }
}
