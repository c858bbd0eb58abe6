//! Health checks of orchestrators, and metrics, on the admin listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State as Shared;
use axum::response::IntoResponse;
use http::header;
use noroshi_delivery::Delivery;
use noroshi_supervision::Threads;
use noroshi_telemetry::Registry;

use crate::drain::{Drain, DrainState};
use crate::error::{Code, Problem};
use crate::respond::{self, Answer};

/// What the health of a node depends on.
pub struct Health {
    pub(crate) threads: Threads,
    pub(crate) ready: Arc<AtomicBool>,
    /// None: the node has no gateway.
    pub(crate) drain: Option<Arc<dyn Drain>>,
    pub(crate) delivery: Arc<Delivery>,
}

/// `GET /livez`, also as `/healthz`: the process answers and none of its threads failed. Independent of the store: an
/// unavailable database is no reason to restart a node.
pub(crate) async fn livez(Shared(health): Shared<Arc<Health>>) -> Answer {
    health.check_threads()?;
    respond::field("status", "ok")
}

/// `GET /readyz`: the node accepts devices, and can store what it accepts.
pub(crate) async fn readyz(Shared(health): Shared<Arc<Health>>) -> Answer {
    health.check_threads()?;
    if !health.ready.load(Ordering::Acquire) {
        return Err(Problem::new(Code::Unavailable, "the node is starting or stopping"));
    }
    if health.drain.as_ref().is_some_and(|drain| drain.report().state != DrainState::Serving) {
        return Err(Problem::new(Code::Unavailable, "the node is drained of devices"));
    }
    health.delivery.store().check().await?;
    respond::field("status", "ready")
}

/// `GET /metrics`
pub(crate) async fn metrics(Shared(registry): Shared<Arc<Registry>>) -> Answer {
    const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
    let text = noroshi_telemetry::encode(&registry).map_err(Problem::internal)?;
    Ok(([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text).into_response())
}

impl Health {
    fn check_threads(&self) -> Result<(), Problem> {
        match self.threads.failure() {
            None => Ok(()),
            Some(failure) => {
                Err(Problem::new(Code::Unavailable, format!("{failure}; the node drains and exits")))
            }
        }
    }
}
