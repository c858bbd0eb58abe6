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

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRequestParts;
use futures_util::future::join_all;
use http::StatusCode;
use http::request::Parts;
use noroshi_api::parts::{Needs, Provider, Traced};
use noroshi_api::{Api, Problem};
use noroshi_types::{AppId, TraceContext};

use crate::cell::Cell;
use crate::client::{CellRequest, CellResponse};
use crate::front::Front;

/// A cell learns of a new app within this time.
const PROVISIONED_AFTER: Duration = Duration::from_millis(700);

/// The extension through which handlers reach the front.
pub(crate) type FrontExtension = axum::Extension<Arc<Front>>;

/// A request for an app, and the front that serves it.
pub(crate) struct Call {
    pub(crate) front: Arc<Front>,
    pub(crate) app: AppId,
    pub(crate) trace: Option<TraceContext>,
}

/// A request with an API key that has the scope `N`.
pub(crate) struct By<N>(pub(crate) Call, PhantomData<N>);

impl<N: Needs> FromRequestParts<Api> for By<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let front = front(parts)?;
        let app = Provider::<N>::from_request_parts(parts, api).await?.app;
        let Ok(Traced(trace)) = Traced::from_request_parts(parts, api).await;
        Ok(Self(Call { front, app, trace }, PhantomData))
    }
}

fn front(parts: &Parts) -> Result<Arc<Front>, Problem> {
    parts.extensions.get::<Arc<Front>>().cloned().ok_or_else(|| Problem::internal("no front"))
}

impl Call {
    /// Sends one request to a cell with the front's key. If the cell does not know the app yet, provisions it and retries
    /// once.
    pub(crate) async fn send(&self, cell: &Cell, request: CellRequest) -> Result<CellResponse, Problem> {
        let bearer = self.front.cells.key(cell, self.app)?;
        let request = CellRequest { trace: self.trace, bearer, ..request };
        let answer = cell.send_if_up(request.clone()).await?;
        if answer.status != StatusCode::UNAUTHORIZED {
            return Ok(answer);
        }
        cell.unprovisioned.notify_one();
        tokio::time::sleep(PROVISIONED_AFTER).await;
        let again = cell.send_if_up(request).await?;
        match again.status {
            // The client cannot fix the front's own key.
            StatusCode::UNAUTHORIZED => Err(cell.away()),
            _ => Ok(again),
        }
    }

    /// Sends to several cells concurrently. Answers in order.
    pub(crate) async fn send_each(
        &self,
        requests: impl IntoIterator<Item = (Arc<Cell>, CellRequest)>,
    ) -> Vec<(Arc<Cell>, Result<CellResponse, Problem>)> {
        let requests = requests.into_iter().map(async |(cell, request)| {
            let answer = self.send(&cell, request).await;
            (cell, answer)
        });
        join_all(requests).await
    }

    /// Sends the same request to all cells concurrently. Answers in the order of the configuration.
    pub(crate) async fn send_all(
        &self,
        request: CellRequest,
    ) -> Vec<(Arc<Cell>, Result<CellResponse, Problem>)> {
        self.send_each(self.front.cells.iter().map(|cell| (cell.clone(), request.clone()))).await
    }
}
