//! Implements the API's drain with the gateway, since the two do not know each other. [`mod@crate::run`] drains at the end of the
//! process.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use noroshi_api::body::DrainRequest;
use noroshi_api::drain::{DrainProgress, DrainReport, DrainState, Stopping};
use noroshi_gateway::Gateway;
use noroshi_gateway::drain::{Order, State};
use noroshi_types::Timestamp;
use tokio::sync::watch;

use crate::config;

pub(crate) struct Drain {
    /// Set after the API was built. Until then there are no devices.
    gateway: Arc<OnceLock<Arc<Gateway>>>,
    /// Notifies HTTP/2 connections.
    draining: watch::Sender<bool>,
    defaults: config::Drain,
}

impl Drain {
    pub(crate) fn new(
        gateway: Arc<OnceLock<Arc<Gateway>>>,
        draining: watch::Sender<bool>,
        defaults: config::Drain,
    ) -> Self {
        Self { gateway, draining, defaults }
    }
}

/// Treats a time before 1970 as 0.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp(0).saturating_add(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}

impl noroshi_api::drain::Drain for Drain {
    fn begin(&self, request: DrainRequest) -> Result<(), Stopping> {
        let gateway = self.gateway.get().ok_or(Stopping)?;
        let order = Order {
            rate_per_second: request.rate_per_second.unwrap_or(self.defaults.rate),
            spread: request.spread.unwrap_or(self.defaults.spread),
            // The configured deadline applies only at the end of the process.
            deadline: request.deadline,
        };
        // First, since a connection must send GOAWAY before the gateway ends one of its streams.
        self.draining.send_replace(true);
        gateway.drain_devices(order).map_err(|_| Stopping)
    }

    fn cancel(&self) -> Result<(), Stopping> {
        let gateway = self.gateway.get().ok_or(Stopping)?;
        gateway.cancel_drain().map_err(|_| Stopping)?;
        self.draining.send_replace(false);
        Ok(())
    }

    fn report(&self) -> DrainReport {
        let Some(gateway) = self.gateway.get() else {
            return DrainReport { state: DrainState::Serving, connections: 0, progress: None };
        };
        let report = gateway.drain_report();
        let state = match report.state {
            State::Serving => DrainState::Serving,
            State::Draining => DrainState::Draining,
            State::Drained => DrainState::Drained,
            State::Stopping => DrainState::Stopping,
        };
        let progress = report.progress.map(|progress| DrainProgress {
            rate_per_second: progress.order.rate_per_second,
            spread: progress.order.spread,
            moved: progress.moved,
            started_at: timestamp(progress.began_at),
            deadline_at: progress.deadline_at.map(timestamp),
        });
        DrainReport { state, connections: report.remaining, progress }
    }
}
