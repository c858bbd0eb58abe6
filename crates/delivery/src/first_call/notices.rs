//! Publishes maintenance notices to connected devices: the topic `$maintenance` of an app, whose retained message is
//! what is shown now. Subscribers receive it at their login, and again when a notice begins, changes or ends.
//!
//! Every node checks whether the retained message is current; one of them, the leader, publishes it. So nothing about
//! past publishes is stored, and a crash repeats nothing. A notice that is over is archived after its end was
//! published.

use std::collections::HashMap;
use std::time::Duration;

use noroshi_store::DefinitionKind;
use noroshi_types::{AppId, JsonText, Push, Request, Target, Timestamp, Topic, Ttl, Urgency, When, limits};
use serde::Serialize;

use super::FirstCalls;
use super::shared::{Current, ShownNotice};
use crate::error::Error;
use crate::holder;
use crate::quota::Origin;
use crate::texts::json;

/// The task's name in the store, and the time of its lease.
const TASK: &str = "notices";
const LEASE: Duration = Duration::from_secs(10);
/// The pause between two looks at the notices in memory.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the retained messages are read again: they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long devices that log in receive the message that no notice is shown.
const EMPTY_TTL: Duration = Duration::from_secs(86_400);
/// Notices archived in one commit.
const ROWS: usize = 100;

#[derive(Serialize)]
struct Body<'a> {
    notices: Vec<NoticeBody<'a>>,
}

#[derive(Serialize)]
struct NoticeBody<'a> {
    name: &'a str,
    state: &'static str,
    starts_at: String,
    ends_at: String,
    #[serde(with = "json", skip_serializing_if = "Option::is_none")]
    notification: Option<JsonText>,
    #[serde(with = "json", skip_serializing_if = "Option::is_none")]
    data: Option<JsonText>,
}

/// Until it is dropped.
pub(super) async fn run(first_calls: &FirstCalls) {
    let holder = holder::draw();
    let mut published: HashMap<AppId, u64> = HashMap::new();
    let mut checked = tokio::time::Instant::now();
    loop {
        let _ = tokio::time::timeout(INTERVAL, first_calls.notices.notified()).await;
        if checked.elapsed() > CHECK_INTERVAL {
            checked = tokio::time::Instant::now();
            published.clear();
        }
        if let Err(error) = look(first_calls, holder, &mut published).await {
            tracing::warn!(%error, "could not publish maintenance notices; retrying");
        }
    }
}

async fn look(
    first_calls: &FirstCalls,
    holder: u64,
    published: &mut HashMap<AppId, u64>,
) -> Result<(), Error> {
    let shared = &first_calls.shared;
    let now = first_calls.context.now();
    for app in shared.apps_with_notices() {
        let current = shared.current(app, now);
        if published.get(&app) == Some(&current.version) {
            continue;
        }
        if is_published(first_calls, app, &current, now).await?
            || publish(first_calls, holder, app, &current).await?
        {
            published.insert(app, current.version);
        }
    }
    if shared.has_ended(DefinitionKind::Notice, now) && leads(first_calls, holder).await? {
        first_calls.context.store.archive_ended(DefinitionKind::Notice, now, ROWS).await?;
        first_calls.definitions_changed().await?;
    }
    Ok(())
}

async fn leads(first_calls: &FirstCalls, holder: u64) -> Result<bool, Error> {
    Ok(first_calls.context.store.lead(TASK, holder, LEASE).await?)
}

async fn is_published(
    first_calls: &FirstCalls,
    app: AppId,
    current: &Current,
    now: Timestamp,
) -> Result<bool, Error> {
    let retained = first_calls.context.store.retained(app, &Topic::maintenance(), now).await?;
    Ok(match retained {
        None => current.notices.is_empty(),
        Some(message) => message.data == Some(body(&current.notices)),
    })
}

/// Returns false if another node leads.
async fn publish(
    first_calls: &FirstCalls,
    holder: u64,
    app: AppId,
    current: &Current,
) -> Result<bool, Error> {
    if !leads(first_calls, holder).await? {
        return Ok(false);
    }
    let ttl = if current.notices.is_empty() { EMPTY_TTL } else { limits::TTL_MAX };
    let request = Request {
        target: Target::Topic(Topic::maintenance()),
        when: When::Connected,
        ttl: Ttl::new(ttl).unwrap_or_default(),
        urgency: Urgency::Normal,
        waits_for_use: false,
        category: None,
        collapse_key: None,
        retain: true,
        notification: None,
        data: Some(body(&current.notices)),
        push: Push::default(),
        item: None,
        trace: None,
    };
    match first_calls.publisher.publish_from(app, request, None, Origin::Node).await {
        // The app was deleted in the meantime.
        Ok(_) | Err(Error::Store(noroshi_store::Error::NotFound)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// The message, without translations. The same notices always give the same text.
fn body(notices: &[ShownNotice]) -> JsonText {
    let body = Body { notices: notices.iter().map(NoticeBody::from).collect() };
    JsonText::from_valid(serde_json::to_string(&body).unwrap_or_default())
}

impl<'a> From<&'a ShownNotice> for NoticeBody<'a> {
    fn from(shown: &'a ShownNotice) -> Self {
        Self {
            name: shown.name.as_str(),
            state: shown.state.as_str(),
            starts_at: shown.notice.starts_at.to_string(),
            ends_at: shown.notice.ends_at.to_string(),
            notification: shown.notice.text.notification.clone(),
            data: shown.notice.text.data.clone(),
        }
    }
}
