//! The handlers, one file per noun, as in the API: a handler finds the cells concerned, sends requests to them, and
//! merges their answers. The API authenticates callers and validates bodies ([`noroshi_api::parts`]).

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
use crate::cell_set::CellSet;
use crate::client::{CellRequest, CellResponse};
use crate::front::Front;

/// The extension through which handlers reach the front.
pub(crate) type FrontExtension = axum::Extension<Arc<Front>>;

/// Sends one request to a cell with the front's key. If the cell does not know the app yet, provisions it and retries
/// once.
pub(crate) async fn send(
    cells: &CellSet,
    cell: &Cell,
    app: AppId,
    trace: Option<TraceContext>,
    make: impl Fn(http::HeaderValue) -> CellRequest,
) -> Result<CellResponse, Problem> {
    let key = cells.key(cell, app)?;
    let answer = cell.send_if_up(CellRequest { trace, ..make(key.clone()) }).await?;
    if answer.status != StatusCode::UNAUTHORIZED {
        return Ok(answer);
    }
    cell.unprovisioned.notify_one();
    tokio::time::sleep(PROVISIONED_AFTER).await;
    let again = cell.send_if_up(CellRequest { trace, ..make(key) }).await?;
    match again.status {
        // The client cannot fix the front's own key.
        StatusCode::UNAUTHORIZED => Err(cell.away()),
        _ => Ok(again),
    }
}

/// A cell learns of a new app within this time.
const PROVISIONED_AFTER: std::time::Duration = std::time::Duration::from_millis(700);

/// Sends to several cells concurrently. Answers in order.
pub(crate) async fn send_each(
    cells: &CellSet,
    app: AppId,
    trace: Option<TraceContext>,
    requests: impl IntoIterator<Item = (Arc<Cell>, CellRequest)>,
) -> Vec<(Arc<Cell>, Result<CellResponse, Problem>)> {
    let requests = requests.into_iter().map(async |(cell, request)| {
        let answer = send(cells, &cell, app, trace, |bearer| CellRequest { bearer, ..request.clone() }).await;
        (cell, answer)
    });
    join_all(requests).await
}

/// A placeholder that [`send`] replaces with the front's key.
pub(crate) fn no_key() -> http::HeaderValue {
    http::HeaderValue::from_static("")
}
