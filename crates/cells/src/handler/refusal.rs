//! Routes that a front rejects: connections, and what each cell manages separately.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use noroshi_api::parts::{ConnectBody, Network, bearer, named_app};
use noroshi_api::{Code, Problem};
use noroshi_auth::ClientNetwork;
use serde_json::{Value, json};

use super::FrontExtension;
use super::me::only_home;
use crate::front::Front;

/// `GET /v1/connect` and `GET /v1/events`: 421, with the address of the device's cell if the token reveals it.
pub(crate) async fn connection(
    axum::Extension(front): FrontExtension,
    Network(client): Network,
    uri: Uri,
    headers: http::HeaderMap,
) -> Response {
    let token = bearer(&headers).ok().map(str::to_owned).or_else(|| query_token(&uri));
    let base = match token {
        Some(token) => {
            let app = named_app(&uri, &headers, &front.cells.state);
            cell_of(&front, &token, app.as_deref(), client).await
        }
        None => None,
    };
    let Some(base) = base else {
        let detail = "a front accepts no device connections: register the device (POST /v1/devices) and connect to the \
                      addresses in `connect`";
        return Problem::new(Code::NotAtAFront, detail).into_response();
    };
    let problem = Problem::new(
        Code::NotAtAFront,
        format!("a front accepts no device connections: the device's cell is at {base}"),
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

/// Where the device connects, if its token reveals it. The cell of a device is not a secret.
async fn cell_of(
    front: &Front,
    token: &str,
    app: Option<&str>,
    client: Option<ClientNetwork>,
) -> Option<String> {
    let cell = front.cells.get(only_home(front, token, app, client).await?.cell).ok()?;
    let base = cell.config.public_url.as_ref().or(cell.config.urls.first())?;
    Some(base.trim_end_matches('/').to_owned())
}

pub(crate) async fn relay() -> Problem {
    Problem::new(Code::NotAtAFront, "a front forwards to cells and is not a cell itself")
}

pub(crate) async fn push() -> Problem {
    let detail = "an endpoint belongs to the device's cell: post to the URL that the device received";
    Problem::new(Code::NotAtAFront, detail)
}

pub(crate) async fn invalidations() -> Problem {
    Problem::new(
        Code::NotAtAFront,
        "each cell has its own list of invalidated tokens, with its own positions: query each cell",
    )
}

pub(crate) async fn notifications() -> Problem {
    let detail = "each cell lists the notifications that it has accepted, under its own ids: query each cell";
    Problem::new(Code::NotAtAFront, detail)
}

pub(crate) async fn channels() -> Problem {
    let detail = "a broadcast channel belongs to one cell, which sends to it: create it and send there";
    Problem::new(Code::NotAtAFront, detail)
}

pub(crate) async fn campaigns() -> Problem {
    Problem::new(Code::NotAtAFront, "a campaign covers the devices of one cell: create it in each cell")
}

pub(crate) async fn activities() -> Problem {
    Problem::new(Code::NotAtAFront, "an activity covers the devices of one cell: start it in each cell")
}

pub(crate) async fn credentials() -> Problem {
    Problem::new(Code::NotAtAFront, "each cell has its own push credentials: set them in each cell")
}

pub(crate) async fn series() -> Problem {
    Problem::new(Code::NotAtAFront, "each cell has its own time series: ask each cell")
}

pub(crate) async fn definitions() -> Problem {
    Problem::new(Code::NotAtAFront, "each cell has its own experiments and notices: create them in each cell")
}
