//! Topics, for providers: subscribers, position and retained message.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use http::StatusCode;
use noroshi_delivery::Delivery;
use noroshi_store::TopicState;
use noroshi_types::Topic;
use serde::{Deserialize, Serialize};

use crate::error::{Code, Problem};
use crate::request::access::{Provider, Publish, Read};
use crate::request::page::page_limit;
use crate::request::parameter::{Path, Query};
use crate::respond;

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
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Query(page): Query<Page>,
) -> Result<Response, Problem> {
    let limit = page_limit(page.limit)?;
    // An empty `after` is the first page, which suits scripts.
    let after = page.after.filter(|after| !after.is_empty());
    let after = after.map(|after| listed(&after).map_err(|problem| problem.at("after"))).transpose()?;
    let found = delivery.store().topics(provider.app, after.as_ref(), limit).await?;
    let next = found.last().filter(|_| found.len() == limit).map(|last| last.topic.to_string());
    let names: Vec<Topic> = found.iter().map(|state| state.topic.clone()).collect();
    let connected = delivery.sessions.of_topics(provider.app, &names).await;
    let topics =
        found.into_iter().zip(connected).map(|(state, connected)| topic_body(state, connected)).collect();
    Ok(respond::json(StatusCode::OK, &TopicsBody { topics, next }))
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn show(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let state = delivery.store().topic(provider.app, &listed(&name)?).await?;
    let connected = delivery.sessions.of_topics(provider.app, std::slice::from_ref(&state.topic)).await;
    let connected = connected.first().copied().unwrap_or(0);
    Ok(respond::json(StatusCode::OK, &topic_body(state, connected)))
}

/// `GET /v1/topics/{topic}/retained`
pub(crate) async fn retained(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Read>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let found = delivery.store().retained(provider.app, &listed(&name)?, delivery.clock().now()).await?;
    let message = found.ok_or_else(|| Problem::new(Code::NotFound, "the topic has no retained message"))?;
    Ok(respond::json(StatusCode::OK, &respond::message(&message)?))
}

/// `DELETE /v1/topics/{topic}/retained`
pub(crate) async fn delete_retained(
    Shared(delivery): Shared<Arc<Delivery>>,
    provider: Provider<Publish>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    match delivery.store().delete_retained(provider.app, &topic(&name)?).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::new(Code::NotFound, "the topic has no retained message")),
    }
}

pub fn topic(name: &str) -> Result<Topic, Problem> {
    Topic::parse(name).map_err(|invalid| Problem::from(invalid).at("topic"))
}

/// A topic as in lists: includes `$maintenance` and topics that topic rules allow.
fn listed(name: &str) -> Result<Topic, Problem> {
    Topic::parse_any(name).map_err(|invalid| Problem::from(invalid).at("topic"))
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
