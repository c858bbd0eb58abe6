//! Users: revoked in every cell, because an app JWT may create its device in any cell.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::Problem;
use noroshi_api::parts::{Devices, Path, json, user_id};
use serde::{Deserialize, Serialize};

use super::By;
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
