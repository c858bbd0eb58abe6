//! The admin address has a thread and a runtime of its own, so that `/livez`, `/readyz` and `/metrics` answer while
//! every worker of the node's runtime is blocked. Everything else that comes by it is done on the node's runtime, where
//! connections to the database and to other nodes are at home.

use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use noroshi_api::error::{Code, Problem};
use noroshi_supervision::{Kind, Pulse, Threads};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::admin::Admin;

/// A node that does not find out within this time whether it is ready is not.
const READY_TIMEOUT: Duration = Duration::from_secs(3);
/// How often the thread shows that it runs.
const BEAT: Duration = Duration::from_secs(1);

/// Serves the admin address until `end`. Must be called inside the node's runtime; ends when the thread has.
pub(crate) async fn run(admin: Admin, router: Router, threads: Threads, end: CancellationToken) {
    let router = divided(router, Handle::current(), threads.clone());
    let (done, ended) = oneshot::channel();
    let serve = move |pulse: &Pulse| {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return tracing::error!(%error, "the admin address has no runtime"),
        };
        runtime.block_on(async {
            let beat = async {
                loop {
                    pulse.working();
                    tokio::time::sleep(BEAT).await;
                }
            };
            tokio::select! {
                () = admin.run(router, end) => {}
                () = beat => {}
            }
        });
        let _ = done.send(());
    };
    match threads.spawn(Kind::Admin, "admin", serve) {
        // An error means that it panicked, which the supervisor knows.
        Ok(_) => drop(ended.await),
        Err(error) => tracing::error!(%error, "the admin address has no thread"),
    }
}

/// What needs nothing but memory is answered on the admin thread, the rest on the node's runtime.
fn divided(router: Router, node: Handle, threads: Threads) -> Router {
    router.layer(from_fn(move |request: Request, next: Next| {
        let (node, threads) = (node.clone(), threads.clone());
        async move {
            let is_ready = request.uri().path() == "/readyz";
            let here = match request.uri().path() {
                "/livez" | "/healthz" | "/metrics" => true,
                // Whatever hangs, the answer is no.
                "/readyz" => threads.failure().is_some(),
                _ => false,
            };
            if here {
                return next.run(request).await;
            }
            let answered = node.spawn(next.run(request));
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

/// The node's runtime ended, or does not come to it.
fn unanswered() -> Response {
    Problem::new(Code::Unavailable, "the node does not answer").into_response()
}
