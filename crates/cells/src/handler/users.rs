//! Users: revoked in every cell, since an app JWT makes its device in whichever cell it comes to.

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use noroshi_api::parts::{Devices, Path, Provider, Traced, json, user_id};
use noroshi_api::{Api, Problem};
use serde::{Deserialize, Serialize};

use super::{Fronted, ask_each, no_key};
use crate::client::Ask;

#[derive(Serialize, Deserialize)]
struct RevokedBody {
    user: String,
    devices: usize,
}

/// `POST /v1/users/{user}/revoke`: done where every cell answers. Repeating it does no harm.
pub(crate) async fn revoke(
    Shared(_): Shared<Api>,
    axum::Extension(front): Fronted,
    provider: Provider<Devices>,
    Traced(trace): Traced,
    Path(user): Path<String>,
) -> Result<Response, Problem> {
    let user = user_id(&user)?;
    let segment = percent_encoding::utf8_percent_encode(user.as_str(), percent_encoding::NON_ALPHANUMERIC);
    let ask = Ask::post(format!("/v1/users/{segment}/revoke"), no_key(), front.timeout(), Ask::JSON, "{}");
    let asked = front.cells.iter().map(|cell| (cell.clone(), ask.clone()));
    let mut devices = 0;
    for (cell, answer) in ask_each(&front, provider.app, trace, asked).await {
        let answer = answer?;
        if answer.status != StatusCode::OK {
            return Ok(answer.into_response());
        }
        devices += answer.json::<RevokedBody>().map_err(|_| cell.away())?.devices;
    }
    Ok(json(StatusCode::OK, &RevokedBody { user: user.to_string(), devices }))
}
