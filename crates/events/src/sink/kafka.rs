//! Apache Kafka: each line is a record, its key the node's name.
//!
//! All lines of a node go to the partition that its name selects, so they are there in the order of `n`. If the
//! configuration spreads them, calls go to all partitions in turn, and only the lines of one call are in order. All
//! in-sync replicas confirm a call (acks=all). The confirmed part of a batch is remembered until all of it is
//! confirmed: after a lost answer at most one call is repeated.
//!
//! A call that its records make fail is split until the invalid one is found, which is rejected. All other failures,
//! including a missing topic and wrong credentials, are retried indefinitely.

mod cluster;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use noroshi_supervision::Heartbeat;
use tokio::time::Instant;

use self::cluster::{Cluster, Rejection};
use super::{Failure, Network, wait};
use crate::batch::Batch;
use crate::config;
use crate::health::Health;

/// A record has lengths, a time and an offset besides key and value, at most ten bytes each and usually one.
const RECORD_OVERHEAD: usize = 32;
/// The head of a record batch has 61 bytes.
const CALL_OVERHEAD: usize = 64;

pub(crate) struct Kafka {
    config: config::Kafka,
    network: Network,
    /// The node's name.
    key: Bytes,
    /// None before first use, and after each failure, because leaders move.
    cluster: Option<Cluster>,
    /// Of the current batch: lines that are not confirmed yet, and the number of rejected ones.
    left: VecDeque<Bytes>,
    refused: u64,
    /// The partition of the next call.
    bounds: Bounds,
    /// Confirmed calls.
    calls: usize,
    /// The brokers' quota is used up until then.
    not_before: Option<Instant>,
}

/// The limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Bounds {
    /// Smaller after the topic turned out to accept less than configured.
    bytes: usize,
    /// Fewer while searching for the line that the brokers reject.
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

    pub(crate) fn send(
        &mut self,
        batch: &Batch,
        health: &mut Health,
        pulse: &Heartbeat,
    ) -> Result<u64, Failure> {
        if self.left.is_empty() {
            self.left = batch.lines().map(|line| line.slice(..line.len().saturating_sub(1))).collect();
        }
        let network = self.network.clone();
        wait(&network, self.send_left(health, pulse))?;
        Ok(std::mem::take(&mut self.refused))
    }

    async fn send_left(&mut self, health: &mut Health, pulse: &Heartbeat) -> Result<(), Failure> {
        while !self.left.is_empty() {
            // Calls have timeouts; the sum of many may exceed the one of the watchdog.
            pulse.working();
            if let Some(not_before) = self.not_before.take() {
                tokio::time::sleep_until(not_before).await;
            }
            let count = self.bounds.call(&self.left, self.key.len());
            match self.produce(count).await {
                Ok(quota_used_for) => {
                    self.left.drain(..count);
                    health.succeeded();
                    self.calls = self.calls.wrapping_add(1);
                    self.bounds.lines = self.bounds.lines.saturating_mul(2);
                    if !quota_used_for.is_zero() {
                        // The brokers themselves throttle the connection for this time.
                        self.not_before = Some(Instant::now() + quota_used_for.min(self.config.timeout));
                    }
                }
                Err(Rejection::Passing(error)) => {
                    self.cluster = None;
                    // Another partition may have a leader.
                    self.calls = self.calls.wrapping_add(1);
                    return Err(Failure(error));
                }
                Err(Rejection::TooLarge(error)) if count > 1 => {
                    self.bounds.bytes = bytes(self.left.iter().take(count), self.key.len()) / 2;
                    tracing::warn!(bytes = self.bounds.bytes, %error, "Kafka accepts smaller calls than configured; the limit is reduced");
                }
                Err(Rejection::Invalid(_)) if count > 1 => self.bounds.lines = count / 2,
                Err(Rejection::TooLarge(error) | Rejection::Invalid(error)) => {
                    health.refused(&error, 1);
                    self.left.pop_front();
                    self.refused += 1;
                }
            }
        }
        Ok(())
    }

    /// Sends the first `count` lines. Returns how long the brokers' quota is used up.
    async fn produce(&mut self, count: usize) -> Result<Duration, Rejection> {
        let cluster = match &mut self.cluster {
            Some(cluster) => cluster,
            None => {
                let cluster = Cluster::open(&self.config, self.network.egress.clone()).await;
                self.cluster.insert(cluster.map_err(Rejection::Passing)?)
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
    /// How many of the first lines make one call: at least one.
    fn call(self, lines: &VecDeque<Bytes>, key_bytes: usize) -> usize {
        let mut sum = CALL_OVERHEAD;
        let fits = |line: &&Bytes| {
            sum += line.len() + key_bytes + RECORD_OVERHEAD;
            sum <= self.bytes
        };
        lines.iter().take(self.lines).take_while(fits).count().max(1).min(lines.len())
    }
}

/// The maximum size of these lines as a call.
fn bytes<'a>(lines: impl Iterator<Item = &'a Bytes>, key_bytes: usize) -> usize {
    CALL_OVERHEAD + lines.map(|line| line.len() + key_bytes + RECORD_OVERHEAD).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_at_least_one_line_and_respects_its_limit() {
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
