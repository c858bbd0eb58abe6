//! Topics over all cells: the sum of their subscribers; each cell has its own epoch and offsets.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::parts::{Path, Publish, Query, Read, json, page_limit, topic};
use noroshi_api::{Code, Problem};
use noroshi_types::NotificationId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{By, Call};
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

#[derive(Serialize, Deserialize)]
struct TopicsBody {
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
pub(crate) async fn list(By(call, _): By<Read>, Query(query): Query<ListQuery>) -> Result<Response, Problem> {
    let limit = page_limit(query.limit)?;
    let after = query.after.unwrap_or_default();
    if !after.is_empty() {
        topic(&after).map_err(|problem| problem.at("after"))?;
    }
    let path = format!("/v1/topics?limit={limit}&after={}", escaped(&after));
    let mut sums: BTreeMap<String, TopicBody> = BTreeMap::new();
    let mut more = false;
    for (cell, answer) in all(&call, path).await? {
        let page: TopicsBody = answer.json()?;
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
pub(crate) async fn show(By(call, _): By<Read>, Path(name): Path<String>) -> Result<Response, Problem> {
    let path = format!("/v1/topics/{}", escaped(&topic(&name)?.to_string()));
    let mut sum = TopicBody::default();
    for (cell, answer) in all(&call, path).await? {
        sum.add(&cell, answer.json()?);
    }
    Ok(json(StatusCode::OK, &sum))
}

/// The answers of all cells; a sum without one of them would be wrong.
async fn all(call: &Call, path: String) -> Result<Vec<(Arc<Cell>, CellResponse)>, Problem> {
    let mut answers = Vec::new();
    for (cell, answer) in call.send_all(CellRequest::get(path)).await {
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
pub(crate) async fn retained(By(call, _): By<Read>, Path(name): Path<String>) -> Result<Response, Problem> {
    let mut away = None;
    for (cell, answer) in call.send_all(CellRequest::get(retained_path(&name)?)).await {
        match answer {
            Ok(answer) if answer.status == StatusCode::OK => {
                return Ok(json(StatusCode::OK, &under_our_id(&call.front, &cell, &answer).await?));
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
    By(call, _): By<Publish>,
    Path(name): Path<String>,
) -> Result<Response, Problem> {
    let mut deleted = false;
    for (_, answer) in call.send_all(CellRequest::delete(retained_path(&name)?)).await {
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
