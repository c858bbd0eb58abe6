//! Users: revoked in every cell, because an app JWT may create its device in any cell. Their items are in the cell of
//! the user. A deletion goes to every cell, because a move leaves items in the former one.

use axum::response::{IntoResponse, Response};
use http::{Method, StatusCode, Uri};
use noroshi_api::Problem;
use noroshi_api::parts::{Devices, Path, Read, json, user_id};
use serde::{Deserialize, Serialize};

use super::By;
use super::me::at;
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

/// `GET /v1/users/{user}/items`, `GET /v1/users/{user}/items/counts`
pub(crate) async fn items(
    By(call, _): By<Read>,
    Path(user): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    let cells = &call.front.cells;
    let found = cells.store.cells_of_users(call.app, vec![user_id(&user)?], cells.state.now()).await?;
    // The first is the present one. Any cell answers for an unknown user: with nothing.
    let home = match found.into_iter().flatten().next() {
        Some(num) => Some(cells.get(num)?),
        None => cells.iter().next(),
    };
    let home = home.ok_or_else(|| Problem::not_found("cell"))?;
    Ok(call.send(home, at(&uri)).await?.into_response())
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
