//! One file per noun, as in the API: a handler finds out which cells are concerned, asks them, and puts their answers
//! together. Who asks and what a body may say is the API's ([`noroshi_api::parts`]).

pub(crate) mod admin;
pub(crate) mod devices;
pub(crate) mod me;
pub(crate) mod notifications;
pub(crate) mod presence;
pub(crate) mod publish;
pub(crate) mod refusal;
pub(crate) mod topics;
pub(crate) mod users;

use std::sync::Arc;

use futures_util::future::join_all;
use http::StatusCode;
use noroshi_api::Problem;
use noroshi_types::{AppId, TraceContext};

use crate::cell::Cell;
use crate::client::{Answer, Ask};
use crate::front::Front;

/// What handlers are given beside the API's own.
pub(crate) type Fronted = axum::Extension<Arc<Front>>;

/// One cell's answer to a request of the front; an app that the cell does not know yet is told and asked again once.
pub(crate) async fn ask(
    front: &Front,
    cell: &Cell,
    app: AppId,
    trace: Option<TraceContext>,
    make: impl Fn(http::HeaderValue) -> Ask,
) -> Result<Answer, Problem> {
    let key = front.key(cell, app)?;
    let answer = cell.request(Ask { trace, ..make(key.clone()) }).await?;
    if answer.status != StatusCode::UNAUTHORIZED {
        return Ok(answer);
    }
    cell.unprovisioned.notify_one();
    tokio::time::sleep(PROVISIONED_AFTER).await;
    let again = cell.request(Ask { trace, ..make(key) }).await?;
    match again.status {
        // The front's own key is nothing that a client could mend.
        StatusCode::UNAUTHORIZED => Err(cell.away()),
        _ => Ok(again),
    }
}

/// A cell is told of a new app within this time.
const PROVISIONED_AFTER: std::time::Duration = std::time::Duration::from_millis(700);

/// Several cells at once, answers in their order.
pub(crate) async fn ask_each(
    front: &Front,
    app: AppId,
    trace: Option<TraceContext>,
    asked: impl IntoIterator<Item = (Arc<Cell>, Ask)>,
) -> Vec<(Arc<Cell>, Result<Answer, Problem>)> {
    let asked = asked.into_iter().map(async |(cell, request)| {
        let answer = ask(front, &cell, app, trace, |bearer| Ask { bearer, ..request.clone() }).await;
        (cell, answer)
    });
    join_all(asked).await
}

/// Stands where [`ask`] puts the front's key.
pub(crate) fn no_key() -> http::HeaderValue {
    http::HeaderValue::from_static("")
}
