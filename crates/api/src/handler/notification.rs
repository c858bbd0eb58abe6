//! Publishing, cancelling and tracing notifications.

use axum::extract::State as Shared;
use http::{HeaderMap, StatusCode};
use noroshi_delivery::Receipt;
use noroshi_delivery::campaign::{Audience, Spec};
use noroshi_push::Warning;
use noroshi_store::{
    BroadcastsOf, Followed, NotificationState, PushStage, RequestSummary, State, TraceStep, TracedCampaign,
    TracedTarget,
};
use noroshi_types::{
    Channel, DeviceId, NotificationId, Outcome, Presence, PushEnvironment, Request, Suppressed, TraceContext,
};
use serde::Serialize;

use crate::body::{self, Limits};
use crate::error::Problem;
use crate::handler::attempt::{AttemptBody, attempts};
use crate::handler::channel::BroadcastBody;
use crate::handler::explanation::{Explanation, Present, Reason, Segment, explain};
use crate::push_check;
use crate::request::access::{Provider, Publish, Read};
use crate::request::body::{Body, JsonBody};
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::parameter::Path;
use crate::request::trace::Traced;
use crate::respond::warning::{self, WarningBody};
use crate::respond::{self, Answer};

/// Body of `202`, and a line of a batch response.
#[derive(Serialize)]
pub(crate) struct ReceiptBody {
    id: String,
    targets: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<WarningBody>,
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
    category: Option<String>,
    /// The category was essential when the notification was published.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    essential: bool,
    retain: bool,
    sent_at: String,
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// Of a notification that was broadcast to channels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    broadcasts: Vec<BroadcastBody>,
}

#[derive(Serialize)]
pub(crate) struct TargetBody {
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
    targeted_by: &'static str,
    targeting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_due_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    push_taken_at: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AttemptBody>,
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

/// Recipients of a test.
const TEST_TARGETS_MAX: u64 = 10;

/// `POST /v1/notifications`
pub(crate) async fn publish(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    accept(body_limits, provider, trace, headers, body, |_| Ok(())).await
}

/// `POST /v1/test-notifications` of the console: for people who manage devices and publish nothing else.
pub(crate) async fn publish_test(
    Shared(body_limits): Shared<Limits>,
    provider: Provider<Publish>,
    Traced(trace): Traced,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    let few = |request: &Request| match request.target.named_count() {
        Some(count) if count <= TEST_TARGETS_MAX => Ok(()),
        Some(_) | None => {
            let rule = format!("a test goes to at most {TEST_TARGETS_MAX} users or devices, by name");
            Err(Problem::field("to", rule))
        }
    };
    accept(body_limits, provider, trace, headers, body, few).await
}

async fn accept(
    body_limits: Limits,
    provider: Provider<Publish>,
    trace: Option<TraceContext>,
    headers: HeaderMap,
    body: Body,
    check: impl Fn(&Request) -> Result<(), Problem>,
) -> Answer {
    let idempotency = idempotency(&headers, &body)?;
    let publisher = &provider.delivery.publisher;
    let outline = || body::outline(&body, idempotency.is_some());
    let admitted = publisher.wait_for_room(provider.app, outline).await?;
    let request =
        Request { trace, ..body::notification(&body, &body_limits, provider.delivery.clock().now())? };
    check(&request)?;
    drop(body);
    let unshown = push_check::check_request(&provider.delivery, provider.app, &request).await?;
    let warnings = unshown.warnings(&provider.delivery, provider.app).await;
    let receipt = publisher.publish_admitted(provider.app, request, idempotency, admitted).await?;
    let response = respond::json(StatusCode::ACCEPTED, &ReceiptBody::new(receipt, warnings));
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
    let broadcasts = match state.request.target {
        "topic" => {
            let of = BroadcastsOf::Notification(id);
            provider.delivery.store().broadcasts(provider.app, of, PushEnvironment::ALL.len()).await?
        }
        _ => Vec::new(),
    };
    let broadcasts = broadcasts.into_iter().map(BroadcastBody::from).collect();
    respond::ok(&StateBody { broadcasts, ..StateBody::from(state) })
}

/// `GET /v1/notifications/{id}/devices/{device}`
pub(crate) async fn trace(provider: Provider<Read>, Path((id, device)): Path<(String, String)>) -> Answer {
    let (id, device) = (notification_id(&id)?, body::device_id(&device)?);
    let found = provider.delivery.store().trace(provider.app, id, &device).await?;
    let trace = found.ok_or_else(|| Problem::not_found("notification or device"))?;
    let session = provider.delivery.sessions.of_device(provider.app, &device).await;
    let presence = session.map_or(Presence::Offline, |session| session.presence);
    let connected = presence != Presence::Offline;
    let was_written = trace.steps.iter().any(|step| step.outcome == Outcome::Written);
    let suppressed = match connected && !was_written {
        true => suppressed(&provider, id, &device, presence).await?,
        false => None,
    };
    let present = Present {
        now: provider.delivery.clock().now(),
        is_connected: connected,
        suppressed,
        waits_for_quota: provider.delivery.quotas.pushes_wait(provider.app),
        segment: match &trace.target {
            TracedTarget::Campaign(campaign) => segment(&provider, &device, campaign).await?,
            _ => Segment::Unknown,
        },
    };
    let Explanation { targeted_by, targeting, reason, push, summary } = explain(&trace, present);
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
        targeted_by: targeted_by.as_str(),
        targeting,
        reason: reason.map(Reason::as_str),
        push_due_at: push.map(|push| push.due_at.to_string()),
        push_taken_at: push.and_then(|push| match push.stage {
            PushStage::Taken { since } => since.map(|since| since.to_string()),
            PushStage::Queued | PushStage::Collected => None,
        }),
        attempts: attempts(&trace.attempts, trace.device.num),
        trace: trace.trace.map(trace_id),
        summary,
    };
    respond::ok(&body)
}

