//! The audit log: what was changed, the newest first.

use noroshi_store::{AuditEntry, AuditFilter, AuditedBy};
use noroshi_types::{PersonId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::Problem;
use crate::request::page::{next, not_a_position, not_first, page_limit};
use crate::request::parameter::Query;
use crate::request::session::Person;
use crate::respond::{self, Answer};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Filter {
    app: Option<String>,
    person: Option<String>,
    action: Option<String>,
    since: Option<String>,
    until: Option<String>,
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct EntryBody<'a> {
    id: String,
    at: String,
    /// `person`, `key`, `operator_token` or `node`
    by: &'static str,
    person: Option<PersonOfEntry<'a>>,
    key: Option<&'a str>,
    app: Option<String>,
    action: &'a str,
    target: &'a str,
    before: Option<Box<RawValue>>,
    after: Option<Box<RawValue>>,
    address: &'a str,
    request_id: &'a str,
}

#[derive(Serialize)]
struct PersonOfEntry<'a> {
    id: String,
    email: &'a str,
}

/// `GET /v1/audit`
pub(crate) async fn list(caller: Person, Query(filter): Query<Filter>) -> Answer {
    let app = filter.app.as_deref().map(|name| {
        let app = caller.desk.auth.app(name).ok_or_else(|| Problem::not_found("app"))?;
        Ok::<_, Problem>(app.id)
    });
    let app = app.transpose()?;
    page(&caller, AuditFilter { app, ..parsed(&filter)? }).await
}

/// `GET /v1/apps/{app}/audit`
pub(crate) async fn of_app(caller: Person, Query(filter): Query<Filter>) -> Answer {
    if filter.app.is_some() {
        return Err(Problem::parameter("app", "the path names the app"));
    }
    let app = Some(caller.app_id()?);
    page(&caller, AuditFilter { app, ..parsed(&filter)? }).await
}

fn parsed(filter: &Filter) -> Result<AuditFilter, Problem> {
    let when = |name: &'static str, text: &Option<String>| -> Result<Option<Timestamp>, Problem> {
        let Some(text) = text.as_deref() else { return Ok(None) };
        let rule = "must be a time such as 2026-11-27T12:00:00Z";
        Timestamp::parse(text).map(Some).ok_or_else(|| Problem::parameter(name, rule))
    };
    let number = |text: &str| text.parse().ok();
    let person = filter.person.as_deref().map(|text| {
        number(text).map(PersonId).ok_or_else(|| Problem::parameter("person", "must be the id of a person"))
    });
    let before = not_first(filter.after.clone()).map(|text| number(&text).ok_or_else(not_a_position));
    Ok(AuditFilter {
        app: None,
        person: person.transpose()?,
        action: filter.action.clone(),
        since: when("since", &filter.since)?,
        until: when("until", &filter.until)?,
        before: before.transpose()?,
        limit: page_limit(filter.limit)?,
    })
}

async fn page(caller: &Person, filter: AuditFilter) -> Answer {
    let limit = filter.limit;
    let found = caller.desk.console.store().audit(filter).await?;
    let next = next(&found, limit, |last| last.id.to_string());
    let apps = caller.desk.auth.apps();
    let bodies = found.iter().map(|entry| {
        let name = entry.change.app.and_then(|id| apps.iter().find(|app| app.id == id));
        entry_body(entry, name.map(|app| app.name.to_string()))
    });
    respond::page("entries", bodies.collect(), next)
}

fn entry_body(entry: &AuditEntry, app: Option<String>) -> EntryBody<'_> {
    let change = &entry.change;
    let (by, person, key) = match &change.by {
        AuditedBy::Person { id, email } => {
            ("person", Some(PersonOfEntry { id: id.0.to_string(), email }), None)
        }
        AuditedBy::Key(name) => ("key", None, Some(name.as_str())),
        AuditedBy::OperatorToken => ("operator_token", None, None),
        AuditedBy::Node => ("node", None, None),
    };
    let raw = |text: &Option<String>| text.clone().and_then(|text| RawValue::from_string(text).ok());
    EntryBody {
        id: entry.id.to_string(),
        at: entry.at.to_string(),
        by,
        person,
        key,
        app,
        action: &change.action,
        target: &change.target,
        before: raw(&change.before),
        after: raw(&change.after),
        address: &change.address,
        request_id: &change.request,
    }
}
