//! Topics as a provider sees them: subscribers, position, retained message.

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use noroshi_store::TopicState;
use noroshi_types::Topic;
use serde::{Deserialize, Serialize};

use crate::access::{Provider, Publish, Read};
use crate::error::{Code, Problem};
use crate::extract::{Path, Query};
use crate::respond;
use crate::state::Api;

/// Pages of lists, unless the request says otherwise, and at most.
pub(crate) const PAGE_DEFAULT: usize = 100;
pub(crate) const PAGE_MAX: usize = 1_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Page {
    after: Option<String>,
    limit: Option<usize>,
}

#[derive(Serialize)]
struct TopicBody {
    topic: String,
    subscribers: u64,
    connected: u64,
    epoch: Option<String>,
    offset: u64,
    log: u64,
    retained: bool,
}

#[derive(Serialize)]
struct TopicsBody {
    topics: Vec<TopicBody>,
    next: Option<String>,
}

/// `GET /v1/topics`
pub(crate) async fn list(
    Shared(api): Shared<Api>,
    provider: Provider<Read>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page_limit(page.limit)?;
    // `?after=` is how a script asks for the first page.
    let after = page.after.filter(|after| !after.is_empty());
    let after = after.map(|after| listed(&after).map_err(|problem| problem.at("after"))).transpose()?;
    let found = api.delivery.store().topics(provider.app, after.as_ref(), limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.topic.to_string());
    let names: Vec<Topic> = found.iter().map(|state| state.topic.clone()).collect();
    let connected = api.delivery.topic_sessions(provider.app, &names).await;
    let topics =
        found.into_iter().zip(connected).map(|(state, connected)| topic_body(state, connected)).collect();
    Ok(respond::json(StatusCode::OK, &TopicsBody { topics, next }))
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn show(
    Shared(api): Shared<Api>,
    provider: Provider<Read>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let state = api.delivery.store().topic(provider.app, &listed(&name)?).await?;
    let connected = api.delivery.topic_sessions(provider.app, std::slice::from_ref(&state.topic)).await;
    let connected = connected.first().copied().unwrap_or(0);
    Ok(respond::json(StatusCode::OK, &topic_body(state, connected)))
}

/// `GET /v1/topics/{topic}/retained`
pub(crate) async fn retained(
    Shared(api): Shared<Api>,
    provider: Provider<Read>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let found = api.delivery.store().retained(provider.app, &listed(&name)?, api.now()).await?;
    let message = found.ok_or_else(|| Problem::new(Code::NotFound, "the topic has no retained message"))?;
    Ok(respond::json(StatusCode::OK, &respond::message(&message)?))
}

/// `DELETE /v1/topics/{topic}/retained`
pub(crate) async fn delete_retained(
    Shared(api): Shared<Api>,
    provider: Provider<Publish>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    match api.delivery.store().delete_retained(provider.app, &topic(&name)?).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(Code::NotFound, "the topic has no retained message")),
    }
}

pub fn topic(name: &str) -> Result<Topic, Problem> {
    Topic::parse(name).map_err(|invalid| Problem::from(invalid).at("topic"))
}

/// A topic that lists name: also `$maintenance` and those that topic rules open.
fn listed(name: &str) -> Result<Topic, Problem> {
    Topic::parse_any(name).map_err(|invalid| Problem::from(invalid).at("topic"))
}

pub fn page_limit(limit: Option<usize>) -> Result<usize, Problem> {
    match limit.unwrap_or(PAGE_DEFAULT) {
        limit @ 1..=PAGE_MAX => Ok(limit),
        _ => Err(Problem::parameter("limit", format!("a page has 1 to {PAGE_MAX} entries"))),
    }
}

fn topic_body(state: TopicState, connected: u64) -> TopicBody {
    TopicBody {
        connected,
        topic: state.topic.to_string(),
        subscribers: state.subscribers,
        epoch: state.position.map(|position| position.epoch.to_string()),
        offset: state.position.map_or(0, |position| position.offset),
        log: state.log_rows,
        retained: state.retained,
    }
}