/// The outcome with which the preferences of a connected device keep the notification from its connection now.
async fn suppressed(
    provider: &Provider<Read>,
    id: NotificationId,
    device: &DeviceId,
    presence: Presence,
) -> Result<Option<Outcome>, Problem> {
    let (store, now) = (provider.delivery.store(), provider.delivery.clock().now());
    let followed = store.followed_preferences(provider.app, vec![device.clone()]).await?.pop();
    let Some(Followed { preferences: Some(preferences), timezone, .. }) = followed else { return Ok(None) };
    let Some(state) = store.notification(provider.app, id, now).await? else { return Ok(None) };
    let category = state.message.category.as_ref();
    let topic = state.message.topic.as_ref().map(|place| &place.topic);
    Ok(match preferences.suppresses(Channel::Live, category, topic) {
        Some(Suppressed::Muted) => Some(Outcome::Muted),
        Some(Suppressed::ChannelOff) => Some(Outcome::ChannelOff),
        None => {
            let is_quiet = preferences.quiet_until(category, now, timezone.as_deref()).is_some();
            (is_quiet && presence == Presence::Idle).then_some(Outcome::Quiet)
        }
    })
}

/// Whether the device is in the audience of a campaign now.
async fn segment(
    provider: &Provider<Read>,
    device: &DeviceId,
    campaign: &TracedCampaign,
) -> Result<Segment, Problem> {
    let Ok(spec) = Spec::from_json(&campaign.spec) else { return Ok(Segment::Unknown) };
    if spec.audience == Audience::Upload {
        return Ok(Segment::Upload);
    }
    let found = provider.delivery.store().device(provider.app, device).await?;
    let is_inside = found.is_some_and(|device| spec.selects(&device.attributes, &device.topics));
    Ok(if is_inside { Segment::Inside } else { Segment::Outside })
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

impl ReceiptBody {
    pub(crate) fn new(receipt: Receipt, warnings: Vec<Warning>) -> Self {
        Self { id: receipt.id.to_string(), targets: receipt.targets, warnings: warning::bodies(warnings) }
    }
}

impl TargetBody {
    /// `text`: the topic's name or the condition's text.
    pub(crate) fn new(kind: &'static str, text: Option<String>) -> Self {
        Self {
            kind,
            topic: text.clone().filter(|_| kind == "topic"),
            condition: text.filter(|_| kind == "condition"),
        }
    }
}

pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Pending => "pending",
        State::Done => "done",
        State::Cancelled => "cancelled",
        State::Expired => "expired",
    }
}

/// Numbers of devices by outcome.
pub(crate) fn counts(sums: Vec<(Outcome, u64)>) -> serde_json::Map<String, serde_json::Value> {
    sums.into_iter().map(|(outcome, n)| (outcome.as_str().to_owned(), n.into())).collect()
}

impl From<NotificationState> for StateBody {
    fn from(found: NotificationState) -> Self {
        let NotificationState { message, request, state, counts } = found;
        let RequestSummary { target, target_text, targets, collapse_key, retain, trace } = request;
        Self {
            id: message.id.to_string(),
            state: state_name(state),
            when: message.when.as_str(),
            urgency: message.urgency.as_str(),
            target: TargetBody::new(target, target_text),
            targets,
            counts: self::counts(counts),
            collapse_key,
            category: message.category.as_ref().map(|category| category.name.to_string()),
            essential: message.category.as_ref().is_some_and(|category| category.is_essential),
            retain,
            sent_at: message.sent_at.to_string(),
            expires_at: message.expires_at.to_string(),
            trace: trace.map(trace_id),
            broadcasts: Vec::new(),
        }
    }
}
