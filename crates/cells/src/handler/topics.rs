//! Topics over all cells: the sum of their subscribers; each cell has its own epoch and offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::parts::{Path, Provider, Publish, Query, Read, Traced, json, page_limit, topic};
use noroshi_api::{Api, Code, Problem};
use noroshi_types::{AppId, NotificationId, TraceContext};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{FrontExtension, no_key, send_each};
use crate::cell::Cell;
use crate::client::{CellRequest, CellResponse, escaped};
use crate::front::Front;

/// A topic as a cell reports it, or the sum over all cells.
#[derive(Debug, Clone, Serialize, Deserialize, Default)]
struct TopicBody {
    topic: String,
    subscribers: u64,
    connected: u64,
    /// None in a sum.
    epoch: Option<String>,
    offset: u64,
    log: u64,
    retained: bool,
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    cells: Vec<CellTopic>,
}

/// The topic in one cell.
#[derive(Debug, Clone, Serialize)]
struct CellTopic {
    cell: String,
    epoch: Option<String>,
    offset: u64,
    subscribers: u64,
    connected: u64,
}

#[derive(Serialize)]
struct TopicsBody {
    topics: Vec<TopicBody>,
    next: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    topics: Vec<TopicBody>,
    next: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListQuery {
    after: Option<String>,
    limit: Option<usize>,
}

impl TopicBody {
    fn add(&mut self, cell: &Cell, other: TopicBody) {
        self.topic = other.topic;
        self.subscribers += other.subscribers;
        self.connected += other.connected;
        // Every cell receives every message of a topic: the largest offset is closest to their number.
        self.offset = self.offset.max(other.offset);
        self.log = self.log.max(other.log);
        self.retained |= other.retained;
        self.cells.push(CellTopic {
            cell: cell.name().to_owned(),
            epoch: other.epoch,
            offset: other.offset,
            subscribers: other.subscribers,
            connected: other.connected,
        });
    }
}

/// `GET /v1/topics`
pub(crate) async fn list(
    Shared(_): Shared<Api>,
    axum::Extension(front): FrontExtension,
    provider: Provider<Read>,
    Traced(trace): Traced,
    Query(query): Query<ListQuery>,
) -> Result<Response, Problem> {
    let limit = page_limit(query.limit)?;
    let after = query.after.unwrap_or_default();
    if !after.is_empty() {
        topic(&after).map_err(|problem| problem.at("after"))?;
    }
    let path = format!("/v1/topics?limit={limit}&after={}", escaped(&after));
    let mut sums: BTreeMap<String, TopicBody> = BTreeMap::new();
    let mut more = false;
    for (cell, answer) in all(&front, provider.app, trace, &path).await? {
        let page: Page = answer.json()?;
        more |= page.next.is_some();
        for one in page.topics {
            sums.entry(one.topic.clone()).or_default().add(&cell, one);
        }
    }
    // Each page is sorted and has `limit` topics if there are more, so the first `limit` of all are complete.
    more |= sums.len() > limit;
    let topics: Vec<TopicBody> = sums.into_values().take(limit).collect();
    let next = topics.last().filter(|_| more).map(|last| last.topic.clone());
    Ok(json(StatusCode::OK, &TopicsBody { topics, next }))
}

/// `GET /v1/topics/{topic}`
pub(crate) async fn show(
    Shared(_): Shared<Api>,
    axum::Extension(front): FrontExtension,
    provider: Provider<Read>,
    Traced(trace): Traced,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let path = format!("/v1/topics/{}", escaped(&topic(&name)?.to_string()));
    let mut sum = TopicBody::default();
    for (cell, answer) in all(&front, provider.app, trace, &path).await? {
        sum.add(&cell, answer.json()?);
    }
    Ok(json(StatusCode::OK, &sum))
}

/// The answers of all cells; a sum without one of them would be wrong.
async fn all(
    front: &Front,
    app: AppId,
    trace: Option<TraceContext>,
    path: &str,
) -> Result<Vec<(Arc<Cell>, CellResponse)>, Problem> {
    let requests = front
        .cells
        .iter()
        .map(|cell| (cell.clone(), CellRequest::get(path, no_key(), front.cells.timeout())));
    let mut answers = Vec::new();
    for (cell, answer) in send_each(&front.cells, app, trace, requests).await {
        let answer = answer?;
        if answer.status != StatusCode::OK {
            return Err(cell.away());
        }
        answers.push((cell, answer));
    }
    Ok(answers)
}

/// `GET /v1/topics/{topic}/retained`: all cells hold the same message. Returns the first one found, under the front's
/// id.
pub(crate) async fn retained(
    Shared(_): Shared<Api>,
    axum::Extension(front): FrontExtension,
    provider: Provider<Read>,
    Traced(trace): Traced,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let path = retained_path(&name)?;
    let requests = front
        .cells
        .iter()
        .map(|cell| (cell.clone(), CellRequest::get(&path, no_key(), front.cells.timeout())));
    let mut away = None;
    for (cell, answer) in send_each(&front.cells, provider.app, trace, requests).await {
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                return Ok(json(StatusCode::OK, &under_our_id(&front, &cell, &answer).await?));
            }
            Ok(_) => {}
            Err(problem) => away = Some(problem),
        }
    }
    Err(away.unwrap_or_else(|| Problem::new(Code::NotFound, "the topic has no retained message")))
}

async fn under_our_id(front: &Front, cell: &Cell, answer: &CellResponse) -> Result<Value, Problem> {
    let mut message: Value = answer.json()?;
    if let Some(remote) = message["id"].as_str().and_then(|id| NotificationId::parse(id).ok())
        && let Some(relayed) = front.cells.store.relayed_as(cell.num, remote).await?
    {
        message["id"] = relayed.id.to_string().into();
    }
    Ok(message)
}

/// `DELETE /v1/topics/{topic}/retained`: in all cells. If one does not answer, the client has to repeat the request.
pub(crate) async fn delete_retained(
    Shared(_): Shared<Api>,
    axum::Extension(front): FrontExtension,
    provider: Provider<Publish>,
    Traced(trace): Traced,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let path = retained_path(&name)?;
    let requests = front
        .cells
        .iter()
        .map(|cell| (cell.clone(), CellRequest::delete(&path, no_key(), front.cells.timeout())));
    let mut deleted = false;
    for (_, answer) in send_each(&front.cells, provider.app, trace, requests).await {
        let answer = answer?;
        deleted |= answer.status == StatusCode::NO_CONTENT;
        if answer.status.is_server_error() {
            return Ok(answer.into_response());
        }
    }
    match deleted {
        true => Ok(StatusCode::NO_CONTENT.into_response()),
        false => Err(Problem::new(Code::NotFound, "the topic has no retained message")),
    }
}

fn retained_path(name: &str) -> Result<String, Problem> {
    Ok(format!("/v1/topics/{}/retained", escaped(&topic(name)?.to_string())))
}
