//! Users: revoked in every cell, because an app JWT may create its device in any cell. Their items and preferences are in
//! the cell of the user. A deletion goes to every cell, because a move leaves items in the former one.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{HeaderMap, Method, StatusCode, Uri};
use noroshi_api::parts::{Devices, JsonBody, Path, Read, json, user_id};
use noroshi_api::{Problem, body};
use noroshi_types::UserId;
use serde::{Deserialize, Serialize};

use super::me::{at, unchanged};
use super::{By, Call};
use crate::cell::Cell;
use crate::client::{CellRequest, escaped};

#[derive(Serialize, Deserialize)]
struct RevokedBody {
    user: String,
    devices: usize,
}

/// `POST /v1/users/{user}/revoke`: succeeds if every cell answers. Idempotent.
pub(crate) async fn revoke(By(call, _): By<Devices>, Path(user): Path<String>) -> Result<Response, Problem> {
    let user = user_id(&user)?;
    let request = CellRequest::post(format!("/v1/users/{}/revoke", escaped(user.as_str())), "{}");
    let mut devices = 0;
    for (cell, answer) in call.send_all(request).await {
        let answer = answer?;
        if answer.status != StatusCode::OK {
            return Ok(answer.into_response());
        }
        devices += answer.json::<RevokedBody>().map_err(|_| cell.away())?.devices;
    }
    Ok(json(StatusCode::OK, &RevokedBody { user: user.to_string(), devices }))
}

/// `GET /v1/users/{user}/items`, `GET /v1/users/{user}/items/counts`, `GET /v1/users/{user}/preferences`
pub(crate) async fn read(
    By(call, _): By<Read>,
    Path(user): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let home = home(&call, user_id(&user)?).await?;
    // Any cell answers for an unknown user: with nothing.
    let home = home.or_else(|| call.front.cells.iter().next().cloned());
    let home = home.ok_or_else(|| Problem::not_found("cell"))?;
    Ok(call.send(&home, at(&uri)).await?.into_response())
}

/// The present cell of a user. `None`: the user is unknown.
async fn home(call: &Call, user: UserId) -> Result<Option<Arc<Cell>>, Problem> {
    let cells = &call.front.cells;
    let found = cells.store.cells_of_users(call.app, vec![user], cells.state.now()).await?;
    // The first is the present one.
    let first = found.into_iter().flatten().next();
    first.map(|num| cells.get(num).cloned()).transpose()
}

/// `PUT /v1/users/{user}/preferences`: those of an unknown user go to every cell, because each may get the user's first
/// device. Idempotent.
pub(crate) async fn set_preferences(
    By(call, _): By<Devices>,
    Path(user): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    JsonBody(text): JsonBody,
) -> Result<Response, Problem> {
    body::preferences(&text)?;
    let request = unchanged(Method::PUT, &uri, &headers, &text);
    match home(&call, user_id(&user)?).await? {
        Some(home) => Ok(call.send(&home, request).await?.into_response()),
        None => in_every_cell(&call, request).await,
    }
}

/// `DELETE /v1/users/{user}/preferences`: succeeds if every cell answers. Idempotent.
pub(crate) async fn clear_preferences(
    By(call, _): By<Devices>,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    let path = format!("/v1/users/{}/preferences", escaped(user_id(&user)?.as_str()));
    in_every_cell(&call, CellRequest::delete(path)).await
}

/// The first failure, or the last answer.
async fn in_every_cell(call: &Call, request: CellRequest) -> Result<Response, Problem> {
    let mut last = None;
    for (_, answer) in call.send_all(request).await {
        let answer = answer?;
        if !answer.status.is_success() {
            return Ok(answer.into_response());
        }
        last = Some(answer);
    }
    last.map(IntoResponse::into_response).ok_or_else(|| Problem::not_found("cell"))
}

#[derive(Serialize, Deserialize)]
struct DeletedBody {
    deleted: u64,
}

/// `DELETE /v1/users/{user}/items`: succeeds if every cell answers. Idempotent.
pub(crate) async fn delete_items(
    By(call, _): By<Devices>,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    let path = format!("/v1/users/{}/items", escaped(user_id(&user)?.as_str()));
    let request = CellRequest { method: Method::DELETE, ..CellRequest::get(path) };
    let mut deleted = 0;
    for (cell, answer) in call.send_all(request).await {
        let answer = answer?;
        if answer.status != StatusCode::OK {
            return Ok(answer.into_response());
        }
        deleted += answer.json::<DeletedBody>().map_err(|_| cell.away())?.deleted;
    }
    Ok(json(StatusCode::OK, &DeletedBody { deleted }))
}
