//! Users: revoked in every cell, because an app JWT may create its device in any cell.

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::parts::{Devices, Path, Provider, Traced, json, user_id};
use noroshi_api::{Api, Problem};
use serde::{Deserialize, Serialize};

use super::{FrontExtension, no_key, send_each};
use crate::client::CellRequest;

#[derive(Serialize, Deserialize)]
struct RevokedBody {
    user: String,
    devices: usize,
}

/// `POST /v1/users/{user}/revoke`: succeeds if every cell answers. Idempotent.
pub(crate) async fn revoke(
    Shared(_): Shared<Api>,
    axum::Extension(front): FrontExtension,
    provider: Provider<Devices>,
    Traced(trace): Traced,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    let user = user_id(&user)?;
    let segment = percent_encoding::utf8_percent_encode(user.as_str(), percent_encoding::NON_ALPHANUMERIC);
    let request = CellRequest::post(
        format!("/v1/users/{segment}/revoke"),
        no_key(),
        front.cells.timeout(),
        CellRequest::JSON,
        "{}",
    );
    let requests = front.cells.iter().map(|cell| (cell.clone(), request.clone()));
    let mut devices = 0;
    for (cell, answer) in send_each(&front.cells, provider.app, trace, requests).await {
        let answer = answer?;
        if answer.status != StatusCode::OK {
            return Ok(answer.into_response());
        }
        devices += answer.json::<RevokedBody>().map_err(|_| cell.away())?.devices;
    }
    Ok(json(StatusCode::OK, &RevokedBody { user: user.to_string(), devices }))
}
