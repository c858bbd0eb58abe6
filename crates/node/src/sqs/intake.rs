//! Publishes notifications from messages of a queue.

use std::sync::Arc;

use noroshi_api::parts::{body_hash, check_request};
use noroshi_api::{Code, Problem, State, body};
use noroshi_delivery::Origin;
use noroshi_sqs::intake::{Accept, Incoming, Verdict};
use noroshi_store::Idempotency;

pub(super) fn accept(state: Arc<State>) -> Accept {
    Arc::new(move |incoming| {
        let state = state.clone();
        Box::pin(async move {
            match publish(&state, incoming).await {
                Ok(()) => Verdict::Accepted,
                Err(problem) if problem.code().status() >= 500 || problem.code() == Code::QuotaExceeded => {
                    Verdict::Retry
                }
                Err(problem) => Verdict::Poison(text(&problem)),
            }
        })
    })
}

fn text(problem: &Problem) -> String {
    let field = problem.field_path().map(|field| format!("{field}: ")).unwrap_or_default();
    format!("{}: {field}{}", problem.code().as_str(), problem.detail())
}

async fn publish(state: &State, incoming: Incoming) -> Result<(), Problem> {
    let Incoming { app, body, idempotency_key } = incoming;
    let app = state.auth.app_id(&app).ok_or_else(|| Problem::not_found("app"))?;
    let idempotency = Idempotency { key: idempotency_key.into(), body_hash: body_hash(body.as_bytes()) };
    let request = body::notification(body.as_bytes(), &state.config.limits, state.delivery.clock().now())?;
    check_request(state, app, &request).await?;
    state.delivery.publisher.publish_from(app, request, Some(idempotency), Origin::Untraced).await?;
    Ok(())
}
