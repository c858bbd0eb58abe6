//! What an orchestrator and a metrics collector ask, on the admin listener.

use std::sync::atomic::Ordering;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use serde::Serialize;

use crate::drain::DrainState;
use crate::error::{Code, Problem};
use crate::respond;
use crate::state::Api;

#[derive(Serialize)]
struct StatusBody {
    status: &'static str,
}

/// `GET /livez`, and `/healthz` for those who know that name: the process answers, and no thread of it failed. It needs
/// neither the store nor anybody else: an engine that is away is no reason to start a node again.
pub(crate) async fn livez(Shared(api): Shared<Api>) -> Result<Response, Problem> {
    no_thread_failed(&api)?;
    Ok(respond::json(StatusCode::OK, &StatusBody { status: "ok" }))
}

fn no_thread_failed(api: &Api) -> Result<(), Problem> {
    match api.threads.failure() {
        None => Ok(()),
        Some(failure) => {
            Err(Problem::new(Code::Unavailable, format!("{failure}; the node drains and exits")))
        }
    }
}

/// `GET /readyz`: the node takes traffic of devices too, and what it accepts it can keep.
pub(crate) async fn readyz(Shared(api): Shared<Api>) -> Result<Response, Problem> {
    no_thread_failed(&api)?;
    if !api.ready.load(Ordering::Acquire) {
        return Err(Problem::new(Code::Unavailable, "the node is starting or stopping"));
    }
    if api.drain.as_ref().is_some_and(|drain| drain.report().state != DrainState::Serving) {
        return Err(Problem::new(Code::Unavailable, "devices are moved away from this node"));
    }
    api.delivery.store().check().await?;
    Ok(respond::json(StatusCode::OK, &StatusBody { status: "ready" }))
}

/// `GET /metrics`
pub(crate) async fn metrics(Shared(api): Shared<Api>) -> Result<Response, Problem> {
    const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    let text = noroshi_telemetry::encode(&api.registry).map_err(Problem::internal)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response())
}
