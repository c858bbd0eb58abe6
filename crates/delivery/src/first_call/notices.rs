//! Telling connected devices of maintenance notices: the topic `$maintenance` of an app, whose retained message is what is
//! shown now. Who subscribes hears it at the log-in, and again when a notice begins, changes or ends.
//!
//! Any node sees whether the retained message is what it should be; one of them, the leader, puts it right. So nothing
//! is remembered of what was told, and a crash repeats nothing. A notice that is over is archived after that was told.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use noroshi_store::DefinitionKind;
use noroshi_types::{AppId, JsonText, Push, Request, Target, Timestamp, Topic, Ttl, Urgency, When, limits};
use serde::Serialize;
use serde_json::value::RawValue;

use super::shared::{Current, ShownNotice};
use crate::delivery::{Delivery, Error};
use crate::push::lead;

/// The task's name in the store, and how long one node leads it without a word.
const TASK: &str = "notices";
const LEASE: Duration = Duration::from_secs(10);
/// Between two looks at what is in memory.
const INTERVAL: Duration = Duration::from_secs(1);
/// After so long it is looked at the retained messages again: they expire.
const CHECK_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long "nothing any more" is told to devices that log in.
const EMPTY_TTL: Duration = Duration::from_secs(86_400);
/// Notices archived at once.
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
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

/// Until it is dropped.
pub(crate) async fn run(delivery: &Arc<Delivery>) {
    let holder = lead::draw();
    let mut told: HashMap<AppId, u64> = HashMap::new();
    let mut checked = tokio::time::Instant::now();
    loop {
        let _ = tokio::time::timeout(INTERVAL, delivery.first_calls.notices.notified()).await;
        if checked.elapsed() > CHECK_INTERVAL {
            checked = tokio::time::Instant::now();
            told.clear();
        }
        if let Err(error) = look(delivery, holder, &mut told).await {
            tracing::warn!(%error, "maintenance notices could not be told; trying again");
        }
    }
}

async fn look(delivery: &Arc<Delivery>, holder: u64, told: &mut HashMap<AppId, u64>) -> Result<(), Error> {
    let shared = &delivery.first_calls.shared;
    let now = delivery.clock.now();
    for app in shared.apps_with_notices() {
        let current = shared.current(app, now);
        if told.get(&app) == Some(&current.version) {
            continue;
        }
        if is_told(delivery, app, &current, now).await? || tell(delivery, holder, app, &current).await? {
            told.insert(app, current.version);
        }
    }
    if shared.has_ended(DefinitionKind::Notice, now) && leads(delivery, holder).await? {
        delivery.store.archive_ended(DefinitionKind::Notice, now, ROWS).await?;
        delivery.definitions_changed().await?;
    }
    Ok(())
}

async fn leads(delivery: &Delivery, holder: u64) -> Result<bool, Error> {
    Ok(delivery.store.lead(TASK, holder, LEASE).await?)
}

async fn is_told(delivery: &Delivery, app: AppId, current: &Current, now: Timestamp) -> Result<bool, Error> {
    let retained = delivery.store.retained(app, &Topic::maintenance(), now).await?;
    Ok(match retained {
        None => current.notices.is_empty(),
        Some(message) => message.data == Some(body(&current.notices)),
    })
}

/// False where another node leads.
async fn tell(delivery: &Arc<Delivery>, holder: u64, app: AppId, current: &Current) -> Result<bool, Error> {
    if !leads(delivery, holder).await? {
        return Ok(false);
    }
    let ttl = if current.notices.is_empty() { EMPTY_TTL } else { limits::TTL_MAX };
    let request = Request {
        target: Target::Topic(Topic::maintenance()),
        when: When::Connected,
        ttl: Ttl::new(ttl).unwrap_or_default(),
        urgency: Urgency::Normal,
        waits_for_use: false,
        collapse_key: None,
        retain: true,
        notification: None,
        data: Some(body(&current.notices)),
        push: Push::default(),
        trace: None,
    };
    match delivery.publish_own(app, request).await {
        // The app was deleted meanwhile.
        Ok(_) | Err(Error::Store(noroshi_store::Error::NotFound)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// In the words for all languages. Of the same notices the same text.
fn body(notices: &[ShownNotice]) -> JsonText {
    let body = Body { notices: notices.iter().map(NoticeBody::from).collect() };
    JsonText::from_valid(serde_json::to_string(&body).unwrap_or_default())
}

impl<'a> From<&'a ShownNotice> for NoticeBody<'a> {
    fn from(shown: &'a ShownNotice) -> Self {
        let raw = |text: &Option<JsonText>| RawValue::from_string(text.as_ref()?.as_str().to_owned()).ok();
        Self {
            name: shown.name.as_str(),
            state: shown.state.as_str(),
            starts_at: shown.notice.starts_at.to_string(),
            ends_at: shown.notice.ends_at.to_string(),
            notification: raw(&shown.notice.text.notification),
            data: raw(&shown.notice.text.data),
        }
    }
}
