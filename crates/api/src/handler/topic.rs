//! Topics, for providers: subscribers, position and retained message.

use http::StatusCode;
use noroshi_store::TopicState;
use noroshi_types::Topic;
use serde::Serialize;

use crate::error::{Code, Problem};
use crate::request::access::{Provider, Publish, Read};
use crate::request::page::{Page, next};
use crate::request::parameter::{Path, Query};
use crate::respond::{self, Answer};

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

/// `GET /v1/topics`
pub(crate) async fn list(provider: Provider<Read>, Query(page): Query<Page>) -> Answer {
    let limit = page.limit()?;
    let after =
        page.after().map(|after| listed(&after).map_err(|problem| problem.at("after"))).transpose()?;
    let found = provider.delivery.store().topics(provider.app, after.as_ref(), limit).await?;
    let next = next(&found, limit, |last| last.topic.to_string());
    let names: Vec<Topic> = found.iter().map(|state| state.topic.clone()).collect();
    let connected = provider.delivery.sessions.of_topics(provider.app, &names).await;
    let topics = found.into_iter().zip(connected).map(|(state, connected)| topic_body(state, connected));
    respond::page("topics", topics.collect(), next)
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn show(provider: Provider<Read>, Path(name): Path<String>) -> Answer {
    let state = provider.delivery.store().topic(provider.app, &listed(&name)?).await?;
    let connected =
        provider.delivery.sessions.of_topics(provider.app, std::slice::from_ref(&state.topic)).await;
    let connected = connected.first().copied().unwrap_or(0);
    respond::ok(&topic_body(state, connected))
}

/// `GET /v1/topics/{topic}/retained`
pub(crate) async fn retained(provider: Provider<Read>, Path(name): Path<String>) -> Answer {
    let now = provider.delivery.clock().now();
    let found = provider.delivery.store().retained(provider.app, &listed(&name)?, now).await?;
    let message = found.ok_or_else(|| Problem::new(Code::NotFound, "the topic has no retained message"))?;
    respond::ok(&respond::message(&message)?)
}

/// `DELETE /v1/topics/{topic}/retained`
pub(crate) async fn delete_retained(
    provider: Provider<Publish>,
    Path(name): Path<String>,
) -> Result<StatusCode, Problem> {
    match provider.delivery.store().delete_retained(provider.app, &topic(&name)?).await? {
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
