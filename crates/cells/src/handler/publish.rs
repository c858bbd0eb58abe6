//! Publishes: validates as a cell would, stores in one commit, and answers; the relay forwards.

use std::sync::Arc;

use axum::extract::State as Shared;
use axum::response::Response;
use http::{HeaderMap, StatusCode};
use noroshi_api::parts::{
    JsonBody, Lines, NdjsonBody, Publish, body_hash, check_request, idempotency, idempotency_key, json,
    lines, mark_replayed,
};
use noroshi_api::{Api, Code, Problem, body};
use noroshi_store::Idempotency;
use noroshi_store::cells::{CellNum, NewMessage, Taken};
use noroshi_types::{Quota, Request, Target};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{By, Call};
use crate::outbox::{self, COMMIT_MESSAGES_MAX};
use crate::splice::splice;

/// The receipt, as a cell answers it.
#[derive(Serialize)]
struct ReceiptBody {
    id: String,
    targets: Option<u64>,
}

/// The state of a message before any cell has answered.
#[derive(Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) when: String,
    pub(crate) urgency: String,
    pub(crate) target: TargetSummary,
    pub(crate) collapse_key: Option<String>,
    pub(crate) category: Option<String>,
    pub(crate) retain: bool,
}

#[derive(Serialize, Deserialize)]
pub(crate) struct TargetSummary {
    pub(crate) kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) topic: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) condition: Option<String>,
}

/// `POST /v1/notifications`
pub(crate) async fn one(
    Shared(api): Shared<Api>,
    By(call, _): By<Publish>,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let idempotency = idempotency(&headers, &body)?;
    let places = Places::of(&call);
    let message = message(&api, &call, &body, idempotency, &places).await?;
    drop(body);
    let taken = call.front.outbox.keep(message).await?;
    if taken.replayed {
        api.delivery.quotas.give_back_publish(call.app);
    }
    let response = json(StatusCode::ACCEPTED, &ReceiptBody::from(&taken));
    let mut response = mark_replayed(response, taken.replayed);
    response.extensions_mut().insert(taken.id);
    Ok(response)
}

/// `POST /v1/notifications/batch`
pub(crate) async fn batch(
    Shared(api): Shared<Api>,
    By(call, _): By<Publish>,
    headers: HeaderMap,
    NdjsonBody(body): NdjsonBody,
) -> Result<Lines, Problem> {
    let lines = lines(&body)?;
    let key = idempotency_key(&headers)?;
    let places = Places::of(&call);
    let mut answers = Lines::with_capacity(lines.len());
    for (chunk, first) in lines.chunks(COMMIT_MESSAGES_MAX).zip((0..).step_by(COMMIT_MESSAGES_MAX)) {
        let mut read = Vec::with_capacity(chunk.len());
        for (line, index) in chunk.iter().zip(first..) {
            let idempotency = key
                .map(|key| Idempotency { key: format!("{key}\n{index}").into(), body_hash: body_hash(line) });
            read.push(message(&api, &call, line, idempotency, &places).await);
        }
        let good = read.iter().filter_map(|line| line.as_ref().ok().cloned()).collect();
        let mut kept = outbox::keep_all(&call.front.cells, good).await.into_iter();
        let missing = || Problem::internal("the store answered too few lines");
        for line in read {
            match line.and_then(|_| kept.next().ok_or_else(missing)?) {
                Ok(taken) => {
                    if taken.replayed {
                        api.delivery.quotas.give_back_publish(call.app);
                    }
                    answers.push(&ReceiptBody::from(&taken))?;
                }
                Err(problem) => answers.push_problem(&problem)?,
            }
        }
    }
    Ok(answers)
}

/// The cells for messages that name no users or devices, and the cells whose outbox is full.
struct Places {
    everywhere: Arc<[CellNum]>,
    full: Arc<[CellNum]>,
}

impl Places {
    fn of(call: &Call) -> Self {
        let cells = &call.front.cells;
        Self { everywhere: cells.nums(), full: outbox::full(cells, call.app) }
    }
}

/// Validates a body and builds the message to store.
async fn message(
    api: &Api,
    call: &Call,
    body: &[u8],
    idempotency: Option<Idempotency>,
    places: &Places,
) -> Result<NewMessage, Problem> {
    #[derive(Deserialize)]
    struct To<'a> {
        #[serde(borrow)]
        to: &'a RawValue,
    }
    let request = body::notification(body, &api.config.limits, call.front.cells.state.now())?;
    if request.push.broadcast.is_some() {
        let rule = "a front broadcasts to no channel; send it to the cell that has the channel";
        return Err(Problem::new(Code::NotAtAFront, rule).at("push.broadcast"));
    }
    check_request(api, call.app, &request).await?;
    // Earlier than a cell would: a message that the cell rejects would wait in the outbox.
    api.delivery.quotas.take(call.app, Quota::PublishesPerSecond, 1)?;
    let summary = serde_json::to_string(&summary(&request)).map_err(Problem::internal)?;
    let to = match request.target {
        // Written separately for each cell.
        Target::Users(_) | Target::Devices(_) => "{}",
        _ => serde_json::from_slice::<To<'_>>(body).map_err(Problem::internal)?.to.get(),
    };
    let rest =
        splice(body, &["to"], &[]).ok_or_else(|| Problem::internal("a validated body is not an object"))?;
    Ok(NewMessage {
        id: outbox::new_id(),
        app: call.app,
        to: to.into(),
        body: rest.into(),
        summary: summary.into(),
        expires_at: request.expires_at(call.front.cells.state.now()),
        target: request.target,
        trace: call.trace,
        idempotency,
        everywhere: places.everywhere.clone(),
        full: places.full.clone(),
    })
}

fn summary(request: &Request) -> Summary {
    let (kind, topic, condition) = match &request.target {
        Target::Users(_) => ("users", None, None),
        Target::Devices(_) => ("devices", None, None),
        Target::Topic(topic) => ("topic", Some(topic.to_string()), None),
        Target::Condition(condition) => ("condition", None, Some(condition.to_string())),
        Target::Everyone => ("everyone", None, None),
    };
    Summary {
        when: request.when.as_str().to_owned(),
        urgency: request.urgency.as_str().to_owned(),
        target: TargetSummary { kind: kind.to_owned(), topic, condition },
        collapse_key: request.collapse_key.as_ref().map(|key| key.to_string()),
        category: request.category.as_ref().map(|category| category.name.to_string()),
        retain: request.retain,
    }
}

impl From<&Taken> for ReceiptBody {
    fn from(taken: &Taken) -> Self {
        Self { id: taken.id.to_string(), targets: taken.targets }
    }
}
