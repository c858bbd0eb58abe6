//! Draining the node, on the admin listener: moves its devices to other nodes.

use std::sync::Arc;

use axum::extract::State as Shared;
use noroshi_types::Timestamp;
use serde::Serialize;

use crate::body;
use crate::drain::{Drain, DrainReport, Stopping};
use crate::error::{Code, Problem};
use crate::request::access::Manager;
use crate::request::body::JsonBody;
use crate::respond::{self, Answer};

/// None: the node has no gateway.
type SharedDrain = Option<Arc<dyn Drain>>;

#[derive(Serialize)]
struct DrainBody {
    state: &'static str,
    /// Open connections of devices.
    connections: usize,
    moved: Option<u64>,
    rate: Option<u32>,
    spread_ms: Option<u64>,
    started_at: Option<String>,
    /// When all remaining devices are moved at once.
    deadline_at: Option<String>,
    /// At the current rate, but at most until the deadline.
    eta_s: Option<u64>,
}

/// `GET /v1/drain`
pub(crate) async fn show(Shared(drain): Shared<SharedDrain>, manager: Manager) -> Answer {
    answer(&manager, available(&drain)?)
}

/// `PUT /v1/drain`: starts a drain, or changes one in progress.
pub(crate) async fn begin(
    Shared(drain): Shared<SharedDrain>,
    manager: Manager,
    JsonBody(body): JsonBody,
) -> Answer {
    let drain = available(&drain)?;
    drain.begin(body::drain(&body)?)?;
    answer(&manager, drain)
}

/// `DELETE /v1/drain`: accepts devices again.
pub(crate) async fn cancel(Shared(drain): Shared<SharedDrain>, manager: Manager) -> Answer {
    let drain = available(&drain)?;
    drain.cancel()?;
    answer(&manager, drain)
}

fn available(drain: &SharedDrain) -> Result<&dyn Drain, Problem> {
    drain.as_deref().ok_or_else(|| Problem::new(Code::Unavailable, "this node has no gateway"))
}

fn answer(manager: &Manager, drain: &dyn Drain) -> Answer {
    respond::ok(&drain_body(&drain.report(), manager.delivery.clock().now()))
}

fn drain_body(report: &DrainReport, now: Timestamp) -> DrainBody {
    let progress = report.progress.as_ref();
    let milliseconds =
        |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let at_rate = |rate: u32| (report.connections as u64).div_ceil(u64::from(rate.max(1)));
    DrainBody {
        state: report.state.as_str(),
        connections: report.connections,
        moved: progress.map(|progress| progress.moved),
        rate: progress.map(|progress| progress.rate_per_second),
        spread_ms: progress.map(|progress| milliseconds(progress.spread)),
        started_at: progress.map(|progress| progress.started_at.to_string()),
        deadline_at: progress.and_then(|progress| progress.deadline_at).map(|deadline| deadline.to_string()),
        eta_s: progress.map(|progress| {
            let deadline_s =
                progress.deadline_at.map_or(u64::MAX, |deadline| deadline.saturating_since(now).as_secs());
            at_rate(progress.rate_per_second).min(deadline_s)
        }),
    }
}

impl From<Stopping> for Problem {
    fn from(_: Stopping) -> Self {
        Self::new(Code::Unavailable, "the node is stopping: its drain cannot be changed or cancelled")
    }
}
