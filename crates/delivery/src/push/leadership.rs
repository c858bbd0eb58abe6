//! Which of the nodes that share a store does the work that only one may do: walking audiences, starting batches of
//! campaigns with a rate, putting batches on the queue.
//!
//! The store grants the lead for some seconds. The leader renews it long before it ends, and stops by its own clock
//! when it does. A leader that was suspended may write once more afterwards. The store accepts no page of a walk that
//! another node has continued, so that costs only the page.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{Notify, watch};

use crate::context::Context;
use crate::holder;

/// The time of one lease. After a leader died, another node leads within this and [`RENEW`].
const LEASE: Duration = Duration::from_secs(5);

/// How often every node asks for the lead.
const RENEW: Duration = Duration::from_secs(1);

/// How long before the end of the lease the leader stops.
const MARGIN: Duration = Duration::from_millis(500);

/// The task's name in the store.
const TASK: &str = "push";

/// Whether this node leads.
pub(crate) struct Leadership {
    /// No other node shares the store.
    is_only_node: bool,
    holder: u64,
    /// Guards only itself.
    until: Mutex<Option<Instant>>,
    /// Wakes tasks that wait for the lead.
    gained: Notify,
}

impl Leadership {
    pub(crate) fn new(is_only_node: bool) -> Self {
        Self { is_only_node, holder: holder::draw(), until: Mutex::new(None), gained: Notify::new() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.is_only_node || self.until.lock().is_some_and(|until| Instant::now() < until)
    }

    /// Resolves when this node may have gained the lead, or after `wait`.
    pub(crate) async fn wait(&self, wait: Duration) {
        let gained = self.gained.notified();
        if !self.is_ours() {
            let _ = tokio::time::timeout(wait, gained).await;
        }
    }

    /// Asks for the lead until `drain` is true, then gives it up, so that another node leads at once. `leader` shows
    /// whether this node leads.
    pub(crate) async fn run(&self, context: &Context, leader: &Gauge, mut drain: watch::Receiver<bool>) {
        if self.is_only_node {
            return;
        }
        tokio::select! {
            _ = drain.wait_for(|draining| *draining) => {}
            () = self.renew_forever(context, leader) => {}
        }
        self.set(None);
        let yielded = context.store.release_lead(TASK, self.holder);
        if !matches!(tokio::time::timeout(RENEW, yielded).await, Ok(Ok(()))) {
            tracing::debug!("could not give up the lead; its lease expires");
        }
    }

    async fn renew_forever(&self, context: &Context, leader: &Gauge) {
        loop {
            let begun = Instant::now();
            match tokio::time::timeout(LEASE, context.store.lead(TASK, self.holder, LEASE)).await {
                Ok(Ok(true)) => self.set(Some(begun + LEASE - MARGIN)),
                Ok(Ok(false)) => self.set(None),
                // A lead that this node has stays until it expires.
                Ok(Err(error)) => tracing::debug!(%error, "could not ask the store for the lead"),
                Err(_) => {}
            }
            leader.set(i64::from(self.is_ours()));
            tokio::time::sleep(RENEW).await;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lead_ends_by_the_leaders_own_clock() {
        assert!(Leadership::new(true).is_ours(), "the only node leads");
        let lead = Leadership::new(false);
        assert!(!lead.is_ours());
        lead.set(Some(Instant::now() + Duration::from_secs(60)));
        assert!(lead.is_ours());
        lead.set(Some(Instant::now()));
        assert!(!lead.is_ours());
    }
}
