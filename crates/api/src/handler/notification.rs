//! Publishing, cancelling and tracing notifications.

use axum::extract::State as Shared;
use http::{HeaderMap, StatusCode};
use noroshi_delivery::Receipt;
use noroshi_store::{NotificationState, RequestSummary, State, TraceStep};
use noroshi_types::{NotificationId, Presence, Request, TraceContext};
use serde::Serialize;

use crate::body::Limits;
use crate::error::Problem;
use crate::handler::summary::summary;
use crate::request::access::{Provider, Publish, Read};
use crate::request::body::JsonBody;
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::parameter::Path;
use crate::request::trace::Traced;
use crate::respond::{self, Answer};
use crate::{body, push_check};

/// Body of `202`, and a line of a batch response.
#[derive(Serialize)]
pub(crate) struct ReceiptBody {
    id: String,
    targets: Option<u64>,
}

#[derive(Serialize)]
struct StateBody {
    id: String,
    state: &'static str,
    when: &'static str,
    urgency: &'static str,
    target: TargetBody,
    targets: Option<u64>,
    counts: serde_json::Map<String, serde_json::Value>,
    collapse_key: Option<String>,
    retain: bool,
    sent_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
}

#[derive(Serialize)]
struct TargetBody {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
}

#[derive(Serialize)]
struct TraceBody {
    id: String,
    device: String,
    steps: Vec<StepBody>,
    in_inbox: bool,
    connected: bool,
    subscribed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    summary: String,
}

#[derive(Serialize)]
struct StepBody {
    at: String,
    outcome: &'static str,
    explain: &'static str,
    /// The push service's own reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct CancelledBody {
    id: String,
    removed: u64,
}

/// `POST /v1/notifications`
pub(crate) async fn publish(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    let idempotency = idempotency(&headers, &body)?;
    let request = Request { trace, ..body::notification(&body, &body_limits)? };
    drop(body);
    push_check::check_request(&provider.delivery, provider.app, &request).await?;
    let receipt = provider.delivery.publisher.publish(provider.app, request, idempotency).await?;
    let response = respond::json(StatusCode::ACCEPTED, &ReceiptBody::from(receipt));
    let mut response = mark_replayed(response, receipt.replayed);
    response.extensions_mut().insert(receipt.id);
    Ok(response)
}

/// `GET /v1/notifications/{id}`
pub(crate) async fn show(provider: Provider<Read>, Path(id): Path<String>) -> Answer {
    let id = notification_id(&id)?;
    let found =
        provider.delivery.store().notification(provider.app, id, provider.delivery.clock().now()).await?;
    let state = found.ok_or_else(|| Problem::not_found("notification"))?;
    respond::ok(&StateBody::from(state))
}

/// `GET /v1/notifications/{id}/devices/{device}`
pub(crate) async fn trace(provider: Provider<Read>, Path((id, device)): Path<(String, String)>) -> Answer {
    let (id, device) = (notification_id(&id)?, body::device_id(&device)?);
    let found = provider.delivery.store().trace(provider.app, id, &device).await?;
    let trace = found.ok_or_else(|| Problem::not_found("notification or device"))?;
    let session = provider.delivery.sessions.of_device(provider.app, &device).await;
    let connected = session.is_some_and(|session| session.presence != Presence::Offline);
    let summary = summary(&trace, connected);
    let step = |step: TraceStep| StepBody {
        at: step.at.to_string(),
        outcome: step.outcome.as_str(),
        explain: step.outcome.explain(),
        reason: step.reason,
    };
    let body = TraceBody {
        id: id.to_string(),
        device: device.to_string(),
        steps: trace.steps.into_iter().map(step).collect(),
        in_inbox: trace.in_inbox,
        connected,
        subscribed: trace.subscribed,
        trace: trace.trace.map(trace_id),
        summary,
    };
    respond::ok(&body)
}

/// `DELETE /v1/notifications/{id}`
pub(crate) async fn cancel(provider: Provider<Publish>, Path(id): Path<String>) -> Answer {
    let id = notification_id(&id)?;
    let cancelled = provider.delivery.publisher.cancel(provider.app, id).await;
    let cancelled = cancelled.map_err(Problem::missing("notification"))?;
    let mut response =
        respond::json(StatusCode::OK, &CancelledBody { id: id.to_string(), removed: cancelled.removed });
    response.extensions_mut().insert(id);
    Ok(response)
}

/// The id for a look-up in a tracing system.
fn trace_id(context: TraceContext) -> String {
    context.trace.to_string()
}

/// An `id` parameter of a path.
pub fn notification_id(text: &str) -> Result<NotificationId, Problem> {
    NotificationId::parse(text).map_err(|invalid| Problem::from(invalid).at("id"))
}

impl From<Receipt> for ReceiptBody {
    fn from(receipt: Receipt) -> Self {
        Self { id: receipt.id.to_string(), targets: receipt.targets }
    }
}

impl From<NotificationState> for StateBody {
    fn from(found: NotificationState) -> Self {
        let NotificationState { message, request, state, counts } = found;
        let RequestSummary { target, target_text, targets, collapse_key, retain, trace } = request;
        Self {
            id: message.id.to_string(),
            state: match state {
                State::Pending => "pending",
                State::Done => "done",
                State::Cancelled => "cancelled",
                State::Expired => "expired",
            },
            when: message.when.as_str(),
            urgency: message.urgency.as_str(),
            target: TargetBody {
                kind: target,
                topic: target_text.clone().filter(|_| target == "topic"),
                condition: target_text.filter(|_| target == "condition"),
            },
            targets,
            counts: counts.into_iter().map(|(outcome, n)| (outcome.as_str().to_owned(), n.into())).collect(),
            collapse_key,
            retain,
            sent_at: message.sent_at.to_string(),
            expires_at: message.expires_at.to_string(),
            trace: trace.map(trace_id),
        }
    }
}
