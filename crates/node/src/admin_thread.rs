//! Serves the admin address on its own thread and runtime, so that `/livez`, `/readyz` and `/metrics` work while all workers of
//! the node's runtime are blocked. Other requests run on the node's runtime, which owns the connections to the database and to
//! other nodes.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use noroshi_api::PoolMetrics;
use noroshi_api::error::{Code, Problem};
use noroshi_supervision::{Heartbeat, Kind, Threads};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;

/// Without a result within this time, the node is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the thread reports progress.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Serves the admin address until `end`. Must be called inside the node's runtime. Returns when the thread has ended.
pub(crate) async fn run(
    admin: Admin,
    router: Router,
    metrics: PoolMetrics,
    threads: Threads,
    end: CancellationToken,
) {
    let router = divide(router, Handle::current(), threads.clone());
    let (done, ended) = oneshot::channel();
    let serve = move |pulse: &Heartbeat| {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "failed to create the runtime of the admin address"),
        };
        runtime.block_on(async {
            let beat = async {
                loop {
                    pulse.working();
                    tokio::time::sleep(HEARTBEAT).await;
                }
            };
            tokio::select! {
                () = admin.run(router, metrics, end) => {}
                () = beat => {}
            }
        });
        let _ = done.send(());
    };
    match threads.spawn(Kind::Admin, "admin", serve) {
        // An error means a panic, which the supervisor handles.
        Ok(_) => drop(ended.await),
        Err(error) => tracing::error!(%error, "failed to start the thread of the admin address"),
    }
}

/// Answers requests that need only memory on the admin thread, and the others on the node's runtime.
fn divide(router: Router, node: Handle, threads: Threads) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let (node, threads) = (node.clone(), threads.clone());
        async move {
            let is_ready = request.uri().path() == "/readyz";
            let here = match request.uri().path() {
                "/livez" | "/healthz" | "/metrics" => true,
                // Answered here, even if something hangs.
                "/readyz" => threads.failure().is_some(),
                _ => false,
            };
            if here {
                return next.run(request).await;
            }
            // As on the public address: a request that may change something runs to its end even if its client leaves.
            let is_safe = request.method().is_safe();
            let answered = node.spawn(next.run(request));
            let _abandoned = is_safe.then(|| AbortOnDrop(answered.abort_handle()));
            match is_ready {
                false => answered.await.unwrap_or_else(|_| unanswered()),
                true => match tokio::time::timeout(READY_TIMEOUT, answered).await {
                    Ok(answer) => answer.unwrap_or_else(|_| unanswered()),
                    Err(_) => unanswered(),
                },
            }
        }
    }))
}

/// Ends the task of a safe request whose client left: a profile, for example.
struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The node's runtime has ended or is blocked.
fn unanswered() -> Response {
    Problem::new(Code::Unavailable, "the node does not respond").into_response()
}
