//! Who of the nodes that share a store does what only one may do: walks audiences, lets campaigns with a rate go,
//! puts batches on the queue.
//!
//! The leader is whom the store says, for some seconds at a time; it asks again long before they are over, and stops by
//! its own clock when they are. A leader that was stopped in the middle of something may still write once afterwards:
//! the store takes no page of a walk that another took on meanwhile, so that costs nothing but the page.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::sync::{Notify, watch};

use crate::delivery::Delivery;
use crate::push::side::Side;

/// After a leader died another leads within this and [`ASK`].
const LEASE: Duration = Duration::from_secs(5);

/// How often a node asks, whether it leads or not.
const ASK: Duration = Duration::from_secs(1);

/// Before the lease's end, for what is begun just then.
const MARGIN: Duration = Duration::from_millis(500);

/// The task's name in the store.
const TASK: &str = "push";

/// Whether this node leads.
pub(crate) struct Lead {
    /// It is the only one.
    alone: bool,
    holder: u64,
    /// Guards only itself.
    until: Mutex<Option<Instant>>,
    /// Wakes who waits to lead.
    gained: Notify,
}

impl Lead {
    pub(crate) fn new(alone: bool) -> Self {
        Self { alone, holder: draw(), until: Mutex::new(None), gained: Notify::new() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.alone || self.until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Until it may have become ours; for at most `wait`. One waits at a time for each caller's turn.
    pub(crate) async fn wait(&self, wait: Duration) {
        let gained = self.gained.notified();
        if !self.is_ours() {
            let _ = tokio::time::timeout(wait, gained).await;
        }
    }

    fn set(&self, until: Option<Instant>) {
        let led = self.is_ours();
        *self.until.lock() = until;
        match (led, self.is_ours()) {
            (false, true) => {
                tracing::info!("this node leads the work for push services");
                self.gained.notify_waiters();
            }
            (true, false) => tracing::info!("another node leads the work for push services"),
            _ => {}
        }
    }
}

/// A number that no other process has.
pub(crate) fn draw() -> u64 {
    let mut number = [0; 8];
    // Without randomness from the system the process' id has to do; the store tells holders apart by it alone.
    if SystemRandom::new().fill(&mut number).is_err() {
        number = u64::from(std::process::id()).to_be_bytes();
    }
    u64::from_be_bytes(number) >> 1
}

/// Runs until `drain` is true, then lets another lead at once.
pub(crate) async fn run(delivery: Arc<Delivery>, side: Arc<Side>, mut drain: watch::Receiver<bool>) {
    if side.lead.alone {
        return;
    }
    tokio::select! {
        _ = drain.wait_for(|draining| *draining) => {}
        () = ask_forever(&delivery, &side) => {}
    }
    side.lead.set(None);
    let yielded = delivery.store.yield_lead(TASK, side.lead.holder);
    if !matches!(tokio::time::timeout(ASK, yielded).await, Ok(Ok(()))) {
        tracing::debug!("the lead could not be given up; it lapses");
    }
}

async fn ask_forever(delivery: &Delivery, side: &Side) {
    let lead = &side.lead;
    loop {
        let begun = Instant::now();
        match tokio::time::timeout(LEASE, delivery.store.lead(TASK, lead.holder, LEASE)).await {
            Ok(Ok(true)) => lead.set(Some(begun + LEASE - MARGIN)),
            Ok(Ok(false)) => lead.set(None),
            // What was ours stays so until it lapses.
            Ok(Err(error)) => tracing::debug!(%error, "the store did not say who leads"),
            Err(_) => {}
        }
        delivery.metrics.push.leader.set(i64::from(lead.is_ours()));
        tokio::time::sleep(ASK).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_ends_by_the_leaders_own_clock() {
        assert!(Lead::new(true).is_ours(), "alone");
        let lead = Lead::new(false);
        assert!(!lead.is_ours());
        lead.set(Some(Instant::now() + Duration::from_secs(60)));
        assert!(lead.is_ours());
        lead.set(Some(Instant::now()));
        assert!(!lead.is_ours());
    }
}
