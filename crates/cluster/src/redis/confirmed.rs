//! Waits until receivers have confirmed what was sent to them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::members::State;
use crate::links::{RECEIPT_TIMEOUT, Receipts};
use crate::{Epoch, Members as _};

/// How long a round waits for receipts of frames that went over Redis. It is on the way of a failure already.
const REDIS_RECEIPT_TIMEOUT: Duration = Duration::from_millis(250);

/// The frames of a round for one receiver.
pub(super) struct Outgoing {
    pub(super) to: Epoch,
    /// The number of the first one.
    pub(super) first: u64,
    pub(super) frames: Vec<Bytes>,
}

impl Outgoing {
    pub(super) fn last(&self) -> u64 {
        self.first + self.frames.len() as u64 - 1
    }

    /// Those that the receiver has not confirmed.
    pub(super) fn behind(mut self, confirmed: u64) -> Self {
        let count = (confirmed + 1).saturating_sub(self.first);
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(self.frames.len());
        self.frames.drain(..count);
        self.first += count as u64;
        self
    }
}

/// Frames that a link accepted, or this node's own task.
pub(super) struct Entered {
    pub(super) outgoing: Outgoing,
    /// Cancelled when the connection of the link ends. `None`: this node itself.
    connection: Option<CancellationToken>,
    /// The last number that the receiver confirmed, and when.
    seen: u64,
    since: Instant,
}

impl Entered {
    pub(super) fn new(outgoing: Outgoing, connection: Option<CancellationToken>) -> Self {
        Self { outgoing, connection, seen: 0, since: Instant::now() }
    }

    fn has_ended(&self) -> bool {
        self.connection.as_ref().is_some_and(CancellationToken::is_cancelled)
    }
}

/// Waits until each receiver has confirmed its last frame. Returns those whose link ended, or that made no progress for
/// [`RECEIPT_TIMEOUT`], which ends their link.
pub(super) async fn settle(
    receipts: &Receipts,
    state: &State,
    from: Epoch,
    mut entered: Vec<Entered>,
) -> Vec<Entered> {
    let mut failed = Vec::new();
    loop {
        let now = Instant::now();
        let is_lost = state.epoch() != Some(from);
        for mut one in std::mem::take(&mut entered) {
            let confirmed = receipts.confirmed(from, one.outgoing.to);
            if confirmed >= one.outgoing.last() {
                continue;
            }
            if confirmed > one.seen {
                (one.seen, one.since) = (confirmed, now);
            }
            let is_late = now.saturating_duration_since(one.since) >= RECEIPT_TIMEOUT;
            match is_lost || is_late || one.has_ended() {
                true => {
                    if let Some(connection) = &one.connection {
                        connection.cancel();
                    }
                    failed.push(one);
                }
                false => entered.push(one),
            }
        }
        let Some(first) = entered.iter().map(|one| one.since).min() else { return failed };
        let until = tokio::time::Instant::from_std(first + RECEIPT_TIMEOUT);
        let _ = tokio::time::timeout_at(until, receipts.progress()).await;
    }
}

/// Waits for receipts of frames that went over Redis. Returns the receivers that did not confirm in time.
pub(super) async fn missing(receipts: &Receipts, from: Epoch, mut expected: Vec<(Epoch, u64)>) -> Vec<Epoch> {
    let until = tokio::time::Instant::now() + REDIS_RECEIPT_TIMEOUT;
    loop {
        expected.retain(|(to, number)| receipts.confirmed(from, *to) < *number);
        if expected.is_empty() || tokio::time::timeout_at(until, receipts.progress()).await.is_err() {
            return expected.into_iter().map(|(to, _)| to).collect();
        }
    }
}
