//! The document and the pages that come with the binary. They load nothing from anywhere else, and
//! their content security policy says so.

use axum::extract::State as Shared;
use axum::response::{IntoResponse, Redirect, Response};
use http::header;

use crate::document;
use crate::state::{Api, Door};

/// `GET /`
pub(crate) async fn root() -> Redirect {
    Redirect::temporary("/docs")
}

/// `GET /openapi.json`
pub(crate) async fn openapi(Shared(api): Shared<Api>) -> Response {
    let text = match api.door {
        Door::Public => document::public(),
        Door::Admin => document::admin(),
    };
    ([(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-cache")], text).into_response()
}

/// `GET /docs`
pub(crate) async fn docs() -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, document::PAGE_POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    (headers, document::page()).into_response()
}
