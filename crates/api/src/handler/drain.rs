//! Moving devices away from the node, on the admin listener.

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use noroshi_types::Timestamp;
use serde::Serialize;

use crate::access::Manager;
use crate::body;
use crate::drain::{Drain, DrainReport, Stopping};
use crate::error::{Code, Problem};
use crate::extract::JsonBody;
use crate::respond;
use crate::state::Api;

#[derive(Serialize)]
struct DrainBody {
    state: &'static str,
    /// Of devices, still open.
    connections: usize,
    moved: Option<u64>,
    rate: Option<u32>,
    spread_ms: Option<u64>,
    started_at: Option<String>,
    /// When the rest is told at once.
    deadline_at: Option<String>,
    /// At this rate, or until the deadline if that comes first.
    eta_s: Option<u64>,
}

/// `GET /v1/drain`
pub(crate) async fn show(Shared(api): Shared<Api>, _: Manager) -> Result<Response, Problem> {
    Ok(answer(&api, drain(&api)?))
}

/// `PUT /v1/drain`: begins, or changes how it is done.
pub(crate) async fn begin(
    Shared(api): Shared<Api>,
    _: Manager,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let drain = drain(&api)?;
    drain.begin(body::drain(&body)?)?;
    Ok(answer(&api, drain))
}

/// `DELETE /v1/drain`: devices are let in again.
pub(crate) async fn cancel(Shared(api): Shared<Api>, _: Manager) -> Result<Response, Problem> {
    let drain = drain(&api)?;
    drain.cancel()?;
    Ok(answer(&api, drain))
}

fn drain(api: &Api) -> Result<&dyn Drain, Problem> {
    let missing = || Problem::new(Code::Unavailable, "no gateway runs on this node");
    api.state.drain.as_deref().ok_or_else(missing)
}

fn answer(api: &Api, drain: &dyn Drain) -> Response {
    respond::json(StatusCode::OK, &drain_body(&drain.report(), api.now()))
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
