//! What a front does not do: connections, and what belongs to each cell alone.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use noroshi_api::parts::{ConnectBody, Network, bearer};
use noroshi_api::{Code, Problem};
use noroshi_auth::{ClientNetwork, Credential, device_named};
use serde_json::{Value, json};

use super::Fronted;
use crate::front::Front;

/// `GET /v1/connect` and `GET /v1/events`: 421, with the address of the device's cell where the token tells it.
pub(crate) async fn connection(
    axum::Extension(front): Fronted,
    Network(client): Network,
    uri: Uri,
    headers: http::HeaderMap,
) -> Response {
    let token = bearer(&headers).ok().map(str::to_owned).or_else(|| query_token(&uri));
    let base = match token {
        Some(token) => cell_of(&front, &token, client).await,
        None => None,
    };
    let Some(base) = base else {
        let detail = "a front keeps no connections: register the device (POST /v1/devices), and connect to the \
                      addresses in `connect`";
        return Problem::new(Code::NotAtAFront, detail).into_response();
    };
    let problem = Problem::new(
        Code::NotAtAFront,
        format!("a front keeps no connections: the device's cell is at {base}"),
    );
    let mut body = serde_json::to_value(problem.body()).unwrap_or(Value::Null);
    body["connect"] = json!(ConnectBody::at(&base));
    let kind = HeaderValue::from_static("application/problem+json");
    (StatusCode::MISDIRECTED_REQUEST, [(header::CONTENT_TYPE, kind)], body.to_string()).into_response()
}

fn query_token(uri: &Uri) -> Option<String> {
    let found = uri.query()?.split('&').find_map(|pair| pair.strip_prefix("token="))?;
    percent_encoding::percent_decode_str(found).decode_utf8().ok().map(Into::into)
}

/// Where the device connects, as far as its token tells. Which cell somebody is in is no secret.
async fn cell_of(front: &Front, token: &str, client: Option<ClientNetwork>) -> Option<String> {
    let residences = match device_named(token) {
        Some(device) => front.store.residences(None, &device).await.ok()?,
        None => {
            let credential = Credential { token, app: None, client };
            let identity = front.state.auth.authenticate(credential, front.state.now()).await.ok()?;
            front.store.residences(Some(identity.app), &identity.device).await.ok()?
        }
    };
    let cell = front.cell(residences.first()?.cell).ok()?;
    let base = cell.config.public_url.as_ref().or(cell.config.urls.first())?;
    Some(base.trim_end_matches('/').to_owned())
}

pub(crate) async fn relay() -> Problem {
    Problem::new(Code::NotAtAFront, "a front hands on to cells and is no cell itself")
}

pub(crate) async fn push() -> Problem {
    let detail = "an endpoint is at the device's cell: post to the URL that the device was given";
    Problem::new(Code::NotAtAFront, detail)
}

pub(crate) async fn invalidations() -> Problem {
    Problem::new(
        Code::NotAtAFront,
        "each cell has its own list of void tokens, with its own positions: ask each",
    )
}

pub(crate) async fn campaigns() -> Problem {
    Problem::new(Code::NotAtAFront, "a campaign goes through the devices of one cell: make it in each cell")
}

pub(crate) async fn credentials() -> Problem {
    Problem::new(Code::NotAtAFront, "cells push, each with credentials of its own: give them to each cell")
}

pub(crate) async fn definitions() -> Problem {
    Problem::new(
        Code::NotAtAFront,
        "devices ask their cell for experiments and notices: make them in each cell",
    )
}
