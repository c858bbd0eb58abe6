//! Live Activities: start, update, end, and what devices have of them.
//!
//! Delivery does the work. The handlers parse requests, and check before acceptance whether push services would take what
//! devices get.

use std::collections::BTreeMap;

use http::{HeaderMap, StatusCode};
use noroshi_delivery::activity::{Changed, Shown, fields_of_start, fields_of_update};
use noroshi_delivery::{Delivery, Error};
use noroshi_store::{ActivityMember, ActivityProgress};
use noroshi_types::{ActivityId, AppId, Presence, Target};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body;
use crate::error::{Code, Problem};
use crate::handler::attempt::{AttemptBody, attempts};
use crate::handler::explanation::Reason;
use crate::handler::explanation::activity::{Facts, OfActivity};
use crate::push_check;
use crate::request::access::{Provider, Publish, Read};
use crate::request::body::JsonBody;
use crate::request::idempotency::{idempotency, mark_replayed};
use crate::request::page::{Page, next, not_a_position};
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

#[derive(Serialize)]
struct ActivityBody {
    id: String,
    state: &'static str,
    version: u64,
    attributes_type: String,
    attributes: Option<Box<RawValue>>,
    content_state: Option<Box<RawValue>>,
    stale_date: Option<String>,
    relevance: Option<serde_json::Number>,
    android: Option<Box<RawValue>>,
    when: &'static str,
    ios_via: Option<&'static str>,
    frequent_updates: bool,
    join: &'static str,
    created_at: String,
    updated_at: String,
    expires_at: String,
    ended_at: Option<String>,
    dismissal_date: Option<String>,
    /// Devices that take part.
    devices: u64,
    high_priority_left: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<TargetBody>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<ProgressBody>,
    /// Of the change that this answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<ChangeBody>,
}

#[derive(Serialize)]
struct TargetBody {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    condition: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    named: Option<u64>,
}

#[derive(Serialize)]
struct ProgressBody {
    collected: bool,
    current: u64,
    waiting: u64,
    counts: BTreeMap<&'static str, u64>,
    reasons: Vec<ReasonBody>,
}

#[derive(Serialize)]
struct ReasonBody {
    outcome: &'static str,
    reason: Option<String>,
    count: u64,
}

#[derive(Serialize)]
struct ChangeBody {
    priority: u8,
    notification: Option<String>,
}

#[derive(Serialize)]
struct MemberBody {
    id: String,
    device: String,
    state: &'static str,
    version: u64,
    current_version: u64,
    waiting: bool,
    due_at: Option<String>,
    sent_at: Option<String>,
    started_version: Option<u64>,
    outcome: Option<&'static str>,
    reason: Option<String>,
    at: Option<String>,
    connected: bool,
    targeted_by: &'static str,
    targeting: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
    summary: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    attempts: Vec<AttemptBody>,
}

