//! Maintenance notices of an app. Deleting one ends it now; subscribers of its topic are notified before it is archived.

use std::collections::BTreeMap;

use http::StatusCode;
use noroshi_delivery::Texts;
use noroshi_delivery::definition::Notice;
use noroshi_store::{Definition, DefinitionKind};
use noroshi_types::Timestamp;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::body;
use crate::error::Problem;
use crate::handler::definition::{self, ListQuery};
use crate::request::access::Manager;
use crate::request::body::JsonBody;
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer, raw};

const KIND: DefinitionKind = DefinitionKind::Notice;

#[derive(Serialize)]
struct NoticeBody {
    name: String,
    /// `scheduled`, `announced`, `active` or `over`.
    state: &'static str,
    announced_at: Option<String>,
    starts_at: String,
    ends_at: String,
    #[serde(flatten)]
    text: TextBody,
    locales: BTreeMap<String, TextBody>,
    created_at: String,
    updated_at: String,
}

#[derive(Serialize)]
struct TextBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    notification: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<Box<RawValue>>,
}

/// `GET /v1/apps/{app}/notices`
pub(crate) async fn list(manager: Manager, query: Query<ListQuery>) -> Answer {
    let app = manager.app()?;
    let archived = query.0.wants_archived();
    let (mut found, next) = definition::list(&manager.delivery, app.id, KIND, query).await?;
    let now = manager.delivery.clock().now();
    // Hides an ended notice, although not all subscribers may be notified yet.
    found.retain(|one| archived || one.ends_at.is_none_or(|ends_at| now < ends_at));
    let notices = found.into_iter().map(|one| shown(one, now)).collect::<Result<Vec<_>, _>>()?;
    respond::page("notices", notices, next)
}

/// `GET /v1/apps/{app}/notices/{name}`: the live one with this name, otherwise the last archived one.
pub(crate) async fn show(manager: Manager, Path((_, name)): Path<(String, String)>) -> Answer {
    let app = manager.app()?;
    let found = definition::find(&manager.delivery, app.id, KIND, &definition::name(&name)?).await?;
    respond::ok(&shown(found, manager.delivery.clock().now())?)
}

/// `PUT /v1/apps/{app}/notices/{name}`: creates or replaces it.
pub(crate) async fn put(
    manager: Manager,
    Path((_, name)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Answer {
    let app = manager.app()?;
    let (name, notice) = (definition::name(&name)?, body::notice(&body)?);
    if notice.ends_at <= manager.delivery.clock().now() {
        return Err(Problem::field("ends_at", "must not be in the past"));
    }
    if let Some(before) = definition::live(&manager.delivery, app.id, KIND, &name).await? {
        manager.trail.before(&shown(before, manager.delivery.clock().now())?);
    }
    let kept = definition::put(&manager.delivery, app.id, KIND, name, notice.to_json(), Some(notice.ends_at))
        .await?;
    let after = shown(kept, manager.delivery.clock().now())?;
    manager.trail.after(&after);
    respond::ok(&after)
}

/// `DELETE /v1/apps/{app}/notices/{name}`: ends it now.
pub(crate) async fn end(
    manager: Manager,
    Path((_, name)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let (app, name, now) = (manager.app()?, definition::name(&name)?, manager.delivery.clock().now());
    let found = definition::find(&manager.delivery, app.id, KIND, &name).await?;
    let notice = read(&found)?;
    manager.trail.before(&shown(found.clone(), now)?);
    if found.archived_at.is_some() || notice.ends_at <= now {
        return Err(Problem::not_found(KIND.as_str()));
    }
    let ended = Notice { starts_at: notice.starts_at.min(now), ends_at: now, ..notice };
    definition::put(&manager.delivery, app.id, KIND, name, ended.to_json(), Some(now)).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn read(definition: &Definition) -> Result<Notice, Problem> {
    Notice::from_json(&definition.spec).map_err(Problem::internal)
}

fn shown(definition: Definition, now: Timestamp) -> Result<NoticeBody, Problem> {
    let notice = read(&definition)?;
    let state = match notice.state(now) {
        Some(state) => state.as_str(),
        None if now >= notice.ends_at => "over",
        None => "scheduled",
    };
    let locales = notice.locales.into_iter().map(|(tag, own)| Ok((tag, text(own)?)));
    Ok(NoticeBody {
        name: definition.name.to_string(),
        state,
        announced_at: notice.announced_at.map(|at| at.to_string()),
        starts_at: notice.starts_at.to_string(),
        ends_at: notice.ends_at.to_string(),
        text: text(notice.text)?,
        locales: locales.collect::<Result<_, Problem>>()?,
        created_at: definition.created_at.to_string(),
        updated_at: definition.updated_at.to_string(),
    })
}

fn text(own: Texts) -> Result<TextBody, Problem> {
    Ok(TextBody { notification: raw(own.notification.as_ref())?, data: raw(own.data.as_ref())? })
}