/// `POST /v1/activities`
pub(crate) async fn start(
    provider: Provider<Publish>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Answer {
    let idempotency = idempotency(&headers, &body)?;
    let now = provider.delivery.clock().now();
    let drawn = ActivityId::parse(&uuid::Uuid::now_v7().to_string()).map_err(Problem::from)?;
    let start = body::activity(&body, || drawn, now)?;
    drop(body);
    let target = start.target.clone();
    push_check::check_fields(&provider.delivery, provider.app, &fields_of_start(&start, now)).await?;
    let changed = provider.delivery.activities.start(provider.app, start, idempotency).await;
    let changed = changed.map_err(|error| match error {
        Error::Store(noroshi_store::Error::Exists) => {
            Problem::new(Code::AlreadyExists, "the app has an activity with this id").at("id")
        }
        error => error.into(),
    })?;
    let replayed = changed.replayed;
    // A repetition may have another target in another spelling: the stored one counts.
    let target = if replayed { None } else { Some(&target) };
    let answer = ActivityBody::changed(changed)?.with_target(target);
    Ok(mark_replayed(respond::json(StatusCode::CREATED, &answer), replayed))
}

/// `GET /v1/activities`
pub(crate) async fn list(provider: Provider<Read>, Query(page): Query<Page>) -> Answer {
    let limit = page.limit()?;
    let before = page.after().map(|after| after.parse::<u64>().map_err(|_| not_a_position()));
    let found = provider.delivery.activities.list(provider.app, before.transpose()?, limit).await?;
    let next = next(&found, limit, |last| last.activity.num.to_string());
    let bodies = found.into_iter().map(ActivityBody::new).collect::<Result<Vec<_>, _>>()?;
    respond::page("activities", bodies, next)
}

/// `GET /v1/activities/{id}`
pub(crate) async fn show(provider: Provider<Read>, Path(id): Path<String>) -> Answer {
    let shown = found(&provider.delivery, provider.app, &body::activity_id(&id)?).await?;
    let progress = provider.delivery.activities.progress(&shown).await?;
    let target = shown.target().map_err(Problem::from)?;
    let is_collected = shown.activity.cursor.is_none();
    let body = ActivityBody::new(shown)?.with_target(target.as_ref());
    respond::ok(&ActivityBody { progress: Some(ProgressBody::new(progress, is_collected)), ..body })
}

/// `GET /v1/activities/{id}/devices/{device}`
pub(crate) async fn trace(provider: Provider<Read>, Path((id, device)): Path<(String, String)>) -> Answer {
    let (device, delivery) = (body::device_id(&device)?, &provider.delivery);
    let shown = found(delivery, provider.app, &body::activity_id(&id)?).await?;
    let member = delivery.activities.member(&shown, &device).await?;
    let device = delivery.store().device(provider.app, &device).await?;
    let device = device.ok_or_else(|| Problem::not_found("device"))?;
    let session = delivery.sessions.of_device(provider.app, &device.id).await;
    let connected = session.is_some_and(|session| session.presence != Presence::Offline);
    let explained = Facts {
        activity: &shown.activity,
        target: shown.target().map_err(Problem::from)?.as_ref(),
        attributes_type: &shown.spec.attributes_type,
        ios_via: shown.spec.ios_via,
        device: &device,
        member: member.as_ref(),
        now: delivery.clock().now(),
        waits_for_quota: delivery.quotas.pushes_wait(provider.app),
        credentials: &delivery.push.credential_status(provider.app).unwrap_or_default(),
    }
    .explain();
    respond::ok(&MemberBody::new(&shown, device.id.to_string(), member, connected, explained))
}

/// `PATCH /v1/activities/{id}`
pub(crate) async fn update(
    provider: Provider<Publish>,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let (id, now) = (body::activity_id(&id)?, provider.delivery.clock().now());
    let update = body::activity_update(&body, now)?;
    drop(body);
    let before = found(&provider.delivery, provider.app, &id).await?;
    let fields = fields_of_update(&id, &before.spec, &before.state, &update, now);
    push_check::check_fields(&provider.delivery, provider.app, &fields).await?;
    let changed = provider.delivery.activities.update(provider.app, &id, update).await;
    respond::ok(&ActivityBody::changed(changed.map_err(not_changed)?)?)
}

/// `DELETE /v1/activities/{id}`
pub(crate) async fn end(
    provider: Provider<Publish>,
    Path(id): Path<String>,
    JsonBody(body): JsonBody,
) -> Answer {
    let (id, now) = (body::activity_id(&id)?, provider.delivery.clock().now());
    let (last, dismiss_at) = body::activity_end(&body, now)?;
    drop(body);
    let before = found(&provider.delivery, provider.app, &id).await?;
    let fields = fields_of_update(&id, &before.spec, &before.state, &last, now);
    push_check::check_fields(&provider.delivery, provider.app, &fields).await?;
    let changed = provider.delivery.activities.end(provider.app, &id, last, dismiss_at).await;
    respond::ok(&ActivityBody::changed(changed.map_err(not_changed)?)?)
}

async fn found(delivery: &Delivery, app: AppId, id: &ActivityId) -> Result<Shown, Problem> {
    let found = delivery.activities.find(app, id).await?;
    found.ok_or_else(|| Problem::not_found("activity"))
}

fn not_changed(error: Error) -> Problem {
    match error {
        Error::Store(noroshi_store::Error::Conflict) => {
            Problem::new(Code::WrongState, "the activity has ended")
        }
        error => Problem::missing("activity")(error),
    }
}

impl ActivityBody {
    fn new(shown: Shown) -> Result<Self, Problem> {
        let Shown { activity, spec, state, high_left } = shown;
        Ok(Self {
            id: activity.id.to_string(),
            state: match activity.ended_at {
                None => "active",
                Some(_) if state.expired => "expired",
                Some(_) => "ended",
            },
            version: activity.version,
            attributes: respond::raw(spec.attributes.as_ref())?,
            attributes_type: spec.attributes_type,
            content_state: respond::raw(state.content.as_ref())?,
            stale_date: state.stale_at().map(|at| at.to_string()),
            relevance: state.relevance.clone(),
            android: respond::raw(state.android.as_ref())?,
            when: spec.when.as_str(),
            ios_via: spec.ios_via.map(|service| service.as_str()),
            frequent_updates: spec.frequent_updates,
            join: if activity.joinable { "anyone" } else { "invited" },
            created_at: activity.created_at.to_string(),
            updated_at: activity.updated_at.to_string(),
            expires_at: activity.expires_at.to_string(),
            ended_at: activity.ended_at.map(|at| at.to_string()),
            dismissal_date: state.dismiss_at().map(|at| at.to_string()),
            devices: activity.devices,
            high_priority_left: high_left,
            target: None,
            progress: None,
            change: None,
        })
    }

    fn changed(changed: Changed) -> Result<Self, Problem> {
        let Changed { shown, high, notification, .. } = changed;
        let change = ChangeBody {
            priority: if high { 10 } else { 5 },
            notification: notification.map(|id| id.to_string()),
        };
        Ok(Self { change: Some(change), ..Self::new(shown)? })
    }

    fn with_target(self, target: Option<&Target>) -> Self {
        let body = target.map(|target| TargetBody {
            kind: match target {
                Target::Users(_) => "users",
                Target::Devices(_) => "devices",
                Target::Topic(_) => "topic",
                Target::Condition(_) => "condition",
                Target::Everyone => "everyone",
            },
            topic: if let Target::Topic(topic) = target { Some(topic.to_string()) } else { None },
            condition: match target {
                Target::Condition(condition) => Some(condition.as_str().to_owned()),
                _ => None,
            },
            named: target.named_count(),
        });
        Self { target: body, ..self }
    }
}

impl ProgressBody {
    fn new(progress: ActivityProgress, collected: bool) -> Self {
        let ActivityProgress { current, waiting, counts: sums } = progress;
        let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
        let mut reasons = Vec::with_capacity(sums.len());
        for (outcome, reason, count) in sums {
            *counts.entry(outcome.as_str()).or_default() += count;
            let reason = Some(reason).filter(|reason| !reason.is_empty());
            reasons.push(ReasonBody { outcome: outcome.as_str(), reason, count });
        }
        Self { collected, current, waiting, counts, reasons }
    }
}

impl MemberBody {
    fn new(
        shown: &Shown,
        device: String,
        member: Option<ActivityMember>,
        connected: bool,
        explained: OfActivity,
    ) -> Self {
        let (id, current) = (shown.activity.id.to_string(), shown.activity.version);
        let OfActivity { state, targeted_by, targeting, cause, summary } = explained;
        let attempts = member.as_ref().map(|member| attempts(&member.attempts, member.num));
        let blank = Self {
            id,
            device,
            state,
            version: 0,
            current_version: current,
            waiting: false,
            due_at: None,
            sent_at: None,
            started_version: None,
            outcome: None,
            reason: None,
            at: None,
            connected,
            targeted_by: targeted_by.as_str(),
            targeting,
            cause: cause.map(Reason::as_str),
            summary,
            attempts: attempts.unwrap_or_default(),
        };
        // What a slice got, a device without a token did not.
        let Some(member) = member.filter(|_| !matches!(state, "not_invited" | "other_user")) else {
            return blank;
        };
        let has_way = matches!(state, "joined" | "android");
        let version = match (has_way, member.waits) {
            (true, false) => member.version,
            (true, true) if member.version < current => member.version,
            _ => member.started,
        };
        Self {
            version,
            waiting: member.waits && state != "live_only" && state != "started",
            due_at: member.due_at.filter(|_| member.waits).map(|at| at.to_string()),
            sent_at: member.sent_at.filter(|_| has_way).map(|at| at.to_string()),
            started_version: Some(member.started).filter(|version| *version > 0),
            outcome: member.outcome.map(|outcome| outcome.as_str()),
            reason: member.reason,
            at: member.at.map(|at| at.to_string()),
            ..blank
        }
    }
}
